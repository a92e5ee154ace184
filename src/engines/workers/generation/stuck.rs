//! Notices that events wait although workers are idle, and signals those workers.
//!
//! An idle worker claims the oldest event within a moment. If none does, no worker is able to take
//! events, or a script has overwritten a doorbell, so that its worker was not woken.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use surus_sys::process;
use surus_sys::scoreboard::{State, now_micros};
use tracing::{debug, warn};

use super::in_flight::Key;
use super::state::GenerationState;
use crate::launcher::Pid;
use crate::observe::rate_limit::RateLimit;

/// Consecutive sweeps that must find the same. On a busy machine time passes without this process
/// running; but between two sweeps, everything that workers sent earlier has been read.
pub const MIN_SWEEPS: u32 = 16;

/// An event whose message no worker can find is resent after this time. A worker that has just
/// received it may be about to claim it; if that comes too late, the worker drops it.
pub const LOST_AFTER: Duration = Duration::from_millis(400);

/// After this time the pool reports that it cannot serve requests, and idle workers that sleep
/// although they were signalled are replaced.
const STUCK_AFTER: Duration = Duration::from_millis(800);

/// After this time, which no busy machine makes a worker wait, other workers without a request are
/// replaced, too. They wait for a CPU, or say that they exit.
const STUCK_FOR_GOOD: Duration = Duration::from_secs(3);

/// How long a worker must have been idle before it is signalled.
const IDLE_FOR: Duration = Duration::from_millis(40);

/// From this sweep on, idle workers are told to check the inbox.
const SIGNALLED_AT: u32 = 2;
/// After each such number of sweeps, the others are told, too: their scoreboard lines may have been
/// overwritten.
const ALL_SIGNALLED_AT: u32 = 10;

/// The event that has waited longest.
#[derive(Debug, Clone, Copy)]
pub struct Oldest {
    pub key: Key,
    pub since: Instant,
}

impl Oldest {
    pub fn or(self, other: Oldest) -> Oldest {
        match other.since < self.since {
            true => other,
            false => self,
        }
    }
}

/// State between sweeps.
#[derive(Default)]
pub struct StallDetector {
    /// The event that was oldest at the last sweeps, since when no worker has taken it, and how
    /// often that was seen.
    unmoved: Option<(Key, Instant, u32)>,
    unresponsive: Vec<(usize, Arc<Pid>)>,
}

impl StallDetector {
    /// Workers to be replaced.
    pub fn take_unresponsive(&mut self) -> Vec<(usize, Arc<Pid>)> {
        std::mem::take(&mut self.unresponsive)
    }

    /// Returns true if events have waited for long although some workers hold none.
    pub fn sweep(
        &mut self,
        shared: &GenerationState,
        oldest: Option<Oldest>,
        claimed: usize,
        boot: Duration,
        now: Instant,
    ) -> bool {
        let Some(oldest) = oldest else {
            return self.reset(shared);
        };
        let mut free = shared.without_event();
        free.retain(|(worker, _)| !shared.boots(*worker, boot));
        // A booting worker takes as long as it takes. A missing one is about to be replaced, which
        // takes no longer than this detector waits.
        let is_complete = shared.pids().len() >= shared.target();
        if free.is_empty() && is_complete {
            return self.reset(shared);
        }
        let (since, sweeps) = match self.unmoved {
            Some((key, since, sweeps)) if key == oldest.key => (since, sweeps + 1),
            _ => {
                self.reset(shared);
                (now, 0)
            }
        };
        self.unmoved = Some((oldest.key, since, sweeps));
        let is_idle = |one: &_| is_idle(shared, one);
        let signalled = sweeps >= SIGNALLED_AT
            && (sweeps <= ALL_SIGNALLED_AT || sweeps.is_multiple_of(ALL_SIGNALLED_AT));
        if signalled {
            let all = sweeps.is_multiple_of(ALL_SIGNALLED_AT);
            signal(shared, free.iter().filter(|one| all || is_idle(one)));
        }
        let stuck = now.duration_since(since);
        let is_stuck = sweeps > MIN_SWEEPS && stuck > STUCK_AFTER;
        if is_stuck {
            shared.is_stuck.store(true, Ordering::Release);
        }
        if sweeps > 3 * MIN_SWEEPS && stuck > STUCK_FOR_GOOD {
            self.give_up(shared, free, claimed, is_idle);
        } else if is_stuck {
            let all = free.len();
            free.retain(|one| is_idle(one) && sleeps(one));
            match free.len() {
                0 => {}
                ignoring if ignoring == all => self.give_up(shared, free, claimed, is_idle),
                _ => (self.unresponsive, self.unmoved) = (free, None),
            }
        }
        now.duration_since(oldest.since) > LOST_AFTER
    }

    fn give_up(
        &mut self,
        shared: &GenerationState,
        mut free: Vec<(usize, Arc<Pid>)>,
        claimed: usize,
        is_idle: impl Fn(&(usize, Arc<Pid>)) -> bool,
    ) {
        let why = "requests wait, and no worker takes any";
        if claimed > 0 && !free.is_empty() {
            // Other workers serve. Of the free ones, one that must exit may take its time.
            free.retain(is_idle);
        } else {
            shared.hand_over(why);
        }
        self.unresponsive = free;
        self.unmoved = None;
    }

    fn reset(&mut self, shared: &GenerationState) -> bool {
        self.unmoved = None;
        shared.is_stuck.store(false, Ordering::Release);
        false
    }
}

/// Finds workers that wait for requests although the request ring is closed.
#[derive(Default)]
pub struct ExitWatch {
    /// Since when it is closed, and how often that was seen.
    closed: Option<(Instant, u32)>,
}

impl ExitWatch {
    /// Called at each sweep after the ring was closed and all workers were woken.
    pub fn sweep(&mut self, shared: &GenerationState, now: Instant) -> Vec<(usize, Arc<Pid>)> {
        let (since, sweeps) = self.closed.unwrap_or((now, 0));
        self.closed = Some((since, sweeps + 1));
        if sweeps <= MIN_SWEEPS || now.duration_since(since) <= STUCK_AFTER {
            return Vec::new();
        }
        self.closed = None;
        let mut ignoring = shared.without_event();
        ignoring.retain(|one| is_idle(shared, one) && sleeps(one));
        ignoring
    }
}

/// Whether the worker's line says that it waits for requests.
fn is_idle(shared: &GenerationState, (worker, _): &(usize, Arc<Pid>)) -> bool {
    let line = shared.line(*worker);
    // A worker that has just returned to the inbox is about to take the next request.
    let idle_for = now_micros().saturating_sub(line.since);
    line.state == State::Idle && idle_for > IDLE_FOR.as_micros() as u64
}

/// Whether the worker waits for something, is stopped or is held by a debugger. On a busy machine,
/// one that was signalled waits for a CPU instead.
fn sleeps((_, pid): &(usize, Arc<Pid>)) -> bool {
    matches!(process::state(pid.get()), Some('S' | 'T' | 't'))
}

/// Tells workers to check the inbox.
fn signal<'a>(shared: &GenerationState, workers: impl Iterator<Item = &'a (usize, Arc<Pid>)>) {
    let mut count = 0;
    for (worker, pid) in workers {
        count += 1;
        if let Err(error) = pid.stop() {
            debug!(worker, %error, "cannot signal the worker");
        }
    }
    if count == 0 {
        return;
    }
    shared.repaired("wake");
    static REPORTED: RateLimit = RateLimit::new();
    if REPORTED.is_time(Instant::now()) {
        warn!("a request waits although workers are idle; waking them with a signal");
    }
}
