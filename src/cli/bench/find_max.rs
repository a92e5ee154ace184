//! `surus bench --find-max`: searches the highest rate that keeps a bound on the latency.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::bail;
use surus_load::{FindMax, Pace, RunOutcome, Schedule};
use surus_measure::{Cell, Chart, Latencies, Line, Machine, Measured, Report, Row, Scale};
use surus_measure::{Table, Unit, Usage};

use super::{Run, interrupt, measuring, notes, tables};

/// Most rates that are tried.
const ATTEMPTS: usize = 14;

/// A rate that was tried.
struct Tried {
    /// What was offered, in requests per second.
    offered: f64,
    outcome: RunOutcome,
    /// Missing if the server's processes were not found.
    usage: Option<Usage>,
    holds: bool,
}

pub fn run(args: &Run, urls: &[String], bound: Duration) -> anyhow::Result<()> {
    let duration = args.duration.unwrap_or(Duration::from_secs(5));
    let mut plan = args.load.plan(urls, args.file.as_ref(), duration)?;
    let load = args
        .load
        .describe_with(&plan, "open loop at the rates below");
    interrupt::remember()?;
    let page = args.output.open()?;
    measuring::warm_up(&plan, args.load.warm_up)?;
    // The rate of a closed loop is near the highest one, also of a server that sheds load.
    let closed = measuring::measure(&plan, &args.pids, true)?.outcome;
    if closed.is_interrupted {
        bail!("interrupted while searching the highest rate");
    }
    let mut search = FindMax::new(closed.rate(), ATTEMPTS);
    let mut tried: Vec<Tried> = Vec::new();
    let mut is_interrupted = false;
    let mut was_generator_limited = closed.is_generator_limited();
    let mut failure = match closed.totals.requests == closed.totals.failed() {
        true => super::failure(&closed),
        false => None,
    };
    while let (None, Some(rate)) = (&failure, search.next_rate()) {
        plan.pace = Pace::Open(Schedule::constant(rate));
        let result = measuring::measure(&plan, &args.pids, true)?;
        let outcome = result.outcome;
        if outcome.is_interrupted {
            if tried.is_empty() {
                bail!("interrupted while searching the highest rate");
            }
            is_interrupted = true;
            break;
        }
        let holds = holds(&outcome, rate, bound);
        search.record(rate, holds);
        let is_repeated = search.next_rate() == Some(rate);
        super::progress::line(&format!(
            "{rate:.0}/s: p99 {:.2} ms, {}{}",
            outcome.latencies.percentile_ms(99.0),
            verdict(holds),
            if is_repeated { "; once more" } else { "" }
        ));
        was_generator_limited |= !holds && !is_repeated && outcome.is_generator_limited();
        // A repetition takes the place of the first attempt, unless it is interrupted.
        tried.retain(|it| it.offered != rate);
        tried.push(Tried {
            offered: rate,
            outcome,
            usage: result.usage,
            holds,
        });
    }
    tried.sort_by(|a, b| a.offered.total_cmp(&b.offered));
    let best = search.best();
    let best = best.and_then(|best| tried.iter().find(|tried| tried.offered == best));
    let bound_ms = bound.as_secs_f64() * 1000.0;
    if failure.is_none() && best.is_none() && !is_interrupted {
        failure = Some(no_rate_holds(&tried, bound_ms));
    }
    let mut notes = Vec::new();
    if is_interrupted {
        notes.push("the search was interrupted; the highest rate may be another".to_string());
    }
    if was_generator_limited {
        let limit = "the load generator was the limit of some runs; the server may do more";
        notes.push(limit.to_string());
    }
    notes.extend(connections_limit(&tried, plan.concurrency));
    notes.extend(notes::redirected(&statuses(&tried)));
    let usages: Vec<_> = tried.iter().map(|it| it.usage.as_ref()).collect();
    notes.extend(notes::of_rates(&usages));
    let report = Report {
        title: format!("{} --find-max", super::title(urls, args.file.as_ref())),
        subtitle: format!("99 % of the requests within {bound_ms} ms; {load}"),
        machine: Machine::this(),
        failure: failure.clone(),
        notes,
        tables: tables(&tried, best, bound_ms),
        charts: charts(&tried, best, bound_ms),
        bars: Vec::new(),
        advice: None,
    };
    args.output.print(&report, page)?;
    if is_interrupted {
        bail!(
            "interrupted while searching the highest rate; the report is of {} rates",
            tried.len()
        );
    }
    match failure {
        Some(what) => bail!(what),
        None => Ok(()),
    }
}

