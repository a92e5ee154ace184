//! Draws the screen of `surus top`.

use std::cmp::Reverse;
use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table, Wrap};

use super::plain;
use crate::cli::status::duration;
use crate::observe::printable::printable;
use crate::observe::snapshot::{PoolSnapshot, Snapshot};
use crate::observe::status::{WorkerState, WorkerStatus};

/// Seconds of the curve.
const HISTORY: usize = 300;

/// The widest column of pools. It is narrower on a screen where requests would have no room.
const MAX_POOL_WIDTH: usize = 24;

/// The order of workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Those with requests first, then by the time in their state.
    #[default]
    Time,
    Pid,
    Served,
    Memory,
}

#[derive(Default)]
pub struct View {
    now: Option<Snapshot>,
    rates: VecDeque<u64>,
    order: Order,
    /// Workers above the first visible one.
    above: usize,
}

impl View {
    pub fn add(&mut self, snapshot: Snapshot) {
        if let Some(rate) = snapshot.requests_per_second {
            self.rates.push_back(rate.round() as u64);
        }
        if self.rates.len() > HISTORY {
            self.rates.pop_front();
        }
        self.now = Some(snapshot);
    }

    pub fn sort(&mut self, order: Order) {
        self.order = order;
        self.above = 0;
    }

    pub fn scroll(&mut self, by: isize) {
        self.above = self.above.saturating_add_signed(by);
    }

    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let Some(now) = self.now.take() else {
            frame.render_widget(Paragraph::new("waiting for the server"), area);
            return;
        };
        let curve = if area.height >= 24 { 4 } else { 0 };
        let below = if area.height >= 18 {
            area.height / 3
        } else {
            0
        };
        let pools = pool_lines(&now, usize::from(area.height / 6));
        let head = pools.len().max(1) as u16 + 2;
        let [head, curve, workers, below, keys] = Layout::vertical([
            Constraint::Length(head),
            Constraint::Length(curve),
            Constraint::Min(3),
            Constraint::Length(below),
            Constraint::Length(1),
        ])
        .areas(area);
        draw_head(frame, head, &now, &pools);
        self.draw_curve(frame, curve);
        self.draw_workers(frame, workers, &now);
        draw_lists(frame, below, &now);
        draw_keys(frame, keys, self.order);
        self.now = Some(now);
    }

    fn draw_curve(&self, frame: &mut Frame<'_>, area: Rect) {
        if area.is_empty() {
            return;
        }
        let shown = self.rates.len().saturating_sub(usize::from(area.width));
        let rates: Vec<u64> = self.rates.iter().skip(shown).copied().collect();
        let most = rates.iter().max().copied().unwrap_or(0);
        let block = block(format!("requests/s, at most {most}"));
        let curve = Sparkline::default()
            .data(rates)
            .style(Style::new().fg(Color::Blue));
        frame.render_widget(curve.block(block), area);
    }

    fn draw_workers(&mut self, frame: &mut Frame<'_>, area: Rect, now: &Snapshot) {
        let mut workers: Vec<(&PoolSnapshot, &WorkerStatus)> = Vec::new();
        for pool in &now.pools {
            workers.extend(pool.workers.iter().map(|worker| (pool, worker)));
        }
        match self.order {
            Order::Time => workers
                .sort_by_key(|(_, worker)| (worker.request.is_none(), Reverse(worker.for_ms))),
            Order::Pid => workers.sort_by_key(|(_, worker)| worker.pid),
            Order::Served => workers.sort_by_key(|(_, worker)| Reverse(worker.served)),
            Order::Memory => workers.sort_by_key(|(_, worker)| Reverse(worker.memory)),
        }
        let visible = usize::from(area.height.saturating_sub(2));
        let names = now.pools.iter().map(|pool| pool.engine.chars().count());
        let widest = usize::from(area.width / 5).clamp("POOL".len(), MAX_POOL_WIDTH);
        let pool_width = names.max().unwrap_or(0).clamp("POOL".len(), widest);
        self.above = self.above.min(workers.len().saturating_sub(visible));
        let rows = workers
            .iter()
            .skip(self.above)
            .take(visible)
            .map(|(pool, worker)| {
                let request = worker.request.as_deref().unwrap_or_default();
                Row::new([
                    format!("{:>8}", worker.pid),
                    shortened(&pool.engine, pool_width),
                    plain::state(worker.state).to_owned(),
                    format!("{:>8}", duration(worker.for_ms)),
                    format!("{:>9}", worker.served),
                    format!("{:>9}", plain::memory(worker.memory)),
                    printable(request).into_owned(),
                ])
                .style(color(worker.state))
            });
        let widths = [8, pool_width as u16, 9, 8, 9, 9].map(Constraint::Length);
        let widths = widths.into_iter().chain([Constraint::Fill(1)]);
        let titles = [
            "     PID",
            "POOL",
            "STATE",
            "     FOR",
            "   SERVED",
            "   MEMORY",
            "REQUEST",
        ];
        let header = Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD));
        let unlisted: usize = now.pools.iter().map(plain::unlisted).sum();
        let title = match (self.above, unlisted) {
            (0, 0) => "workers".to_owned(),
            (above, 0) => format!("workers ({above} above)"),
            (0, more) => format!("workers ({more} more are not listed)"),
            (above, more) => format!("workers ({above} above, {more} more are not listed)"),
        };
        let table = Table::new(rows, widths).header(header).block(block(title));
        frame.render_widget(table, area);
    }
}

