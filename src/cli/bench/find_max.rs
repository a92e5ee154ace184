//! `surus bench --find-max`: searches the highest rate that keeps a bound on the latency.

use std::time::Duration;

use anyhow::bail;
use surus_load::{FindMax, Outcome, Pace, Schedule};
use surus_measure::{Cell, Machine, Measured, Report, Row, Table, Unit};

use super::{Run, measuring};

/// Most rates that are tried.
const ATTEMPTS: usize = 14;

pub fn run(args: &Run, urls: &[String], p99: Duration) -> anyhow::Result<()> {
    let mut plan = args
        .load
        .plan(urls, args.file.as_ref(), Duration::from_secs(5))?;
    let load = args.load.describe(&plan);
    measuring::warm_up(&plan, args.load.warm_up)?;
    // What a closed loop reaches is near the highest rate.
    let closed = measuring::measure(&plan, &args.pids, true)?.outcome;
    super::fail_if_unexpected(&closed)?;
    let mut search = FindMax::new(closed.rate(), ATTEMPTS);
    let mut rows = Vec::new();
    let mut was_generator_limited = closed.is_generator_limited();
    while let Some(rate) = search.next_rate() {
        plan.pace = Pace::Open(Schedule::constant(rate));
        let outcome = measuring::measure(&plan, &args.pids, true)?.outcome;
        if outcome.is_interrupted {
            bail!("interrupted while searching the highest rate");
        }
        let holds = holds(&outcome, p99);
        was_generator_limited |= !holds && outcome.is_generator_limited();
        search.tell(rate, holds);
        let p99 = outcome.latencies.percentile_ms(99.0);
        super::progress::line(&format!(
            "{rate:.0}/s: p99 {p99:.2} ms, {}",
            if holds { "holds" } else { "does not hold" }
        ));
        rows.push((rate, row(rate, &outcome, holds)));
    }
    rows.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let best = match search.best() {
        Some(rate) => Row::once("rate", "highest rate that holds", rate, Unit::PerSecond),
        None => Row::new(
            "rate",
            "highest rate that holds",
            vec![Cell::missing("none holds")],
        ),
    };
    let limit = "the load generator was the limit of some runs; the server may do more";
    let report = Report {
        title: format!("{} --find-max", super::title(urls, args.file.as_ref())),
        subtitle: format!("p99 within {} ms; {load}", p99.as_secs_f64() * 1000.0),
        machine: Machine::this(),
        notes: was_generator_limited
            .then(|| limit.to_string())
            .into_iter()
            .collect(),
        tables: vec![
            Table {
                key: "highest".into(),
                title: "Result".into(),
                columns: vec![String::new()],
                rows: vec![best],
            },
            Table {
                key: "attempts".into(),
                title: "Rates that were tried".into(),
                columns: ["p50", "p99", "failed", "never sent", "verdict"]
                    .map(String::from)
                    .to_vec(),
                rows: rows.into_iter().map(|(_, row)| row).collect(),
            },
        ],
        charts: Vec::new(),
        bars: Vec::new(),
        advice: None,
    };
    args.output.print(&report, None)?;
    match search.best() {
        Some(_) => Ok(()),
        None => bail!("no rate keeps a p99 of {} ms", p99.as_secs_f64() * 1000.0),
    }
}

/// A rate holds if all requests were sent, none failed, and the 99th percentile is within the
/// bound.
fn holds(outcome: &Outcome, p99: Duration) -> bool {
    let is_fast = outcome.latencies.percentile_ms(99.0) <= p99.as_secs_f64() * 1000.0;
    outcome.totals.failed() == 0 && outcome.kept_rate() && is_fast
}

fn row(rate: f64, outcome: &Outcome, holds: bool) -> Row {
    let cell = |value, unit| Cell::measured(Measured::once(value, unit));
    let latencies = &outcome.latencies;
    let unsent = outcome.offered.map_or(0, |offered| offered.unsent);
    let verdict = if holds { "holds" } else { "does not hold" };
    let label = Unit::PerSecond.write(rate);
    Row::new(
        &format!("{rate:.1}"),
        &label,
        vec![
            cell(latencies.percentile_ms(50.0), Unit::Ms),
            cell(latencies.percentile_ms(99.0), Unit::Ms),
            cell(outcome.totals.failed() as f64, Unit::Count),
            cell(unsent as f64, Unit::Count),
            Cell::Verdict { verdict },
        ],
    )
}
