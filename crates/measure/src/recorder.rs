//! Records the latencies of one run in HdrHistograms, in total and per second.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::interval_log::Interval;

/// The percentiles that reports list.
pub const PERCENTILES: [f64; 7] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// Significant decimal figures of a histogram: values differ from the true ones by 0.1 % at most.
const FIGURES: u8 = 3;

/// Latencies above an hour are recorded as one.
const LONGEST: u64 = 3_600_000_000;

/// One second of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Second {
    /// Seconds since the start of the run.
    pub at: u64,
    /// Expected responses that were complete in this second.
    pub responses: u64,
    /// Requests that failed in this second.
    pub failures: u64,
    /// Bytes received in this second.
    pub bytes: u64,
    /// Median latency in microseconds; `None` without responses, like the others.
    pub p50_us: Option<u64>,
    /// 99th percentile in microseconds.
    pub p99_us: Option<u64>,
    /// Highest latency in microseconds.
    pub max_us: Option<u64>,
}

/// Collects latencies while a run goes on. Times count from the start of the run.
#[derive(Debug)]
pub struct Recorder {
    total: Histogram<u64>,
    second: Histogram<u64>,
    /// How long requests waited that were never sent or never answered.
    unanswered: Histogram<u64>,
    failures: u64,
    bytes: u64,
    seconds: Vec<Second>,
    intervals: Option<Vec<Interval>>,
}

impl Recorder {
    /// `keeps_intervals` keeps each second's histogram until
    /// [`take_intervals`](Self::take_intervals).
    pub fn new(keeps_intervals: bool) -> Recorder {
        Recorder {
            total: histogram(),
            second: histogram(),
            unanswered: histogram(),
            failures: 0,
            bytes: 0,
            seconds: Vec::new(),
            intervals: keeps_intervals.then(Vec::new),
        }
    }

    /// Records an expected response that was complete at `at`.
    pub fn response(&mut self, at: Duration, latency: Duration, bytes: u64) {
        self.roll(at);
        // Unlike `saturating_record`, this makes the histogram larger for a longer latency.
        let _ = self.second.record(micros(latency));
        self.bytes += bytes;
    }

    /// Records requests that were due and never sent, or not answered in time, with the time that
    /// they have waited. It is part of the percentiles in total, and of no second: without them, a
    /// server that answers only some of its clients would look fast.
    pub fn unanswered(&mut self, waited: Duration, count: u64) {
        let _ = self.unanswered.record_n(micros(waited), count);
    }

    /// Records a request that failed at `at`.
    pub fn failure(&mut self, at: Duration, bytes: u64) {
        self.roll(at);
        self.failures += 1;
        self.bytes += bytes;
    }

    /// Closes the seconds that have passed. Returns those that are closed.
    pub fn roll(&mut self, at: Duration) -> &[Second] {
        while (self.seconds.len() as u64) < at.as_secs() {
            self.close();
        }
        &self.seconds
    }

    /// The intervals that have closed since the last call.
    pub fn take_intervals(&mut self) -> Vec<Interval> {
        self.intervals
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Ends the recording.
    pub fn finish(mut self, at: Duration) -> Latencies {
        self.roll(at);
        if !self.second.is_empty() || self.failures > 0 {
            self.close();
        }
        if !self.unanswered.is_empty() {
            let _ = self.total.add(&self.unanswered);
            // A log holds what the percentiles count.
            if let Some(intervals) = &mut self.intervals {
                intervals.push(Interval {
                    at: self.seconds.len() as u64,
                    histogram: self.unanswered,
                });
            }
        }
        Latencies {
            histogram: self.total,
            seconds: self.seconds,
            intervals: self.intervals.unwrap_or_default(),
        }
    }

    fn close(&mut self) {
        let second = &self.second;
        let quantile = |at| (!second.is_empty()).then(|| second.value_at_quantile(at));
        self.seconds.push(Second {
            at: self.seconds.len() as u64,
            responses: second.len(),
            failures: self.failures,
            bytes: self.bytes,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            max_us: (!second.is_empty()).then(|| second.max()),
        });
        // Both have the same precision and resize themselves, so this cannot fail.
        let _ = self.total.add(second);
        if let Some(intervals) = &mut self.intervals {
            let at = self.seconds.len() as u64 - 1;
            let histogram = second.clone();
            intervals.push(Interval { at, histogram });
        }
        self.second.reset();
        self.failures = 0;
        self.bytes = 0;
    }
}

/// Latencies of a finished run.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// One entry per second.
    pub seconds: Vec<Second>,
    /// The intervals that were not taken, the last with what was never answered.
    pub intervals: Vec<Interval>,
}

impl Latencies {
    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that `percent` of the requests did not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        ms(self.histogram.value_at_quantile(percent / 100.0))
    }

    /// Number of latencies above a bound.
    pub fn count_above(&self, bound: Duration) -> u64 {
        // Values that the histogram does not tell from the bound are within it.
        let bound = self.histogram.highest_equivalent(micros(bound));
        let above = self.histogram.iter_recorded();
        let above = above.filter(|step| step.value_iterated_to() > bound);
        above.map(|step| step.count_at_value()).sum()
    }

    /// Adds the latencies of another run. The seconds stay those of this one.
    pub fn add(&mut self, other: &Latencies) {
        // Both have the same precision and resize themselves, so this cannot fail.
        let _ = self.histogram.add(&other.histogram);
    }

    /// Lowest latency in milliseconds.
    pub fn min_ms(&self) -> f64 {
        ms(self.histogram.min())
    }

    /// Highest latency in milliseconds.
    pub fn max_ms(&self) -> f64 {
        ms(self.histogram.max())
    }

    /// Mean latency in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.histogram.mean() / 1000.0
    }

    /// Points of the curve of latency by percentile, up to the resolution of the count.
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let count = self.count();
        let mut points = Vec::new();
        // Each step leaves 0.8 of the rest, until fewer than one request is left.
        let mut rest = 1.0_f64;
        while count > 0 && rest * count as f64 >= 1.0 && points.len() < 80 {
            let quantile = 1.0 - rest;
            points.push((quantile, ms(self.histogram.value_at_quantile(quantile))));
            rest *= 0.8;
        }
        points
    }
}

fn histogram() -> Histogram<u64> {
    let mut histogram = Histogram::new(FIGURES).unwrap_or_else(|_| unreachable!("3 is allowed"));
    histogram.auto(true);
    histogram
}

fn micros(latency: Duration) -> u64 {
    let micros = u64::try_from((latency.as_nanos() + 500) / 1000).unwrap_or(u64::MAX);
    micros.min(LONGEST)
}

fn ms(micros: u64) -> f64 {
    micros as f64 / 1000.0
}
