//! `surus bench compare`: measures two URLs in rounds that take turns.

mod caveats;

use std::time::Duration;

use anyhow::bail;
use surus_measure::{Cell, Chart, Latencies, Line, Machine, Measured, Report, Rounds, Row};
use surus_measure::{Scale, Table, Unit};

use super::interrupt;
use super::measuring::{self, Result};
use super::options::{Load, parse_time};
use super::outputs::Output;
use super::tables;
use caveats::Caveats;

/// With fewer rounds, the bootstrap's interval is too narrow for a verdict.
const LEAST_ROUNDS: usize = 6;
/// What the URLs are called in the report.
const NAMES: [&str; 2] = ["A", "B"];

#[derive(Debug, clap::Args)]
pub struct Compare {
    /// First URL
    #[arg(value_name = "A")]
    first: String,
    /// Second URL
    #[arg(value_name = "B")]
    second: String,
    /// Number of rounds; each measures both URLs once, in alternating order
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// How long to send requests in each round: 10s, 500ms, 2m; a bare number means seconds
    /// [default: 2s]
    #[arg(short = 'd', long, value_name = "TIME", value_parser = parse_time)]
    duration: Option<Duration>,
    /// Process of the server of A; may be repeated [default: those that listen on its port]
    #[arg(long, value_name = "PID")]
    pid_a: Vec<i32>,
    /// Process of the server of B; may be repeated [default: those that listen on its port]
    #[arg(long, value_name = "PID")]
    pid_b: Vec<i32>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    output: Output,
}

/// What is compared.
struct Quantity {
    key: &'static str,
    label: &'static str,
    unit: Unit,
    of: fn(&Result) -> Option<f64>,
    /// What a row says if a round has no sample.
    missing: &'static str,
    rounds: Rounds,
}

impl Quantity {
    /// Whether a contestant has a sample in each round.
    fn is_whole(&self, contestant: usize) -> bool {
        let mut samples = self.rounds.samples(contestant).iter();
        !samples.any(|value| value.is_nan())
    }
}

pub fn run(args: &Compare) -> anyhow::Result<()> {
    let duration = args.duration.unwrap_or(Duration::from_secs(2));
    let urls = [&args.first, &args.second];
    let pids = [&args.pid_a, &args.pid_b];
    for (pids, option) in pids.into_iter().zip(["--pid-a", "--pid-b"]) {
        measuring::ensure_running(pids, option)?;
    }
    let mut plans = Vec::new();
    for url in urls {
        plans.push(args.load.plan(std::slice::from_ref(url), None, duration)?);
    }
    interrupt::remember()?;
    let page = args.output.open()?;
    for plan in &plans {
        // The first run of a server is not like the others.
        let time = args.load.warm_up.unwrap_or(Duration::from_millis(500));
        measuring::warm_up(plan, Some(time))?;
    }
    let mut quantities = quantities();
    let mut caveats = [Caveats::default(), Caveats::default()];
    let mut latencies: [Option<Latencies>; 2] = [None, None];
    let mut rounds = 0;
    let mut failure = None;
    'rounds: for round in 0..args.rounds {
        let mut results = Vec::new();
        for contestant in Rounds::order(plans.len(), round as usize) {
            let result = measuring::measure(&plans[contestant], pids[contestant], false)?;
            if result.outcome.is_interrupted {
                break 'rounds;
            }
            if let Some(what) = super::failure(&result.outcome) {
                let name = NAMES[contestant];
                failure = Some(format!(
                    "{name}, round {} of {}: {what}",
                    round + 1,
                    args.rounds
                ));
                break 'rounds;
            }
            super::progress::line(&format!(
                "round {}/{}  {}  {:.0}/s",
                round + 1,
                args.rounds,
                urls[contestant],
                result.outcome.rate()
            ));
            results.push((contestant, result));
        }
        // Only whole rounds count, because they are compared in pairs.
        for (contestant, result) in results {
            caveats[contestant].add(&result);
            match &mut latencies[contestant] {
                Some(all) => all.add(&result.outcome.latencies),
                none => *none = Some(result.outcome.latencies.clone()),
            }
            for quantity in &mut quantities {
                // A quantity that one round lacks is not compared.
                let value = (quantity.of)(&result).unwrap_or(f64::NAN);
                quantity.rounds.push(contestant, value);
            }
        }
        rounds += 1;
    }
    let interruption = (rounds < args.rounds && failure.is_none())
        .then(|| format!("interrupted in round {} of {}", rounds + 1, args.rounds));
    if let (Some(interruption), 0) = (&interruption, rounds) {
        bail!("{interruption}; nothing was compared");
    }
    let load = args.load.describe(&plans[0]);
    let is_limited = caveats.iter().any(|url| url.generator_limited > 0);
    let mut tables = Vec::new();
    if rounds > 0 {
        tables.push(Table {
            key: "comparison".into(),
            title: "Medians, and their ratio with its 95 % interval".into(),
            columns: ["A", "B", "A / B", "verdict"].map(String::from).to_vec(),
            rows: quantities
                .iter()
                .map(|quantity| row(quantity, is_limited))
                .collect(),
        });
        let statuses = caveats.each_ref().map(|url| &url.statuses);
        if statuses.iter().any(|counts| tables::is_notable(counts)) {
            tables.push(tables::statuses(&NAMES, &statuses));
        }
        tables.push(servers(&caveats));
    }
    let mut notes = caveats::notes(&caveats, rounds);
    notes.splice(0..0, interruption.clone());
    notes.extend(surus_measure::rounds::caveat(rounds as usize));
    let report = Report {
        title: format!("surus bench compare {} {}", args.first, args.second),
        subtitle: format!("{rounds} rounds of {load}"),
        machine: Machine::this(),
        failure: failure.clone(),
        notes,
        tables,
        charts: charts(&quantities, latencies),
        bars: Vec::new(),
        advice: None,
    };
    args.output.print(&report, page)?;
    match (failure, interruption) {
        (Some(what), _) => bail!(what),
        (None, Some(what)) => bail!("{what}; the report is of the rounds before"),
        (None, None) => Ok(()),
    }
}

