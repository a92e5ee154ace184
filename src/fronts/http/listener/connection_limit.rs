//! Limits the open connections: closes the longest idle connection for a new one, or makes the new
//! one wait.
//!
//! Requests cost nothing here: connections record their state in their `ConnectionTimers`, which is
//! only read when the limit is reached.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::fronts::http::transport::context::ConnectionContext;
use crate::observe::rate_limit::RateLimit;

/// The connections of all listeners.
pub struct ConnectionLimiter {
    pub limit: usize,
    /// The setting that limits them.
    pub setting: &'static str,
    permits: Mutex<Permits>,
    /// Notified when a connection has closed.
    closed: Notify,
}

#[derive(Default)]
struct Permits {
    next: u64,
    /// The open connections.
    open: HashMap<u64, Arc<ConnectionContext>>,
    /// Those that have been told to close.
    closing: HashSet<u64>,
    /// The idle connections at the last scan, the longest idle last. Connections that became idle
    /// later have been idle for less time.
    longest: Vec<(Instant, u64)>,
    /// When the last scan found no idle connection.
    none_idle_at: Option<Instant>,
}

/// How long such a scan's result counts.
const ALL_BUSY: Duration = Duration::from_millis(5);

/// Clients that send requests without pause are idle for less; closing their connections would only
/// make them reconnect.
const IDLE: Duration = Duration::from_millis(500);

/// How long a connection waits before it is closed. Those behind it wait in the kernel meanwhile:
/// if closed at once, they would reconnect at once and use up the time of the open ones.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The interval of checks whether a connection has been idle for long enough.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// How many idle connections a scan collects, so that as many new connections share its cost.
const FOUND: usize = 32;

/// An open connection's permit.
pub struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    number: u64,
}

impl ConnectionLimiter {
    pub fn new(limit: usize, setting: &'static str) -> ConnectionLimiter {
        ConnectionLimiter {
            limit,
            setting,
            permits: Mutex::default(),
            closed: Notify::new(),
        }
    }

    fn permits(&self) -> MutexGuard<'_, Permits> {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the longest idle connection to close, if necessary. None if all are busy.
    pub fn enter(
        self: &Arc<ConnectionLimiter>,
        connection: Arc<ConnectionContext>,
    ) -> Option<ConnectionPermit> {
        let mut permits = self.permits();
        while permits.open.len() - permits.closing.len() >= self.limit {
            permits.evict_longest_idle(self.setting)?;
        }
        permits.next += 1;
        let number = permits.next;
        permits.open.insert(number, connection);
        Some(ConnectionPermit {
            limiter: self.clone(),
            number,
        })
    }
}

impl ConnectionLimiter {
    /// Whether at least this part of the limit is in use.
    pub fn is_used_to(&self, part: usize) -> bool {
        self.permits().open.len() >= self.limit.div_ceil(part)
    }

    /// Like [`enter`](Self::enter), but waits. None if it takes too long, or if the service shuts
    /// down.
    pub async fn wait(
        self: &Arc<ConnectionLimiter>,
        connection: &Arc<ConnectionContext>,
        draining: &CancellationToken,
    ) -> Option<ConnectionPermit> {
        let until = Instant::now() + MAX_WAIT;
        loop {
            let closed = tokio::time::timeout(CHECK_INTERVAL, self.closed.notified());
            tokio::select! {
                _ = closed => {}
                () = draining.cancelled() => return self.enter(connection.clone()),
            }
            let permit = self.enter(connection.clone());
            if permit.is_some() || Instant::now() >= until {
                return permit;
            }
        }
    }
}

impl ConnectionPermit {
    /// The connection was told to close, but is busy again.
    pub fn keep(&self) {
        self.limiter.permits().closing.remove(&self.number);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut permits = self.limiter.permits();
        permits.closing.remove(&self.number);
        let connection = permits.open.remove(&self.number);
        // The drop closes sockets, which must not delay others.
        drop(permits);
        drop(connection);
        self.limiter.closed.notify_one();
    }
}

impl Permits {
    fn evict_longest_idle(&mut self, setting: &str) -> Option<()> {
        loop {
            while let Some((since, number)) = self.longest.pop() {
                if let Some(connection) = self.open.get(&number)
                    && connection.timers.idle_since() == Some(since)
                    && self.closing.insert(number)
                {
                    connection.evict.notify_one();
                    return Some(());
                }
            }
            self.scan(setting)?;
        }
    }

    /// Finds the longest idle connections. None if there are none.
    fn scan(&mut self, setting: &str) -> Option<()> {
        let now = Instant::now();
        if self.none_idle_at.is_some_and(|then| now - then < ALL_BUSY) {
            return None;
        }
        let staying = self
            .open
            .iter()
            .filter(|(number, _)| !self.closing.contains(number));
        let mut idle: Vec<_> = staying
            .filter_map(|(number, connection)| Some((connection.timers.idle_since()?, *number)))
            .filter(|(since, _)| now.saturating_duration_since(*since) >= IDLE)
            .collect();
        self.none_idle_at = idle.is_empty().then_some(now);
        let found = idle.len().div_ceil(FOUND);
        if found < idle.len() {
            idle.select_nth_unstable(found);
            idle.truncate(found);
        }
        idle.sort_unstable_by(|one, other| other.cmp(one));
        self.longest = idle;
        if self.none_idle_at.is_some() {
            return None;
        }
        static REPORTED: RateLimit = RateLimit::new();
        if REPORTED.is_time(now) {
            warn!(
                setting,
                "limit reached; closing the connections that have been idle longest"
            );
        }
        Some(())
    }
}
