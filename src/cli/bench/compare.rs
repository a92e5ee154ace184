//! `surus bench compare`: measures two URLs in rounds that take turns.

use std::time::Duration;

use surus_measure::{Cell, Machine, Measured, Report, Rounds, Row, Table, Unit};

use super::measuring::{self, Result};
use super::options::Load;
use super::outputs::Output;

/// With fewer rounds, the bootstrap's interval is too narrow for a verdict.
const LEAST_ROUNDS: usize = 6;

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
    rounds: Rounds,
}

pub fn run(args: &Compare) -> anyhow::Result<()> {
    args.output.reject_series("compare")?;
    let duration = Duration::from_secs(2);
    let urls = [&args.first, &args.second];
    let mut plans = Vec::new();
    for url in urls {
        let plan = args.load.plan(std::slice::from_ref(url), None, duration)?;
        // The first run of a server is not like the others.
        measuring::warm_up(
            &plan,
            args.load.warm_up.or(Some(Duration::from_millis(500))),
        )?;
        plans.push(plan);
    }
    let mut quantities = quantities();
    for round in 0..args.rounds as usize {
        for contestant in Rounds::order(plans.len(), round) {
            let result = measuring::measure(&plans[contestant], &[], false)?;
            super::fail_if_unexpected(&result.outcome)?;
            if result.outcome.is_interrupted {
                anyhow::bail!("interrupted in round {} of {}", round + 1, args.rounds);
            }
            for quantity in &mut quantities {
                // A quantity that one round lacks is left out of the report.
                let value = (quantity.of)(&result).unwrap_or(f64::NAN);
                quantity.rounds.push(contestant, value);
            }
            super::progress::line(&format!(
                "round {}/{}  {}  {:.0}/s",
                round + 1,
                args.rounds,
                urls[contestant],
                result.outcome.rate()
            ));
        }
    }
    let load = args.load.describe(&plans[0]);
    let report = Report {
        title: format!("surus bench compare {} {}", args.first, args.second),
        subtitle: format!("{} rounds of {load}", args.rounds),
        machine: Machine::this(),
        notes: Vec::new(),
        tables: vec![Table {
            key: "comparison".into(),
            title: "Medians, and their ratio with its 95 % interval".into(),
            columns: ["A", "B", "A / B", "verdict"].map(String::from).to_vec(),
            rows: quantities.iter().filter_map(row).collect(),
        }],
        charts: Vec::new(),
        bars: Vec::new(),
        advice: None,
    };
    args.output.print(&report, None)
}

fn quantities() -> Vec<Quantity> {
    let quantity = |key, label, unit, of| Quantity {
        key,
        label,
        unit,
        of,
        rounds: Rounds::new(2),
    };
    vec![
        quantity("rate", "requests/s", Unit::PerSecond, |result| {
            Some(result.outcome.rate())
        }),
        quantity("cpu_per_request", "CPU per request", Unit::Us, |result| {
            let cpu = result.usage.as_ref()?.cpu();
            let requests = result.outcome.totals.requests;
            (cpu > 0.0).then(|| cpu * 1e6 / requests as f64)
        }),
        quantity("p50", "p50", Unit::Ms, |result| {
            Some(result.outcome.latencies.percentile_ms(50.0))
        }),
        quantity("p99", "p99", Unit::Ms, |result| {
            Some(result.outcome.latencies.percentile_ms(99.0))
        }),
    ]
}

fn row(quantity: &Quantity) -> Option<Row> {
    let rounds = &quantity.rounds;
    if (0..2).any(|contestant| {
        rounds
            .samples(contestant)
            .iter()
            .any(|value| value.is_nan())
    }) {
        return None;
    }
    let median = |contestant| {
        let number = Measured::median(rounds.samples(contestant), quantity.unit);
        number.map_or_else(|| Cell::missing("no rounds"), Cell::measured)
    };
    let ratio = rounds.ratio(0, 1);
    let verdict = match ratio {
        _ if rounds.samples(0).len() < LEAST_ROUNDS => "too few rounds",
        None => "no ratio",
        Some(ratio) if !ratio.shows_difference() => "no difference seen",
        Some(ratio) if ratio.value > 1.0 => "A is higher",
        Some(_) => "A is lower",
    };
    let ratio = ratio.map(Measured::ratio);
    let ratio = ratio.map_or_else(|| Cell::missing("no ratio"), Cell::measured);
    let cells = vec![median(0), median(1), ratio, Cell::Verdict { verdict }];
    Some(Row::new(quantity.key, quantity.label, cells))
}
