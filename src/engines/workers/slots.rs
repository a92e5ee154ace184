//! The events in flight: who waits for which request id, since when and until when.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::launcher::Pid;
use http::{Method, Uri};
use surus_sys::scoreboard::State;
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

/// An event in flight.
pub struct Slot {
    /// The event's own id; the request id is used again and again.
    pub event: u64,
    /// Who waits for the response's head; taken when it is sent.
    pub answer: Option<oneshot::Sender<Answer>>,
    pub hints: Option<Weak<dyn EarlyHints>>,
    /// When it began to wait for a worker.
    pub entered: Instant,
    /// Its wait is over: since when no worker has been seen to have it.
    pub unheld: Option<Instant>,
    /// Since when it looks as if no worker had it, though one should.
    pub missed: Option<Instant>,
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
    pub worker: usize,
    /// The process; its place among the workers may be another's by now.
    pub pid: Arc<Pid>,
    /// The event's number in the worker's line.
    pub taken: u64,
    pub kill_at: Instant,
}

/// All events in flight of one generation, by request id.
pub struct Slots(Mutex<Table>);

struct Table {
    slots: Vec<Option<Slot>>,
    free: Vec<u16>,
}

impl Slots {
    /// For request ids from 1 to `requests - 1`.
    pub fn new(requests: u16) -> Slots {
        let slots = (0..requests).map(|_| None).collect();
        Slots(Mutex::new(Table {
            slots,
            free: (1..requests).rev().collect(),
        }))
    }

    /// Gives the event a request id. None when all are taken, which the queue prevents.
    pub fn open(&self, slot: Slot) -> Option<u16> {
        let mut table = self.lock();
        let request = table.free.pop()?;
        table.slots[usize::from(request)] = Some(slot);
        Some(request)
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
