//! Tracks which worker holds which event, and takes events back from workers.
//!
//! Every worker can write to the scoreboard. So a claim that has been seen once is kept in the
//! slot. Messages in a worker's own socket or ring take precedence over any line
//! (docs/internals/shared-memory.md).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use surus_sys::scoreboard::{State, Ticket};

use super::GenerationState;
use crate::engines::workers::generation::in_flight::{
    DispatchError, Holder, InFlightRequest, Key, RequestProgress,
};
use crate::event::{Failure, Response};
use crate::launcher::Pid;

impl GenerationState {
    /// No caller waits for this event any more: no worker begins it, and one that runs it sees an
    /// aborted connection.
    pub fn abandon(&self, key: Key) {
        self.withdraw(key, None);
    }

    /// Sends the response's headers to the caller. False if no caller waits.
    pub fn answer(&self, key: Key, response: Response) -> bool {
        let waiting = self
            .in_flight
            .with(key, |slot| slot.answer.take())
            .flatten();
        waiting.is_some_and(|answer| answer.send(Ok(response)).is_ok())
    }

    /// Fails the caller, if one waits.
    pub fn fail(&self, key: Key, failure: Failure, progress: RequestProgress) {
        self.in_flight
            .with(key, |slot| slot.fail(failure, progress));
    }

    /// Fails the caller and keeps workers from beginning the event; a worker that has begun it sees
    /// an aborted connection. Returns None if the event has ended, and true if no worker had begun
    /// it; its slot is closed then.
    pub fn withdraw(&self, key: Key, error: Option<DispatchError>) -> Option<bool> {
        let is_revoked = self.in_flight.with(key, |slot| {
            let is_revoked = slot.revoke(&self.board, key.slot);
            if !is_revoked {
                self.board.set_aborted(key.slot, key.ticket);
            }
            match error {
                Some(DispatchError { failure, progress }) => {
                    let progress = if is_revoked {
                        RequestProgress::Queued
                    } else {
                        progress
                    };
                    slot.fail(failure, progress);
                }
                None => slot.answer = None,
            }
            is_revoked
        })?;
        if is_revoked {
            self.in_flight.close(key);
        }
        Some(is_revoked)
    }

    /// Sends all events that no worker has begun to the next generation.
    pub fn send_to_next_generation(&self) {
        self.record_holders();
        let mut waiting = Vec::new();
        self.in_flight.each(|key, slot| {
            if slot.is_offered(&self.board, key.slot) {
                waiting.push(key);
            }
        });
        for key in waiting {
            self.take_back(key, "its generation is draining");
        }
    }

    /// Makes the caller send the event again, if no worker has begun it.
    pub fn take_back(&self, key: Key, why: &str) -> bool {
        self.take_back_for(key, Failure::WorkerCrashed(why.into()))
    }

    /// Fails the caller, if no worker has begun the event.
    pub fn take_back_for(&self, key: Key, failure: Failure) -> bool {
        let is_revoked = self.in_flight.with(key, |slot| {
            let is_revoked = slot.revoke(&self.board, key.slot);
            if is_revoked {
                slot.fail(failure, RequestProgress::Queued);
            }
            is_revoked
        });
        if is_revoked == Some(true) {
            self.in_flight.close(key);
        }
        is_revoked == Some(true)
    }

    /// A worker shows through its own socket or ring that it has claimed the event with this
    /// ticket. None if no event has that ticket, or if another worker has shown it before.
    pub fn claimed(&self, slot: u16, ticket: Ticket, worker: usize, pid: &Arc<Pid>) -> Option<Key> {
        let key = Key { slot, ticket };
        let holder = Holder {
            worker,
            pid: pid.clone(),
            has_shown_ticket: true,
        };
        let (is_believed, by_socket) = self.in_flight.with(key, |slot| {
            let by_socket = slot.sent.is_some_and(|sent| sent.by_socket);
            (slot.record_claim(&holder), by_socket)
        })?;
        if is_believed && by_socket {
            self.is_socket_read.store(true, Ordering::Relaxed);
        }
        if is_believed && let Some(shown) = self.tickets_shown.get(worker) {
            shown.fetch_add(1, Ordering::Relaxed);
        }
        is_believed.then_some(key)
    }

