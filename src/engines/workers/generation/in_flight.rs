//! The table of in-flight events: slots, tickets, deadlines and waiting callers.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::launcher::Pid;
use http::{Method, Uri};
use surus_sys::scoreboard::{Scoreboard, State, Ticket};
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::engines::queue::Permit;
use crate::event::{EarlyHints, Failure, Response};
use crate::observe::traces::Trace;
use crate::spool::Spool;

/// The result of an event at the workers.
pub type WorkerAnswer = Result<Response, DispatchError>;

/// Why an event was not answered.
#[derive(Debug)]
pub struct DispatchError {
    pub failure: Failure,
    pub progress: RequestProgress,
}

/// How far an event got. Unless PHP has started it, another worker can run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestProgress {
    Queued,
    /// A worker reports that it has not begun the event and cannot.
    Declined,
    /// No PHP code has run for it, but it may be why the worker crashed.
    Received,
    Started,
}

impl RequestProgress {
    /// The progress of an event whose worker is in this state.
    pub fn with(state: State) -> RequestProgress {
        match state {
            State::Running | State::Finishing => RequestProgress::Started,
            _ => RequestProgress::Received,
        }
    }
}

/// When and how an event was sent to the workers.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub at: Instant,
    /// The position in the ring of the event or of its announcement.
    pub position: u64,
    pub by_socket: bool,
    /// A worker polled for it.
    pub to_polling_worker: bool,
}

/// Identifies an event in flight by its slot and its ticket. Slots are reused, tickets are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub slot: u16,
    pub ticket: Ticket,
}

/// The worker that has claimed an event.
#[derive(Debug, Clone)]
pub struct Holder {
    pub worker: usize,
    /// The process. Its worker slot may be another's by now.
    pub pid: Arc<Pid>,
    /// It has said so through its own socket or ring. Otherwise only the scoreboard says so, which
    /// every worker can write.
    pub has_shown_ticket: bool,
}

impl Holder {
    pub fn is(&self, pid: &Arc<Pid>) -> bool {
        Arc::ptr_eq(&self.pid, pid)
    }
}

/// An event in flight.
pub struct InFlightRequest {
    /// The event's own id, which is never reused.
    pub event: u64,
    pub ticket: Ticket,
    /// A worker has claimed it. Once seen, this stays true whatever is written to the shared memory
    /// later.
    pub is_claimed: bool,
    pub sent: Option<Sent>,
    /// Kept once it is known.
    pub holder: Option<Holder>,
    /// The caller that waits for the response's headers; taken when they are sent.
    pub answer: Option<oneshot::Sender<WorkerAnswer>>,
    pub hints: Option<Weak<dyn EarlyHints>>,
    /// When it began to wait for a worker.
    pub entered: Instant,
    /// Since when a worker has claimed it without being known.
    pub holder_unknown_since: Option<Instant>,
    /// Sweeps since then, or since its worker was asked to end it.
    pub sweeps: u32,
    /// The client is too slow, and the reader of the worker's response waits for it.
    pub waits_for_client: bool,
    /// When the event must end. None while the worker waits for the client, which is not its fault.
    pub deadline: Option<Instant>,
    /// The time limit of each further piece of a streamed response, if any.
    pub idle_timeout: Option<Duration>,
    /// Where a response waits for a slow client.
    pub spool: Option<Arc<Spool>>,
    /// The worker has been asked to end the event.
    pub stopping: Option<Stopping>,
    /// When a sweep first found that a worker had claimed it.
    pub claimed_since: Option<Instant>,
    /// It was reported as slow.
    pub is_slow: bool,
    pub method: Method,
    pub uri: Uri,
    /// Held until the worker is done with the event, or until none ever will be.
    pub _permit: Option<Permit>,
    /// Held as long, for the front end.
    pub completion_token: Option<TaskTrackerToken>,
    /// None if the request is not traced.
    pub trace: Option<Arc<Trace>>,
}

impl InFlightRequest {
    /// Whether a worker can still claim it.
    pub fn is_offered(&mut self, board: &Scoreboard, number: u16) -> bool {
        self.is_claimed |= !board.is_offered(number, self.ticket);
        !self.is_claimed
    }

    /// Revokes its ticket. False if a worker has claimed it.
    pub fn revoke(&mut self, board: &Scoreboard, number: u16) -> bool {
        let is_revoked = !self.is_claimed && board.revoke(number, self.ticket);
        self.is_claimed = true;
        is_revoked
    }

