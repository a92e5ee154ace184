//! Counts in-flight requests, ignoring those older than 10 ms.
//!
//! One slow script or slow client therefore does not disable busy polling for the others.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Much longer than busy polling pays off.
const LONG: Duration = Duration::from_millis(10);

/// The in-flight requests of a front end or of a pool.
pub struct InFlight(Mutex<Counts>);

struct Counts {
    all: usize,
    /// When the latest request began.
    last: Instant,
    /// An instant, and how many in-flight requests had begun before it. A new mark is set every
    /// [`LONG`], or later if no request begins.
    mark: (Instant, usize),
    /// An earlier mark. Requests that began before it are old.
    long: (Instant, usize),
}

impl Default for InFlight {
    fn default() -> InFlight {
        InFlight::new(Instant::now())
    }
}

impl InFlight {
    /// An empty count at `now`.
    fn new(now: Instant) -> InFlight {
        let none = (now, 0);
        InFlight(Mutex::new(Counts {
            all: 0,
            last: now,
            mark: none,
            long: none,
        }))
    }

    /// Counts a request that begins at `now`. Returns the number of recent requests, including it.
    pub fn begin(&self, now: Instant) -> usize {
        let mut counts = self.counts();
        if now.saturating_duration_since(counts.mark.0) >= LONG {
            let all = (now, counts.all);
            let none_since = now.saturating_duration_since(counts.last) >= LONG;
            counts.long = if none_since { all } else { counts.mark };
            counts.mark = all;
        }
        counts.last = now;
        counts.all += 1;
        counts.recent()
    }

    /// Uncounts a request that began at `began`. Returns the number of recent requests left.
    pub fn end(&self, began: Instant) -> usize {
        let mut counts = self.counts();
        counts.all -= 1;
        // If requests are recorded out of order, one may be counted once too often or too rarely
        // until the mark after the next.
        let Counts { mark, long, .. } = &mut *counts;
        for (instant, count) in [mark, long] {
            if began < *instant {
                *count = count.saturating_sub(1);
            }
        }
        counts.recent()
    }

    /// How many recent requests are in flight. Some may be as old as twice [`LONG`].
    pub fn recent(&self) -> usize {
        self.counts().recent()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn recent(&self) -> usize {
        self.all.saturating_sub(self.long.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_request_is_not_counted() {
        let start = Instant::now();
        let in_flight = InFlight::new(start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(in_flight.begin(at(0)), 1);
        assert_eq!(in_flight.begin(at(1)), 2);
        assert_eq!(in_flight.end(at(1)), 1);
        for ms in (5..35).step_by(3) {
            let count = in_flight.begin(at(ms));
            assert_eq!(count, if ms < 21 { 2 } else { 1 }, "at {ms} ms");
            assert_eq!(in_flight.end(at(ms)), count - 1);
        }
        // The slow request's end does not change the count of recent ones.
        assert_eq!(in_flight.begin(at(40)), 1);
        assert_eq!(in_flight.end(at(0)), 1);
        assert_eq!(in_flight.end(at(40)), 0);
        assert_eq!(in_flight.begin(at(400)), 1);
    }

    #[test]
    fn requests_before_a_pause_are_old() {
        let start = Instant::now();
        let in_flight = InFlight::new(start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(in_flight.begin(at(0)), 1);
        for ms in (50..1_000).step_by(50) {
            assert_eq!(in_flight.begin(at(ms)), 1, "at {ms} ms");
            assert_eq!(in_flight.end(at(ms - 50)), 1);
        }
    }

    #[test]
    fn concurrent_short_requests_are_counted() {
        let start = Instant::now();
        let in_flight = InFlight::new(start);
        let at = |ms| start + Duration::from_millis(ms);
        for ms in 0..1_000 {
            let count = in_flight.begin(at(ms));
            assert_eq!(count, 6.min(ms as usize + 1), "each takes 5 ms");
            if ms >= 5 {
                in_flight.end(at(ms - 5));
            }
        }
    }
}
