//! Ends workers that may still run an event which Surus has given up, or that take no events: one
//! after another, unless they show that they do not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use surus_sys::process;
use tracing::{debug, warn};

use super::state::GenerationState;
use crate::engines::workers::exit_reason::Killed;
use crate::launcher::Pid;

/// A worker that had shown no ticket of an event when it was suspected.
struct Suspect {
    worker: usize,
    pid: Arc<Pid>,
    /// How often it had shown a ticket by then. A worker runs one event at a time, so another
    /// ticket clears it.
    tickets_shown: u64,
    why: Killed,
    /// Sweeps since it was suspended (SIGSTOP), so that it cannot claim an event before it is
    /// killed. None: it runs.
    suspended: Option<u32>,
    /// How often it was resumed because it may just have claimed an event.
    resumed: u32,
}

/// A suspect that does not stop within so many sweeps is killed as it is. The keeper, which sends
/// the signal, may be busy.
const STOPS_WITHIN: u32 = 10;

/// A script can make it look as if a worker had just claimed an event.
const MAX_RESUMED: u32 = 3;

/// The suspected workers.
#[derive(Default)]
pub struct Suspects {
    /// Suspects, and when the event that one of them may run must have ended.
    until: Vec<(Instant, Vec<Suspect>)>,
    /// Suspects to be killed.
    due: VecDeque<Suspect>,
}

impl Suspects {
    pub fn is_empty(&self) -> bool {
        self.until.is_empty() && self.due.is_empty()
    }

    /// One of the workers that have shown no ticket may run an unknown event. It has until then.
    pub fn suspect(&mut self, shared: &GenerationState, until: Instant) {
        let all = shared.without_shown_ticket();
        let all = all
            .into_iter()
            .map(|one| Suspect::new(shared, one, Killed::Timeout));
        self.until.push((until, all.collect()));
    }

    /// These take no events although events wait.
    pub fn add(&mut self, shared: &GenerationState, workers: Vec<(usize, Arc<Pid>)>) {
        let new = workers
            .into_iter()
            .map(|one| Suspect::new(shared, one, Killed::ProtocolError));
        self.due.extend(new);
    }

    /// Whether the process is stopped until the next sweep.
    pub fn has_suspended(&self, pid: &Arc<Pid>) -> bool {
        let mut due = self.due.iter();
        due.any(|suspect| suspect.suspended.is_some() && Arc::ptr_eq(&suspect.pid, pid))
    }

    /// Kills the suspect that an earlier sweep has suspended, unless it has claimed an event before
    /// it stopped; then suspends the next one whose time is up.
    pub fn sweep(&mut self, shared: &GenerationState, now: Instant) {
        for (_, suspects) in self.until.extract_if(.., |(until, _)| now >= *until) {
            shared.repaired("hidden");
            self.due.extend(suspects);
        }
        for _ in 0..self.due.len() {
            let Some(mut suspect) = self.due.pop_front() else {
                return;
            };
            match suspect.check(shared) {
                Suspicion::Cleared => suspect.resume(),
                Suspicion::Open => {
                    suspect.resume();
                    self.due.push_back(suspect);
                }
                Suspicion::Confirmed if suspect.must_wait() => {
                    self.due.push_front(suspect);
                    return;
                }
                Suspicion::Confirmed => {
                    warn!(
                        pid = suspect.pid.get(),
                        "worker takes no requests, or runs one that was given up; killed"
                    );
                    shared.kill(suspect.worker, &suspect.pid, suspect.why);
                }
            }
        }
    }
}

enum Suspicion {
    Cleared,
    /// Its line names an event in flight. Either it is about to show the ticket, or the line is
    /// forged and others will disprove it.
    Open,
    Confirmed,
}

impl Suspect {
    fn new(shared: &GenerationState, (worker, pid): (usize, Arc<Pid>), why: Killed) -> Suspect {
        Suspect {
            worker,
            pid,
            tickets_shown: shared.tickets_shown(worker),
            why,
            suspended: None,
            resumed: 0,
        }
    }

    /// Suspends it. False if it has stopped, will not stop, or has exited.
    fn must_wait(&mut self) -> bool {
        let Some(sweeps) = &mut self.suspended else {
            let sent = self.pid.suspend();
            if let Err(error) = &sent {
                debug!(pid = self.pid.get(), %error, "cannot suspend the worker");
            }
            self.suspended = sent.is_ok().then_some(0);
            return self.suspended.is_some();
        };
        *sweeps += 1;
        let has_stopped = !matches!(process::state(self.pid.get()), Some('R' | 'S' | 'D' | 'I'));
        !has_stopped && *sweeps < STOPS_WITHIN
    }

    fn resume(&mut self) {
        if self.suspended.take().is_none() {
            return;
        }
        if let Err(error) = self.pid.resume() {
            debug!(pid = self.pid.get(), %error, "cannot resume the worker");
        }
    }

    fn check(&mut self, shared: &GenerationState) -> Suspicion {
        let is_there = shared
            .pid(self.worker)
            .is_some_and(|pid| Arc::ptr_eq(&pid, &self.pid));
        if !is_there || shared.tickets_shown(self.worker) != self.tickets_shown {
            return Suspicion::Cleared;
        }
        // The last sweep may be a tick ago.
        let line = shared.line(self.worker);
        let held = line.held().filter(|_| line.pid == self.pid.get());
        let is_named = held.is_some_and(|held| {
            let of_another = |slot: &mut super::in_flight::InFlightRequest| {
                let holder = slot.holder.as_ref();
                holder.is_some_and(|holder| !holder.is(&self.pid))
            };
            shared.in_flight.named(held, of_another) == Some(false)
        });
        if is_named || !shared.held_by(&self.pid).is_empty() {
            return Suspicion::Open;
        }
        // A worker may stop between its claim and what its line says of it.
        let may_hold = self.suspended.is_some()
            && self.resumed < MAX_RESUMED
            && shared.has_claim_without_holder();
        if may_hold {
            self.resumed += 1;
            return Suspicion::Open;
        }
        Suspicion::Confirmed
    }
}
