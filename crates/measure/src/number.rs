//! The only two kinds of number that a report can print: measured here, or published by others.

use serde::Serialize;

use crate::rounds::Ratio;

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Things, such as requests.
    Count,
    /// Things per second.
    PerSecond,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Bytes.
    Bytes,
    /// A plain quotient.
    Ratio,
    /// Parts of a hundred.
    Percent,
    /// Times another number.
    Times,
}

impl Unit {
    /// The number with its unit, with three or four significant figures.
    ///
    /// It is public for numbers in sentences and for those that were chosen, such as offered rates
    /// and bounds of goals. Tables show a [`Number`], which writes itself.
    pub fn write(self, value: f64) -> String {
        match self {
            Unit::Count => grouped(value, 0),
            Unit::PerSecond => format!("{}/s", figures(value)),
            Unit::Ms if value >= 10_000.0 => format!("{} s", figures(value / 1000.0)),
            Unit::Ms => format!("{} ms", figures(value)),
            Unit::Us if value >= 10_000.0 => format!("{} ms", figures(value / 1000.0)),
            Unit::Us => format!("{} µs", figures(value)),
            Unit::Ratio => figures(value),
            Unit::Seconds => format!("{} s", figures(value)),
            Unit::Minutes => format!("{value:.1} min"),
            Unit::Bytes => bytes(value),
            Unit::Percent => format!("{value:.0} %"),
            Unit::Times => format!("{value:.3} ×"),
        }
    }
}

/// Stands after a number that the load generator has limited.
pub const MARK: &str = "†";

/// Stands after a number that other processes on the machine have disturbed.
pub const DISTURBED_MARK: &str = "‡";

/// Stands after a number of a row in which requests failed.
pub const FAILED_MARK: &str = "§";

/// A number that was measured here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    value: f64,
    unit: Unit,
    /// Ends of the 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<(f64, f64)>,
    /// The samples of which `value` is the median or the sum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    samples: Vec<f64>,
    /// Whether the load generator was the limit, so that the number says little of the server.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_generator_limited: bool,
    /// Whether other processes took so much of the CPUs that the number may be too low or too high.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_disturbed: bool,
    /// Whether `value` is the sum of the samples.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_sum: bool,
}

impl Measured {
    /// The result of one run.
    pub fn once(value: f64, unit: Unit) -> Measured {
        Measured {
            value,
            unit,
            interval: None,
            samples: Vec::new(),
            is_generator_limited: false,
            is_disturbed: false,
            is_sum: false,
        }
    }

    /// The same number, marked if the load generator was the limit.
    pub fn limited_by_generator(self, is_limited: bool) -> Measured {
        Measured {
            is_generator_limited: is_limited,
            ..self
        }
    }

    /// The same number, marked if other processes have disturbed it.
    pub fn disturbed(self, is_disturbed: bool) -> Measured {
        Measured {
            is_disturbed,
            ..self
        }
    }

    /// The median of several runs; `None` without any.
    pub fn median(samples: &[f64], unit: Unit) -> Option<Measured> {
        Some(Measured {
            samples: samples.to_vec(),
            ..Measured::once(crate::rounds::median(samples)?, unit)
        })
    }

    /// The sum of several runs, which no median can hide; `None` without any.
    pub fn sum(samples: &[f64], unit: Unit) -> Option<Measured> {
        (!samples.is_empty()).then(|| Measured {
            samples: samples.to_vec(),
            is_sum: true,
            ..Measured::once(samples.iter().sum(), unit)
        })
    }

    /// How many times another number it is; `None` if one of them has a mark.
    pub fn multiple_of(&self, other: &Measured) -> Option<Measured> {
        let is_marked = self.is_marked() || other.is_marked();
        (!is_marked && other.value != 0.0)
            .then(|| Measured::once(self.value / other.value, Unit::Ratio))
    }

    /// Whether the load generator was the limit, or other processes have disturbed it.
    pub fn is_marked(&self) -> bool {
        self.is_generator_limited || self.is_disturbed
    }

