//! Decides when requests are due, and wakes connections for them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use surus_sys::timer::Timer;
use tokio::sync::Notify;

/// How fast requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Each connection sends its next request when it has the response to the previous one.
    Closed,
    /// Requests are due at a rate, whether or not the server keeps up.
    Open(Schedule),
}

/// The due times of an open loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    from: f64,
    /// Growth of the rate, per second.
    slope: f64,
}

impl Schedule {
    /// The same rate all the time, in requests per second.
    pub fn constant(rate: f64) -> Schedule {
        Schedule {
            from: rate,
            slope: 0.0,
        }
    }

    /// A rate that grows or falls evenly over `length`.
    pub fn ramp(from: f64, to: f64, length: Duration) -> Schedule {
        Schedule {
            from,
            slope: (to - from) / length.as_secs_f64(),
        }
    }

    /// The rate of the beginning, all the time.
    pub fn without_ramp(&self) -> Schedule {
        Schedule::constant(self.from)
    }

    /// When the request with this number, counted from 0, is due; `None` if never.
    pub fn due(&self, number: u64) -> Option<Duration> {
        let number = number as f64;
        let seconds = if self.slope == 0.0 {
            number / self.from
        } else {
            // Solves number = from × t + slope × t² / 2 in the form without cancellation.
            let root = (self.from * self.from + 2.0 * self.slope * number).sqrt();
            2.0 * number / (self.from + root)
        };
        if number == 0.0 {
            return Some(Duration::ZERO);
        }
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Number of requests that are due before `end`.
    pub fn due_before(&self, end: Duration) -> u64 {
        let is_before = |number| self.due(number).is_some_and(|due| due < end);
        let mut bound = 1;
        while is_before(bound) {
            bound *= 2;
        }
        // `first` to `bound` contains the first that is not due before.
        let mut first = 0;
        while first < bound {
            let middle = first + (bound - first) / 2;
            if is_before(middle) {
                first = middle + 1;
            } else {
                bound = middle;
            }
        }
        first
    }
}

/// Wakes tasks at their due times. Tasks must ask in the order of these. Tokio's own timer has a
/// resolution of 1 ms, which an open loop would see as latency.
#[derive(Debug)]
pub(crate) struct Pacer {
    timer: Timer,
    waiting: Mutex<VecDeque<(Instant, Arc<Notify>)>>,
}

impl Pacer {
    pub fn new() -> io::Result<Pacer> {
        Ok(Pacer {
            timer: Timer::new()?,
            waiting: Mutex::new(VecDeque::new()),
        })
    }

    /// Asks to be notified at `due`.
    pub fn ask(&self, due: Instant, waker: &Arc<Notify>) -> io::Result<()> {
        let mut waiting = self.waiting();
        waiting.push_back((due, waker.clone()));
        if waiting.len() == 1 {
            self.set(due)?;
        }
        Ok(())
    }

    /// Wakes tasks until it is dropped, or until the timer fails.
    pub async fn run(&self) -> io::Result<Infallible> {
        loop {
            self.timer.fired().await?;
            let now = Instant::now();
            let mut waiting = self.waiting();
            while let Some((due, waker)) = waiting.front() {
                if *due > now {
                    self.set(*due)?;
                    break;
                }
                waker.notify_one();
                waiting.pop_front();
            }
        }
    }

    fn set(&self, due: Instant) -> io::Result<()> {
        self.timer
            .set(due.saturating_duration_since(Instant::now()))
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Instant, Arc<Notify>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
