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
    /// The expected responses that were complete only after the end of the load.
    pub late_responses: u64,
    /// Failures by kind, in the order of [`RequestFailure::ALL`].
    pub failures: [u64; RequestFailure::ALL.len()],
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
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
    pub fn rate(&self) -> f64 {
        let in_time = self.totals.responses - self.totals.late_responses;
        in_time as f64 / self.elapsed.as_secs_f64().max(1e-9)
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
