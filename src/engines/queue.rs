//! Who waits for a worker, how many may, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::Instant;

use crate::event::Failure;
use crate::in_flight::InFlight;

/// Admits as many events as the workers can hold; the others wait, first come, first served.
pub struct Queue {
    places: Arc<Semaphore>,
    capacity: usize,
    in_flight: Arc<InFlight>,
    waiting: AtomicUsize,
    max_waiting: usize,
    max_wait: Duration,
    draining: AtomicBool,
}

/// The right to hand an event to the workers, given back when it is dropped.
pub struct Place {
    since: std::time::Instant,
    in_flight: Arc<InFlight>,
    /// Given back last.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.in_flight.end(self.since);
    }
}

impl Queue {
    /// `capacity` events at the workers, `max_waiting` more here, none longer than `max_wait`.
    pub fn new(capacity: usize, max_waiting: usize, max_wait: Duration) -> Queue {
        Queue {
            places: Arc::new(Semaphore::new(capacity)),
            capacity,
            in_flight: Arc::default(),
            waiting: AtomicUsize::new(0),
            max_waiting,
            max_wait,
            draining: AtomicBool::new(false),
        }
    }

    /// A place, if one is free; nobody who waits is overtaken. Fails when the queue drains.
    pub fn try_enter(&self) -> Result<Option<Place>, Failure> {
        if self.is_draining() {
            return Err(CLOSED);
        }
        match self.places.clone().try_acquire_owned() {
            Ok(permit) => Ok(Some(self.place(permit))),
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => Err(CLOSED),
        }
    }

    /// Waits for a place, until `deadline` at the most. Fails at once when too many wait already, or when the queue drains.
    pub async fn enter(&self, deadline: Instant) -> Result<Place, Failure> {
        if let Some(place) = self.try_enter()? {
            return Ok(place);
        }
        let _waiting = Waiting::begin(&self.waiting, self.max_waiting)?;
        let until = Instant::now() + self.max_wait;
        match tokio::time::timeout_at(until.min(deadline), self.places.clone().acquire_owned())
            .await
        {
            Ok(Ok(permit)) => Ok(self.place(permit)),
            Ok(Err(_)) => Err(CLOSED),
            Err(_) if deadline <= until => Err(Failure::TimedOut),
            Err(_) => Err(Failure::Busy("no worker became free in time")),
        }
    }

    fn place(&self, permit: OwnedSemaphorePermit) -> Place {
        let since = std::time::Instant::now();
        self.in_flight.begin(since);
        Place {
            since,
            in_flight: self.in_flight.clone(),
            _permit: permit,
        }
    }

    /// Places that are taken.
    pub fn taken(&self) -> usize {
        self.capacity - self.places.available_permits()
    }

    /// Those of them that have not been so for long.
    pub fn taken_lately(&self) -> usize {
        self.in_flight.lately()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Admits no more; returns when no place is taken any more. Events that wait already go first.
    pub async fn emptied(&self) {
        self.draining.store(true, Ordering::Release);
        if let Ok(all) = self
            .places
            .clone()
            .acquire_many_owned(self.capacity as u32)
            .await
        {
            self.places.close();
            drop(all);
        }
    }
}

const CLOSED: Failure = Failure::Busy("shutting down");

/// Counts one waiting event for as long as it exists.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize, max: usize) -> Result<Waiting<'a>, Failure> {
        let waiting = Waiting(count);
        if count.fetch_add(1, Ordering::Relaxed) >= max {
            return Err(Failure::Busy("the queue is full"));
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded_in_number_and_time() {
        let queue = Arc::new(Queue::new(1, 1, Duration::from_secs(5)));
        let place = queue.enter(later()).await.unwrap();
        let second = tokio::spawn({
            let queue = queue.clone();
            async move { queue.enter(later()).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(queue.waiting(), 1);
        assert!(matches!(
            queue.enter(later()).await,
            Err(Failure::Busy("the queue is full"))
        ));
        assert!(matches!(
            second.await.unwrap(),
            Err(Failure::Busy("no worker became free in time"))
        ));
        assert_eq!(queue.waiting(), 0);
        let deadline = Instant::now() + Duration::from_secs(1);
        assert!(matches!(
            queue.enter(deadline).await,
            Err(Failure::TimedOut)
        ));
        drop(place);
        assert!(queue.enter(later()).await.is_ok());
    }

    #[test]
    fn who_has_a_place_for_long_is_not_taken_for_many() {
        let queue = Queue::new(3, 0, Duration::ZERO);
        let first = queue.try_enter();
        let second = queue.try_enter();
        assert_eq!((queue.taken(), queue.taken_lately()), (2, 2));
        std::thread::sleep(Duration::from_millis(20));
        let third = queue.try_enter();
        assert_eq!((queue.taken(), queue.taken_lately()), (3, 1));
        drop((first, second));
        assert_eq!((queue.taken(), queue.taken_lately()), (1, 1));
        drop(third);
        assert_eq!((queue.taken(), queue.taken_lately()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn emptied_waits_for_the_last_event_and_closes() {
        let queue = Arc::new(Queue::new(2, 10, Duration::from_secs(5)));
        let place = queue.enter(later()).await.unwrap();
        let emptied = tokio::spawn({
            let queue = queue.clone();
            async move { queue.emptied().await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!emptied.is_finished());
        drop(place);
        emptied.await.unwrap();
        assert!(matches!(
            queue.enter(later()).await,
            Err(Failure::Busy("shutting down"))
        ));
    }
}
