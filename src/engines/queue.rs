//! The queue of an engine: admits events to the workers, and bounds how many wait and for how long.
//!
//! It serves the oldest event first. Under overload (`overload.rs`) it serves the newest first and
//! rejects those that have waited too long, because their clients are the most likely to have given
//! up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::overload::Overload;
use crate::budget;
use crate::event::{Event, Failure};

/// The bounds of a queue.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// How many events may wait.
    pub max_waiting: usize,
    /// How long an event may wait.
    pub max_wait: Duration,
    /// How long an event may wait under overload.
    pub target: Duration,
    /// How long waits must exceed `target` before that counts as overload.
    pub interval: Duration,
}

/// Admits as many events as the workers can hold; the others wait.
pub struct RequestQueue {
    capacity: usize,
    bounds: Bounds,
    inner: Arc<Inner>,
}

/// The state that a queue shares with its permits.
struct Inner {
    state: Mutex<State>,
    /// The queue drains, and all permits are free or no event waits.
    emptied: Notify,
}

struct State {
    /// Free permits; zero while an event waits.
    free: usize,
    taken: usize,
    /// By number, so that the oldest is the first.
    waiting: BTreeMap<u64, WaitingEvent>,
    /// Calls that wait, or have got a permit and have not returned it yet.
    entering: usize,
    next: u64,
    overload: Overload,
    draining: bool,
}

struct WaitingEvent {
    since: Instant,
    turn: oneshot::Sender<Result<Permit, Failure>>,
}

/// The right to send an event to the workers. Dropping it releases it.
pub struct Permit {
    inner: Arc<Inner>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.inner.release();
    }
}

impl RequestQueue {
    /// At most `capacity` events are at the workers; the others wait here.
    pub fn new(capacity: usize, bounds: Bounds) -> RequestQueue {
        RequestQueue {
            capacity,
            bounds,
            inner: Arc::new(Inner {
                state: Mutex::new(State {
                    free: capacity,
                    taken: 0,
                    waiting: BTreeMap::new(),
                    entering: 0,
                    next: 0,
                    overload: Overload::new(bounds.target, bounds.interval, capacity),
                    draining: false,
                }),
                emptied: Notify::new(),
            }),
        }
    }

    /// A permit if one is free and no event waits. Fails while the queue drains.
    pub fn try_enter(&self) -> Result<Option<Permit>, Failure> {
        let mut state = self.inner.lock();
        if state.draining {
            return Err(CLOSED);
        }
        if state.free == 0 {
            return Ok(None);
        }
        state.free -= 1;
        state.taken += 1;
        drop(state);
        Ok(Some(Permit::new(&self.inner)))
    }

    /// Waits for a permit until the event's deadline. Fails at once if too many wait, or if the
    /// queue drains.
    pub async fn enter(&self, event: &Event) -> Result<Permit, Failure> {
        self.enter_by(event.deadline.into(), held_by(event)).await
    }

    async fn enter_by(&self, deadline: Instant, bytes: u64) -> Result<Permit, Failure> {
        if let Some(permit) = self.try_enter()? {
            return Ok(permit);
        }
        let Some(_memory) = budget::QUEUE.try_take(bytes) else {
            return Err(Failure::QueueFull("the queue's memory is full"));
        };
        let until = Instant::now() + self.bounds.max_wait;
        let (turn, mut wait) = oneshot::channel();
        let _waits = self.begin_wait(turn)?;
        match tokio::time::timeout_at(until.min(deadline), &mut wait).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) => Err(CLOSED),
            Err(_) if deadline <= until => Err(Failure::TimedOut),
            Err(_) => Err(Failure::QueueTimeout("no worker became free in time")),
        }
    }

    /// Puts an event into the queue until the guard is dropped.
    fn begin_wait(
        &self,
        turn: oneshot::Sender<Result<Permit, Failure>>,
    ) -> Result<QueuedWait, Failure> {
        let now = Instant::now();
        let mut state = self.inner.lock();
        let late = state.late(now);
        let number = state.next;
        if state.waiting.len() < self.bounds.max_waiting {
            state.next += 1;
            state.entering += 1;
            state
                .waiting
                .insert(number, WaitingEvent { since: now, turn });
        }
        let is_full = state.next == number;
        // A permit may have been released since the caller tried.
        let served = state.serve();
        drop(state);
        reject(late);
        self.inner.give(served);
        match is_full {
            true => Err(Failure::QueueFull("the queue is full")),
            false => Ok(QueuedWait {
                inner: self.inner.clone(),
                number,
            }),
        }
    }

    /// How many permits are in use.
    pub fn taken(&self) -> usize {
        self.inner.lock().taken
    }

    pub fn waiting(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    pub fn max_wait(&self) -> Duration {
        self.bounds.max_wait
    }

    pub fn is_draining(&self) -> bool {
        self.inner.lock().draining
    }

    /// Admits no more events, and returns when no permit is in use. Events that already wait are
    /// served first.
    pub async fn emptied(&self) {
        let capacity = self.capacity;
        self.drain(move |state| state.free == capacity).await;
    }

    /// Admits no more events, and returns when none waits.
    pub async fn closed(&self) {
        self.drain(|state| state.entering == 0).await;
    }

    async fn drain(&self, is_done: impl Fn(&State) -> bool) {
        self.inner.lock().draining = true;
        loop {
            let emptied = self.inner.emptied.notified();
            if is_done(&self.inner.lock()) {
                return;
            }
            emptied.await;
        }
    }
}

const CLOSED: Failure = Failure::Busy("shutting down");

/// The memory of a waiting event besides its headers and its body, which has its own budget.
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

fn reject(late: Vec<WaitingEvent>) {
    for waiting in late {
        let failure =
            Failure::QueueTimeout("waited longer than engine.queue_target under overload");
        let _ = waiting.turn.send(Err(failure));
    }
}

impl State {
    /// Removes the events that have waited too long under overload.
    fn late(&mut self, now: Instant) -> Vec<WaitingEvent> {
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

    /// Removes the next event, if a permit is free.
    fn serve(&mut self) -> Option<WaitingEvent> {
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

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases a permit to the next event.
    fn release(self: &Arc<Inner>) {
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
        reject(late);
        self.give(served);
        if is_empty {
            self.emptied.notify_waiters();
        }
    }

    /// Gives an event its permit. If its client has disconnected, the drop passes it on.
    fn give(self: &Arc<Inner>, served: Option<WaitingEvent>) {
        if let Some(waiting) = served {
            let _ = waiting.turn.send(Ok(Permit::new(self)));
        }
    }
}

impl Permit {
    fn new(inner: &Arc<Inner>) -> Permit {
        Permit {
            inner: inner.clone(),
        }
    }
}

/// Removes an event from the queue when dropped.
struct QueuedWait {
    inner: Arc<Inner>,
    number: u64,
}

impl Drop for QueuedWait {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        let waiting = state.waiting.remove(&self.number);
        state.entering -= 1;
        let is_last = state.entering == 0 && state.draining;
        drop(state);
        drop(waiting);
        if is_last {
            self.inner.emptied.notify_waiters();
        }
    }
}

#[cfg(test)]
#[path = "queue/tests.rs"]
mod tests;
