//! Runs a plan on a thread of its own, and meanwhile samples the server and shows progress.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow, bail};
use surus_load::{Plan, RunOutcome, Stop, Watch};
use surus_measure::{Machine, Probe, Usage, probe};

use super::interrupt;
use super::progress::Progress;

/// What a run has shown, of the responses and of the server's processes.
pub struct Result {
    pub outcome: RunOutcome,
    /// Missing if the server's processes were not found.
    pub usage: Option<Usage>,
    pub machine: Machine,
    pub started: SystemTime,
}

/// Runs a plan. The server is the processes `pids`, or those that listen on the first URL's port.
pub fn measure(plan: &Plan, pids: &[i32], shows_progress: bool) -> anyhow::Result<Result> {
    let (seconds, received) = channel();
    let watch = Watch {
        ended: Arc::new(AtomicU64::new(0)),
        seconds,
    };
    let mut progress = shows_progress.then(|| Progress::new(plan.stop, watch.ended.clone()));
    let mut probe = Probe::begin(server(plan, pids));
    if probe.is_none() && !pids.is_empty() {
        return Err(anyhow!("none of the processes {pids:?} exists (--pid)"));
    }
    let started = SystemTime::now();
    let thread = {
        let plan = plan.clone();
        std::thread::Builder::new()
            .name("bench".into())
            .spawn(move || surus_load::run(&plan, Some(watch), interrupt::received()))?
    };
    loop {
        // The generator drops the sender when it ends.
        match received.recv_timeout(Duration::from_millis(200)) {
            Ok(second) => {
                if let Some(probe) = &mut probe {
                    probe.sample();
                }
                if let Some(progress) = &mut progress {
                    progress.second(&second);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(progress) = &mut progress {
                    progress.update();
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let usage = probe.map(Probe::end);
    if let Some(progress) = progress {
        progress.end();
    }
    let outcome = thread
        .join()
        .map_err(|_| anyhow!("the load generator panicked"))?;
    Ok(Result {
        outcome: outcome.context("cannot send requests")?,
        usage,
        machine: Machine::this(),
        started,
    })
}

/// Sends requests without measuring. Fails if that is interrupted.
pub fn warm_up(plan: &Plan, time: Option<Duration>) -> anyhow::Result<()> {
    if let Some(time) = time {
        let mut plan = plan.clone();
        plan.stop = Stop::After(time);
        if measure(&plan, &[], false)?.outcome.is_interrupted {
            bail!("interrupted in the warm-up; nothing was measured");
        }
    }
    Ok(())
}

/// The roots of the server's process tree. Empty if the server runs on another machine, in another
/// container, or as another user.
fn server(plan: &Plan, pids: &[i32]) -> Vec<i32> {
    if !pids.is_empty() {
        return pids.to_vec();
    }
    let Some(origin) = plan.mix.origins.first() else {
        return Vec::new();
    };
    if let Some(socket) = &origin.unix {
        return probe::unix_listeners(socket);
    }
    let is_local = matches!(&*origin.host, "localhost" | "::1") || origin.host.starts_with("127.");
    if is_local {
        probe::listeners(origin.port)
    } else {
        Vec::new()
    }
}
