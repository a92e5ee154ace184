//! The project's goals, and whether the published results reach them: the section of
//! `docs/performance.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use surus_measure::{Measured, Number, Ratio, Unit};

use crate::experiment::{Experiment, Load};
use crate::files::Places;
use crate::goal::Goal;
use crate::legend;
use crate::render::tables::Under;
use crate::render::{Newest, newest_results, tables};
use crate::results::{LEAST_ROUNDS, Results};
use crate::small_form::SmallForm;

/// Most minutes that the small form of all experiments may take.
const SMALL_MINUTES: f64 = 15.0;

impl Goal {
    /// What was measured, and whether it keeps the bound.
    fn judge(&self, results: &Results) -> (String, GoalVerdict) {
        match &self.to {
            Some(to) => self.judge_ratio(to, results),
            None => self.judge_rounds(results),
        }
    }

    /// The median, and whether every round keeps the bound.
    fn judge_rounds(&self, results: &Results) -> (String, GoalVerdict) {
        let Some(median) = results.median(&self.contestant, &self.load, self.quantity) else {
            return ("–".into(), GoalVerdict::NotMeasured);
        };
        let row = (self.contestant.as_str(), self.load.as_str());
        if let Some(marks) = results.marks(&[row], self.quantity) {
            return (marks, GoalVerdict::Unknown);
        }
        let samples = results.samples(&self.contestant, &self.load, self.quantity);
        let samples = || samples.iter().flatten().copied();
        let range = Ratio {
            value: median.value(),
            low: samples().fold(f64::INFINITY, f64::min),
            high: samples().fold(f64::NEG_INFINITY, f64::max),
        };
        let text = Number::Measured(median).to_string();
        (text, self.verdict_after(samples().count(), range))
    }

    /// The ratio, and whether its whole interval keeps the bound. Without a ratio, why.
    fn judge_ratio(&self, to: &str, results: &Results) -> (String, GoalVerdict) {
        let of = Under {
            contestant: &self.contestant,
            load: &self.load,
        };
        let to = Under {
            contestant: to,
            load: self.to_load(),
        };
        let rows = [of, to].map(|it| (it.contestant, it.load));
        if let Some(marks) = results.marks(&rows, self.quantity) {
            return (marks, GoalVerdict::Unknown);
        }
        let rounds = tables::common_rounds(results, self.quantity, [of, to]);
        let Some(ratio) = rounds.ratio(0, 1) else {
            return ("–".into(), GoalVerdict::NotMeasured);
        };
        let count = rounds.samples(0).len();
        if count < LEAST_ROUNDS {
            let value = ratio.value;
            let verdict = self.verdict_after(
                count,
                Ratio {
                    value,
                    low: value,
                    high: value,
                },
            );
            return (Measured::once(value, Unit::Times).short(), verdict);
        }
        let text = Number::Measured(Measured::ratio(ratio)).to_string();
        (text, self.verdict_after(count, ratio))
    }

    /// A few rounds have no verdict, only a value that keeps the bound or not.
    fn verdict_after(&self, rounds: usize, range: Ratio) -> GoalVerdict {
        match self.verdict(range) {
            verdict if rounds < LEAST_ROUNDS => GoalVerdict::NoInterval {
                rounds,
                keeps: verdict == GoalVerdict::Met,
            },
            verdict => verdict,
        }
    }

    fn verdict(&self, ratio: Ratio) -> GoalVerdict {
        let (low, high) = match (self.at_most, self.at_least) {
            (Some(bound), _) => (ratio.high <= bound, ratio.low > bound),
            (_, Some(bound)) => (ratio.low >= bound, ratio.high < bound),
            _ => (false, false),
        };
        match (low, high) {
            (true, _) => GoalVerdict::Met,
            (_, true) => GoalVerdict::Missed,
            _ => GoalVerdict::Open,
        }
    }

