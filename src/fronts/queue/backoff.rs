//! Pauses between attempts: exponential, with jitter, so that processes do not return together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// The pause after this many failures in a row, between half and the whole of the exponential one.
pub fn pause(failures: u32) -> Duration {
    let whole = FIRST.saturating_mul(1 << failures.clamp(1, 20).saturating_sub(1));
    let whole = whole.min(LONGEST);
    // Each state of the standard library's hash maps has random keys.
    let random = RandomState::new().hash_one(failures) as u32;
    whole / 2 + whole.mul_f64(f64::from(random) / f64::from(u32::MAX) / 2.0)
}

/// The pause before the next try of a `plain` job: 1 s, 2 s, 4 s, up to an hour.
pub fn before_try(attempts: u32) -> Duration {
    Duration::from_secs(1 << attempts.clamp(1, 13).saturating_sub(1)).min(Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_to_its_limit_and_varies() {
        for (failures, whole) in [(1, 100), (2, 200), (4, 800), (30, 10_000)] {
            let pause = pause(failures).as_millis();
            assert!((whole / 2..=whole).contains(&pause), "{failures}: {pause}");
        }
        let pauses: std::collections::BTreeSet<_> = (0..20).map(|_| pause(9)).collect();
        assert!(pauses.len() > 10);
        assert_eq!(before_try(1), Duration::from_secs(1));
        assert_eq!(before_try(99), Duration::from_secs(3600));
    }
}
