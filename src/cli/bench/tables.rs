//! The report of a run: its tables and charts.

use std::collections::{BTreeMap, BTreeSet};

use surus_load::{Plan, RequestFailure, RunOutcome};
use surus_measure::recorder::PERCENTILES;
use surus_measure::{Cell, Chart, Line, Measured, Report, Row, Scale, Second, Table, Unit, Usage};

use super::measuring::Result;
use super::notes;

pub fn report(title: String, load: String, plan: &Plan, result: &Result) -> Report {
    let outcome = &result.outcome;
    let mut tables = vec![throughput(outcome), latency(outcome)];
    if outcome.totals.failed() > 0 {
        tables.push(failures(outcome));
    }
    let totals = &outcome.totals;
    if is_notable(&totals.statuses) || totals.failures_of(RequestFailure::Status) > 0 {
        tables.push(statuses(&[""], &[&totals.statuses]));
    }
    if let Some(usage) = &result.usage {
        tables.push(server(outcome, usage));
    }
    tables.push(generator(outcome));
    Report {
        title,
        subtitle: load,
        machine: result.machine.clone(),
        failure: super::failure(outcome),
        notes: notes::of_run(plan, result),
        tables,
        charts: charts(result),
        bars: Vec::new(),
        advice: None,
    }
}

fn table(key: &str, title: &str, rows: Vec<Row>) -> Table {
    Table {
        key: key.into(),
        title: title.into(),
        columns: vec![String::new()],
        rows,
    }
}

fn throughput(outcome: &RunOutcome) -> Table {
    let totals = &outcome.totals;
    let mut rows = vec![
        Row::once("rate", "requests/s", outcome.rate(), Unit::PerSecond),
        Row::once(
            "responses",
            "expected responses",
            totals.responses as f64,
            Unit::Count,
        ),
        Row::once(
            "failed",
            "failed requests",
            totals.failed() as f64,
            Unit::Count,
        ),
        Row::once(
            "elapsed",
            "time",
            outcome.elapsed.as_secs_f64(),
            Unit::Seconds,
        ),
        Row::once("received", "received", totals.received as f64, Unit::Bytes),
        Row::once("sent", "sent", totals.sent as f64, Unit::Bytes),
        Row::once(
            "connections",
            "connections opened",
            totals.connections as f64,
            Unit::Count,
        ),
    ];
    if let Some(offered) = outcome.offered {
        rows.push(Row::once(
            "due",
            "requests due",
            offered.due as f64,
            Unit::Count,
        ));
        rows.push(Row::once(
            "unsent",
            "due and never sent",
            offered.unsent as f64,
            Unit::Count,
        ));
    }
    table("throughput", "Throughput", rows)
}

fn latency(outcome: &RunOutcome) -> Table {
    let latencies = &outcome.latencies;
    let mut rows: Vec<_> = PERCENTILES
        .iter()
        .map(|percent| {
            let label = format!("p{percent}");
            Row::once(&label, &label, latencies.percentile_ms(*percent), Unit::Ms)
        })
        .collect();
    rows.push(Row::once("max", "max", latencies.max_ms(), Unit::Ms));
    rows.push(Row::once("mean", "mean", latencies.mean_ms(), Unit::Ms));
    if outcome.totals.responses == 0 {
        rows = vec![Row::new(
            "none",
            "latency",
            vec![Cell::missing("no expected response")],
        )];
    }
    let title = match outcome.offered {
        Some(_) => "Latency from when a request was due",
        None => "Latency",
    };
    table("latency", title, rows)
}

fn failures(outcome: &RunOutcome) -> Table {
    let rows = RequestFailure::ALL.into_iter().filter_map(|kind| {
        let count = outcome.totals.failures_of(kind);
        (count > 0).then(|| Row::once(kind.key(), kind.label(), count as f64, Unit::Count))
    });
    table("failures", "Failures", rows.collect())
}

/// Whether a status is worth a table: any but 200.
pub fn is_notable(statuses: &BTreeMap<u16, u64>) -> bool {
    statuses.keys().any(|status| *status != 200)
}