    /// How often the worker of this slot has shown a ticket.
    pub fn tickets_shown(&self, worker: usize) -> u64 {
        let shown = self.tickets_shown.get(worker);
        shown.map_or(0, |shown| shown.load(Ordering::Relaxed))
    }

    /// Records the holders that the scoreboard names, and forgets those that no line names any more
    /// and that have not shown their tickets.
    pub fn record_holders(&self) {
        self.in_flight.each(|key, slot| {
            let is_named = |holder: &Holder| self.is_named(holder.worker, &holder.pid, key);
            slot.holder
                .take_if(|holder| !holder.has_shown_ticket && !is_named(holder));
        });
        for worker in 0..self.worker_count() {
            let line = self.line(worker);
            let Some(held) = line.held() else {
                continue;
            };
            let is_news = self.in_flight.named(held, |slot| slot.holder.is_none());
            // The line may belong to a process that has not been announced yet.
            if is_news == Some(true)
                && let Some(pid) = self.pid(worker)
                && pid.get() == line.pid
            {
                self.record_holder(held, worker, pid);
            }
        }
    }

    /// Records the worker as the holder of the request that its scoreboard line names, unless
    /// there is another holder.
    pub fn record_holder(&self, held: (u16, u64), worker: usize, pid: Arc<Pid>) -> Option<Key> {
        let holder = Holder {
            worker,
            pid,
            has_shown_ticket: false,
        };
        let key = |slot: &mut InFlightRequest| {
            slot.record_claim(&holder).then_some(Key {
                slot: held.0,
                ticket: slot.ticket,
            })
        };
        self.in_flight.named(held, key)?
    }

    /// Whether this process's line names the event.
    pub fn is_named(&self, worker: usize, pid: &Arc<Pid>, key: Key) -> bool {
        let line = self.line(worker);
        line.pid == pid.get() && line.held() == Some((key.slot, key.ticket.tag().into()))
    }

    /// Whether the line of another worker names the event.
    pub fn is_named_by_another(&self, than: &Arc<Pid>, key: Key) -> bool {
        (0..self.worker_count()).any(|worker| {
            let pid = self.pid(worker).filter(|pid| !Arc::ptr_eq(pid, than));
            pid.is_some_and(|pid| self.is_named(worker, &pid, key))
        })
    }

    /// The events that this process is known to hold.
    pub fn held_by(&self, pid: &Arc<Pid>) -> Vec<Key> {
        let mut held = Vec::new();
        self.in_flight.each(|key, slot| {
            if slot.holder.as_ref().is_some_and(|holder| holder.is(pid)) {
                held.push(key);
            }
        });
        held
    }

    /// Whether a worker has claimed an event, and it is not known which one.
    pub fn has_claim_without_holder(&self) -> bool {
        let mut has_found = false;
        self.in_flight.each(|key, slot| {
            has_found |= slot.holder.is_none() && !slot.is_offered(&self.board, key.slot);
        });
        has_found
    }

    /// The workers that are not known to hold an event.
    pub fn without_event(&self) -> Vec<(usize, Arc<Pid>)> {
        self.except(|_| true)
    }

    /// The workers that have not shown the ticket of an event that they hold, whatever their lines
    /// say.
    pub fn without_shown_ticket(&self) -> Vec<(usize, Arc<Pid>)> {
        self.except(|holder| holder.has_shown_ticket)
    }

    /// All workers except these holders.
    fn except(&self, is_meant: impl Fn(&Holder) -> bool) -> Vec<(usize, Arc<Pid>)> {
        let mut holders = Vec::new();
        self.in_flight.each(|_, slot| {
            if let Some(holder) = slot.holder.as_ref().filter(|holder| is_meant(holder)) {
                holders.push(holder.pid.clone());
            }
        });
        (0..self.worker_count())
            .filter_map(|worker| Some((worker, self.pid(worker)?)))
            .filter(|(_, pid)| !holders.iter().any(|holder| Arc::ptr_eq(holder, pid)))
            .collect()
    }

    /// The id of the event that a worker holds.
    pub(crate) fn event_at(&self, worker: usize) -> Option<u64> {
        let line = self.line(worker);
        self.event_of(line.state, line.held()?)
    }

    /// The id of the event of a worker in this state.
    pub(crate) fn event_of(&self, state: State, held: (u16, u64)) -> Option<u64> {
        let holds = state.holds_event();
        holds.then(|| self.in_flight.named(held, |slot| slot.event))?
    }
}
