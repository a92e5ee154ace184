//! Rate limits for log lines, and for other work, that PHP or every request could cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// Limits one kind of log line to one every 10 seconds.
#[derive(Debug, Default)]
pub struct RateLimit(Mutex<Option<Instant>>);

impl RateLimit {
    pub const fn new() -> RateLimit {
        RateLimit(Mutex::new(None))
    }

    /// True the first time, and then again once 10 seconds have passed.
    pub fn is_time(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if is_time {
            *last = Some(now);
        }
        is_time
    }
}

/// How many lines [`LineRate`] allows at once; a start may explain itself at length.
const BURST: u64 = 500;

/// A burst, and then once a second.
#[derive(Debug, Default)]
pub struct BurstRate {
    /// How often it was used ahead of the rate.
    ahead: u64,
    since: Option<Instant>,
}

impl BurstRate {
    pub const fn new() -> BurstRate {
        BurstRate {
            ahead: 0,
            since: None,
        }
    }

    /// Whether it may be used now, with bursts of this size. Counts that.
    pub fn take(&mut self, burst: u64, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let seconds = now.saturating_duration_since(since).as_secs();
        self.ahead = self.ahead.saturating_sub(seconds);
        self.since = Some(since + Duration::from_secs(seconds));
        let is_free = self.ahead < burst;
        self.ahead += u64::from(is_free);
        is_free
    }
}

/// Limits log lines to a burst and then one a second, and counts those that it leaves out.
#[derive(Debug, Default)]
pub struct LineRate(Mutex<RatedLines>);

#[derive(Debug, Default)]
struct RatedLines {
    rate: BurstRate,
    left_out: u64,
}

impl LineRate {
    pub const fn new() -> LineRate {
        LineRate(Mutex::new(RatedLines {
            rate: BurstRate::new(),
            left_out: 0,
        }))
    }

    /// Calls `log` if a line may be logged now, with the number of lines left out since the last
    /// one, if any.
    pub fn log(&self, now: Instant, log: impl FnOnce(Option<u64>)) {
        let left_out = {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !lines.rate.take(BURST, now) {
                lines.left_out += 1;
                return;
            }
            std::mem::take(&mut lines.left_out)
        };
        log((left_out > 0).then_some(left_out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_allowed_again_after_the_pause() {
        let (rarely, now) = (RateLimit::new(), Instant::now());
        assert!(rarely.is_time(now));
        assert!(!rarely.is_time(now));
        assert!(!rarely.is_time(now + PAUSE / 2));
        assert!(rarely.is_time(now + PAUSE));
        assert!(!rarely.is_time(now + PAUSE));
    }

    #[test]
    fn burst_is_followed_by_once_a_second() {
        let (mut rate, start) = (BurstRate::new(), Instant::now());
        let mut taken = |seconds| {
            let now = start + Duration::from_secs(seconds);
            (0..10).filter(|_| rate.take(4, now)).count()
        };
        assert_eq!((taken(0), taken(1), taken(3), taken(100)), (4, 1, 2, 4));
    }

    #[test]
    fn flood_of_lines_is_limited_and_counted() {
        let (rate, start) = (LineRate::new(), Instant::now());
        let mut logged = Vec::new();
        // Forty lines a second for a minute.
        for n in 0..2400 {
            rate.log(start + Duration::from_millis(n * 25), |left_out| {
                logged.push(left_out);
            });
        }
        let all = logged.len() as u64 + logged.iter().flatten().sum::<u64>();
        assert!(logged.len() < BURST as usize + 65, "{}", logged.len());
        assert!((2360..=2400).contains(&all), "{all}");
        // After a quiet time, a burst is allowed again.
        let later = start + Duration::from_secs(3600);
        let mut count = 0;
        (0..BURST).for_each(|_| rate.log(later, |_| count += 1));
        assert_eq!(count, BURST);
    }
}
