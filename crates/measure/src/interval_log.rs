//! Writes an HdrHistogram interval log: one histogram of microseconds per second.

use std::io;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

/// The latencies of one second of a run, about 100 KB.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Seconds since the start of the run.
    pub(crate) at: u64,
    pub(crate) histogram: Histogram<u64>,
}

/// Writes an interval to a log.
pub type WriteInterval<'a> = dyn FnMut(&Interval) -> io::Result<()> + 'a;

/// Begins a log and lets `run` write to it while intervals close. A run of any length then needs
/// no more memory than a short one.
pub fn write_log<T>(
    to: &mut impl io::Write,
    started: SystemTime,
    run: impl FnOnce(&mut WriteInterval<'_>) -> T,
) -> io::Result<T> {
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[surus bench: latencies in microseconds]")
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(1000.0)
        .begin_log_with(to, &mut serializer)?;
    Ok(run(&mut |interval: &Interval| {
        let start = Duration::from_secs(interval.at);
        log.write_histogram(&interval.histogram, start, Duration::from_secs(1), None)
            .map_err(|error| io::Error::other(format!("{error:?}")))
    }))
}
