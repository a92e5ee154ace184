//! Measures one load on one contestant.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use surus_load::{Plan, RequestFailure, RunOutcome, Watch};
use surus_measure::{Probe, Usage};

use crate::experiment::Load;
use crate::interrupt;
use crate::others::Span;
use crate::quantity::{Quantity, Sample};

/// How often processes are looked at during a load, if that is cheap ([`Probe::look`]). Some loads
/// last less than a second.
const SAMPLE: Duration = Duration::from_millis(250);
/// For how long a server uses no CPU before it is measured, and how much that is in seconds, as
/// `/proc` counts: an idle server may have a timer.
const IDLE: Duration = Duration::from_millis(100);
const TICK: f64 = 0.01;
/// How long a server may go on with requests that its clients have given up.
pub const LONGEST_WORK: Duration = Duration::from_secs(30);
/// How long a server that responds may take to end its start.
const LONGEST_START: Duration = Duration::from_secs(2);
/// Why there is nothing to measure.
const ENDED: &str = "its processes have ended";
/// How often the requests of [`Meanwhile`] look whether they are over.
const LOOK: Duration = Duration::from_millis(10);

/// Requests that another connection sends until this is dropped.
pub struct Meanwhile {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Meanwhile {
    pub fn start(plan: Plan) -> anyhow::Result<Meanwhile> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let end = async move {
            while !over.load(Ordering::Acquire) && !interrupt::is_interrupted() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let thread = std::thread::Builder::new()
            .name("meanwhile".into())
            .spawn(move || drop(surus_load::run(&plan, None, end)))?;
        Ok(Meanwhile {
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends requests for a while, and waits until the server has done with them. php-fpm and Apache
/// also answer requests that their clients have given up: work within the time that is measured.
pub fn warm_up(plan: &Plan, load: &Load, pids: &[i32]) -> anyhow::Result<()> {
    let (outcome, _) = run(plan, load, pids.to_vec())?;
    match gave_up(&outcome) {
        false => Ok(()),
        true => until_idle(pids, LONGEST_WORK),
    }
}

/// Whether the server may still work on requests that their clients have given up.
fn gave_up(outcome: &RunOutcome) -> bool {
    let given_up = [RequestFailure::Timeout, RequestFailure::Unfinished];
    let totals = &outcome.totals;
    given_up.into_iter().any(|it| totals.failures_of(it) > 0)
}

/// Waits until processes use no more CPU than an idle server does. Fails after `longest`, because
/// a busy server would be measured.
pub fn until_idle(pids: &[i32], longest: Duration) -> anyhow::Result<()> {
    if let Some(share) = busy_after(pids, longest)? {
        bail!(
            "it was still busy {} s after its clients had given up: {:.0} % of a CPU",
            longest.as_secs_f64(),
            share * 100.0
        );
    }
    Ok(())
}

/// Waits until a server that responds has ended its start, such as Apache with many processes. One
/// that is never idle is measured as well.
pub fn settle(pids: &[i32]) -> anyhow::Result<()> {
    busy_after(pids, LONGEST_START).map(|_| ())
}

/// Waits until processes are idle. Returns the share of a CPU that they still use after `longest`.
fn busy_after(pids: &[i32], longest: Duration) -> anyhow::Result<Option<f64>> {
    let deadline = Instant::now() + longest;
    loop {
        let probe = Probe::begin(pids.to_vec()).context(ENDED)?;
        std::thread::sleep(IDLE);
        interrupt::check()?;
        let cpu = probe.end().cpu();
        if cpu <= TICK {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            return Ok(Some(cpu / IDLE.as_secs_f64()));
        }
    }
}

/// Runs a load's plan against the processes `pids`. Returns also whether they may still work on
/// its requests. The error says what went wrong.
pub fn measure(plan: &Plan, load: &Load, pids: Vec<i32>) -> anyhow::Result<(Sample, bool)> {
    let (outcome, sample) = run(plan, load, pids)?;
    let totals = &outcome.totals;
    if totals.responses == 0 {
        let error = totals.first_error.as_deref().unwrap_or("no response");
        bail!("none of {} requests was answered: {error}", totals.requests);
    }
    Ok((sample, gave_up(&outcome)))
}

fn run(plan: &Plan, load: &Load, pids: Vec<i32>) -> anyhow::Result<(RunOutcome, Sample)> {
    let (seconds, received) = channel();
    let watch = Watch {
        ended: Arc::new(AtomicU64::new(0)),
        seconds,
        intervals: None,
    };
    let mut probe = Probe::begin(pids).context(ENDED)?;
    let span = Span::begin();
    let thread = {
        let plan = plan.clone();
        let thread = std::thread::Builder::new().name("load".into());
        thread.spawn(move || surus_load::run(&plan, Some(watch), interrupt::received()))?
    };
    // The generator drops the sender when it ends.
    while let Ok(_) | Err(RecvTimeoutError::Timeout) = received.recv_timeout(SAMPLE) {
        probe.look();
    }
    let others = span.others();
    let usage = probe.end();
    let outcome = thread
        .join()
        .map_err(|_| anyhow!("the load generator panicked"))?
        .context("cannot send requests")?;
    interrupt::check()?;
    check(&outcome, load)?;
    let ended = usage.names_of_ended();
    ensure!(ended.is_empty(), "{ended} ended under the load");
    let mut sample = sample(&outcome, &usage, load);
    sample.extend(others.map(|others| (Quantity::Others, others)));
    Ok((outcome, sample))
}

/// A contestant that gives other responses than expected does other work.
fn check(outcome: &RunOutcome, load: &Load) -> anyhow::Result<()> {
    let totals = &outcome.totals;
    let count =
        totals.failures_of(RequestFailure::Status) + totals.failures_of(RequestFailure::Body);
    if let Some(unexpected) = &totals.unexpected
        && count > refused(&totals.statuses, load)
    {
        let (request, status, body) = (&unexpected.request, unexpected.status, &unexpected.body);
        bail!("{count} unexpected responses; the first to {request}: {status}, {body}");
    }
    Ok(())
}

fn sample(outcome: &RunOutcome, usage: &Usage, load: &Load) -> Sample {
    let latencies = &outcome.latencies;
    let refused = refused(&outcome.totals.statuses, load) as f64;
    let late = self::refused(&outcome.totals.late_statuses, load) as f64;
    let mut sample = Sample::from([
        (Quantity::Rate, outcome.rate()),
        (
            Quantity::Messages,
            outcome.rate() * f64::from(load.messages),
        ),
        (
            Quantity::Refused,
            (refused - late) / outcome.elapsed.as_secs_f64().max(1e-9),
        ),
        (Quantity::Mean, latencies.mean_ms()),
        (Quantity::Min, latencies.min_ms()),
        (Quantity::P50, latencies.percentile_ms(50.0)),
        (Quantity::P99, latencies.percentile_ms(99.0)),
        (Quantity::Max, latencies.max_ms()),
        (Quantity::Failed, failed(outcome) - refused),
        (Quantity::Generator, outcome.own_busy() * 100.0),
        (Quantity::CpuTime, usage.cpu()),
        (Quantity::Responses, outcome.totals.responses as f64),
    ]);
    if let Some(per_response) = usage.cpu_per(outcome.totals.responses) {
        sample.insert(Quantity::Cpu, per_response);
    }
    if let Some(pss) = usage.peak_pss() {
        sample.insert(Quantity::Memory, pss as f64);
    }
    sample
}

/// Responses by which an overloaded server has refused a request.
fn refused(statuses: &BTreeMap<u16, u64>, load: &Load) -> u64 {
    let count = |status| statuses.get(status).copied().unwrap_or(0);
    load.refusals.iter().map(count).sum()
}

/// Requests without an expected response, those included that were due and never sent.
fn failed(outcome: &RunOutcome) -> f64 {
    let unsent = outcome.offered.map_or(0, |offered| offered.unsent);
    (outcome.totals.failed() + unsent) as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn server_that_stays_busy_is_an_error_and_an_idle_one_is_not() {
        let start = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let mut busy = start("while :; do :; done");
        let pids = [busy.id().cast_signed()];
        // Until the kernel has given it some time, it looks idle.
        let failed = loop {
            if let Err(error) = until_idle(&pids, Duration::ZERO) {
                break error.to_string();
            }
        };
        busy.kill().unwrap();
        busy.wait().unwrap();
        let said = "it was still busy 0 s after its clients had given up: ";
        assert!(failed.starts_with(said), "{failed}");
        let mut idle = start("exec sleep 600");
        until_idle(&[idle.id().cast_signed()], Duration::from_secs(300)).unwrap();
        idle.kill().unwrap();
        idle.wait().unwrap();
    }
}
