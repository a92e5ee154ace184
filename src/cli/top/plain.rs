//! The state of a server as plain text, for `surus top --once`.

use std::fmt::Write as _;

use crate::cli::status::{duration, indented, scaling, site_line, time_left};
use crate::observe::snapshot::{PoolSnapshot, Snapshot};
use crate::observe::status::{CertificateStatus, DomainStatus, WorkerState};

/// Everything, in the order of the screen.
pub fn text(now: &Snapshot) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    for (name, value) in summary(now) {
        let _ = writeln!(text, "{name:<22}{value}");
    }
    for pool in &now.pools {
        let _ = writeln!(text, "\n{}", heading(pool));
        let _ = writeln!(
            text,
            "{}",
            row(["PID", "STATE", "FOR", "SERVED", "MEMORY", "REQUEST"])
        );
        for worker in &pool.workers {
            let _ = writeln!(
                text,
                "{}",
                row([
                    &worker.pid.to_string(),
                    state(worker.state),
                    &duration(worker.for_ms),
                    &worker.served.to_string(),
                    &memory(worker.memory),
                    worker.request.as_deref().unwrap_or_default(),
                ])
            );
            text.push_str(&indented(worker));
        }
        let more = unlisted(pool);
        if more > 0 {
            let _ = writeln!(text, "          and {more} more");
        }
    }
    let mut section = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = writeln!(text, "\n{title}");
            for line in lines {
                let _ = writeln!(text, "  {line}");
            }
        }
    };
    section("slowest requests", slowest(now));
    section("sites with problems", sites(now));
    section("errors", errors(now));
    section("worker exits", exits(now));
    section("certificates", certificates(now));
    text
}

fn row(cells: [&str; 6]) -> String {
    let [pid, state, lasts, served, memory, request] = cells;
    let row = format!("{pid:>8}  {state:<10}{lasts:>9}{served:>10}{memory:>10}  {request}");
    row.trim_end().to_owned()
}

/// How many workers of a pool the snapshot leaves out.
pub fn unlisted(pool: &PoolSnapshot) -> usize {
    let all: usize = pool.states.values().sum();
    all.saturating_sub(pool.workers.len())
}

pub fn heading(pool: &PoolSnapshot) -> String {
    let instead = pool.instead.as_ref();
    let instead = instead
        .map(|name| format!(" (served by {name})"))
        .unwrap_or_default();
    format!(
        "{}{instead}: PHP {}, generation {}, {} waiting{}",
        pool.engine,
        pool.php,
        pool.generation,
        pool.queued,
        scaling(pool.scaling.as_ref())
    )
}