/// Whose CPU time was compared. A reader sees there if a process is missing, such as php-fpm.
fn servers(caveats: &[Caveats; 2]) -> Table {
    let row = |(name, caveats): (&str, &Caveats)| {
        let cell = match caveats.server.clone() {
            Some(text) => Cell::Text { text },
            None => Cell::missing("not found"),
        };
        Row::new(name, name, vec![cell])
    };
    Table {
        key: "servers".into(),
        title: "Processes whose CPU time is counted, with their descendants".into(),
        columns: vec![String::new()],
        rows: NAMES.into_iter().zip(caveats).map(row).collect(),
    }
}

fn quantities() -> Vec<Quantity> {
    let quantity = |key, label, unit, of| Quantity {
        key,
        label,
        unit,
        of,
        missing: match unit {
            Unit::Us => "not known in every round",
            _ => "no rounds",
        },
        rounds: Rounds::new(2),
    };
    vec![
        quantity("rate", "requests/s", Unit::PerSecond, |result| {
            Some(result.outcome.rate())
        }),
        quantity(
            "cpu_per_request",
            "CPU per request",
            Unit::Us,
            cpu_per_request,
        ),
        quantity("p50", "p50", Unit::Ms, |result| {
            Some(result.outcome.latencies.percentile_ms(50.0))
        }),
        quantity("p99", "p99", Unit::Ms, |result| {
            Some(result.outcome.latencies.percentile_ms(99.0))
        }),
    ]
}

fn cpu_per_request(result: &Result) -> Option<f64> {
    let usage = result.usage.as_ref()?;
    usage.cpu_per(result.outcome.totals.requests)
}

/// A quantity of both URLs. A quantity that the load generator has limited has no verdict.
fn row(quantity: &Quantity, is_limited: bool) -> Row {
    let rounds = &quantity.rounds;
    let median = |contestant| {
        let samples = rounds.samples(contestant);
        let number =
            Measured::median(samples, quantity.unit).filter(|_| quantity.is_whole(contestant));
        number.map_or_else(|| Cell::missing(quantity.missing), Cell::measured)
    };
    // The interval of a single round would have no width.
    let has_interval = rounds.samples(0).len() > 1;
    let ratio = rounds
        .ratio(0, 1)
        .filter(|_| has_interval && quantity.is_whole(0) && quantity.is_whole(1));
    let verdict = match ratio {
        _ if is_limited && quantity.unit != Unit::Us => "the generator was the limit",
        _ if rounds.samples(0).len() < LEAST_ROUNDS => "too few rounds",
        None => "no ratio",
        Some(ratio) if !ratio.shows_difference() => "no difference seen",
        Some(ratio) if ratio.value > 1.0 => "A is higher",
        Some(_) => "A is lower",
    };
    let ratio = ratio.map(Measured::ratio);
    let missing = if has_interval {
        "no ratio"
    } else {
        "one round has none"
    };
    let ratio = ratio.map_or_else(|| Cell::missing(missing), Cell::measured);
    let cells = vec![median(0), median(1), ratio, Cell::Verdict { verdict }];
    Row::new(quantity.key, quantity.label, cells)
}