/// Responses by status, with a column for each map of counts.
pub fn statuses(columns: &[&str], counts: &[&BTreeMap<u16, u64>]) -> Table {
    let all: BTreeSet<u16> = counts.iter().flat_map(|it| it.keys().copied()).collect();
    let row = |status: u16| {
        let count = |counts: &&BTreeMap<u16, u64>| {
            let count = counts.get(&status).copied().unwrap_or(0);
            Cell::measured(Measured::once(count as f64, Unit::Count))
        };
        let name = status.to_string();
        Row::new(&name, &name, counts.iter().map(count).collect())
    };
    Table {
        key: "statuses".into(),
        title: "Responses by status".into(),
        columns: columns.iter().map(ToString::to_string).collect(),
        rows: all.into_iter().map(row).collect(),
    }
}

fn server(outcome: &RunOutcome, usage: &Usage) -> Table {
    let requests = outcome.totals.requests.max(1) as f64;
    // Its CPU time has that of the drain after the load as well.
    let seconds = usage.samples.last().map_or(0.0, |last| last.at).max(1e-9);
    let per_request = match usage.cpu_per(outcome.totals.requests) {
        None if !usage.ended.is_empty() => Cell::missing("a process ended"),
        None => Cell::missing("too little CPU time to divide"),
        Some(cpu) => Cell::measured(Measured::once(cpu, Unit::Us)),
    };
    let pss = match usage.peak_pss() {
        None => Cell::missing("not readable; run as root or as the server's user"),
        Some(bytes) => Cell::measured(Measured::once(bytes as f64, Unit::Bytes)),
    };
    let (voluntary, involuntary) = usage.switches();
    let switches = voluntary + involuntary;
    let rows = vec![
        Row::new("cpu_per_request", "CPU per request", vec![per_request]),
        Row::once(
            "cpu",
            "CPU (100 % is one CPU)",
            usage.cpu() / seconds * 100.0,
            Unit::Percent,
        ),
        Row::new("pss", "memory, highest (PSS)", vec![pss]),
        Row::once(
            "switches_per_request",
            "context switches per request",
            switches as f64 / requests,
            Unit::Ratio,
        ),
        Row::once(
            "involuntary_switches",
            "of these, involuntary",
            involuntary as f64,
            Unit::Count,
        ),
        Row::once(
            "processes",
            "processes",
            usage.processes() as f64,
            Unit::Count,
        ),
    ];
    let title = format!("Server: {}, with descendants", usage.names());
    table("server", &title, rows)
}

fn generator(outcome: &RunOutcome) -> Table {
    let requests = outcome.totals.requests.max(1) as f64;
    let per_request = outcome.own_cpu.as_secs_f64() * 1e6 / requests;
    let mut rows = vec![
        Row::once(
            "busy",
            "CPU (of one)",
            outcome.own_busy() * 100.0,
            Unit::Percent,
        ),
        Row::once("cpu_per_request", "CPU per request", per_request, Unit::Us),
    ];
    if let Some(offered) = outcome.offered {
        let lateness = offered.own_lateness.as_secs_f64() * 1e6;
        rows.push(Row::once(
            "lateness",
            "own lateness, p99",
            lateness,
            Unit::Us,
        ));
    }
    table("generator", "Load generator", rows)
}