    fn wanted(&self) -> String {
        let text = |bound: f64| match self.to {
            Some(_) => format!("{bound} ×"),
            None => self.quantity.unit().write(bound),
        };
        match (self.at_most, self.at_least) {
            (Some(bound), _) => format!("at most {}", text(bound)),
            (_, Some(bound)) => format!("at least {}", text(bound)),
            _ => String::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GoalVerdict {
    Met,
    Missed,
    /// The interval includes the bound, or some rounds keep it and others do not.
    Open,
    /// The load generator was the limit, or others have disturbed too many rounds.
    Unknown,
    /// There were too few rounds for one.
    NoInterval {
        rounds: usize,
        /// Whether their values keep the bound.
        keeps: bool,
    },
    NotMeasured,
}

impl GoalVerdict {
    fn words(self) -> String {
        match self {
            GoalVerdict::Met => "met".into(),
            GoalVerdict::Missed => "not met".into(),
            GoalVerdict::Open => "open: some rounds keep it, or the interval includes it".into(),
            GoalVerdict::Unknown => "unknown".into(),
            GoalVerdict::NoInterval { rounds, keeps } => {
                let word = if rounds == 1 { "round" } else { "rounds" };
                let but = if keeps { "" } else { ", but not kept" };
                format!("{rounds} {word}: no interval{but}")
            }
            GoalVerdict::NotMeasured => "not measured".into(),
        }
    }

    /// Whether the document says what bounds the goal.
    fn is_missed(self) -> bool {
        use GoalVerdict::{Missed, NoInterval};
        matches!(self, Missed | NoInterval { keeps: false, .. })
    }

    /// Whether it says what may bound it.
    fn is_doubtful(self) -> bool {
        matches!(self, GoalVerdict::Open | GoalVerdict::Unknown)
    }
}

/// The table of all goals, what bounds those that are not met, and the rows that have no numbers.
pub fn section(
    places: &Places,
    experiments: &[Experiment],
    directory: &Path,
) -> anyhow::Result<String> {
    let mut table = String::from("| goal | wanted | measured | |\n|---|--:|--:|---|\n");
    let (mut bounds, mut possible) = (String::new(), String::new());
    let mut rows = 0;
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    for experiment in experiments {
        let newest = newest_results(places, experiment, directory)?;
        let results = newest.as_ref().map(|newest| &newest.results);
        for goal in &experiment.goals {
            let (measured, verdict) = match results {
                Some(results) => goal.judge(results),
                None => ("–".into(), GoalVerdict::NotMeasured),
            };
            let (title, wanted, name) = (&goal.title, goal.wanted(), &experiment.name);
            let title = match results {
                Some(_) => format!("[{title}](results/{name}.md)"),
                None => title.clone(),
            };
            let words = verdict.words();
            let _ = writeln!(table, "| {title} | {wanted} | {measured} | {words} |");
            let line = format!("- {}: {}\n", goal.title, goal.bound);
            if verdict.is_missed() {
                bounds += &line;
            } else if verdict.is_doubtful() {
                possible += &line;
            }
        }
        let Some(Newest {
            results,
            experiment,
            ..
        }) = &newest
        else {
            let names = || experiment.contestants.iter().map(|entry| &entry.name);
            let of_load = |load: &Load| names().filter(|name| load.is_for(name)).count();
            let count: usize = experiment.loads.iter().map(of_load).sum();
            rows += count;
            missing.insert(format!("{}: not run yet", experiment.name), count);
            continue;
        };
        for load in &experiment.loads {
            let entries = experiment.contestants.iter();
            for entry in entries.filter(|entry| load.is_for(&entry.name)) {
                rows += 1;
                if !results.has_sample(&entry.name, &load.name) {
                    let why = tables::why_missing(entry, load, results);
                    // The page of the experiment has all of it, such as the body that came.
                    let why = why.split("; ").next().unwrap_or_default();
                    let row = format!("{}, {}: {why}", experiment.name, entry.title);
                    *missing.entry(row).or_default() += 1;
                }
            }
        }
    }
    let small = SmallForm::read(directory)?.filter(|small| small.has_all(experiments));
    let (measured, verdict) = match small {
        None => ("–".into(), GoalVerdict::NotMeasured),
        Some(small) => {
            let verdict = match small.minutes() < SMALL_MINUTES {
                true => GoalVerdict::Met,
                false => GoalVerdict::Missed,
            };
            let minutes = Measured::once(small.minutes(), Unit::Minutes).short();
            (format!("{minutes} ({})", small.date), verdict)
        }
    };
    let _ = writeln!(
        table,
        "| `make lab`: all experiments in their small form | under {SMALL_MINUTES} min | \
         {measured} | {} |",
        verdict.words()
    );
    let verdict = match missing.is_empty() {
        true => GoalVerdict::Met,
        false => GoalVerdict::Missed,
    };
    let without: usize = missing.values().sum();
    let _ = writeln!(
        table,
        "| every row of every table has numbers | {rows} rows | {} | {} |",
        rows - without,
        verdict.words()
    );
    let line = |(row, count): (&String, &usize)| match count {
        1 => format!("- {row}\n"),
        _ => format!("- {row} ({count} rows)\n"),
    };
    let missing: String = missing.iter().map(line).collect();
    table += &legend::paragraphs(&table);
    for (title, list) in [
        ("What bounds the goals that are not met:", bounds),
        (
            "What may bound the goals that are open or unknown:",
            possible,
        ),
        ("Rows without numbers:", missing),
    ] {
        if !list.is_empty() {
            let _ = write!(table, "\n{title}\n\n{list}");
        }
    }
    Ok(table)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::quantity::Quantity;

    fn goal(at_most: Option<f64>, at_least: Option<f64>) -> Goal {
        Goal {
            title: String::new(),
            load: "many".into(),
            quantity: Quantity::Rate,
            contestant: "surus".into(),
            to: Some("surus".into()),
            to_load: Some("few".into()),
            at_most,
            at_least,
            bound: String::new(),
        }
    }

    fn verdict(at_most: Option<f64>, at_least: Option<f64>, low: f64, high: f64) -> GoalVerdict {
        let value = low.midpoint(high);
        goal(at_most, at_least).verdict(Ratio { value, low, high })
    }

    fn results(rounds: usize) -> Results {
        let sample = json!({"rate": 100.0, "generator": 10.0});
        let half = json!({"rate": 50.0, "generator": 10.0});
        let turn = json!({"contestant": "surus", "samples": {"few": sample, "many": half}});
        let round = json!({"load_average": 0.0, "turns": [turn]});
        let machine = json!({"cpus": 2, "cpu": "", "memory_gib": 1, "kernel": ""});
        let results = json!({
            "experiment": "", "size": "full", "date": "", "command": "", "revision": "",
            "machine": machine, "contestants": {}, "fingerprint": "", "wanted": rounds,
            "rounds": vec![round; rounds],
        });
        serde_json::from_value(results).unwrap()
    }

    #[test]
    fn ratio_of_few_rounds_is_shown_without_a_verdict() {
        let judged = |rounds| goal(None, Some(0.9)).judge(&results(rounds));
        assert_eq!(judged(0), ("–".into(), GoalVerdict::NotMeasured));
        let (text, verdict) = judged(3);
        assert_eq!(verdict.words(), "3 rounds: no interval, but not kept");
        assert_eq!(text, "0.500 ×");
        assert!(verdict.is_missed(), "what is in the way stands below");
        let (_, verdict) = goal(None, Some(0.5)).judge(&results(3));
        assert_eq!(verdict.words(), "3 rounds: no interval");
        assert!(!verdict.is_missed());
        let (text, verdict) = judged(6);
        assert_eq!(verdict, GoalVerdict::Missed);
        assert_eq!(text, "0.500 × (0.500 to 0.500)");
    }

    #[test]
    fn goal_without_a_ratio_needs_as_many_rounds_for_a_verdict() {
        let alone = |at_least| Goal {
            to: None,
            to_load: None,
            ..goal(None, Some(at_least))
        };
        let judged = |rounds, at_least| alone(at_least).judge(&results(rounds)).1.words();
        assert_eq!(judged(1, 50.0), "1 round: no interval");
        assert_eq!(judged(1, 51.0), "1 round: no interval, but not kept");
        assert_eq!(judged(5, 50.0), "5 rounds: no interval");
        assert_eq!(judged(6, 50.0), "met");
        assert_eq!(judged(6, 51.0), "not met");
    }

    #[test]
    fn goal_is_met_only_if_the_whole_interval_keeps_it() {
        for (low, high, at_most, at_least) in [
            (0.9, 1.4, GoalVerdict::Met, GoalVerdict::Missed),
            (1.4, 1.6, GoalVerdict::Open, GoalVerdict::Open),
            (1.6, 1.7, GoalVerdict::Missed, GoalVerdict::Met),
        ] {
            assert_eq!(verdict(Some(1.5), None, low, high), at_most, "{low}");
            assert_eq!(verdict(None, Some(1.5), low, high), at_least, "{low}");
        }
    }
}