    /// The bare value, to sort and draw by.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// The value with its unit and its marks. A sum says how many rounds have a part of it.
    pub fn short(&self) -> String {
        let mut text = self.unit.write(self.value);
        if self.is_sum && self.value > 0.0 {
            let rounds = self.samples.len();
            let parts = self.samples.iter().filter(|part| **part > 0.0).count();
            text += &format!(" in {parts} of {rounds} rounds");
        }
        match self.is_marked() {
            true => format!(
                "{text} {}",
                marks(self.is_generator_limited, self.is_disturbed)
            ),
            false => text,
        }
    }

    /// A ratio of two medians.
    pub fn ratio(ratio: Ratio) -> Measured {
        Measured {
            interval: Some((ratio.low, ratio.high)),
            ..Measured::once(ratio.value, Unit::Times)
        }
    }

    /// The value and its interval with two decimals and no unit, for a column of ratios.
    pub fn in_two_decimals(&self) -> String {
        let value = self.value;
        match self.interval {
            Some((low, high)) => format!("{value:.2} ({low:.2} to {high:.2})"),
            None => format!("{value:.2}"),
        }
    }
}

/// The marks of a number: [`MARK`] if the load generator was the limit, [`DISTURBED_MARK`] if other
/// processes have disturbed it.
pub fn marks(is_generator_limited: bool, is_disturbed: bool) -> String {
    let marks = [(is_generator_limited, MARK), (is_disturbed, DISTURBED_MARK)];
    let marks = marks.into_iter().filter(|(has, _)| *has);
    marks.map(|(_, mark)| mark).collect()
}

/// A number that others have published.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    /// The number, or the lower end of a range.
    pub value: f64,
    /// The upper end of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<f64>,
    /// Whether its source calls it an estimate.
    pub is_estimate: bool,
    /// What it counts.
    pub unit: Unit,
    /// Where it was published.
    pub source: String,
    /// When, as the source says it.
    pub date: String,
    /// On what hardware, as the source says it.
    pub hardware: String,
    /// What makes it hard to compare with a measured one; empty if nothing does.
    pub not_comparable: String,
}

/// A number with its origin.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Number {
    /// Measured here.
    Measured(Measured),
    /// Published by others.
    Published(Published),
}

impl Number {
    /// The bare value.
    pub fn value(&self) -> f64 {
        match self {
            Number::Measured(number) => number.value,
            Number::Published(number) => number.value,
        }
    }

    /// The upper end of a range; otherwise the value.
    pub fn highest(&self) -> f64 {
        match self {
            Number::Measured(number) => number.value,
            Number::Published(number) => number.up_to.unwrap_or(number.value),
        }
    }

    /// The number with its unit, without its source and its interval. It has its marks,
    /// both ends of a range, and whether it is an estimate.
    pub fn short(&self) -> String {
        match self {
            Number::Measured(number) => number.short(),
            Number::Published(number) => {
                let estimated = if number.is_estimate { "estimated " } else { "" };
                let range = number
                    .up_to
                    .map(|high| format!(" to {}", number.unit.write(high)));
                let range = range.unwrap_or_default();
                format!("{estimated}{}{range}", number.unit.write(number.value))
            }
        }
    }

    /// What it counts.
    pub fn unit(&self) -> Unit {
        match self {
            Number::Measured(number) => number.unit,
            Number::Published(number) => number.unit,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Measured(number) => {
                f.write_str(&number.short())?;
                if let Some((low, high)) = number.interval {
                    write!(f, " ({low:.3} to {high:.3})")?;
                }
                Ok(())
            }
            Number::Published(number) => {
                write!(f, "{} [{}]", self.short(), number.source)
            }
        }
    }
}

/// Three significant figures, and no fewer than the digits before the point.
fn figures(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => grouped(value, 0),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        0.0 => "0".into(),
        _ => format!("{value:.3}"),
    }
}

fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// `1234567.8` → `1,234,568`.
fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}
