//! The plan of a run: what is sent, over how many connections, at which pace, until when.

use std::sync::Arc;
use std::time::Duration;

use crate::expect::Expectations;
use crate::pace::Pace;
use crate::requests::Mix;

/// The version of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, without TLS by prior knowledge. One request at a time per connection.
    Http2,
}

/// When a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// After this time.
    After(Duration),
    /// After this many requests.
    Requests(u64),
}

/// What to do in a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is sent.
    pub mix: Arc<Mix>,
    /// Over which protocol.
    pub protocol: Protocol,
    /// Over how many connections.
    pub concurrency: usize,
    /// How fast.
    pub pace: Pace,
    /// Until when.
    pub stop: Stop,
    /// How long one request, with its connection, may take from when it is sent.
    pub timeout: Duration,
    /// How long a connection of a closed loop waits after a failed request, like a client that
    /// backs off. Zero: it tries again at once, or 10 ms after it could not connect.
    pub back_off: Duration,
    /// Whether a connection carries many requests.
    pub keeps_alive: bool,
    /// Whether each connection keeps cookies and sends them back.
    pub keeps_cookies: bool,
    /// Whether any certificate is accepted.
    pub accepts_any_certificate: bool,
    /// What responses must look like.
    pub expectations: Expectations,
}

impl Plan {
    /// A closed loop of 50 connections over HTTP/1.1 for 10 seconds.
    pub fn new(mix: Mix) -> Plan {
        Plan {
            mix: Arc::new(mix),
            protocol: Protocol::Http1,
            concurrency: 50,
            pace: Pace::Closed,
            stop: Stop::After(Duration::from_secs(10)),
            timeout: Duration::from_secs(10),
            back_off: Duration::ZERO,
            keeps_alive: true,
            keeps_cookies: false,
            accepts_any_certificate: false,
            expectations: Expectations::default(),
        }
    }
}
