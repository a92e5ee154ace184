//! How many are in flight, those aside that have been so for long: where one waits for a slow script, or for a slow client, what pays for one alone
//! pays for the only other one, too.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// By far longer than it pays to stay awake.
const LONG: Duration = Duration::from_millis(10);

/// Requests of a front, or events of a pool.
pub struct InFlight(Mutex<Counts>);

struct Counts {
    all: usize,
    /// When the last one began.
    last: Instant,
    /// An instant, and how many of them had begun before. There is a new one every [`LONG`], or later where none begins.
    mark: (Instant, usize),
    /// An earlier mark: those that had begun before it have been in flight for long.
    long: (Instant, usize),
}

impl Default for InFlight {
    fn default() -> InFlight {
        InFlight::new(Instant::now())
    }
}

impl InFlight {
    /// None, at `now`.
    fn new(now: Instant) -> InFlight {
        let none = (now, 0);
        InFlight(Mutex::new(Counts {
            all: 0,
            last: now,
            mark: none,
            long: none,
        }))
    }

    /// There is one more, since `now`. Returns how many there are with it, in flight not for long.
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
        counts.lately()
    }

    /// One has ended, which had begun at `began`. Returns how many are left, in flight not for long.
    pub fn end(&self, began: Instant) -> usize {
        let mut counts = self.counts();
        counts.all -= 1;
        // Whoever is counted after another that had begun later may be counted once too often, or too rarely, until the mark after the next.
        let Counts { mark, long, .. } = &mut *counts;
        for (instant, count) in [mark, long] {
            if began < *instant {
                *count = count.saturating_sub(1);
            }
        }
        counts.lately()
    }

    /// How many are in flight not for long. Those of up to twice [`LONG`] may be among them.
    pub fn lately(&self) -> usize {
        self.counts().lately()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn lately(&self) -> usize {
        self.all.saturating_sub(self.long.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_in_flight_for_long_is_not_counted() {
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
        // Whatever is asked meanwhile, the slow one's end is its own.
        assert_eq!(in_flight.begin(at(40)), 1);
        assert_eq!(in_flight.end(at(0)), 1);
        assert_eq!(in_flight.end(at(40)), 0);
        assert_eq!(in_flight.begin(at(400)), 1);
    }

    #[test]
    fn one_after_a_pause_finds_those_before_it_in_flight_for_long() {
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
    fn many_that_come_and_go_are_many() {
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
