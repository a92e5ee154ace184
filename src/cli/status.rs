//! `surus status`: shows the workers and the certificates of a running surus.

use std::time::{Duration, SystemTime};

use anyhow::bail;
use http::Method;
use serde::de::DeserializeOwned;

use super::options::Project;
use crate::cli::running;
use crate::cli::stdout::{self, say};
use crate::observe::status::{
    AcmeStatus, CertificateStatus, EngineStatus, LeftOut, ScalingStatus, SiteStatus, WorkerStatus,
};

#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    project: Project,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Fail unless requests and jobs can begin now, for health checks of containers
    #[arg(long, conflicts_with = "json")]
    ready: bool,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if args.ready {
        return ready(&args.project);
    }
    let engines: Vec<EngineStatus> = all(&args.project, "/-/status")?;
    let served: Vec<CertificateStatus> = all(&args.project, "/-/certificates")?;
    let acme: Vec<AcmeStatus> = all(&args.project, "/-/acme")?;
    let sites: Vec<SiteStatus> = all(&args.project, "/-/sites")?;
    if args.json {
        let status = serde_json::json!({
            "engines": engines,
            "certificates": served,
            "acme": acme,
            "sites": sites,
        });
        say!("{status}");
        return Ok(());
    }
    for engine in engines {
        stdout::print(table(&engine));
    }
    for site in &sites {
        say!("{}", site_line(site));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    for line in certificates(&served, now) {
        say!("{line}");
    }
    for line in acme.iter().filter_map(|status| attempt(status, now)) {
        say!("{line}");
    }
    Ok(())
}

/// An error with the reason if one that runs for the project is not ready.
fn ready(project: &Project) -> anyhow::Result<()> {
    for (status, text) in running::ask(project, &Method::GET, "/-/ready")? {
        if !status.is_success() {
            bail!("{}", text.trim_end());
        }
    }
    say!("ready");
    Ok(())
}

/// The answers of all that run for the project.
fn all<T: DeserializeOwned>(project: &Project, path: &str) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    for (_, text) in running::ask(project, &Method::GET, path)? {
        all.extend(serde_json::from_str::<Vec<T>>(&text)?);
    }
    Ok(all)
}

/// What a site is for, or why it is not served.
pub fn site_line(site: &SiteStatus) -> String {
    if site.is_queues {
        let why = site.error.as_deref().unwrap_or_default();
        return format!("no jobs run: {why}");
    }
    let others = site.is_default.then(|| "all other hosts".to_owned());
    let hosts: Vec<String> = site.hosts.iter().cloned().chain(others).collect();
    let (name, hosts) = (&site.site, hosts.join(", "));
    let served = match &site.error {
        None => format!("site {name} is served for {hosts}"),
        Some(error) => format!("site {name} is NOT served for {hosts} (status 503): {error}"),
    };
    match &site.certificate_error {
        None => served,
        Some(error) => format!("{served}\ncertificates of site {name} cannot be used: {error}"),
    }
}

/// When a certificate ends, in seconds since 1970.
fn end(served: &CertificateStatus) -> u64 {
    let end = u64::try_from(served.not_after).unwrap_or(0);
    end.min(LAST_SECOND)
}

/// The time to the end of a certificate, as in `in 62 days`. None if it has ended.
pub fn time_left(served: &CertificateStatus, now: u64) -> Option<String> {
    Some(match end(served).checked_sub(now)? {
        left @ 0..172_800 => format!("in {} h", left / 3600),
        left => format!("in {} days", left / 86400),
    })
}

/// A line for each certificate. `now` is in seconds since 1970.
fn certificates(served: &[CertificateStatus], now: u64) -> Vec<String> {
    let line = |served: &CertificateStatus| {
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(end(served));
        let at = httpdate::fmt_http_date(end);
        let left = time_left(served, now).unwrap_or("it has ended".into());
        let (names, file) = (served.names.join(", "), &served.certificate);
        format!("certificate of {names} ends {at} ({left}): {file}")
    };
    served.iter().map(line).collect()
}

/// Why a domain has no new certificate, or none that is stored, and when the next attempt is.
fn attempt(status: &AcmeStatus, now: u64) -> Option<String> {
    let AcmeStatus { domain, next, .. } = status;
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs((*next).min(LAST_SECOND));
    let (at, left) = (httpdate::fmt_http_date(at), next.saturating_sub(now));
    let reason = status.reason.as_deref()?;
    let begin = match status.is_unstored {
        true => format!(
            "certificate of {domain} is in memory only, and a restart loses it; next attempt to \
             store it"
        ),
        false => format!("next attempt to get a certificate for {domain}"),
    };
    let minutes = left.div_ceil(60);
    Some(format!("{begin} is at {at} (in {minutes} min): {reason}"))
}

/// The end of the year 9999, after which HTTP has no dates.
const LAST_SECOND: u64 = 253_402_300_799;

/// How many workers there should be, if that adapts to the load.
pub fn scaling(scaling: Option<&ScalingStatus>) -> String {
    scaling.map_or(String::new(), |it| {
        let limited = if it.is_limited {
            ", memory is short for more"
        } else {
            ""
        };
        format!(
            ", {} workers of {} to {}{limited}",
            it.target, it.min, it.max
        )
    })
}

