//! Detects stopped processes (SIGSTOP) by their state in `/proc`. PHP scripts can stop workers and
//! the master process, since these run as PHP's user.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{error, warn};

use super::state::GenerationState;
use crate::engines::workers::exit_reason::Killed;
use crate::launcher::{Pid, ProcessSignal};

/// The interval of checks.
pub const PAUSE: Duration = Duration::from_millis(250);

/// A master process counts as stopped if this many sweeps in a row find it so. Processes that are
/// frozen by signals, as `surus lambda dev` does it, continue one after the other.
const SIGHTINGS: u32 = 3;

/// A master process that stays stopped for so long, although it is told to continue, is killed.
const FOR_GOOD: Duration = Duration::from_millis(700);

/// A process that a debugger has held for so long counts as stopped; a tracer that only watches
/// lets it continue at once.
const TRACED_FOR_GOOD: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessCheck {
    Runs,
    Stopped,
    /// By a debugger.
    Traced,
}

/// The last checks and their results.
#[derive(Default)]
pub struct Stopped {
    master_checked: Option<Instant>,
    workers_checked: Option<Instant>,
    /// How many checks in a row have found the master process stopped.
    sightings: u32,
    /// Since when each check has found the master process stopped.
    since: Option<Instant>,
    /// Since when each check has found it held by a debugger.
    traced_since: Option<Instant>,
    /// Workers that were resumed during the boot.
    resumed: Vec<u32>,
}

impl Stopped {
    /// Whether the master process is stopped.
    pub fn has_found_any(&self) -> bool {
        self.since.is_some() || self.traced_since.is_some()
    }

    /// Resumes a stopped master process and replaces the generation, because it can be
    /// stopped again.
    pub fn check_master(&mut self, shared: &GenerationState, now: Instant) {
        let Some(pid) = shared.master() else {
            return;
        };
        if !is_due(&mut self.master_checked, now) {
            return;
        }
        let found = find(pid);
        if found != ProcessCheck::Traced {
            self.traced_since = None;
        }
        let is_stopped = match found {
            ProcessCheck::Runs => false,
            ProcessCheck::Stopped => true,
            ProcessCheck::Traced => {
                let since = *self.traced_since.get_or_insert(now);
                // The next sweep checks again.
                self.master_checked = None;
                now.duration_since(since) > TRACED_FOR_GOOD
            }
        };
        if !is_stopped {
            self.since = None;
            self.sightings = 0;
            return;
        }
        self.sightings = self.sightings.saturating_add(1);
        if self.sightings < SIGHTINGS {
            // The next sweep checks again.
            self.master_checked = None;
            return;
        }
        if self.since.is_none() {
            warn!(
                pid,
                ?found,
                "the master process was stopped (SIGSTOP) and could not replace workers; resumed"
            );
            shared.repaired("master_stopped");
            shared.request_replacement("its master process was stopped");
        }
        let since = *self.since.get_or_insert(now);
        let which = match now.duration_since(since) > FOR_GOOD {
            true => {
                error!(pid, "the master process stays stopped; killed");
                ProcessSignal::Kill
            }
            false => ProcessSignal::Resume,
        };
        if let Err(error) = shared.signal_master(pid, which) {
            error!(pid, %error, "cannot signal the master process");
        }
    }

    /// Resumes a master process that is stopped while it boots, and kills one that is stopped
    /// again. The boot then fails, and the caller starts another one.
    pub fn check_boot(&mut self, shared: &GenerationState) {
        let Some(pid) = shared.started_master() else {
            return;
        };
        if find(pid) != ProcessCheck::Stopped {
            return;
        }
        let which = match self.since {
            None => {
                warn!(
                    pid,
                    "the master process was stopped (SIGSTOP) while it booted; resumed"
                );
                ProcessSignal::Resume
            }
            Some(_) => {
                error!(
                    pid,
                    "the master process was stopped again while it booted; killed"
                );
                ProcessSignal::Kill
            }
        };
        shared.repaired("master_stopped");
        self.since.get_or_insert_with(Instant::now);
        if let Err(error) = shared.signal_master(pid, which) {
            error!(pid, %error, "cannot signal the master process");
        }
    }

    /// Resumes workers that are stopped while the generation boots, and kills those that are
    /// stopped again, so that the boot fails at once.
    pub fn check_booting_workers(&mut self, shared: &GenerationState) {
        for (worker, pid) in shared.without_event() {
            if find(pid.get()) != ProcessCheck::Stopped {
                continue;
            }
            shared.repaired("worker_stopped");
            if self.resumed.contains(&pid.get()) {
                error!(
                    pid = pid.get(),
                    "a worker was stopped again while PHP booted; killed"
                );
                shared.kill(worker, &pid, Killed::Suspended);
                continue;
            }
            self.resumed.push(pid.get());
            warn!(
                pid = pid.get(),
                "a worker was stopped (SIGSTOP) while PHP booted; resumed"
            );
            if let Err(error) = pid.resume() {
                error!(pid = pid.get(), %error, "cannot signal the worker");
            }
        }
    }

    /// Kills those of `workers` that are stopped.
    pub fn kill_among(
        &mut self,
        shared: &GenerationState,
        workers: Vec<(usize, Arc<Pid>)>,
        now: Instant,
    ) {
        if !is_due(&mut self.workers_checked, now) {
            return;
        }
        for (worker, pid) in workers {
            if find(pid.get()) != ProcessCheck::Stopped {
                continue;
            }
            warn!(
                pid = pid.get(),
                "a worker was stopped (SIGSTOP) while requests or a shutdown wait; killed"
            );
            shared.repaired("worker_stopped");
            shared.kill(worker, &pid, Killed::Suspended);
        }
    }
}

fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = last.is_none_or(|last| now.duration_since(last) > PAUSE);
    if is_due {
        *last = Some(now);
    }
    is_due
}

/// A process whose state cannot be read counts as running.
fn find(pid: u32) -> ProcessCheck {
    match surus_sys::process::state(pid) {
        Some('T') => ProcessCheck::Stopped,
        Some('t') => ProcessCheck::Traced,
        _ => ProcessCheck::Runs,
    }
}
