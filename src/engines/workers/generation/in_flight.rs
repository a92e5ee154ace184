//! The events in flight: who waits for which request id, since when and until when.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::launcher::Pid;
use http::{Method, Uri};
use surus_sys::scoreboard::{Scoreboard, State, Ticket};
use tokio::sync::oneshot;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::engines::queue::Place;
use crate::event::{EarlyHints, Failure, Response};
use crate::spool::Spool;

/// What becomes of an event at the workers.
pub type Answer = Result<Response, Refusal>;

/// An event that was not answered.
#[derive(Debug)]
pub struct Refusal {
    pub failure: Failure,
    pub reached: Reached,
}

/// How far an event has come. Unless it has reached PHP, another worker can have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    Nobody,
    /// A worker says that it has not begun it and cannot.
    Declined,
    /// No PHP code has run for it, but it may be what the worker died of.
    Worker,
    Php,
}

impl Reached {
    /// With a worker that is in this state.
    pub fn with(state: State) -> Reached {
        match state {
            State::Running | State::Finishing => Reached::Php,
            _ => Reached::Worker,
        }
    }
}

/// How an event went to the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It lies in the ring, at this position.
    Ring(u64),
    Socket,
}

/// Names an event in flight. Request ids are used again and again, tickets are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    pub request: u16,
    pub ticket: Ticket,
}

/// The worker that has claimed an event.
#[derive(Debug, Clone)]
pub struct Holder {
    pub worker: usize,
    /// The process; its place among the workers may be another's by now.
    pub pid: Arc<Pid>,
    /// It has said so by its own socket or ring. Else its line in the scoreboard says so, where
    /// every worker can write.
    pub has_said_so: bool,
}

impl Holder {
    pub fn is(&self, pid: &Arc<Pid>) -> bool {
        Arc::ptr_eq(&self.pid, pid)
    }
}

/// An event in flight.
pub struct Slot {
    /// The event's own id; the request id is used again and again.
    pub event: u64,
    pub ticket: Ticket,
    /// A worker has claimed it. Once that has been seen it stays so, whatever is written into the
    /// shared memory later.
    pub is_claimed: bool,
    /// When it was sent to the workers, and how.
    pub sent: Option<(Instant, Way)>,
    /// Kept here once it is known.
    pub holder: Option<Holder>,
    /// Who waits for the response's head; taken when it is sent.
    pub answer: Option<oneshot::Sender<Answer>>,
    pub hints: Option<Weak<dyn EarlyHints>>,
    /// When it began to wait for a worker.
    pub entered: Instant,
    /// Since when a worker has claimed it, and it is not known which.
    pub hidden: Option<Instant>,
    /// How often it has been looked at since then, or since the worker that has to end it says that
    /// it has.
    pub looks: u32,
    /// Its client does not take what there is, and who reads the worker's answer waits for that.
    pub waits_for_client: bool,
    /// Then the event has to end. None while the worker waits for the client, which is not its
    /// fault.
    pub deadline: Option<Instant>,
    /// A response that streams has so long again for every piece, unless it is none.
    pub patience: Option<Duration>,
    /// Where what its client does not take yet may wait.
    pub spool: Option<Arc<Spool>>,
    /// The worker has been asked to end the event.
    pub stopping: Option<Stopping>,
    pub method: Method,
    pub uri: Uri,
    /// Kept until the worker is done with the event, or until none will ever be.
    pub place: Option<Place>,
    /// Kept as long, for the front.
    pub hold: Option<TaskTrackerToken>,
}

impl Slot {
    /// Can a worker still claim it?
    pub fn is_offered(&mut self, board: &Scoreboard, request: u16) -> bool {
        self.is_claimed |= !board.is_offered(request, self.ticket);
        !self.is_claimed
    }

    /// Takes it back, unless a worker has claimed it.
    pub fn revoke(&mut self, board: &Scoreboard, request: u16) -> bool {
        let is_revoked = !self.is_claimed && board.revoke(request, self.ticket);
        self.is_claimed = true;
        is_revoked
    }

    /// Where a script has written the ticket of a claimed event back, takes it away again. True: so
    /// it was.
    pub fn revoke_again(&self, board: &Scoreboard, request: u16) -> bool {
        self.is_claimed
            && board.is_offered(request, self.ticket)
            && board.revoke(request, self.ticket)
    }

    /// Notes who says that it holds the event. False: another does, and is believed.
    pub fn is_held_by(&mut self, holder: &Holder) -> bool {
        if let Some(known) = &mut self.holder
            && known.is(&holder.pid)
        {
            known.has_said_so |= holder.has_said_so;
            return true;
        }
        let is_believed = match &self.holder {
            None => true,
            // Only a line has named that one.
            Some(known) => holder.has_said_so && !known.has_said_so,
        };
        if is_believed {
            self.is_claimed = true;
            self.holder = Some(holder.clone());
            self.hidden = None;
            // It was not this one that was asked to end the event.
            self.stopping = None;
        }
        is_believed
    }

    /// Tells who waits, if anybody does, that there will be no answer.
    pub fn refuse(&mut self, failure: Failure, reached: Reached) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(Refusal { failure, reached }));
        }
    }

    /// Is its deadline over?
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

/// All events in flight of one generation, by request id.
pub struct Slots(Mutex<Table>);

struct Table {
    slots: Vec<Option<Slot>>,
    free: Vec<u16>,
    /// Of the last event.
    number: u64,
    /// What makes the secret halves of tickets.
    secret: RandomState,
}

impl Slots {
    /// For request ids from 1 to `requests - 1`.
    pub fn new(requests: u16) -> Slots {
        let slots = (0..requests).map(|_| None).collect();
        Slots(Mutex::new(Table {
            slots,
            free: (1..requests).rev().collect(),
            number: 0,
            secret: RandomState::new(),
        }))
    }