    /// Revokes the ticket of a claimed event that a script has written back. Returns whether that
    /// was the case.
    pub fn revoke_again(&self, board: &Scoreboard, number: u16) -> bool {
        self.is_claimed
            && board.is_offered(number, self.ticket)
            && board.revoke(number, self.ticket)
    }

    /// Records a worker that claims to hold the event. False if another one does and is believed.
    pub fn record_claim(&mut self, holder: &Holder) -> bool {
        if let Some(known) = &mut self.holder
            && known.is(&holder.pid)
        {
            known.has_shown_ticket |= holder.has_shown_ticket;
            return true;
        }
        let is_believed = match &self.holder {
            None => true,
            // That one is known from a scoreboard line only.
            Some(known) => holder.has_shown_ticket && !known.has_shown_ticket,
        };
        if is_believed {
            self.is_claimed = true;
            self.holder = Some(holder.clone());
            self.holder_unknown_since = None;
            // Another process was asked to end the event.
            self.stopping = None;
        }
        is_believed
    }

    /// Fails the caller, if one still waits.
    pub fn fail(&mut self, failure: Failure, progress: RequestProgress) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(DispatchError { failure, progress }));
        }
    }

    /// Whether a worker has held it for this long, unless that was reported before.
    pub fn becomes_slow(&mut self, limit: Option<Duration>, now: Instant) -> bool {
        let since = *self.claimed_since.get_or_insert(now);
        !self.is_slow && limit.is_some_and(|limit| now.saturating_duration_since(since) >= limit)
    }

    /// Whether its deadline has passed.
    pub fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// A worker that has been asked to end an event.
#[derive(Debug, Clone)]
pub struct Stopping {
    pub holder: Holder,
    pub kill_at: Instant,
}

/// All events in flight of one generation, by slot.
pub struct InFlightRequests(Mutex<InFlightTable>);

struct InFlightTable {
    slots: Vec<Option<InFlightRequest>>,
    free: Vec<u16>,
    /// The number of the last event.
    number: u64,
    /// Generates the secret halves of tickets.
    secret: RandomState,
}

impl InFlightRequests {
    /// With slots from 1 to `slots - 1`.
    pub fn new(slots: u16) -> InFlightRequests {
        InFlightRequests(Mutex::new(InFlightTable {
            slots: (0..slots).map(|_| None).collect(),
            free: (1..slots).rev().collect(),
            number: 0,
            secret: RandomState::new(),
        }))
    }

    /// Assigns a slot and a ticket, stores what `request` makes of the ticket, and lets workers
    /// claim the event. None if all slots are in use, which the queue prevents.
    pub fn open(
        &self,
        board: &Scoreboard,
        request: impl FnOnce(Ticket) -> InFlightRequest,
    ) -> Option<Key> {
        let mut table = self.lock();
        let slot = table.free.pop()?;
        table.number += 1;
        let secret = table.secret.hash_one(table.number) as u32;
        let ticket = Ticket::new(table.number as u32, secret);
        table.slots[usize::from(slot)] = Some(request(ticket));
        // While locked: a sweep takes any other word for a claim.
        board.offer(slot, ticket);
        Some(Key { slot, ticket })
    }

    /// How many events have ended.
    pub fn ended(&self) -> u64 {
        let table = self.lock();
        let in_flight = table.slots.len().saturating_sub(table.free.len() + 1);
        table.number.saturating_sub(in_flight as u64)
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        let table = self.lock();
        table.free.len() + 1 >= table.slots.len()
    }

    /// Changes the slot of an event that is still in flight.
    pub fn with<T>(&self, key: Key, change: impl FnOnce(&mut InFlightRequest) -> T) -> Option<T> {
        let mut table = self.lock();
        let slot = table.slots.get_mut(usize::from(key.slot))?.as_mut()?;
        (slot.ticket == key.ticket).then(|| change(slot))
    }

    /// Like [`with`](Self::with), by what a scoreboard line names: a slot and a ticket's tag.
    pub fn named<T>(
        &self,
        (number, tag): (u16, u64),
        change: impl FnOnce(&mut InFlightRequest) -> T,
    ) -> Option<T> {
        let mut table = self.lock();
        let slot = table.slots.get_mut(usize::from(number))?.as_mut()?;
        (u64::from(slot.ticket.tag()) == tag).then(|| change(slot))
    }

