//! The table of `docs/performance.md` that compares load generators, from what
//! `scripts/check-generators` has measured.

use std::fmt::Write;
use std::path::Path;

use serde::Deserialize;
use surus_measure::{Machine, Measured, Ratio, Rounds, Unit};

use crate::files;

/// The file of a directory of results.
pub const FILE: &str = "generators.json";
/// Bounds on the ratio of requests/s to each other generator, and of CPU per request to wrk's.
const RATES: (f64, f64) = (0.85, 1.15);
const CPU: (f64, f64) = (0.0, 1.25);

#[derive(Debug, Deserialize)]
pub struct Generators {
    date: String,
    pub revision: String,
    machine: Machine,
    load_average: f64,
    rounds: usize,
    /// Of each run.
    seconds: u64,
    connections: u64,
    /// Of each group, `surus bench` first.
    generators: Vec<Generator>,
}

#[derive(Debug, Deserialize)]
struct Generator {
    title: String,
    /// The protocol; only generators of the same are compared.
    group: String,
    /// Why it was not measured.
    absent: Option<String>,
    #[serde(default)]
    version: String,
    /// Whether it does less than a load generator.
    #[serde(default)]
    is_least: bool,
    /// One sample of each round.
    #[serde(default)]
    rate: Vec<f64>,
    #[serde(default)]
    cpu_us: Vec<f64>,
    /// That of the generator's thread alone, where its output has it.
    #[serde(default)]
    thread_cpu_us: Vec<f64>,
}

impl Generators {
    /// `None` if there is no file.
    pub fn read(directory: &Path) -> anyhow::Result<Option<Generators>> {
        files::read_json(&directory.join(FILE), "scripts/check-generators")
    }

    fn table(&self) -> String {
        let (date, machine, load) = (&self.date, &self.machine, self.load_average);
        let mut text = format!(
            "{date}, revision {}, {machine}, load average {load:.1}; {} rounds of {} s, {} \
             connections, one thread. Medians, and the ratio of `surus bench` to each with its \
             95 % interval.\n\n\
             | generator | requests/s | ratio | CPU per request | ratio | thread alone | ratio |\n\
             |---|---:|---:|---:|---:|---:|---:|\n",
            self.revision, self.rounds, self.seconds, self.connections
        );
        let mut goals = String::new();
        for (index, one) in self.generators.iter().enumerate() {
            let mut before = self.generators[..index].iter();
            let ours = before.find(|it| it.group == one.group);
            let (group, title) = (&one.group, &one.title);
            if let Some(why) = &one.absent {
                let _ = writeln!(text, "| {group}: {title} | {why} | – | – | – | – | – |");
            } else {
                let cells = cells(ours.unwrap_or(one), one).join(" | ");
                let version = &one.version;
                let _ = writeln!(text, "| {group}: {title}, {version} | {cells} |");
            }
            if let Some(ours) = ours {
                goals += &judged(ours, one);
            }
        }
        text + "\n" + &goals
    }
}

/// The text between two comments of the document.
pub fn section(directory: &Path) -> anyhow::Result<String> {
    let found = Generators::read(directory)?;
    Ok(found.map_or_else(
        || "Not measured yet on a quiet machine: `make check-generators`.\n".into(),
        |found| found.table(),
    ))
}

/// The row of a generator: its numbers, and the ratio of `surus bench` to each.
fn cells(ours: &Generator, one: &Generator) -> Vec<String> {
    let median = |samples: &[f64], unit: Unit| {
        let median = Measured::median(samples, unit);
        median.map_or("–".into(), |median| median.short())
    };
    let is_ours = std::ptr::eq(ours, one);
    let compared = |ours: &[f64], theirs: &[f64]| match ratio(ours, theirs) {
        Some(_) if is_ours => "1".into(),
        Some(ratio) => Measured::ratio(ratio).in_two_decimals(),
        None => "–".to_string(),
    };
    let thread = if is_ours {
        &one.thread_cpu_us
    } else {
        &one.cpu_us
    };
    vec![
        median(&one.rate, Unit::PerSecond),
        compared(&ours.rate, &one.rate),
        median(&one.cpu_us, Unit::Us),
        compared(&ours.cpu_us, &one.cpu_us),
        median(&one.thread_cpu_us, Unit::Us),
        compared(&ours.thread_cpu_us, thread),
    ]
}

/// What is wanted of the ratios to another generator, and whether it is so: a line each.
fn judged(ours: &Generator, one: &Generator) -> String {
    let mut text = String::new();
    let mut add = |goal: String, ours: &[f64], theirs: &[f64], bounds| {
        let (value, word) = match ratio(ours, theirs) {
            Some(ratio) => {
                let value = Measured::ratio(ratio).in_two_decimals();
                (value, verdict(ratio, bounds))
            }
            None => ("–".into(), "not measured"),
        };
        let _ = writeln!(text, "- {goal}: {value}, {word}.");
    };
    let (group, title, most) = (&one.group, &one.title, CPU.1);
    if !one.is_least {
        let goal = format!("{group}, requests/s within 15 % of {title}");
        add(goal, &ours.rate, &one.rate, RATES);
    }
    if title == "wrk" {
        let goal = format!("at most {most} × wrk's CPU per request");
        add(goal, &ours.cpu_us, &one.cpu_us, CPU);
        let goal = format!("the same of its thread alone, at most {most} × wrk's");
        add(goal, &ours.thread_cpu_us, &one.cpu_us, CPU);
    }
    text
}

