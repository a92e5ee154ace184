//! Measures rejections, and tells their clients to wait: longer while very many are rejected.

use std::num::NonZero;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Rejections per second and CPU that cost little compared with the served requests.
const FEW: u32 = 1_000;
/// Seconds.
const SHORTEST: u64 = 1;
const LONGEST: u64 = 4;
/// A measurement that began this long ago no longer counts.
const STALE: Duration = Duration::from_secs(10);

static REJECTIONS: Mutex<Rejections> = Mutex::new(Rejections::new());

/// The value of `Retry-After`. The connection of a client whose request was rejected is not read
/// until then.
pub fn retry_after() -> Duration {
    Duration::from_secs(rejections().wait(Instant::now()))
}

/// Counts a request that was rejected because of overload.
pub fn count_rejection() {
    // Computed once, because `available_parallelism` reads files of control groups.
    static FEW_OF_ALL: LazyLock<u32> = LazyLock::new(|| {
        let cpus = available_parallelism().map_or(1, NonZero::get);
        FEW.saturating_mul(u32::try_from(cpus).unwrap_or(u32::MAX))
    });
    rejections().count(Instant::now(), *FEW_OF_ALL);
}

fn rejections() -> MutexGuard<'static, Rejections> {
    REJECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures rejections per second. The wait doubles while there are more than a few, and halves
/// when they are less than a quarter of that. Clients that wait longer come less often, so with one
/// limit for both the wait would oscillate.
struct Rejections {
    began: Option<Instant>,
    number: u32,
    /// Seconds.
    wait: u64,
}

impl Rejections {
    const fn new() -> Rejections {
        Rejections {
            began: None,
            number: 0,
            wait: SHORTEST,
        }
    }

    fn wait(&self, now: Instant) -> u64 {
        match self.began {
            Some(began) if now.saturating_duration_since(began) < STALE => self.wait,
            _ => SHORTEST,
        }
    }

    fn count(&mut self, now: Instant, few: u32) {
        let took = now.saturating_duration_since(*self.began.get_or_insert(now));
        if took >= Duration::from_secs(1) {
            let rate = f64::from(self.number) / took.as_secs_f64();
            self.wait = match self.wait(now) {
                wait if rate > few.into() => LONGEST.min(wait * 2),
                wait if rate < f64::from(few) / 4.0 => SHORTEST.max(wait / 2),
                wait => wait,
            };
            (self.began, self.number) = (Some(now), 0);
        }
        self.number = self.number.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rejects requests for some seconds, as many in each. Returns the wait in the last one.
    fn reject(rejections: &mut Rejections, now: &mut Instant, seconds: u32, number: u32) -> u64 {
        for _ in 0..seconds {
            for _ in 0..number {
                rejections.count(*now, 1_000);
            }
            *now += Duration::from_secs(1);
        }
        rejections.count(*now, 1_000);
        rejections.wait(*now)
    }

    #[test]
    fn clients_wait_longer_only_while_very_many_are_rejected() {
        let (mut rejections, mut now) = (Rejections::new(), Instant::now());
        assert_eq!(rejections.wait(now), 1);
        assert_eq!(reject(&mut rejections, &mut now, 5, 900), 1);
        assert_eq!(reject(&mut rejections, &mut now, 1, 4_000), 2);
        assert_eq!(reject(&mut rejections, &mut now, 3, 4_000), 4);
        assert_eq!(reject(&mut rejections, &mut now, 5, 500), 4);
        assert_eq!(reject(&mut rejections, &mut now, 2, 100), 1);
    }

    #[test]
    fn overload_of_the_past_says_nothing() {
        let (mut rejections, mut now) = (Rejections::new(), Instant::now());
        assert_eq!(reject(&mut rejections, &mut now, 3, 4_000), 4);
        assert_eq!(rejections.wait(now + STALE), 1);
        now += STALE;
        rejections.count(now, 1_000);
        assert_eq!(rejections.wait(now), 1);
    }
}
