//! Records the outcome of a run: responses, failures by kind, latencies, the generator's own load.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use surus_measure::Latencies;

/// Why a request has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestFailure {
    /// Nothing listens, or the listener's queue is full.
    Refused,
    /// The server reset the connection.
    Reset,
    /// The server closed the connection before the response was complete.
    Closed,
    /// No response came in time.
    Timeout,
    /// The body was not complete in time.
    Unfinished,
    /// The bytes are not a valid response.
    Malformed,
    /// The status was not expected.
    Status,
    /// The body was not expected.
    Body,
    /// Anything else, such as TLS, name resolution or too many open files.
    Other,
}

impl RequestFailure {
    /// All kinds.
    pub const ALL: [RequestFailure; 9] = [
        RequestFailure::Refused,
        RequestFailure::Reset,
        RequestFailure::Closed,
        RequestFailure::Timeout,
        RequestFailure::Unfinished,
        RequestFailure::Malformed,
        RequestFailure::Status,
        RequestFailure::Body,
        RequestFailure::Other,
    ];

    /// Its name in JSON.
    pub fn key(self) -> &'static str {
        match self {
            RequestFailure::Refused => "refused",
            RequestFailure::Reset => "reset",
            RequestFailure::Closed => "closed",
            RequestFailure::Timeout => "timeout",
            RequestFailure::Unfinished => "unfinished",
            RequestFailure::Malformed => "malformed",
            RequestFailure::Status => "status",
            RequestFailure::Body => "body",
            RequestFailure::Other => "other",
        }
    }

    /// What happened, for people.
    pub fn label(self) -> &'static str {
        match self {
            RequestFailure::Refused => "connection refused",
            RequestFailure::Reset => "connection reset",
            RequestFailure::Closed => "connection closed before the end",
            RequestFailure::Timeout => "no response in time",
            RequestFailure::Unfinished => "body not complete in time",
            RequestFailure::Malformed => "invalid response",
            RequestFailure::Status => "unexpected status",
            RequestFailure::Body => "unexpected body",
            RequestFailure::Other => "other errors",
        }
    }

    /// What an error of a socket means.
    pub(crate) fn from_io(error: &io::Error) -> RequestFailure {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, NotFound, TimedOut,
            UnexpectedEof,
        };
        match error.kind() {
            // A Unix socket that does not exist is not found.
            ConnectionRefused | NotFound => RequestFailure::Refused,
            ConnectionReset | ConnectionAborted | BrokenPipe => RequestFailure::Reset,
            UnexpectedEof => RequestFailure::Closed,
            TimedOut => RequestFailure::Timeout,
            _ => RequestFailure::Other,
        }
    }
}

/// The first response of a run that was not as expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexpected {
    /// The method and URL.
    pub request: String,
    /// Its status.
    pub status: u16,
    /// The beginning of its body.
    pub body: String,
}

/// Counts of a run.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Requests that were sent, or would have been if the connection had not failed.
    pub requests: u64,
    /// Expected responses.
    pub responses: u64,
    /// Failures by kind, in the order of [`RequestFailure::ALL`].
    pub failures: [u64; RequestFailure::ALL.len()],
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Those of them that were complete only after the end of the load.
    pub late_statuses: BTreeMap<u16, u64>,
    /// Bytes received. Of HTTP/2, those of fields and bodies, without frames and compression.
    pub received: u64,
    /// Bytes sent, counted alike.
    pub sent: u64,
    /// Connections opened.
    pub connections: u64,
    /// The first unexpected response.
    pub unexpected: Option<Unexpected>,
    /// The text of the first failure that has one.
    pub first_error: Option<String>,
}

impl Totals {
    /// All failures together.
    pub fn failed(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// Failures of one kind.
    pub fn failures_of(&self, failure: RequestFailure) -> u64 {
        self.failures[failure as usize]
    }
}

/// What an open loop offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered {
    /// Requests that were due.
    pub due: u64,
    /// Requests that were due and never sent, because no connection was free.
    pub unsent: u64,
    /// Of a run of a given number of requests, those that were sent only after that number takes at
    /// this rate, because no connection was free.
    pub overdue: u64,
    /// 99th percentile of how late the generator itself sent a request for which a connection was
    /// free.
    pub own_lateness: Duration,
}

/// What a run has shown.
#[derive(Debug)]
pub struct RunOutcome {
    /// How long the load lasted.
    pub elapsed: Duration,
    /// When the expected responses came that were complete only after the load, since its start, in
    /// order.
    pub late: Vec<Duration>,
    /// Counts.
    pub totals: Totals,
    /// Latencies of the expected responses, and how long requests waited that were never sent.
    pub latencies: Latencies,
    /// What was due; only of an open loop.
    pub offered: Option<Offered>,
    /// CPU time of the generator's thread, with the drain after the load.
    pub own_cpu: Duration,
    /// The part of `own_cpu` that was used until the load ended.
    pub own_cpu_in_time: Duration,
    /// Whether the run was ended before its time.
    pub is_interrupted: bool,
}