/// Says what stood in the way of the lowest rate that was tried.
fn no_rate_holds(tried: &[Tried], bound_ms: f64) -> String {
    let Some(lowest) = tried.first() else {
        return "no rate was tried".into();
    };
    let mut text = format!(
        "no rate that was tried keeps 99 % of the requests within {bound_ms} ms; at the lowest, \
         {}, p99 was {}",
        Unit::PerSecond.write(lowest.offered),
        Unit::Ms.write(lowest.outcome.latencies.percentile_ms(99.0))
    );
    if let Some(what) = super::failure(&lowest.outcome) {
        text.push_str(&format!(", and {what}"));
    }
    text
}

/// A note if the lowest rate that missed had requests for which no connection was free. More
/// connections may then keep it.
fn connections_limit(tried: &[Tried], connections: usize) -> Option<String> {
    let missed = tried.iter().find(|tried| !tried.holds)?;
    let unsent = missed.outcome.offered?.unsent;
    let all = notes::all_wait(connections);
    (unsent > 0 && !missed.outcome.is_generator_limited()).then(|| {
        format!(
            "at {}, {unsent} requests were never sent because {all}; with more connections, the \
             server may do more",
            Unit::PerSecond.write(missed.offered)
        )
    })
}

fn verdict(holds: bool) -> &'static str {
    if holds { "kept" } else { "missed" }
}

/// Responses at all rates, by status.
fn statuses(tried: &[Tried]) -> BTreeMap<u16, u64> {
    let mut all: BTreeMap<u16, u64> = BTreeMap::new();
    for (status, count) in tried.iter().flat_map(|it| &it.outcome.totals.statuses) {
        *all.entry(*status).or_default() += *count;
    }
    all
}

fn tables(tried: &[Tried], best: Option<&Tried>, bound_ms: f64) -> Vec<Table> {
    if tried.is_empty() {
        return Vec::new();
    }
    // The offered rate is a choice; the rate of responses is measured.
    let best = match best {
        Some(best) => {
            let offered = Unit::PerSecond.write(best.offered);
            let label = format!("responses with {offered} offered, the highest rate that kept it");
            Row::once(
                &key(best.offered),
                &label,
                best.outcome.rate(),
                Unit::PerSecond,
            )
        }
        None => Row::new(
            "none",
            "highest rate that kept it",
            vec![Cell::missing("none")],
        ),
    };
    let highest = Table {
        key: "highest".into(),
        title: format!("Bound: 99 % of the requests within {bound_ms} ms"),
        columns: vec![String::new()],
        rows: vec![best],
    };
    let mut tables = vec![highest, attempts(tried)];
    let statuses = statuses(tried);
    if tables::is_notable(&statuses) {
        tables.push(tables::statuses(&[""], &[&statuses]));
    }
    tables
}

/// A row per rate. Without the server's processes, it has no columns of them.
fn attempts(tried: &[Tried]) -> Table {
    let server = server_names(tried);
    let mut columns = vec!["responses", "p50", "p99", "failed", "never sent", "bound"];
    if server.is_some() {
        columns.splice(0..1, ["responses", "CPU per request", "memory"]);
    }
    Table {
        key: "attempts".into(),
        title: match &server {
            Some(names) => format!("Offered rates; server: {names}, with descendants"),
            None => "Offered rates".into(),
        },
        columns: columns.into_iter().map(String::from).collect(),
        rows: tried.iter().map(|it| row(it, server.is_some())).collect(),
    }
}

