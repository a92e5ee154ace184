//! The events in flight: who waits for which request id, since when and until when.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::launcher::Pid;
use http::{Method, Uri};
use surus_sys::scoreboard::{State, Ticket};
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

/// The worker that has claimed an event.
#[derive(Debug, Clone)]
pub struct Holder {
    pub worker: usize,
    /// The process; its place among the workers may be another's by now.
    pub pid: Arc<Pid>,
}

/// An event in flight.
pub struct Slot {
    /// The event's own id; the request id is used again and again.
    pub event: u64,
    /// Whoever knows it has claimed the event.
    pub ticket: Ticket,
    /// When it was sent to the workers, and how.
    pub sent: Option<(Instant, Way)>,
    /// Kept here once it is known: what the scoreboard says may change.
    pub holder: Option<Holder>,
    /// Who waits for the response's head; taken when it is sent.
    pub answer: Option<oneshot::Sender<Answer>>,
    pub hints: Option<Weak<dyn EarlyHints>>,
    /// When it began to wait for a worker.
    pub entered: Instant,
    /// Since when a worker has claimed it, and it is not known which.
    pub hidden: Option<Instant>,
    /// How often it has been looked at since then, or since the worker that has to end it says that it has.
    pub looks: u32,
    /// Its client does not take what there is, and who reads the worker's answer waits for that.
    pub waits_for_client: bool,
    /// Then the event has to end. None while the worker waits for the client, which is not its fault.
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
    number: u32,
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

    /// Gives the event, of which `slot` makes a slot, a request id and a ticket. None when all are taken, which the queue
    /// prevents.
    pub fn open(&self, slot: impl FnOnce(Ticket) -> Slot) -> Option<(u16, Ticket)> {
        let mut table = self.lock();
        let request = table.free.pop()?;
        table.number = table.number.wrapping_add(1);
        let secret = table.secret.hash_one(table.number) as u32;
        let ticket = Ticket::new(table.number, secret);
        table.slots[usize::from(request)] = Some(slot(ticket));
        Some((request, ticket))
    }

    /// Changes a slot, if that request id is in flight.
    pub fn with<T>(&self, request: u16, change: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        self.lock()
            .slots
            .get_mut(usize::from(request))?
            .as_mut()
            .map(change)
    }

    /// The event has ended; its request id is free again.
    pub fn close(&self, request: u16) {
        let mut table = self.lock();
        if let Some(slot @ Some(_)) = table.slots.get_mut(usize::from(request)) {
            *slot = None;
            table.free.push(request);
        }
    }

    /// Closes the slot if it is still that event's: the request id may be another's by now.
    pub fn close_of(&self, request: u16, event: u64) {
        let mut table = self.lock();
        let Some(slot) = table.slots.get_mut(usize::from(request)) else {
            return;
        };
        if slot.take_if(|slot| slot.event == event).is_some() {
            table.free.push(request);
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
    pub fn each(&self, mut visit: impl FnMut(u16, &mut Slot)) {
        for (request, slot) in self.lock().slots.iter_mut().enumerate() {
            if let Some(slot) = slot {
                visit(request as u16, slot);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        // A panic while it is held would be a bug of ours in code that does not panic; the table stays usable.
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
