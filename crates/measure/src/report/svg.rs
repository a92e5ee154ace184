//! Draws line charts as SVG. Colours are classes, which the page sets for light and dark.

use std::fmt::Write;

use super::escape::escape;
use super::{Chart, Line, Scale};
use crate::number::Unit;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;

pub fn draw(chart: &Chart) -> String {
    let end = x_end(chart);
    let ticks = y_ticks(chart);
    let low = ticks.first().copied().unwrap_or(0.0);
    let top = ticks.last().copied().unwrap_or(1.0);
    let x = |value: f64| LEFT + place(chart.scale, value, end) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| {
        let share = match chart.y_scale {
            Scale::Tens => (value.max(low) / low).ln() / (top / low).ln(),
            _ => value / top,
        };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };

    let mut out = format!(
        r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">"#,
        escape(&chart.title)
    );
    for tick in &ticks {
        let at = y(*tick);
        let _ = write!(
            out,
            r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{at:.1}" y2="{at:.1}"/>"#,
            WIDTH - RIGHT
        );
        text(&mut out, LEFT - 6.0, at + 4.0, "end", &chart.y.write(*tick));
    }
    for (tick, label) in x_ticks(chart.scale, end) {
        let is_last = place(chart.scale, tick, end) > 0.94;
        let anchor = if is_last { "end" } else { "middle" };
        text(&mut out, x(tick), HEIGHT - BOTTOM + 16.0, anchor, &label);
    }
    let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
    text(&mut out, middle, HEIGHT - 6.0, "middle", &chart.x);
    for (index, line) in chart.lines.iter().enumerate() {
        let _ = write!(
            out,
            r#"<path class="line l{index}" d="{}"/>"#,
            path(line, &x, &y)
        );
    }
    out.push_str("</svg>");
    out
}

fn path(line: &Line, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) -> String {
    let mut out = String::new();
    for part in line.points.split(|(_, value)| value.is_nan()) {
        for (index, (at, value)) in part.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(out, "{command}{:.1} {:.1}", x(*at), y(*value));
        }
        // A single point is drawn as a dot.
        if part.len() == 1 {
            out.push_str("h0.1");
        }
    }
    out
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = write!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
        escape(text)
    );
}

fn points(chart: &Chart) -> impl Iterator<Item = (f64, f64)> {
    chart
        .lines
        .iter()
        .flat_map(|line| line.points.iter().copied())
}

fn x_end(chart: &Chart) -> f64 {
    let highest = points(chart).map(|(x, _)| x).fold(0.0, f64::max);
    match chart.scale {
        Scale::Nines => highest.clamp(0.9, 0.999_999),
        _ if highest > 0.0 => highest,
        _ => 1.0,
    }
}

/// Where a value lies on the horizontal axis, from 0 to 1.
fn place(scale: Scale, value: f64, end: f64) -> f64 {
    match scale {
        Scale::Linear | Scale::Whole | Scale::Tens => value / end,
        Scale::Nines => ((1.0 - value.min(end)).ln() / (1.0 - end).ln()).clamp(0.0, 1.0),
    }
}

fn x_ticks(scale: Scale, end: f64) -> Vec<(f64, String)> {
    match scale {
        Scale::Linear | Scale::Whole | Scale::Tens => {
            let step = match scale {
                Scale::Whole => step(end, 6.0).max(1.0),
                _ => step(end, 6.0),
            };
            let count = (end / step + 1e-9).floor() as usize;
            let tick = |index: usize| index as f64 * step;
            (0..=count)
                .map(|index| (tick(index), number(tick(index))))
                .collect()
        }
        Scale::Nines => {
            const TICKS: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];
            let shown = TICKS.into_iter().filter(|tick| *tick <= end);
            shown
                .map(|tick| (tick, format!("{}%", number(tick * 100.0))))
                .collect()
        }
    }
}

fn y_ticks(chart: &Chart) -> Vec<f64> {
    if chart.y_scale == Scale::Tens {
        return powers_of_ten(chart);
    }
    let highest = points(chart).map(|(_, y)| y).fold(0.0, f64::max);
    let highest = if highest > 0.0 { highest } else { 1.0 };
    let step = match chart.y {
        // Round in the unit that is printed.
        Unit::Bytes => (highest / 4.0).log2().ceil().exp2(),
        _ => step(highest, 4.0),
    };
    let count = (highest / step - 1e-9).ceil() as usize;
    (0..=count).map(|index| index as f64 * step).collect()
}

/// From the power of ten below the lowest value above zero to that above the highest.
fn powers_of_ten(chart: &Chart) -> Vec<f64> {
    let values = || points(chart).map(|(_, y)| y).filter(|y| *y > 0.0);
    let lowest = values().fold(f64::INFINITY, f64::min);
    let highest = values().fold(0.0, f64::max);
    if highest == 0.0 {
        return vec![0.1, 1.0];
    }
    let first = (lowest.log10() + 1e-9).floor() as i32;
    let last = ((highest.log10() - 1e-9).ceil() as i32).max(first + 1);
    (first..=last).map(|power| 10_f64.powi(power)).collect()
}

/// A round step of which about `count` reach `end`.
fn step(end: f64, count: f64) -> f64 {
    let raw = end / count;
    let power = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= raw);
    factor.unwrap_or(10.0) * power
}

/// A number without the digits that floating point adds.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}