impl RunOutcome {
    /// Expected responses per second.
    ///
    /// At the end of the load, requests are in flight on which the server has already worked. Up to
    /// their last response it had as much to do as before, so they count with the time that they
    /// took. If a few take far longer than the others, the server idles meanwhile: then only nine
    /// tenths of them count, or none.
    pub fn rate(&self) -> f64 {
        let late = self.late.len();
        let in_time = self.totals.responses - late as u64;
        // In an open loop, the responses come as much later than the requests as these take.
        let shift = match self.offered {
            Some(_) => Duration::from_secs_f64(self.latencies.min_ms() / 1000.0),
            None => Duration::ZERO,
        };
        let rate = |counted: usize| {
            let last = counted.checked_sub(1).and_then(|last| self.late.get(last));
            let end = last.map_or(Duration::ZERO, |at| at.saturating_sub(shift));
            let seconds = end.max(self.elapsed).as_secs_f64().max(1e-9);
            (in_time + counted as u64) as f64 / seconds
        };
        rate(0).max(rate(late - late / 10)).max(rate(late))
    }

    /// The share of one CPU that the generator used while the load lasted.
    pub fn own_busy(&self) -> f64 {
        self.own_cpu_in_time.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Whether the generator was the limit: its thread used at least 95 % of a CPU, and the server
    /// gave expected responses.
    pub fn is_generator_limited(&self) -> bool {
        self.totals.responses > 0 && self.own_busy() >= 0.95
    }

    /// Whether an open loop has sent 99 % of what was due in its time.
    pub fn kept_rate(&self) -> bool {
        let kept = |offered: Offered| (offered.unsent + offered.overdue) * 100 <= offered.due;
        self.offered.is_none_or(kept)
    }
}

#[cfg(test)]
mod tests {
    use surus_measure::Recorder;

    use super::*;

    /// Requests/s of a load of a second, with responses in time and after it, at these
    /// milliseconds. An open loop has the lowest latency that is given.
    fn rate(in_time: u64, late: &[u64], lowest_of_open_loop: Option<u64>) -> f64 {
        let elapsed = Duration::from_secs(1);
        let late: Vec<_> = late.iter().copied().map(Duration::from_millis).collect();
        let mut recorder = Recorder::new(false);
        let lowest = Duration::from_millis(lowest_of_open_loop.unwrap_or(1));
        recorder.response(lowest, lowest, 0);
        RunOutcome {
            elapsed,
            totals: Totals {
                responses: in_time + late.len() as u64,
                ..Totals::default()
            },
            late,
            latencies: recorder.finish(elapsed),
            offered: lowest_of_open_loop.map(|_| Offered {
                due: in_time,
                unsent: 0,
                overdue: 0,
                own_lateness: Duration::ZERO,
            }),
            own_cpu: Duration::ZERO,
            own_cpu_in_time: Duration::ZERO,
            is_interrupted: false,
        }
        .rate()
    }

    fn assert_near(rate: f64, expected: f64) {
        assert!((rate / expected - 1.0).abs() < 0.01, "{rate}, {expected}");
    }

    #[test]
    fn requests_in_flight_at_the_end_count_with_the_time_they_take() {
        // 50 connections, all of whose responses take 950 ms or 1050 ms.
        assert_near(rate(50, &[1900; 50], None), 100.0 / 1.9);
        assert_near(rate(0, &[1050; 50], None), 50.0 / 1.05);
        // One after the other, 100 in a second: without those in flight it is the same.
        let late: Vec<_> = (1..=50).map(|number| 1000 + 10 * number).collect();
        assert_near(rate(100, &late, None), 100.0);
    }

    #[test]
    fn few_responses_that_take_far_longer_do_not_count() {
        let mut late = vec![1100; 19];
        late.push(9000);
        assert_near(rate(100, &late, None), 118.0 / 1.1);
        assert_near(rate(100, &[9000], None), 100.0);
        assert_near(rate(100, &[5000, 6000, 7000, 8000, 9000], None), 100.0);
    }

    #[test]
    fn responses_of_an_open_loop_come_later_than_its_requests() {
        // 100/s, each after 900 ms.
        let late: Vec<_> = (1..=90).map(|number| 1000 + 10 * number).collect();
        assert_near(rate(10, &late, Some(900)), 100.0);
        // 100/s, of which the server manages 50.
        let late: Vec<_> = (1..=50).map(|number| 1000 + 20 * number).collect();
        assert_near(rate(50, &late, Some(1)), 50.0);
        assert_eq!(rate(0, &[], None), 0.0);
    }
}
