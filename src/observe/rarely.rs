//! Is it time to say again what would be said of every request?

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two times.
const PAUSE: Duration = Duration::from_secs(10);

/// What a line of the log is about that comes rarely, whatever happens how often.
#[derive(Debug, Default)]
pub struct Rarely(Mutex<Option<Instant>>);

impl Rarely {
    pub const fn new() -> Rarely {
        Rarely(Mutex::new(None))
    }

    /// Once, and then not before some seconds are over.
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
    fn it_is_time_once_and_again_after_a_while() {
        let (rarely, now) = (Rarely::new(), Instant::now());
        assert!(rarely.is_time(now));
        assert!(!rarely.is_time(now));
        assert!(!rarely.is_time(now + PAUSE / 2));
        assert!(rarely.is_time(now + PAUSE));
        assert!(!rarely.is_time(now + PAUSE));
    }
}
