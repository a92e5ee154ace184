//! The table of a page of its own (`docs/performance-NAME.md`): one contestant under all loads,
//! each next to the best of its page.

use std::fmt::Write;

use surus_measure::{FAILED_MARK, Measured, Unit};

use crate::experiment::{Experiment, Load};
use crate::legend;
use crate::quantity::Quantity;
use crate::results::Results;

/// Of an experiment in the words of its results.
pub fn table(experiment: &Experiment, contestant: &str, results: &Results) -> String {
    let rate = |load: &Load| results.median(contestant, &load.name, Quantity::Rate);
    let percent = |part: f64, of: f64| Measured::once(part / of * 100.0, Unit::Percent).short();
    let mut text = String::from("| load | responses/s | to the best | rejected |\n");
    text += "|---|--:|--:|--:|\n";
    let mut failed = Vec::new();
    for load in &experiment.loads {
        let Some(own) = rate(load) else {
            continue;
        };
        let same = experiment.loads.iter().filter(|it| it.path == load.path);
        let rows: Vec<_> = same
            .clone()
            .map(|it| (contestant, it.name.as_str()))
            .collect();
        let best = same
            .filter_map(rate)
            .map(|rate| rate.value())
            .fold(0.0, f64::max);
        let marks = results.marks(&rows, Quantity::Rate);
        let to_best = marks.unwrap_or_else(|| percent(own.value(), best));
        let refused = results.median(contestant, &load.name, Quantity::Refused);
        let refused = refused.map_or(0.0, |refused| refused.value());
        let refused = match refused > 0.0 {
            true => percent(refused, refused + own.value()),
            false => "none".into(),
        };
        let (title, mut own) = (&load.title, own.short());
        if let Some(sum) = results.failed_requests(contestant, &load.name) {
            own += &format!(" {FAILED_MARK}");
            failed.push(format!("{title}, {}", sum.short()));
        }
        let _ = writeln!(text, "| {title} | {own} | {to_best} | {refused} |");
    }
    text += &legend::paragraphs(&text);
    if !failed.is_empty() {
        let _ = writeln!(
            text,
            "\n{FAILED_MARK}: requests failed:\n\n- {}",
            failed.join("\n- ")
        );
    }
    let (date, rounds) = (&results.date, results.rounds.len());
    text + &format!(
        "\n{date}, medians of {rounds} rounds; {}.\n",
        results.machine
    )
}
