//! Which worker holds which event, and events that are taken back from the workers.
//!
//! The scoreboard can be written to by every worker. So a claim that has been seen once is kept in
//! the slot, and what a worker says by its own socket or ring is believed before any line
//! (docs/shared-memory.md).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use surus_sys::scoreboard::{State, Ticket};

use super::GenerationState;
use crate::engines::workers::generation::in_flight::{
    DispatchError, Holder, InFlightRequest, Key, Progress, SentVia,
};
use crate::event::{Failure, Response};
use crate::launcher::Pid;

impl GenerationState {
    /// Nobody waits for this event any more: no worker begins it, and one that has begun sees an
    /// aborted connection.
    pub fn abandon(&self, key: Key) {
        self.withdraw(key, None);
    }

    /// Hands the response's head to who waits for it. False when nobody does.
    pub fn answer(&self, key: Key, response: Response) -> bool {
        let waiting = self
            .in_flight
            .with(key, |slot| slot.answer.take())
            .flatten();
        waiting.is_some_and(|answer| answer.send(Ok(response)).is_ok())
    }

    /// Says that there will be no answer, if somebody waits for it.
    pub fn refuse(&self, key: Key, failure: Failure, progress: Progress) {
        self.in_flight
            .with(key, |slot| slot.refuse(failure, progress));
    }