    /// Gives the event, of which `slot` makes a slot, a request id and a ticket, and lets workers
    /// claim it. None when all ids are taken, which the queue prevents.
    pub fn open(&self, board: &Scoreboard, slot: impl FnOnce(Ticket) -> Slot) -> Option<Key> {
        let mut table = self.lock();
        let request = table.free.pop()?;
        table.number += 1;
        let secret = table.secret.hash_one(table.number) as u32;
        let ticket = Ticket::new(table.number as u32, secret);
        table.slots[usize::from(request)] = Some(slot(ticket));
        // Before the lock ends: who looks at the slot takes any other word for a claim.
        board.offer(request, ticket);
        Some(Key { request, ticket })
    }

    /// Is nothing in flight?
    pub fn is_empty(&self) -> bool {
        let table = self.lock();
        table.free.len() + 1 >= table.slots.len()
    }

    /// Changes the slot of an event that is still in flight.
    pub fn with<T>(&self, key: Key, change: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        let mut table = self.lock();
        let slot = table.slots.get_mut(usize::from(key.request))?.as_mut()?;
        (slot.ticket == key.ticket).then(|| change(slot))
    }

    /// As [`with`](Self::with), of what a line of the scoreboard names: a request id and the tag of
    /// a ticket.
    pub fn named<T>(
        &self,
        (request, tag): (u16, u64),
        change: impl FnOnce(&mut Slot) -> T,
    ) -> Option<T> {
        let mut table = self.lock();
        let slot = table.slots.get_mut(usize::from(request))?.as_mut()?;
        (u64::from(slot.ticket.tag()) == tag).then(|| change(slot))
    }

    /// The event has ended; its request id is free again.
    pub fn close(&self, key: Key) {
        let mut table = self.lock();
        if let Some(slot) = table.slots.get_mut(usize::from(key.request))
            && slot.take_if(|slot| slot.ticket == key.ticket).is_some()
        {
            table.free.push(key.request);
        }
    }

    /// Closes all.
    pub fn close_all(&self) -> Vec<(u16, Slot)> {
        let mut table = self.lock();
        let mut closed = Vec::new();
        for request in 1..table.slots.len() {
            if let Some(slot) = table.slots[request].take() {
                table.free.push(request as u16);
                closed.push((request as u16, slot));
            }
        }
        closed
    }

    /// Visits every slot in flight.
    pub fn each(&self, mut visit: impl FnMut(Key, &mut Slot)) {
        for (request, slot) in self.lock().slots.iter_mut().enumerate() {
            if let Some(slot) = slot {
                let (request, ticket) = (request as u16, slot.ticket);
                visit(Key { request, ticket }, slot);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // A panic while it is held would be a bug of ours in code that does not panic; the table
        // stays usable.
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn slot(ticket: Ticket) -> Slot {
        Slot {
            event: 1,
            ticket,
            is_claimed: false,
            sent: None,
            holder: None,
            answer: None,
            hints: None,
            entered: Instant::now(),
            hidden: None,
            looks: 0,
            waits_for_client: false,
            deadline: None,
            patience: None,
            spool: None,
            stopping: None,
            method: Method::GET,
            uri: Uri::default(),
            place: None,
            hold: None,
        }
    }

    fn holder(worker: usize, has_said_so: bool) -> Holder {
        let pid = Arc::new(Pid::new(u32::MAX, None, None));
        Holder {
            worker,
            pid,
            has_said_so,
        }
    }

    #[test]
    fn ticket_written_back_is_taken_away_and_never_revoked() {
        let (board, slots) = (Scoreboard::new(1, 4).unwrap(), Slots::new(4));
        let key = slots.open(&board, slot).unwrap();
        let is_offered = |slot: &mut Slot| slot.is_offered(&board, key.request);
        assert_eq!(slots.with(key, is_offered), Some(true));
        // As a worker claims it, and a script writes it back.
        assert!(board.revoke(key.request, key.ticket));
        assert_eq!(slots.with(key, is_offered), Some(false));
        board.offer(key.request, key.ticket);
        assert_eq!(slots.with(key, is_offered), Some(false));
        let revoked = slots.with(key, |slot| slot.revoke(&board, key.request));
        assert_eq!(revoked, Some(false));
        let again = slots.with(key, |slot| slot.revoke_again(&board, key.request));
        assert_eq!(again, Some(true));
        assert!(!board.is_offered(key.request, key.ticket));
    }

    #[test]
    fn shown_ticket_outdoes_a_line_and_no_other_ticket() {
        let mut slot = slot(Ticket::new(1, 2));
        let (copied, shown, late) = (holder(0, false), holder(1, true), holder(2, true));
        assert!(slot.is_held_by(&copied) && slot.is_claimed);
        assert!(!slot.is_held_by(&holder(3, false)));
        assert!(slot.is_held_by(&shown) && slot.is_held_by(&shown));
        assert!(!slot.is_held_by(&late) && !slot.is_held_by(&copied));
    }

    #[test]
    fn key_of_an_event_that_has_ended_finds_no_other_with_its_request_id() {
        let (board, slots) = (Scoreboard::new(1, 2).unwrap(), Slots::new(2));
        let first = slots.open(&board, slot).unwrap();
        slots.close(first);
        let second = slots.open(&board, slot).unwrap();
        assert_eq!(first.request, second.request);
        slots.close(first);
        assert!(slots.with(first, |_| ()).is_none());
        assert!(slots.with(second, |_| ()).is_some() && !slots.is_empty());
        slots.close(second);
        assert!(slots.is_empty());
    }
}