    /// The event has ended; frees its slot.
    pub fn close(&self, key: Key) {
        let mut table = self.lock();
        if let Some(slot) = table.slots.get_mut(usize::from(key.slot))
            && slot.take_if(|slot| slot.ticket == key.ticket).is_some()
        {
            table.free.push(key.slot);
        }
    }

    /// Closes all slots.
    pub fn close_all(&self) -> Vec<(u16, InFlightRequest)> {
        let mut table = self.lock();
        let mut closed = Vec::new();
        for number in 1..table.slots.len() {
            if let Some(slot) = table.slots[number].take() {
                table.free.push(number as u16);
                closed.push((number as u16, slot));
            }
        }
        closed
    }

    /// Visits every event in flight.
    pub fn each(&self, mut visit: impl FnMut(Key, &mut InFlightRequest)) {
        for (number, slot) in self.lock().slots.iter_mut().enumerate() {
            if let Some(slot) = slot {
                let key = Key {
                    slot: number as u16,
                    ticket: slot.ticket,
                };
                visit(key, slot);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InFlightTable> {
        // The code under this lock does not panic; if it did, the table would stay usable.
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;

    pub fn slot(ticket: Ticket) -> InFlightRequest {
        InFlightRequest {
            event: 1,
            ticket,
            is_claimed: false,
            sent: None,
            holder: None,
            answer: None,
            hints: None,
            entered: Instant::now(),
            holder_unknown_since: None,
            sweeps: 0,
            waits_for_client: false,
            deadline: None,
            idle_timeout: None,
            spool: None,
            stopping: None,
            claimed_since: None,
            is_slow: false,
            method: Method::GET,
            uri: Uri::default(),
            _permit: None,
            completion_token: None,
            trace: None,
        }
    }

    fn holder(worker: usize, has_shown_ticket: bool) -> Holder {
        let pid = Arc::new(Pid::new(u32::MAX, None, None));
        Holder {
            worker,
            pid,
            has_shown_ticket,
        }
    }

    #[test]
    fn ticket_written_back_is_taken_away_and_never_revoked() {
        let (board, slots) = (Scoreboard::new(1, 4).unwrap(), InFlightRequests::new(4));
        let key = slots.open(&board, slot).unwrap();
        let is_offered = |slot: &mut InFlightRequest| slot.is_offered(&board, key.slot);
        assert_eq!(slots.with(key, is_offered), Some(true));
        // A worker claims it, and a script writes it back.
        assert!(board.revoke(key.slot, key.ticket));
        assert_eq!(slots.with(key, is_offered), Some(false));
        board.offer(key.slot, key.ticket);
        assert_eq!(slots.with(key, is_offered), Some(false));
        let revoked = slots.with(key, |slot| slot.revoke(&board, key.slot));
        assert_eq!(revoked, Some(false));
        let again = slots.with(key, |slot| slot.revoke_again(&board, key.slot));
        assert_eq!(again, Some(true));
        assert!(!board.is_offered(key.slot, key.ticket));
    }

    #[test]
    fn shown_ticket_overrides_a_scoreboard_line_but_no_other_ticket() {
        let mut slot = slot(Ticket::new(1, 2));
        let (copied, shown, late) = (holder(0, false), holder(1, true), holder(2, true));
        assert!(slot.record_claim(&copied) && slot.is_claimed);
        assert!(!slot.record_claim(&holder(3, false)));
        assert!(slot.record_claim(&shown) && slot.record_claim(&shown));
        assert!(!slot.record_claim(&late) && !slot.record_claim(&copied));
    }

    #[test]
    fn key_of_an_event_that_has_ended_finds_no_other_in_its_slot() {
        let (board, slots) = (Scoreboard::new(1, 2).unwrap(), InFlightRequests::new(2));
        let first = slots.open(&board, slot).unwrap();
        slots.close(first);
        let second = slots.open(&board, slot).unwrap();
        assert_eq!(first.slot, second.slot);
        slots.close(first);
        assert!(slots.with(first, |_| ()).is_none());
        assert!(slots.with(second, |_| ()).is_some() && !slots.is_empty());
        slots.close(second);
        assert!(slots.is_empty());
    }
}
