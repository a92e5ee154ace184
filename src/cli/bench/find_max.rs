//! `surus bench --find-max`: searches the highest rate that keeps a bound on the latency.

use std::time::Duration;

use anyhow::bail;
use surus_load::{FindMax, Pace, RunOutcome, Schedule};
use surus_measure::{Cell, Machine, Measured, Report, Row, Table, Unit};

use super::{Run, interrupt, measuring};

/// Most rates that are tried.
const ATTEMPTS: usize = 14;

pub fn run(args: &Run, urls: &[String], p99: Duration) -> anyhow::Result<()> {
    let page = args.output.open()?;
    let duration = args.duration.unwrap_or(Duration::from_secs(5));
    let mut plan = args.load.plan(urls, args.file.as_ref(), duration)?;
    let load = args
        .load
        .describe_with(&plan, "open loop at the rates below");
    interrupt::remember()?;
    measuring::warm_up(&plan, args.load.warm_up)?;
    // What a closed loop reaches is near the highest rate, also of a server that sheds load.
    let closed = measuring::measure(&plan, &args.pids, true)?.outcome;
    if closed.is_interrupted {
        bail!("interrupted while searching the highest rate");
    }
    if closed.totals.requests == closed.totals.failed() {
        super::fail_if_unexpected(&closed)?;
    }
    let mut search = FindMax::new(closed.rate(), ATTEMPTS);
    let mut rows = Vec::new();
    let mut is_interrupted = false;
    let mut was_generator_limited = closed.is_generator_limited();
    while let Some(rate) = search.next_rate() {
        plan.pace = Pace::Open(Schedule::constant(rate));
        let outcome = measuring::measure(&plan, &args.pids, true)?.outcome;
        if outcome.is_interrupted {
            if rows.is_empty() {
                bail!("interrupted while searching the highest rate");
            }
            is_interrupted = true;
            break;
        }
        let holds = holds(&outcome, rate, p99);
        was_generator_limited |= !holds && outcome.is_generator_limited();
        search.record(rate, holds);
        let p99 = outcome.latencies.percentile_ms(99.0);
        super::progress::line(&format!(
            "{rate:.0}/s: p99 {p99:.2} ms, {}",
            if holds { "holds" } else { "does not hold" }
        ));
        rows.push((rate, outcome.rate(), row(rate, &outcome, holds)));
    }
    rows.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
    // What was offered is a choice; what came back is measured.
    let best = search.best();
    let best = best.and_then(|best| rows.iter().find(|(rate, ..)| *rate == best));
    let best = match best {
        Some((_, rate, _)) => Row::once("rate", "highest rate that holds", *rate, Unit::PerSecond),
        None => Row::new(
            "rate",
            "highest rate that holds",
            vec![Cell::missing("none holds")],
        ),
    };
    let mut notes = Vec::new();
    if is_interrupted {
        notes.push("the search was interrupted; the highest rate may be another".to_string());
    }
    if was_generator_limited {
        let limit = "the load generator was the limit of some runs; the server may do more";
        notes.push(limit.to_string());
    }
    let tried = rows.len();
    let report = Report {
        title: format!("{} --find-max", super::title(urls, args.file.as_ref())),
        subtitle: format!("p99 within {} ms; {load}", p99.as_secs_f64() * 1000.0),
        machine: Machine::this(),
        notes,
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
                rows: rows.into_iter().map(|(.., row)| row).collect(),
            },
        ],
        charts: Vec::new(),
        bars: Vec::new(),
        advice: None,
    };
    args.output.print(&report, None, page)?;
    if is_interrupted {
        bail!("interrupted while searching the highest rate; the report is of {tried} rates");
    }
    match search.best() {
        Some(_) => Ok(()),
        None => bail!("no rate keeps a p99 of {} ms", p99.as_secs_f64() * 1000.0),
    }
}

/// A rate holds if no request failed, and 99 % of those that were due had their response within the
/// bound.
fn holds(outcome: &RunOutcome, rate: f64, bound: Duration) -> bool {
    let (due, unsent) = outcome
        .offered
        .map_or((outcome.totals.requests, 0), |offered| {
            (offered.due, offered.unsent)
        });
    // A request that was never sent counts as slow, even if the run ended before its bound did.
    let young = unsent.min((rate * bound.as_secs_f64()).ceil() as u64);
    let slow = outcome.latencies.count_above(bound) + young;
    outcome.totals.failed() == 0 && slow * 100 <= due
}

fn row(rate: f64, outcome: &RunOutcome, holds: bool) -> Row {
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

#[cfg(test)]
mod tests {
    use surus_load::{Offered, Totals};
    use surus_measure::Recorder;

    use super::*;

    /// A run of 1000 due requests in a second. Those that were never sent were due in its last 10
    /// ms.
    fn outcome(slow: u64, unsent: u64) -> RunOutcome {
        let mut recorder = Recorder::new(false);
        let responses = 1000 - unsent;
        for number in 0..responses {
            let latency = Duration::from_millis(if number < slow { 50 } else { 1 });
            recorder.response(Duration::ZERO, latency, 0);
        }
        if unsent > 0 {
            recorder.unsent(Duration::from_millis(10), unsent);
        }
        RunOutcome {
            elapsed: Duration::from_secs(1),
            totals: Totals {
                requests: responses,
                responses,
                ..Totals::default()
            },
            latencies: recorder.finish(Duration::from_secs(1)),
            offered: Some(Offered {
                due: 1000,
                unsent,
                own_lateness: Duration::ZERO,
            }),
            own_cpu: Duration::ZERO,
            own_cpu_in_time: Duration::ZERO,
            is_interrupted: false,
        }
    }

    #[test]
    fn rate_holds_if_slow_and_unsent_requests_together_are_one_percent() {
        let bound = Duration::from_millis(20);
        for (slow, unsent, expected) in [
            (0, 0, true),
            (10, 0, true),
            (0, 10, true),
            (5, 5, true),
            (11, 0, false),
            (0, 11, false),
            (10, 10, false),
        ] {
            let holds = holds(&outcome(slow, unsent), 1000.0, bound);
            assert_eq!(holds, expected, "{slow} slow, {unsent} never sent");
        }
    }
}
