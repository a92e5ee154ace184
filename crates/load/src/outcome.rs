//! Records the outcome of a run: responses, failures by kind, latencies, the generator's own load.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use surus_measure::Latencies;

/// Why a request has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
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

impl Failure {
    /// All kinds.
    pub const ALL: [Failure; 9] = [
        Failure::Refused,
        Failure::Reset,
        Failure::Closed,
        Failure::Timeout,
        Failure::Unfinished,
        Failure::Malformed,
        Failure::Status,
        Failure::Body,
        Failure::Other,
    ];

    /// Its name in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Failure::Refused => "refused",
            Failure::Reset => "reset",
            Failure::Closed => "closed",
            Failure::Timeout => "timeout",
            Failure::Unfinished => "unfinished",
            Failure::Malformed => "malformed",
            Failure::Status => "status",
            Failure::Body => "body",
            Failure::Other => "other",
        }
    }

    /// What happened, for people.
    pub fn label(self) -> &'static str {
        match self {
            Failure::Refused => "connection refused",
            Failure::Reset => "connection reset",
            Failure::Closed => "connection closed before the end",
            Failure::Timeout => "no response in time",
            Failure::Unfinished => "body not complete in time",
            Failure::Malformed => "invalid response",
            Failure::Status => "unexpected status",
            Failure::Body => "unexpected body",
            Failure::Other => "other errors",
        }
    }

    /// What an error of a socket means.
    pub(crate) fn of_io(error: &io::Error) -> Failure {
        use io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, TimedOut,
            UnexpectedEof,
        };
        match error.kind() {
            ConnectionRefused => Failure::Refused,
            ConnectionReset | ConnectionAborted | BrokenPipe => Failure::Reset,
            UnexpectedEof => Failure::Closed,
            TimedOut => Failure::Timeout,
            _ => Failure::Other,
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
    /// Of these, those that were complete only after the end of the load.
    pub late_responses: u64,
    /// Failures by kind, in the order of [`Failure::ALL`].
    pub failures: [u64; Failure::ALL.len()],
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
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
    pub fn failures_of(&self, failure: Failure) -> u64 {
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
    /// 99th percentile of how late the generator itself sent a request for which a connection was
    /// free.
    pub own_lateness: Duration,
}

/// What a run has shown.
#[derive(Debug)]
pub struct Outcome {
    /// How long the load lasted.
    pub elapsed: Duration,
    /// Counts.
    pub totals: Totals,
    /// Latencies of the expected responses.
    pub latencies: Latencies,
    /// What was due; only of an open loop.
    pub offered: Option<Offered>,
    /// CPU time of the generator's thread.
    pub own_cpu: Duration,
    /// Whether the run was ended before its time.
    pub is_interrupted: bool,
}

impl Outcome {
    /// Expected responses per second.
    pub fn rate(&self) -> f64 {
        let in_time = self.totals.responses - self.totals.late_responses;
        in_time as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The share of one CPU that the generator used.
    pub fn own_busy(&self) -> f64 {
        self.own_cpu.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Whether the generator was the limit: its thread used at least 95 % of a CPU, and the server
    /// gave expected responses.
    pub fn is_generator_limited(&self) -> bool {
        self.totals.responses > 0 && self.own_busy() >= 0.95
    }

    /// Whether an open loop has sent 99 % of what was due.
    pub fn kept_rate(&self) -> bool {
        let kept = |offered: Offered| offered.unsent * 100 <= offered.due;
        self.offered.is_none_or(kept)
    }
}
