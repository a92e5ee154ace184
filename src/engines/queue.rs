//! The queue of an engine: admits events to the workers, bounds how many wait and for how long.
//!
//! It serves the oldest event first. Under overload (`overload.rs`) it serves the newest first and
//! refuses those that have waited too long: their clients are the most likely to have given up, and
//! what the queue holds stays small.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::overload::Overload;
use crate::budget;
use crate::busy_poll::load::InFlight;
use crate::event::{Event, Failure};

/// What bounds a queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// Events that may wait.
    pub max_waiting: usize,
    /// How long one may wait.
    pub max_wait: Duration,
    /// How long one may wait under overload.
    pub target: Duration,
    /// How long waits have to be too long until that is overload.
    pub interval: Duration,
}

/// Admits as many events as the workers can hold; the others wait.
pub struct Queue {
    capacity: usize,
    bounds: Bounds,
    line: Arc<Line>,
}

/// What a queue shares with the places it has given.
struct Line {
    in_flight: InFlight,
    state: Mutex<State>,
    /// All places are free, and the queue drains.
    emptied: Notify,
}

struct State {
    /// Places; none while an event waits.
    free: usize,
    taken: usize,
    /// By number, so that the first is the oldest.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    overload: Overload,
    draining: bool,
}

struct Waiting {
    since: Instant,
    turn: oneshot::Sender<Result<Place, Failure>>,
}

/// The right to hand an event to the workers, given back when it is dropped.
pub struct Place {
    since: std::time::Instant,
    line: Arc<Line>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.line.in_flight.end(self.since);
        self.line.release();
    }
}

impl Queue {
    /// `capacity` events at the workers; the others wait here within their bounds.
    pub fn new(capacity: usize, bounds: Bounds) -> Queue {
        Queue {
            capacity,
            bounds,
            line: Arc::new(Line {
                in_flight: InFlight::default(),
                state: Mutex::new(State {
                    free: capacity,
                    taken: 0,
                    waiting: BTreeMap::new(),
                    next: 0,
                    overload: Overload::new(bounds.target, bounds.interval, capacity),
                    draining: false,
                }),
                emptied: Notify::new(),
            }),
        }
    }

    /// A place, if one is free; events that wait are not overtaken. Fails when the queue drains.
    pub fn try_enter(&self) -> Result<Option<Place>, Failure> {
        let mut state = self.line.lock();
        if state.draining {
            return Err(CLOSED);
        }
        if state.free == 0 {
            return Ok(None);
        }
        state.free -= 1;
        state.taken += 1;
        drop(state);
        Ok(Some(Place::new(&self.line)))
    }

    /// Waits for a place, until the event's deadline at the most. Fails at once when too many wait,
    /// or when the queue drains.
    pub async fn enter(&self, event: &Event) -> Result<Place, Failure> {
        self.enter_by(event.deadline.into(), held_by(event)).await
    }

