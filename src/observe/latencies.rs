//! Counts durations in buckets narrow enough for percentiles, which those of the metrics are not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets for each power of two of microseconds. A percentile is off by at most an eighth.
const PER_POWER: u64 = 8;
const SHIFT: u32 = PER_POWER.trailing_zeros();

/// Up to 2^32 µs, more than an hour.
const BUCKETS: usize = (PER_POWER * (33 - SHIFT as u64)) as usize;

/// How many requests took how long, since the start.
#[derive(Debug)]
pub struct Latencies([AtomicU64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Latencies {
    pub fn observe(&self, took: Duration) {
        self.0[bucket(took.as_micros())].fetch_add(1, Relaxed);
    }

    pub fn counts(&self) -> Counts {
        Counts(self.0.iter().map(|count| count.load(Relaxed)).collect())
    }
}

/// The counts at one instant.
#[derive(Debug, Clone, Default)]
pub struct Counts(Vec<u64>);

impl Counts {
    /// What has been counted since then.
    pub fn since(&self, then: &Counts) -> Counts {
        let then = then.0.iter().chain(std::iter::repeat(&0));
        let counts = self.0.iter().zip(then);
        Counts(
            counts
                .map(|(now, then)| now.saturating_sub(*then))
                .collect(),
        )
    }

    /// The duration below which this share of the requests was. None without requests.
    pub fn percentile(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        if all == 0 {
            return None;
        }
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all);
        let mut passed = 0;
        let found = self.0.iter().position(|count| {
            passed += count;
            passed >= rank
        });
        found.map(|bucket| Duration::from_micros(middle(bucket as u64)))
    }
}

/// Small durations have a bucket each.
fn bucket(micros: u128) -> usize {
    let micros = micros.min((1 << 32) - 1) as u64;
    if micros < PER_POWER {
        return micros as usize;
    }
    let power = micros.ilog2() - SHIFT;
    ((u64::from(power) << SHIFT) + (micros >> power)) as usize
}

/// The duration in the middle of a bucket.
fn middle(bucket: u64) -> u64 {
    if bucket < 2 * PER_POWER {
        return bucket;
    }
    let power = (bucket >> SHIFT) - 1;
    let first = (bucket - (power << SHIFT)) << power;
    first + (1 << power) / 2
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_near_the_middle_of_its_bucket() {
        let mut last = 0;
        for micros in (0..5000).chain((13..32).map(|power| (1 << power) + 17)) {
            let bucket = bucket(u128::from(micros));
            assert!(bucket >= last, "{micros}");
            last = bucket;
            let off = middle(bucket as u64).abs_diff(micros);
            assert!(off * PER_POWER <= micros, "{micros}: {off}");
        }
        assert_eq!(bucket(u128::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_of_the_requests_since_the_last_sample() {
        let latencies = Latencies::default();
        assert_eq!(latencies.counts().percentile(0.5), None);
        latencies.observe(Duration::from_secs(60));
        let then = latencies.counts();
        for millis in 1..=100 {
            latencies.observe(Duration::from_millis(millis));
        }
        let since = latencies.counts().since(&then);
        for (share, millis) in [
            (0.5, 50.0),
            (0.9, 90.0),
            (0.99, 99.0),
            (0.0, 1.0),
            (1.0, 100.0),
        ] {
            let found = since.percentile(share).unwrap().as_secs_f64() * 1000.0;
            assert!((found - millis).abs() <= millis / 8.0, "{share}: {found}");
        }
        assert_eq!(
            latencies
                .counts()
                .since(&latencies.counts())
                .percentile(0.5),
            None
        );
    }
}
