//! Rate limit for log lines that every request could cause.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// Limits one kind of log line to one every 10 seconds.
#[derive(Debug, Default)]
pub struct Rarely(Mutex<Option<Instant>>);

impl Rarely {
    pub const fn new() -> Rarely {
        Rarely(Mutex::new(None))
    }

    /// True the first time, and then again once 10 seconds have passed.
    pub fn is_time(&self, now: Instant) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = said.is_none_or(|said| now.saturating_duration_since(said) >= PAUSE);
        if is_time {
            *said = Some(now);
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_allowed_again_after_the_pause() {
        let (rarely, now) = (Rarely::new(), Instant::now());
        assert!(rarely.is_time(now));
        assert!(!rarely.is_time(now));
        assert!(!rarely.is_time(now + PAUSE / 2));
        assert!(rarely.is_time(now + PAUSE));
        assert!(!rarely.is_time(now + PAUSE));
    }
}