pub fn table(engine: &EngineStatus) -> String {
    let instead = engine
        .instead
        .as_ref()
        .map(|instead| format!(" (the application cannot be booted, `{instead}` serves it)"));
    let mut text = format!(
        "{}{}: PHP {}, generation {}, {} waiting{}\n{:>8}  {:<10}{:>10}{:>10}{:>10}  {}\n",
        engine.engine,
        instead.unwrap_or_default(),
        engine.php,
        engine.generation,
        engine.queued,
        scaling(engine.scaling.as_ref()),
        "PID",
        "STATE",
        "FOR",
        "SERVED",
        "MEMORY",
        "REQUEST"
    );
    for worker in &engine.workers {
        let state = format!("{:?}", worker.state).to_lowercase();
        let memory = if worker.memory == 0 {
            "-".into()
        } else {
            format!("{:.1}M", worker.memory as f64 / 1048576.0)
        };
        let row = format!(
            "{:>8}  {:<10}{:>10}{:>10}{:>10}  {}",
            worker.pid,
            state,
            duration(worker.for_ms),
            worker.served,
            memory,
            worker.request.as_deref().unwrap_or_default()
        );
        text.push_str(row.trim_end());
        text.push('\n');
        text.push_str(&indented(worker));
    }
    if !engine.created.is_empty() {
        text.push_str(&format!("warm-up: {}\n", engine.created));
    }
    for page in engine.learned.iter().chain(&engine.named) {
        text.push_str(&format!("warmed up by {page}\n"));
    }
    for LeftOut { page, why, .. } in &engine.left_out {
        text.push_str(&format!("not warmed up by {page}: {why}\n"));
    }
    if let Some(includes) = &engine.includes {
        text.push_str(&format!(
            "requests include {:.1} files on average that the boot has not loaded ({} requests)\n",
            includes.files_per_request(),
            includes.requests
        ));
    }
    text
}

/// The backtrace of a worker's request, if it is slow, as lines below the worker's.
pub fn indented(worker: &WorkerStatus) -> String {
    let stack = worker.backtrace.as_deref().unwrap_or_default();
    stack
        .lines()
        .map(|line| format!("            {line}\n"))
        .collect()
}

pub fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..60_000 => format!("{:.1}s", ms as f64 / 1000.0),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms / 1000 % 60),
        _ => format!("{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::observe::status::{IncludesStatus, LeftOutReason, WorkerState};

    #[test]
    fn end_of_a_certificate_is_a_date_and_a_time_left() {
        let ends = |not_after| {
            let served = CertificateStatus {
                certificate: "/etc/a.pem".into(),
                names: vec!["example.org".into(), "www.example.org".into()],
                not_after,
                ends_soon_at: 0,
            };
            certificates(&[served], 1_000_000).remove(0)
        };
        assert_eq!(
            ends(1_000_000 + 90 * 86400),
            "certificate of example.org, www.example.org ends Sun, 12 Apr 1970 13:46:40 GMT (in 90 \
             days): /etc/a.pem"
        );
        assert!(ends(1_000_000 + 7200).contains("(in 2 h)"));
        assert!(ends(999_999).contains("(it has ended)"));
        assert!(ends(-1).contains("(it has ended)"));
    }

    #[test]
    fn next_attempt_is_shown_with_its_reason_if_the_last_one_has_failed() {
        let mut status = AcmeStatus {
            domain: "example.org".into(),
            next: 1_002_001,
            reason: Some("the authority asks to wait".into()),
            is_unstored: false,
        };
        assert_eq!(
            attempt(&status, 1_000_000).unwrap(),
            "next attempt to get a certificate for example.org is at Mon, 12 Jan 1970 14:20:01 GMT \
             (in 34 min): the authority asks to wait"
        );
        status.is_unstored = true;
        assert_eq!(
            attempt(&status, 1_000_000).unwrap(),
            "certificate of example.org is in memory only, and a restart loses it; next attempt \
             to store it is at Mon, 12 Jan 1970 14:20:01 GMT (in 34 min): the authority asks to \
             wait"
        );
        status.next = u64::MAX;
        assert!(attempt(&status, 1_000_000).is_some());
        status.reason = None;
        assert_eq!(attempt(&status, 1_000_000), None);
    }

    #[test]
    fn table_columns_are_aligned() {
        let status = EngineStatus {
            engine: "classic".into(),
            instead: None,
            php: "8.2.35".into(),
            generation: 1,
            learned: vec!["http://a/".into()],
            named: vec!["/login".into()],
            left_out: vec![LeftOut {
                page: "http://a/b".into(),
                reason: LeftOutReason::Failed,
                why: "it fails".into(),
            }],
            created: "9 services created ahead in 5 ms".into(),
            includes: Some(IncludesStatus {
                requests: 40,
                files: 60,
            }),
            queued: 3,
            workers: vec![
                WorkerStatus {
                    pid: 12,
                    state: WorkerState::Idle,
                    for_ms: 90_000,
                    served: 7,
                    memory: 0,
                    request: None,
                    backtrace: None,
                },
                WorkerStatus {
                    pid: 123456,
                    state: WorkerState::Busy,
                    for_ms: 1234,
                    served: 12345,
                    memory: 12 << 20,
                    request: Some("GET /slow".into()),
                    backtrace: Some("at /srv/a.php:3\n#0 {main}".into()),
                },
            ],
            scaling: None,
        };
        assert_eq!(
            table(&status),
            "classic: PHP 8.2.35, generation 1, 3 waiting\n\
             \x20    PID  STATE            FOR    SERVED    MEMORY  REQUEST\n\
             \x20     12  idle           1m30s         7         -\n\
             \x20 123456  busy            1.2s     12345     12.0M  GET /slow\n\
             \x20           at /srv/a.php:3\n\
             \x20           #0 {main}\n\
             warm-up: 9 services created ahead in 5 ms\n\
             warmed up by http://a/\n\
             warmed up by /login\n\
             not warmed up by http://a/b: it fails\n\
             requests include 1.5 files on average that the boot has not loaded (40 requests)\n"
        );
    }
}