/// What matters most.
pub fn summary(now: &Snapshot) -> [(&'static str, String); 7] {
    let latency = |pick: fn(&crate::observe::snapshot::Percentiles) -> f64| {
        now.latency
            .as_ref()
            .map_or("-".into(), |latency| millis(pick(latency)))
    };
    let count = |state: WorkerState| -> usize {
        let pools = now.pools.iter();
        pools
            .map(|pool| pool.states.get(&state).copied().unwrap_or(0))
            .sum()
    };
    let busy = count(WorkerState::Busy) + count(WorkerState::Finishing);
    let all = busy + count(WorkerState::Idle) + count(WorkerState::Starting);
    let queued: usize = now.pools.iter().map(|pool| pool.queued).sum();
    let bytes: u64 = now.pools.iter().map(|pool| pool.memory).sum();
    [
        ("requests/s", rate(now.requests_per_second)),
        (
            "latency p50 p90 p99",
            format!(
                "{} {} {}",
                latency(|it| it.p50),
                latency(|it| it.p90),
                latency(|it| it.p99)
            ),
        ),
        ("workers busy", format!("{busy} of {all}")),
        ("waiting", queued.to_string()),
        ("memory of workers", memory(bytes)),
        ("connections", now.connections.to_string()),
        ("failures/s", rate(failures(now))),
    ]
}

/// Failed requests per second: 5xx, and those that are not a status.
fn failures(now: &Snapshot) -> Option<f64> {
    let failed = now
        .outcomes
        .iter()
        .filter(|it| !is_class(&it.outcome, "234"));
    let rates = failed.filter_map(|it| it.per_second);
    now.requests_per_second
        .map(|_| rates.fold(0.0, |sum, rate| sum + rate))
}

fn is_class(outcome: &str, classes: &str) -> bool {
    outcome
        .strip_suffix("xx")
        .is_some_and(|class| classes.contains(class))
}

pub fn slowest(now: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for slow in &now.slowest {
        lines.push(format!(
            "{:>8}  {}  {} {}",
            millis(slow.ms),
            slow.status,
            slow.method,
            slow.target
        ));
        let stack = slow.backtrace.as_deref().unwrap_or_default();
        lines.extend(stack.lines().map(|line| format!("               {line}")));
    }
    lines
}

/// The sites that are not as configured, as `surus status` shows them.
pub fn sites(now: &Snapshot) -> Vec<String> {
    let lines = now.sites.iter().map(site_line);
    let lines = lines.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.collect()
}

pub fn errors(now: &Snapshot) -> Vec<String> {
    let mut all: Vec<_> = now.outcomes.iter().collect();
    all.retain(|it| !is_class(&it.outcome, "23"));
    all.sort_by_key(|it| std::cmp::Reverse(it.total));
    let line = |it: &&crate::observe::status::OutcomeCount| {
        format!(
            "{:>8}  {:>7}/s  {} ({})",
            it.total,
            rate(it.per_second),
            it.outcome,
            it.engine
        )
    };
    all.iter().map(line).collect()
}

pub fn exits(now: &Snapshot) -> Vec<String> {
    let mut all: Vec<_> = now.exits.iter().collect();
    all.sort_by_key(|it| std::cmp::Reverse(it.total));
    let lines = all.iter();
    lines
        .map(|it| format!("{:>8}  {} ({})", it.total, it.reason, it.engine))
        .collect()
}

/// Missing certificates, then those that are served.
pub fn certificates(now: &Snapshot) -> Vec<String> {
    [missing_certificates(now), served_certificates(now)].concat()
}

pub fn missing_certificates(now: &Snapshot) -> Vec<String> {
    let domains = now.domains.iter();
    domains.map(|status| missing(status, now.time)).collect()
}

/// The time comes before the names, because a screen has few columns for them.
pub fn served_certificates(now: &Snapshot) -> Vec<String> {
    let served = now.certificates.iter().map(|served: &CertificateStatus| {
        let (names, file) = (served.names.join(", "), &served.certificate);
        match time_left(served, now.time) {
            Some(left) => format!("ends {left}: {names} ({file})"),
            None => format!("has ended: {names} ({file})"),
        }
    });
    served.collect()
}

fn missing(status: &DomainStatus, now: u64) -> String {
    let what = match (status.is_pending, status.is_unstored) {
        (true, _) => "no certificate",
        (false, true) => "not stored",
        (false, false) => "not renewed",
    };
    let domain = &status.domain;
    let (Some(next), Some(reason)) = (status.next, &status.reason) else {
        return format!("{what} yet: {domain}");
    };
    let minutes = next.saturating_sub(now).div_ceil(60);
    format!("{what}: {domain}, next attempt in {minutes} min: {reason}")
}

pub fn rate(per_second: Option<f64>) -> String {
    match per_second {
        None => "-".into(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

pub fn state(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Starting => "starting",
        WorkerState::Idle => "idle",
        WorkerState::Busy => "busy",
        WorkerState::Finishing => "finishing",
    }
}

pub fn memory(bytes: u64) -> String {
    match bytes {
        0 => "-".into(),
        bytes => format!("{:.1}M", bytes as f64 / 1048576.0),
    }
}

fn millis(ms: f64) -> String {
    match ms {
        ms if ms < 1.0 => format!("{:.0}us", ms * 1000.0),
        ms if ms < 100.0 => format!("{ms:.1}ms"),
        ms => duration(ms as u64),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::observe::snapshot::{Percentiles, SlowRequest};
    use crate::observe::status::{
        ExitCount, OutcomeCount, ScalingStatus, SiteStatus, WorkerStatus,
    };

    pub fn snapshot() -> Snapshot {
        let worker = |pid, state, for_ms, request: Option<&str>| WorkerStatus {
            pid,
            state,
            for_ms,
            served: u64::from(pid) * 10,
            memory: u64::from(pid) << 20,
            request: request.map(Into::into),
            backtrace: request.map(|_| "at /srv/app/b.php:7\n#0 {main}".into()),
        };
        let outcome = |outcome: &str, total| OutcomeCount {
            engine: "classic".into(),
            outcome: outcome.into(),
            total,
            per_second: Some(0.5),
        };
        Snapshot {
            version: "0.1.0".into(),
            time: 1_000_000,
            requests_per_second: Some(1234.4),
            latency: Some(Percentiles {
                p50: 0.25,
                p90: 12.34,
                p99: 2500.0,
            }),
            connections: 9,
            pools: vec![PoolSnapshot {
                engine: "classic".into(),
                php: "8.2.35".into(),
                generation: 1,
                queued: 2,
                states: [(WorkerState::Idle, 1), (WorkerState::Busy, 1)].into(),
                memory: 33 << 20,
                workers: vec![
                    worker(21, WorkerState::Busy, 1200, Some("GET /slow?\u{1b}[2J")),
                    worker(12, WorkerState::Idle, 90_000, None),
                ],
                scaling: Some(ScalingStatus {
                    target: 2,
                    min: 1,
                    max: 8,
                    is_limited: true,
                }),
                ..PoolSnapshot::default()
            }],
            outcomes: vec![
                outcome("2xx", 100),
                outcome("timeout", 3),
                outcome("4xx", 7),
            ],
            exits: vec![ExitCount {
                engine: "rewind".into(),
                reason: "replaced_thread".into(),
                total: 4,
            }],
            certificates: vec![CertificateStatus {
                certificate: "/etc/a.pem".into(),
                names: vec!["example.org".into(), "www.example.org".into()],
                not_after: 1_000_000 + 62 * 86400,
                ends_soon_at: 1_000_000 + 55 * 86400,
            }],
            domains: vec![
                DomainStatus {
                    domain: "new.example".into(),
                    is_pending: true,
                    next: None,
                    reason: None,
                    is_unstored: false,
                },
                DomainStatus {
                    domain: "shop.example".into(),
                    is_pending: true,
                    next: Some(1_000_000 + 2001),
                    reason: Some("no such domain".into()),
                    is_unstored: false,
                },
            ],
            slowest: vec![SlowRequest {
                id: 1,
                method: "GET".into(),
                target: "/report".into(),
                status: 504,
                engine: "classic".into(),
                ms: 60_000.0,
                seconds_ago: 5,
                backtrace: Some("#0 /srv/app/a.php(3): sleep(99)\n#1 {main}".into()),
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn text_has_every_part() {
        let text = text(&snapshot());
        for part in [
            "requests/s            1234\n",
            "latency p50 p90 p99   250us 12.3ms 2.5s\n",
            "workers busy          1 of 2\n",
            "generation 1, 2 waiting, 2 workers of 1 to 8, memory is short for more\n",
            "\n      21  busy           1.2s       210     21.0M  GET /slow?",
            "\n            at /srv/app/b.php:7\n            #0 {main}\n",
            "\n      12  idle          1m30s       120     12.0M\n",
            "    1m00s  504  GET /report\n",
            "#0 /srv/app/a.php(3): sleep(99)\n",
            "       7      0.5/s  4xx (classic)\n",
            "       4  replaced_thread (rewind)\n",
            "\ncertificates\n  no certificate yet: new.example\n",
            "\n  no certificate: shop.example, next attempt in 34 min: no such domain\n",
            "\n  ends in 62 days: example.org, www.example.org (/etc/a.pem)\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        assert!(!text.contains("2xx") && !text.contains("  and "), "{text}");
    }

    #[test]
    fn workers_that_are_not_listed_are_counted() {
        let mut now = snapshot();
        now.pools[0].states.insert(WorkerState::Idle, 57);
        let text = text(&now);
        assert!(text.contains("12.0M\n          and 56 more\n"), "{text}");
    }

    #[test]
    fn site_that_is_not_served_is_shown_with_its_reason() {
        let mut now = snapshot();
        assert!(!text(&now).contains("sites with problems"));
        now.sites = vec![SiteStatus {
            site: "blog".into(),
            hosts: vec!["blog.example".into()],
            error: Some("the boot failed:\nno database".into()),
            certificate_error: Some("it is damaged".into()),
            ..SiteStatus::default()
        }];
        let text = text(&now);
        let expected = "\nsites with problems\n  site blog is NOT served for blog.example \
                        (status 503): the boot failed:\n  no database\n  certificates of site \
                        blog cannot be used: it is damaged\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn end_of_a_certificate_and_of_its_renewals_are_shown() {
        let mut now = snapshot();
        now.certificates[0].not_after = 999_999;
        now.domains.truncate(1);
        now.domains[0] = DomainStatus {
            is_pending: false,
            next: Some(0),
            reason: Some("the authority is away".into()),
            ..now.domains[0].clone()
        };
        let expected = [
            "not renewed: new.example, next attempt in 0 min: the authority is away",
            "has ended: example.org, www.example.org (/etc/a.pem)",
        ];
        assert_eq!(certificates(&now), expected);
        now.domains[0].is_unstored = true;
        let unstored = "not stored: new.example, next attempt in 0 min: the authority is away";
        assert_eq!(certificates(&now)[0], unstored);
    }
}