fn charts(result: &Result) -> Vec<Chart> {
    let latencies = &result.outcome.latencies;
    // The last second is not a whole one. Responses of a part of a second are no rate.
    let whole = result.outcome.elapsed.as_secs();
    let seconds: Vec<_> = latencies
        .seconds
        .iter()
        .filter(|second| second.at < whole)
        .collect();
    let by_second = |value: &dyn Fn(&Second) -> f64| {
        let points = seconds
            .iter()
            .map(|second| (second.at as f64 + 0.5, value(second)));
        points.collect::<Vec<_>>()
    };
    let line = |name: &str, points| Line {
        name: name.into(),
        points,
    };
    let over_time = |title: &str, y, lines| Chart {
        title: title.into(),
        x: "seconds".into(),
        scale: Scale::Linear,
        y,
        y_scale: Scale::Linear,
        lines,
    };
    // A second without a response has no latency: the line has a gap.
    let latency = |name: &str, of: fn(&Second) -> Option<u64>| {
        let ms = |second: &Second| of(second).map_or(f64::NAN, |us| us as f64 / 1000.0);
        line(name, by_second(&ms))
    };
    let mut rates = vec![line(
        "expected",
        by_second(&|second| second.responses as f64),
    )];
    if result.outcome.totals.failed() > 0 {
        rates.push(line("failed", by_second(&|second| second.failures as f64)));
    }
    let mut charts = vec![
        Chart {
            title: "Latency by percentile".into(),
            x: "requests that were at least this fast".into(),
            scale: Scale::Nines,
            y: Unit::Ms,
            y_scale: Scale::Linear,
            lines: vec![line("latency", latencies.curve())],
        },
        over_time(
            "Latency over time",
            Unit::Ms,
            vec![
                latency("p50", |second| second.p50_us),
                latency("p99", |second| second.p99_us),
            ],
        ),
        over_time("Requests over time", Unit::PerSecond, rates),
    ];
    if let Some(usage) = &result.usage {
        // Samples after the load show an idle server.
        let end = result.outcome.elapsed.as_secs_f64() + 0.5;
        let busy = cpu_by_time(usage, end);
        let cpu = over_time("Server's CPU", Unit::Percent, vec![line("CPU", busy)]);
        charts.push(cpu);
        let memory = usage.samples.iter();
        let memory = memory.filter_map(|sample| Some((sample.at, sample.pss? as f64)));
        let memory = vec![line("PSS", memory.collect())];
        charts.push(over_time("Server's memory (PSS)", Unit::Bytes, memory));
    }
    charts.retain(|chart| !chart.is_empty());
    charts
}

/// Percents of a CPU until `end`, each since the point before it.
fn cpu_by_time(usage: &Usage, end: f64) -> Vec<(f64, f64)> {
    let mut samples = usage.samples.iter().filter(|sample| sample.at <= end);
    let mut before = samples.next();
    let point = samples.filter_map(|sample| {
        let since = before?;
        let time = sample.at - since.at;
        // Samples that follow each other closely say nothing about a clock of 10 ms.
        (time > 0.3).then(|| {
            before = Some(sample);
            (sample.at, (sample.cpu - since.cpu) / time * 100.0)
        })
    });
    point.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use surus_load::Totals;
    use surus_measure::{Machine, Recorder, probe};

    use super::*;

    /// The titles of the charts of a run of this length, which had a response every 100 ms.
    fn charts_of(elapsed: Duration) -> Vec<String> {
        let mut recorder = Recorder::new(false);
        let mut totals = Totals::default();
        let mut at = Duration::ZERO;
        while at < elapsed {
            recorder.response(at, Duration::from_millis(1), 0);
            totals.responses += 1;
            at += Duration::from_millis(100);
        }
        let outcome = RunOutcome {
            elapsed,
            late: Vec::new(),
            totals,
            latencies: recorder.finish(elapsed),
            offered: None,
            own_cpu: Duration::ZERO,
            own_cpu_in_time: Duration::ZERO,
            is_interrupted: false,
        };
        let result = Result {
            outcome,
            usage: None,
            machine: Machine::this(),
        };
        let charts = charts(&result).into_iter();
        charts.map(|chart| chart.title).collect()
    }

    #[test]
    fn run_without_a_whole_second_has_no_chart_over_time() {
        let short = ["Latency by percentile"];
        assert_eq!(charts_of(Duration::from_millis(300)), short);
        assert_eq!(charts_of(Duration::from_millis(999)), short);
        let long = [short[0], "Latency over time", "Requests over time"];
        assert_eq!(charts_of(Duration::from_secs(1)), long);
    }

    #[test]
    fn cpu_of_frequent_samples_is_that_since_the_point_before() {
        let sample = |(at, cpu)| probe::Sample {
            at,
            cpu,
            pss: None,
            switches: (0, 0),
            processes: 1,
        };
        let samples = [(0.0, 0.0), (0.25, 0.1), (0.5, 0.5), (0.75, 0.5), (1.0, 0.5)];
        let usage = |samples: &[(f64, f64)]| Usage {
            pids: vec![1],
            programs: vec!["init".into()],
            ended: Vec::new(),
            samples: samples.iter().copied().map(sample).collect(),
        };
        let points = [(0.5, 100.0), (1.0, 0.0)];
        assert_eq!(cpu_by_time(&usage(&samples), 1.5), points);
        assert_eq!(cpu_by_time(&usage(&samples), 0.9), points[..1]);
        assert!(cpu_by_time(&usage(&[]), 1.0).is_empty());
    }
}