/// The server's processes at all rates: a server that restarts has others. None if none was found.
fn server_names(tried: &[Tried]) -> Option<String> {
    let usages = tried.iter().filter_map(|it| it.usage.as_ref());
    let roots = usages.flat_map(|usage| usage.pids.iter().zip(&usage.programs));
    let mut seen = BTreeSet::new();
    let new = roots.filter(|(pid, _)| seen.insert(**pid));
    let names = new.map(|(pid, program)| format!("{program} ({pid})"));
    let names: Vec<_> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Latency and responses by rate, and the latencies of the best.
fn charts(tried: &[Tried], best: Option<&Tried>, bound_ms: f64) -> Vec<Chart> {
    let line = |name: &str, of: &dyn Fn(&Tried) -> f64| Line {
        name: name.into(),
        points: tried.iter().map(|it| (it.offered, of(it))).collect(),
    };
    let percentile = |percent| {
        move |it: &Tried| {
            let latencies: &Latencies = &it.outcome.latencies;
            latencies.percentile_ms(percent)
        }
    };
    let by_rate = |title: &str, y, y_scale, lines| Chart {
        title: title.into(),
        x: "requests/s offered".into(),
        scale: Scale::Linear,
        y,
        y_scale,
        lines,
    };
    let mut charts = vec![
        by_rate(
            "Latency by offered rate",
            Unit::Ms,
            Scale::Tens,
            vec![
                line("p50", &percentile(50.0)),
                line("p99", &percentile(99.0)),
                line("bound", &|_| bound_ms),
            ],
        ),
        by_rate(
            "Responses by offered rate",
            Unit::PerSecond,
            Scale::Linear,
            vec![
                line("expected", &|it| it.outcome.rate()),
                line("offered", &|it| it.offered),
            ],
        ),
    ];
    if let Some(best) = best {
        charts.push(Chart {
            title: format!(
                "Latency by percentile at {}",
                Unit::PerSecond.write(best.offered)
            ),
            x: "requests that were at least this fast".into(),
            scale: Scale::Nines,
            y: Unit::Ms,
            y_scale: Scale::Linear,
            lines: vec![Line {
                name: "latency".into(),
                points: best.outcome.latencies.curve(),
            }],
        });
    }
    charts.retain(|chart| !chart.is_empty());
    charts
}

/// A rate keeps the bound if no request failed, and 99 % of those that were due had their response
/// within it.
fn holds(outcome: &RunOutcome, rate: f64, bound: Duration) -> bool {
    let (due, unsent) = outcome
        .offered
        .map_or((outcome.totals.requests, 0), |offered| {
            (offered.due, offered.unsent)
        });
    // A request that was never sent counts as slow, even if the run ended before its bound did.
    let young = unsent.min((rate * bound.as_secs_f64()).ceil() as u64);
    let slow = outcome.latencies.count_above(bound) + young;
    outcome.totals.failed() == 0 && slow * 100 <= due
}

/// An offered rate as a key of JSON.
fn key(rate: f64) -> String {
    format!("{rate:.3}")
}

fn row(tried: &Tried, has_server: bool) -> Row {
    let (rate, outcome) = (tried.offered, &tried.outcome);
    let cell = |value, unit| Cell::measured(Measured::once(value, unit));
    let latencies = &outcome.latencies;
    let unsent = outcome.offered.map_or(0, |offered| offered.unsent);
    let verdict = verdict(tried.holds);
    let mut cells = vec![cell(outcome.rate(), Unit::PerSecond)];
    if has_server {
        cells.extend(server(tried));
    }
    cells.extend([
        cell(latencies.percentile_ms(50.0), Unit::Ms),
        cell(latencies.percentile_ms(99.0), Unit::Ms),
        cell(outcome.totals.failed() as f64, Unit::Count),
        cell(unsent as f64, Unit::Count),
        Cell::Verdict { verdict },
    ]);
    Row::new(&key(rate), &Unit::PerSecond.write(rate), cells)
}

/// CPU time per request and the highest memory, or in a word why they are missing.
fn server(tried: &Tried) -> [Cell; 2] {
    let Some(usage) = &tried.usage else {
        return ["not found", "not found"].map(Cell::missing);
    };
    let cell = |value, unit| Cell::measured(Measured::once(value, unit));
    let cpu = match usage.cpu_per(tried.outcome.totals.requests) {
        Some(cpu) => cell(cpu, Unit::Us),
        None if !usage.ended.is_empty() => Cell::missing("ended"),
        None => Cell::missing("too little"),
    };
    let memory = usage.peak_pss();
    let memory = memory.map(|bytes| cell(bytes as f64, Unit::Bytes));
    [cpu, memory.unwrap_or_else(|| Cell::missing("not readable"))]
}

#[cfg(test)]
mod tests {
    use surus_load::{Offered, Totals};
    use surus_measure::{Recorder, probe};

    use super::*;

    /// A run of 1000 due requests in a second. Those that were never sent were due in its last 10
    /// ms.
    fn outcome(slow: u64, unsent: u64) -> RunOutcome {
        let mut recorder = Recorder::new(false);
        let responses = 1000 - unsent;
        for number in 0..responses {
            let latency = Duration::from_millis(if number < slow { 50 } else { 1 });
            recorder.response(Duration::ZERO, latency, 0);
        }
        if unsent > 0 {
            recorder.unanswered(Duration::from_millis(10), unsent);
        }
        RunOutcome {
            elapsed: Duration::from_secs(1),
            totals: Totals {
                requests: responses,
                responses,
                ..Totals::default()
            },
            latencies: recorder.finish(Duration::from_secs(1)),
            offered: Some(Offered {
                due: 1000,
                unsent,
                overdue: 0,
                own_lateness: Duration::ZERO,
            }),
            own_cpu: Duration::ZERO,
            own_cpu_in_time: Duration::ZERO,
            late: Vec::new(),
            is_interrupted: false,
        }
    }

    #[test]
    fn rate_keeps_the_bound_if_slow_and_unsent_requests_together_are_one_percent() {
        let bound = Duration::from_millis(20);
        for (slow, unsent, expected) in [
            (0, 0, true),
            (10, 0, true),
            (0, 10, true),
            (5, 5, true),
            (11, 0, false),
            (0, 11, false),
            (10, 10, false),
        ] {
            let holds = holds(&outcome(slow, unsent), 1000.0, bound);
            assert_eq!(holds, expected, "{slow} slow, {unsent} never sent");
        }
    }

    /// A rate at which the server used this much CPU time, in seconds.
    fn tried(offered: f64, cpu: Option<f64>) -> Tried {
        let sample = |cpu| probe::Sample {
            at: 1.0,
            cpu,
            pss: Some(1 << 20),
            switches: (0, 0),
            processes: 1,
        };
        Tried {
            offered,
            outcome: outcome(0, 0),
            usage: cpu.map(|cpu| Usage {
                pids: vec![12],
                programs: vec!["nginx".into()],
                ended: Vec::new(),
                samples: vec![sample(cpu)],
            }),
            holds: true,
        }
    }

    /// The cells of a row as text.
    fn texts(table: &Table, row: usize) -> Vec<String> {
        let cells = table.rows[row].cells.iter();
        cells.map(ToString::to_string).collect()
    }

    #[test]
    fn attempts_have_the_cpu_time_and_memory_of_the_server() {
        let all = [
            tried(900.0, Some(0.01)),
            tried(1000.0, Some(0.5)),
            tried(1100.0, None),
        ];
        let table = attempts(&all);
        let title = "Offered rates; server: nginx (12), with descendants";
        assert_eq!(table.title, title);
        assert_eq!(table.columns[1..3], ["CPU per request", "memory"]);
        assert_eq!(texts(&table, 0)[1..3], ["too little", "1.0 MiB"]);
        assert_eq!(texts(&table, 1)[1..3], ["500 µs", "1.0 MiB"]);
        assert_eq!(texts(&table, 2)[1..3], ["not found", "not found"]);
        for row in &table.rows {
            assert_eq!(row.cells.len(), table.columns.len());
        }
    }

    #[test]
    fn server_that_ends_is_named_with_the_one_after_it() {
        let mut all = [900.0, 1000.0, 1100.0].map(|rate| tried(rate, Some(0.5)));
        if let Some(usage) = &mut all[0].usage {
            usage.ended = vec![12];
        }
        all[1].usage = None;
        if let Some(usage) = &mut all[2].usage {
            usage.pids = vec![34];
        }
        let title = "Offered rates; server: nginx (12), nginx (34), with descendants";
        assert_eq!(attempts(&all).title, title);
        let notes = notes::of_rates(&all.each_ref().map(|it| it.usage.as_ref()));
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("nginx (12) ended during the run"));
        assert!(notes[1].starts_with("at 1 of 3 rates, not all processes"));
        let notes = notes::of_rates(&[None, None]);
        assert!(notes[0].starts_with("not all processes"), "{notes:?}");
    }

    #[test]
    fn attempts_without_the_server_have_no_columns_of_it() {
        let table = attempts(&[tried(1000.0, None)]);
        assert_eq!(table.title, "Offered rates");
        let columns = ["responses", "p50", "p99", "failed", "never sent", "bound"];
        assert_eq!(table.columns, columns);
        assert_eq!(table.rows[0].cells.len(), columns.len());
    }
}