    /// Says that there will be no answer, and sees to it that no worker begins the event, or that
    /// the one which has sees an aborted connection. None when the event has ended. True: no worker
    /// has begun it, and its slot is closed.
    pub fn withdraw(&self, key: Key, refusal: Option<DispatchError>) -> Option<bool> {
        let is_revoked = self.in_flight.with(key, |slot| {
            let is_revoked = slot.revoke(&self.board, key.request);
            if !is_revoked {
                self.board.set_gone(key.request, key.ticket);
            }
            match refusal {
                Some(DispatchError { failure, progress }) => {
                    let progress = if is_revoked {
                        Progress::Queued
                    } else {
                        progress
                    };
                    slot.refuse(failure, progress);
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

    /// Hands all events that no worker has begun to the next generation.
    pub fn send_elsewhere(&self) {
        self.note_holders();
        let mut waiting = Vec::new();
        self.in_flight.each(|key, slot| {
            if slot.is_offered(&self.board, key.request) {
                waiting.push(key);
            }
        });
        for key in waiting {
            self.take_back(key, "its workers take nothing any more");
        }
    }

    /// Has an event sent once more, if no worker has begun it; whoever waits for its answer does
    /// that.
    pub fn take_back(&self, key: Key, why: &str) -> bool {
        self.take_back_for(key, Failure::Died(why.into()))
    }

    /// Says that there will be no answer, if no worker has begun the event.
    pub fn take_back_for(&self, key: Key, failure: Failure) -> bool {
        let is_revoked = self.in_flight.with(key, |slot| {
            let is_revoked = slot.revoke(&self.board, key.request);
            if is_revoked {
                slot.refuse(failure, Progress::Queued);
            }
            is_revoked
        });
        if is_revoked == Some(true) {
            self.in_flight.close(key);
        }
        is_revoked == Some(true)
    }

    /// A worker shows by its own socket or ring that it has claimed the event of this ticket. None
    /// when that is nobody's, or another has shown so before.
    pub fn claimed(
        &self,
        request: u16,
        ticket: Ticket,
        worker: usize,
        pid: &Arc<Pid>,
    ) -> Option<Key> {
        let key = Key { request, ticket };
        let holder = Holder {
            worker,
            pid: pid.clone(),
            has_said_so: true,
        };
        let (is_believed, way) = self.in_flight.with(key, |slot| {
            let way = slot.sent.map(|(_, way)| way);
            (slot.is_held_by(&holder), way)
        })?;
        if is_believed && way == Some(SentVia::Socket) {
            self.is_socket_read.store(true, Ordering::Relaxed);
        }
        if is_believed && let Some(spoken) = self.spoken.get(worker) {
            spoken.fetch_add(1, Ordering::Relaxed);
        }
        is_believed.then_some(key)
    }

    /// How often the worker of this place has shown a ticket.
    pub fn spoken(&self, worker: usize) -> u64 {
        let spoken = self.spoken.get(worker);
        spoken.map_or(0, |spoken| spoken.load(Ordering::Relaxed))
    }

    /// Notes who holds what, as the lines of the scoreboard say it, and forgets holders that no
    /// line names any more and that have not shown their tickets.
    pub fn note_holders(&self) {
        self.in_flight.each(|key, slot| {
            let is_named = |holder: &Holder| self.is_named(holder.worker, &holder.pid, key);
            slot.holder
                .take_if(|holder| !holder.has_said_so && !is_named(holder));
        });
        for worker in 0..self.worker_count() {
            let line = self.line(worker);
            let Some(held) = line.held() else {
                continue;
            };
            let is_news = self.in_flight.named(held, |slot| slot.holder.is_none());
            // The line may be that of a process of which we have not heard yet.
            if is_news == Some(true)
                && let Some(pid) = self.pid(worker)
                && pid.get() == line.pid
            {
                self.note_holder(held, worker, pid);
            }
        }
    }

    /// Notes the worker as the holder of what its line names, unless there is another.
    pub fn note_holder(&self, held: (u16, u64), worker: usize, pid: Arc<Pid>) -> Option<Key> {
        let holder = Holder {
            worker,
            pid,
            has_said_so: false,
        };
        let key = |slot: &mut InFlightRequest| {
            slot.is_held_by(&holder).then_some(Key {
                request: held.0,
                ticket: slot.ticket,
            })
        };
        self.in_flight.named(held, key)?
    }

    /// Does the line of this process name the event?
    pub fn is_named(&self, worker: usize, pid: &Arc<Pid>, key: Key) -> bool {
        let line = self.line(worker);
        line.pid == pid.get() && line.held() == Some((key.request, key.ticket.tag().into()))
    }

    /// Does the line of another worker than this one name the event?
    pub fn is_named_by_another(&self, than: &Arc<Pid>, key: Key) -> bool {
        (0..self.worker_count()).any(|worker| {
            let pid = self.pid(worker).filter(|pid| !Arc::ptr_eq(pid, than));
            pid.is_some_and(|pid| self.is_named(worker, &pid, key))
        })
    }

    /// The events of which it is known that this process holds them.
    pub fn held_by(&self, pid: &Arc<Pid>) -> Vec<Key> {
        let mut held = Vec::new();
        self.in_flight.each(|key, slot| {
            if slot.holder.as_ref().is_some_and(|holder| holder.is(pid)) {
                held.push(key);
            }
        });
        held
    }

    /// Those of the workers that hold no event, as far as it is known.
    pub fn without_event(&self) -> Vec<(usize, Arc<Pid>)> {
        self.unless(|_| true)
    }

    /// Those of the workers that have shown no ticket of an event that they hold, whatever their
    /// lines say.
    pub fn that_are_silent(&self) -> Vec<(usize, Arc<Pid>)> {
        self.unless(|holder| holder.has_said_so)
    }

    /// All workers but the holders that are meant.
    fn unless(&self, is_meant: impl Fn(&Holder) -> bool) -> Vec<(usize, Arc<Pid>)> {
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

    /// The event that a worker holds, by its own id.
    pub(crate) fn event_at(&self, worker: usize) -> Option<u64> {
        let line = self.line(worker);
        self.event_of(line.state, line.held()?)
    }

    /// The event of a worker in this state.
    pub(crate) fn event_of(&self, state: State, held: (u16, u64)) -> Option<u64> {
        let holds = state.holds_event();
        holds.then(|| self.in_flight.named(held, |slot| slot.event))?
    }
}
