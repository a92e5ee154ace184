//! Bar charts: one bar for each number, all of the same origin.

use std::fmt::Write;

use super::escape::escape;
use crate::number::{Measured, Number, Published};

const WIDTH: f64 = 420.0;
/// Height of a bar with its label above it.
const ROW: f64 = 36.0;
const BAR: f64 = 12.0;

/// A bar chart.
#[derive(Debug, Clone)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// Its bars.
    pub numbers: BarNumbers,
}

/// The bars of a chart with their labels. Measured and published numbers never share an axis,
/// because their hardware differs.
#[derive(Debug, Clone)]
pub enum BarNumbers {
    /// Measured here.
    Measured(Vec<(String, Measured)>),
    /// Published by others.
    Published(Vec<(String, Published)>),
}

impl Bars {
    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        match &self.numbers {
            BarNumbers::Measured(bars) => bars.is_empty(),
            BarNumbers::Published(bars) => bars.is_empty(),
        }
    }

    /// Says where the numbers are from.
    pub(super) fn origin(&self) -> String {
        match &self.numbers {
            BarNumbers::Measured(_) => "measured here".into(),
            BarNumbers::Published(bars) => {
                let mut sources: Vec<_> = bars.iter().map(|(_, it)| it.source.as_str()).collect();
                sources.dedup();
                format!("published by others: {}", sources.join(", "))
            }
        }
    }

    pub(super) fn draw(&self) -> String {
        let (class, bars): (_, Vec<(&str, Number)>) = match &self.numbers {
            BarNumbers::Measured(bars) => ("measured", numbers(bars, Number::Measured)),
            BarNumbers::Published(bars) => ("published", numbers(bars, Number::Published)),
        };
        let top = bars
            .iter()
            .map(|(_, number)| number.highest())
            .fold(0.0, f64::max);
        let height = ROW * bars.len() as f64;
        let mut out = format!(
            r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{}">"#,
            escape(&self.title)
        );
        for (index, (label, number)) in bars.iter().enumerate() {
            let at = ROW * index as f64;
            let width = |value: f64| {
                let share = if top > 0.0 { value / top } else { 0.0 };
                (share * (WIDTH - 2.0)).max(1.0)
            };
            let (text, bar) = (at + 14.0, at + 19.0);
            let value = number.short();
            let (label, value) = (escape(label), escape(&value));
            let _ = write!(out, r#"<text x="0" y="{text}">{label}</text>"#);
            let _ = write!(
                out,
                r#"<text x="{WIDTH}" y="{text}" text-anchor="end">{value}</text>"#
            );
            let mut rect = |class: &str, value: f64| {
                let _ = write!(
                    out,
                    r#"<rect class="bar {class}" x="1" y="{bar}" width="{:.1}" "#,
                    width(value)
                );
                let _ = write!(out, r#"height="{BAR}" rx="2"/>"#);
            };
            // Of a range, the lower end stands out.
            if number.highest() > number.value() {
                rect(&format!("{class} range"), number.highest());
            }
            rect(class, number.value());
        }
        out.push_str("</svg>");
        out
    }
}

fn numbers<T: Clone>(bars: &[(String, T)], origin: impl Fn(T) -> Number) -> Vec<(&str, Number)> {
    let numbers = bars.iter();
    numbers
        .map(|(label, number)| (label.as_str(), origin(number.clone())))
        .collect()
}