    async fn enter_by(&self, deadline: Instant, bytes: u64) -> Result<Place, Failure> {
        if let Some(place) = self.try_enter()? {
            return Ok(place);
        }
        let Some(_memory) = budget::QUEUE.try_take(bytes) else {
            return Err(Failure::Busy("the queue's memory is full"));
        };
        let until = Instant::now() + self.bounds.max_wait;
        let (turn, mut wait) = oneshot::channel();
        let _waits = self.begin_wait(turn)?;
        match tokio::time::timeout_at(until.min(deadline), &mut wait).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) => Err(CLOSED),
            Err(_) if deadline <= until => Err(Failure::TimedOut),
            Err(_) => Err(Failure::Busy("no worker became free in time")),
        }
    }

    /// Puts an event into the queue until the guard is dropped.
    fn begin_wait(&self, turn: oneshot::Sender<Result<Place, Failure>>) -> Result<Waits, Failure> {
        let now = Instant::now();
        let mut state = self.line.lock();
        let late = state.late(now);
        let number = state.next;
        if state.waiting.len() < self.bounds.max_waiting {
            state.next += 1;
            state.waiting.insert(number, Waiting { since: now, turn });
        }
        let is_full = state.next == number;
        // One may have become free since the caller looked.
        let served = state.serve();
        drop(state);
        refuse(late);
        self.line.hand(served);
        match is_full {
            true => Err(Failure::Busy("the queue is full")),
            false => Ok(Waits {
                line: self.line.clone(),
                number,
            }),
        }
    }

    /// Places that are taken.
    pub fn taken(&self) -> usize {
        self.line.lock().taken
    }

    /// Those of them that have not been so for long.
    pub fn taken_lately(&self) -> usize {
        self.line.in_flight.lately()
    }

    pub fn waiting(&self) -> usize {
        self.line.lock().waiting.len()
    }

    pub fn max_wait(&self) -> Duration {
        self.bounds.max_wait
    }

    pub fn is_draining(&self) -> bool {
        self.line.lock().draining
    }

    /// Admits no more; returns when no place is taken any more. Events that wait already go first.
    pub async fn emptied(&self) {
        self.line.lock().draining = true;
        loop {
            let emptied = self.line.emptied.notified();
            if self.line.lock().free == self.capacity {
                return;
            }
            emptied.await;
        }
    }
}

const CLOSED: Failure = Failure::Busy("shutting down");

/// Memory of a waiting event besides its head and its body, which has a budget of its own.
const EVENT: u64 = 4 << 10;

fn held_by(event: &Event) -> u64 {
    let headers = event.request.headers().iter();
    let length = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() as u64 + value.len() as u64
    };
    let target = event.request.uri().path_and_query();
    let target = target.map_or(0, |target| target.as_str().len() as u64);
    EVENT + target + headers.map(length).sum::<u64>()
}

fn refuse(late: Vec<Waiting>) {
    for waiting in late {
        let failure = Failure::Busy("waited longer than engine.queue_target under overload");
        let _ = waiting.turn.send(Err(failure));
    }
}

impl State {
    /// Takes out the events that have waited too long for an overload.
    fn late(&mut self, now: Instant) -> Vec<Waiting> {
        let mut late = Vec::new();
        if self.overload.is_on(now, self.waiting.len()) {
            while let Some(oldest) = self.waiting.first_entry()
                && now.duration_since(oldest.get().since) > self.overload.target
            {
                late.push(oldest.remove());
            }
        }
        late
    }

    /// Takes out the event whose turn it is, if a place is free.
    fn serve(&mut self) -> Option<Waiting> {
        if self.free == 0 {
            return None;
        }
        let (_, next) = match self.overload.was_on() {
            true => self.waiting.pop_last()?,
            false => self.waiting.pop_first()?,
        };
        self.free -= 1;
        self.taken += 1;
        self.overload.served();
        Some(next)
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a place back, to the event whose turn it is.
    fn release(self: &Arc<Line>) {
        let mut state = self.lock();
        state.free += 1;
        state.taken -= 1;
        let mut late = Vec::new();
        if !state.waiting.is_empty() {
            late = state.late(Instant::now());
        }
        let served = state.serve();
        let is_empty = state.taken == 0 && state.draining;
        drop(state);
        refuse(late);
        self.hand(served);
        if is_empty {
            self.emptied.notify_waiters();
        }
    }

    /// Gives a place that has been taken for it to an event. Dropped where the client has left, it
    /// goes to the next.
    fn hand(self: &Arc<Line>, served: Option<Waiting>) {
        if let Some(waiting) = served {
            let _ = waiting.turn.send(Ok(Place::new(self)));
        }
    }
}

impl Place {
    fn new(line: &Arc<Line>) -> Place {
        let since = std::time::Instant::now();
        line.in_flight.begin(since);
        Place {
            since,
            line: line.clone(),
        }
    }
}

/// Takes an event out of the queue when it is dropped.
struct Waits {
    line: Arc<Line>,
    number: u64,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let waiting = self.line.lock().waiting.remove(&self.number);
        drop(waiting);
    }
}

#[cfg(test)]
#[path = "queue/tests.rs"]
mod tests;