fn color(state: WorkerState) -> Style {
    match state {
        WorkerState::Busy => Style::new().fg(Color::Green),
        WorkerState::Finishing => Style::new().fg(Color::Yellow),
        WorkerState::Starting | WorkerState::Idle => Style::new(),
    }
}

fn block(title: String) -> Block<'static> {
    Block::new()
        .borders(Borders::TOP)
        .border_style(Style::new().add_modifier(Modifier::DIM))
        .title(title)
}

/// A line for each pool. Pools with waiting requests, or served by another engine, come first. The
/// last of at most `limit` lines counts those that are left out.
fn pool_lines(now: &Snapshot, limit: usize) -> Vec<String> {
    let mut pools: Vec<_> = now.pools.iter().collect();
    pools.sort_by_key(|pool| pool.queued == 0 && pool.instead.is_none());
    let limit = limit.max(1);
    let mut lines: Vec<_> = pools.into_iter().map(plain::heading).collect();
    if lines.len() > limit {
        let more = lines.len() - (limit - 1).max(1);
        lines.truncate(limit);
        match limit {
            1 => lines[0] = format!("{} (and {more} more)", lines[0]),
            _ => lines[limit - 1] = format!("and {more} more"),
        }
    }
    lines
}

/// Cuts the middle of a name that is wider: its beginning names the site, its end the engine.
fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(1);
    let begin: String = name.chars().take(kept / 2).collect();
    let end: String = name.chars().skip(length - kept.div_ceil(2)).collect();
    format!("{begin}…{end}")
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, now: &Snapshot, pools: &[String]) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let version = format!("surus {}", now.version);
    let indent = " ".repeat(version.chars().count());
    let (first, others) = match pools.split_first() {
        Some((first, others)) => (first.as_str(), others),
        None => ("", pools),
    };
    let mut lines = vec![Line::from(vec![
        Span::styled(version, bold),
        Span::raw(format!("  {first}")),
    ])];
    lines.extend(
        others
            .iter()
            .map(|pool| Line::raw(format!("{indent}  {pool}"))),
    );
    // Both lines usually have room on 80 columns.
    let summary = plain::summary(now);
    for part in [&summary[..3], &summary[3..]] {
        let spans = part.iter().flat_map(|(name, value)| {
            [
                Span::raw(format!("{name} ")),
                Span::styled(format!("{value}   "), bold),
            ]
        });
        lines.push(Line::from(spans.collect::<Vec<_>>()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_lists(frame: &mut Frame<'_>, area: Rect, now: &Snapshot) {
    if area.is_empty() {
        return;
    }
    let mut counts = plain::sites(now);
    counts.extend(plain::missing_certificates(now));
    counts.extend(plain::errors(now));
    counts.extend(plain::exits(now));
    counts.extend(plain::served_certificates(now));
    let lists = [
        ("slowest requests", plain::slowest(now), false),
        ("problems, worker exits, certificates", counts, true),
    ];
    let areas = match area.width {
        0..90 => Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]),
        _ => Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).spacing(2),
    };
    for ((title, lines, wraps), area) in lists.into_iter().zip(&*areas.split(area)) {
        let lines: Vec<_> = lines
            .iter()
            .map(|line| Line::raw(printable(line)))
            .collect();
        let mut list = Paragraph::new(lines).block(block(title.into()));
        if wraps {
            // Reasons and names of hosts are longer than the column.
            list = list.wrap(Wrap { trim: false });
        }
        frame.render_widget(list, *area);
    }
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, order: Order) {
    let mut spans = vec![Span::raw("q quit   sort by ")];
    for (key, name, by) in [
        ("t", "time", Order::Time),
        ("p", "pid", Order::Pid),
        ("s", "served", Order::Served),
        ("m", "memory", Order::Memory),
    ] {
        let style = match by == order {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        spans.push(Span::styled(format!("{key} {name}"), style));
        spans.push(Span::raw("  "));
    }
    spans.push(Span::raw(" up, down scroll"));
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::cli::top::plain::tests::snapshot;

    fn drawn(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn screen_shows_every_part_and_no_control_characters() {
        let mut view = View::default();
        assert!(drawn(&mut view, 80, 24).contains("waiting for the server"));
        view.add(snapshot());
        let screen = drawn(&mut view, 120, 30);
        for part in [
            "requests/s 1234",
            "classic: PHP 8.2.35",
            "GET /slow?\\u001b[2J",
            "504  GET /report",
            "sleep(99)",
            "replaced_thread",
            "example.org",
            "q quit",
        ] {
            assert!(screen.contains(part), "{part} is not in\n{screen}");
        }
        assert!(!screen.contains('\u{1b}'));
    }

    #[test]
    fn ends_of_certificates_are_visible_at_100_columns() {
        let mut view = View::default();
        view.add(snapshot());
        let screen = drawn(&mut view, 100, 40);
        for part in [
            "ends in 62 days: example.org,",
            "www.example.org",
            "no certificate: shop.example",
            "no such domain",
        ] {
            assert!(screen.contains(part), "{part} is not in\n{screen}");
        }
    }

    /// Three sites of one engine. Requests of the second wait, the third is served by another one.
    fn sites() -> Snapshot {
        let mut now = snapshot();
        now.pools[0].workers.truncate(1);
        let pool = |name: &str, queued, instead: Option<&str>| PoolSnapshot {
            engine: name.into(),
            instead: instead.map(Into::into),
            queued,
            ..now.pools[0].clone()
        };
        now.pools = vec![
            pool("shop/rewind", 0, None),
            pool("blog/rewind", 7, None),
            pool("a-very-long-name-of-a-site/rewind", 0, Some("classic")),
        ];
        now
    }

    #[test]
    fn pools_of_three_sites_can_be_told_apart() {
        let mut view = View::default();
        view.add(sites());
        let screen = drawn(&mut view, 120, 24);
        let at = |part: &str| {
            let found = screen.find(part);
            found.unwrap_or_else(|| panic!("{part} is not in\n{screen}"))
        };
        let waiting = at("  blog/rewind: PHP 8.2.35, generation 1, 7 waiting");
        let replaced = at("  a-very-long-name-of-a-site/rewind (served by classic): PHP");
        assert!(waiting < replaced && replaced < at("  shop/rewind: PHP"));
        for name in ["shop/rewind", "blog/rewind", "a-very-long…-site/rewind"] {
            at(&format!(
                " {name} {}busy",
                " ".repeat(24 - name.chars().count())
            ));
        }
        at("no certificate yet: new.example");
        at("no certificate: shop.example");
    }

    #[test]
    fn requests_and_waiting_ones_are_visible_at_80_columns() {
        let mut view = View::default();
        view.add(sites());
        let screen = drawn(&mut view, 80, 24);
        for part in ["a-very-…e/rewind busy", " GET /slow?", "waiting 7   memory"] {
            assert!(screen.contains(part), "{part} is not in\n{screen}");
        }
    }

    #[test]
    fn pools_beyond_the_limit_are_counted() {
        let now = sites();
        let begin = |lines: Vec<String>| {
            let cut = |line: String| line.split(':').next().unwrap().to_owned();
            lines.into_iter().map(cut).collect::<Vec<_>>()
        };
        assert_eq!(begin(pool_lines(&now, 3)).len(), 3);
        assert_eq!(begin(pool_lines(&now, 2)), ["blog/rewind", "and 2 more"]);
        let single = pool_lines(&now, 0);
        assert!(single.len() == 1 && single[0].ends_with("(and 2 more)"));
    }

    #[test]
    fn workers_that_are_not_listed_are_counted() {
        let mut view = View::default();
        view.add(snapshot());
        let screen = drawn(&mut view, 80, 24);
        assert!(!screen.contains("not listed"), "{screen}");
        // Each of the three pools has two and lists one.
        view.add(sites());
        let screen = drawn(&mut view, 80, 24);
        assert!(screen.contains("(3 more are not listed)"), "{screen}");
    }

    #[test]
    fn workers_are_sorted_by_the_chosen_key() {
        let mut view = View::default();
        view.add(snapshot());
        let first_is = |view: &mut View, pid: &str, other: &str| {
            let screen = drawn(view, 100, 30);
            let at = |pid: &str| screen.find(&format!("      {pid} ")).unwrap();
            assert!(at(pid) < at(other), "{screen}");
        };
        first_is(&mut view, "21", "12");
        view.sort(Order::Pid);
        first_is(&mut view, "12", "21");
        view.sort(Order::Memory);
        first_is(&mut view, "21", "12");
    }

    #[test]
    fn every_size_of_the_terminal_can_be_drawn() {
        let mut view = View::default();
        view.add(snapshot());
        view.scroll(1000);
        for (width, height) in [(1, 1), (5, 3), (40, 8), (80, 18), (300, 100)] {
            drawn(&mut view, width, height);
        }
        view.scroll(-1);
        drawn(&mut view, 40, 8);
    }
}
