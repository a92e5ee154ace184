//! Medians, goals, and how they are written.

use std::time::Duration;

/// What half of them are below, and the least.
#[derive(Clone, Copy)]
pub struct Measured {
    pub median: Duration,
    pub least: Duration,
}

/// Of at least one.
pub fn of(mut values: Vec<Duration>) -> Measured {
    values.sort();
    Measured {
        median: values[values.len() / 2],
        least: values[0],
    }
}

pub fn micros(duration: Duration) -> String {
    format!("{:.0}", duration.as_secs_f64() * 1e6)
}

pub fn millis(duration: Duration) -> String {
    format!("{:.1}", duration.as_secs_f64() * 1e3)
}

/// A row of a table.
pub fn row(cells: impl IntoIterator<Item = String>) {
    let cells: Vec<_> = cells.into_iter().collect();
    println!("| {} |", cells.join(" | "));
}

/// What was aimed at, and what it is.
pub struct Goal {
    pub what: String,
    pub is: String,
    pub goal: String,
    pub is_met: bool,
}

pub fn print(goals: &[Goal]) {
    println!("\n## Goals\n");
    for goal in goals {
        let met = if goal.is_met { "met" } else { "NOT met" };
        println!("- {met}: {}: {}; goal {}", goal.what, goal.is, goal.goal);
    }
}