/// The ratio of the medians; `None` if one of them was not measured.
fn ratio(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    let mut rounds = Rounds::new(2);
    for (ours, theirs) in ours.iter().zip(theirs) {
        rounds.push(0, *ours);
        rounds.push(1, *theirs);
    }
    rounds.ratio(0, 1)
}

/// Whether the whole interval of a ratio is within the bounds, or outside of them.
fn verdict(ratio: Ratio, (least, most): (f64, f64)) -> &'static str {
    if least <= ratio.low && ratio.high <= most {
        "met"
    } else if ratio.high < least || most < ratio.low {
        "not met"
    } else {
        "open, because the interval includes it"
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn goal_is_met_only_if_the_whole_interval_keeps_it() {
        for (low, high, bounds, word) in [
            (0.9, 1.1, RATES, "met"),
            (0.68, 1.23, RATES, "open"),
            (0.5, 0.84, RATES, "not met"),
            (1.16, 1.3, RATES, "not met"),
            (1.0, 1.25, CPU, "met"),
            (1.2, 1.3, CPU, "open"),
            (1.51, 1.77, CPU, "not met"),
        ] {
            let value = f64::midpoint(low, high);
            let found = verdict(Ratio { value, low, high }, bounds);
            assert_eq!(found.split(',').next(), Some(word), "{low} to {high}");
        }
    }

    #[test]
    fn table_judges_both_protocols_and_the_thread_alone() {
        let samples = |rate: [f64; 2], cpu: f64| {
            let rates = [rate; 3].concat();
            json!({"version": "1", "rate": rates, "cpu_us": vec![cpu; 6]})
        };
        let one = |title: &str, group: &str, more: serde_json::Value| {
            let mut one = json!({"title": title, "group": group});
            let more = more.as_object().unwrap().clone();
            one.as_object_mut().unwrap().extend(more);
            one
        };
        let with_thread = |mut samples: serde_json::Value, cpu: f64| {
            samples["thread_cpu_us"] = vec![cpu; 6].into();
            samples
        };
        let (even, wide) = ([500.0, 500.0], [100.0, 1000.0]);
        let (first, second) = ("HTTP/1.1", "HTTP/2");
        let least = json!({"is_least": true});
        let mut least = one("mio's least", first, least);
        let same = samples(even, 10.0).as_object().unwrap().clone();
        least.as_object_mut().unwrap().extend(same);
        let generators = json!([
            one(
                "`surus bench`",
                first,
                with_thread(samples(even, 30.0), 12.0)
            ),
            one("wrk", first, samples(even, 10.0)),
            least,
            one(
                "`surus bench --http2`",
                second,
                with_thread(samples(wide, 30.0), 30.0)
            ),
            one("h2load", second, samples(even, 30.0)),
            one(
                "oha --http2",
                second,
                json!({"absent": "oha is not on PATH"})
            ),
        ]);
        let file = json!({
            "date": "2026-01-02", "revision": "0123456", "load_average": 0.1, "rounds": 6,
            "machine": {"cpus": 2, "cpu": "One", "memory_gib": 8, "kernel": "6.1"},
            "seconds": 10, "connections": 50, "generators": generators,
        });
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), file.to_string()).unwrap();
        let text = section(directory.path()).unwrap();
        for line in [
            "2026-01-02, revision 0123456, 2 CPUs (One), 8 GiB, Linux 6.1, load average 0.1;",
            "| HTTP/1.1: `surus bench`, 1 | 500/s | 1 | 30.0 µs | 1 | 12.0 µs | 1 |",
            "wrk, 1 | 500/s | 1.00 (1.00 to 1.00) | 10.0 µs | 3.00 (3.00 to 3.00) | – |",
            "- HTTP/1.1, requests/s within 15 % of wrk: 1.00 (1.00 to 1.00), met.",
            "- at most 1.25 × wrk's CPU per request: 3.00 (3.00 to 3.00), not met.",
            "- the same of its thread alone, at most 1.25 × wrk's: 1.20 (1.20 to 1.20), met.",
            "- HTTP/2, requests/s within 15 % of h2load: 1.10 (0.20 to 2.00), open, because",
            "- HTTP/2, requests/s within 15 % of oha --http2: –, not measured.",
            "| HTTP/2: oha --http2 | oha is not on PATH | – | – | – | – | – |",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("of mio's least:"), "{text}");
        let rows = text.lines().filter(|line| line.starts_with('|'));
        assert!(rows.clone().count() == 8);
        for row in rows {
            assert_eq!(row.matches('|').count(), 8, "{row}");
        }
    }

    #[test]
    fn table_without_numbers_names_the_command() {
        let directory = tempfile::tempdir().unwrap();
        let text = section(directory.path()).unwrap();
        assert!(text.contains("`make check-generators`"), "{text}");
    }
}