/// Latencies of all rounds, and each quantity by round.
fn charts(quantities: &[Quantity], latencies: [Option<Latencies>; 2]) -> Vec<Chart> {
    let line = |contestant: usize, points| Line {
        name: NAMES[contestant].into(),
        points,
    };
    let curves = latencies.iter().enumerate();
    let curves = curves.filter_map(|(index, all)| Some(line(index, all.as_ref()?.curve())));
    let mut charts = vec![Chart {
        title: "Latency by percentile, all rounds".into(),
        x: "requests that were at least this fast".into(),
        scale: Scale::Nines,
        y: Unit::Ms,
        y_scale: Scale::Linear,
        lines: curves.collect(),
    }];
    let by_round = |rounds: &Rounds, contestant| {
        let samples = rounds.samples(contestant).iter().enumerate();
        samples
            .map(|(round, value)| (round as f64 + 1.0, *value))
            .collect()
    };
    let whole = quantities
        .iter()
        .filter(|it| it.is_whole(0) && it.is_whole(1));
    charts.extend(whole.map(|quantity| {
        Chart {
            title: format!("{} by round", quantity.label),
            x: "round".into(),
            scale: Scale::Whole,
            y: quantity.unit,
            y_scale: Scale::Linear,
            lines: (0..2)
                .map(|index| line(index, by_round(&quantity.rounds, index)))
                .collect(),
        }
    }));
    charts.retain(|chart| !chart.is_empty());
    charts
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The verdict on a quantity of which A and B have these samples, a pair per round.
    fn verdict_on(rounds: &[[f64; 2]], key: &str, is_limited: bool) -> &'static str {
        let mut all = quantities();
        let quantity = all.iter_mut().find(|it| it.key == key).unwrap();
        for [a, b] in rounds {
            quantity.rounds.push(0, *a);
            quantity.rounds.push(1, *b);
        }
        match row(quantity, is_limited).cells[3] {
            Cell::Verdict { verdict } => verdict,
            _ => unreachable!("the fourth column is the verdict"),
        }
    }

    #[test]
    fn verdict_needs_six_rounds_and_an_interval_without_one() {
        let (higher, lower) = ([2.0, 1.0], [1.0, 2.0]);
        let mixed = [higher, lower, higher, lower, higher, lower];
        for (rounds, expected) in [
            (&mixed[..], "no difference seen"),
            (&[lower; 6], "A is lower"),
            (&[higher; 6], "A is higher"),
            (&[lower; 5], "too few rounds"),
        ] {
            assert_eq!(verdict_on(rounds, "p50", false), expected, "{rounds:?}");
        }
    }

    #[test]
    fn rate_limited_by_the_generator_has_no_verdict() {
        let verdict = |key, is_limited| verdict_on(&[[2.0, 1.0]; 6], key, is_limited);
        for key in ["rate", "p50", "p99"] {
            assert_eq!(verdict(key, false), "A is higher");
            assert_eq!(verdict(key, true), "the generator was the limit");
        }
        assert_eq!(verdict("cpu_per_request", true), "A is higher");
    }

    #[test]
    fn quantity_that_a_round_lacks_stays_in_the_table_and_says_so() {
        let mut all = quantities();
        let cpu = all
            .iter_mut()
            .find(|it| it.key == "cpu_per_request")
            .unwrap();
        for value in [1.0, f64::NAN] {
            cpu.rounds.push(0, value);
            cpu.rounds.push(1, 1.0);
        }
        let cells = row(cpu, false).cells;
        assert_eq!(cells[0], Cell::missing("not known in every round"));
        assert_eq!(cells[1].to_string(), "1.00 µs");
        assert_eq!(cells[2], Cell::missing("no ratio"));
        let charts = charts(&all, [None, None]);
        assert!(charts.is_empty(), "{charts:?}");
    }

    #[test]
    fn single_round_has_no_ratio() {
        let mut all = quantities();
        all[0].rounds.push(0, 2.0);
        all[0].rounds.push(1, 1.0);
        let cells = row(&all[0], false).cells;
        assert_eq!(cells[2], Cell::missing("one round has none"));
        all[0].rounds.push(0, 2.0);
        all[0].rounds.push(1, 1.0);
        assert_ne!(
            row(&all[0], false).cells[2],
            Cell::missing("one round has none")
        );
    }
}
