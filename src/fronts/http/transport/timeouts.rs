//! The timeouts of a connection.
//!
//! A timer per request would cost more than parsing the request. The connection therefore records
//! what happens, and checks its records at intervals.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::observe::activity;

/// What a connection did last. Times are milliseconds since it was opened; 0 means never.
#[derive(Debug)]
pub struct ConnectionTimers {
    opened: Instant,
    /// Requests without a complete response.
    in_flight: AtomicU32,
    /// Since when it has been idle: it was opened, or the last response was completed.
    idle_since: AtomicU64,
    /// When the first byte of a header section arrived.
    headers_since: AtomicU64,
    /// Since when the client has taken no written bytes.
    write_since: AtomicU64,
    /// HTTP/2 and HTTP/3: since when each response has waited for the client.
    waits: Mutex<Vec<Weak<u64>>>,
    /// HTTP/2 and HTTP/3: bytes between two requests are acknowledgements and pings, not a header
    /// section.
    multiplexed: AtomicBool,
    /// Each response is the last one.
    draining: AtomicBool,
    /// Until when no request is read, because one was rejected.
    paused_until: AtomicU64,
    /// Nothing has arrived since the connection was found idle.
    resting: AtomicBool,
}

/// The limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    pub headers: Duration,
    pub keep_alive: Duration,
    pub write: Duration,
}

impl ConnectionLimits {
    /// The interval of checks while something may happen: timeouts are nearly exact.
    pub fn check_interval(&self) -> Duration {
        const LEAST: Duration = Duration::from_millis(50);
        const MAX: Duration = Duration::from_secs(5);
        let shortest = self.headers.min(self.keep_alive).min(self.write);
        (shortest / 4).clamp(LEAST, MAX)
    }
}

/// Why a connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// The client does not send or take bytes.
    Stalled(&'static str),
    /// It has been idle for too long.
    Idle,
}

/// One of several responses waits for the client's window until this is dropped.
#[derive(Debug)]
pub struct WriteStall {
    /// Counts while it exists.
    _since: Arc<u64>,
}

impl ConnectionTimers {
    pub fn new() -> ConnectionTimers {
        ConnectionTimers {
            opened: Instant::now(),
            in_flight: AtomicU32::new(0),
            idle_since: AtomicU64::new(1),
            headers_since: AtomicU64::new(0),
            write_since: AtomicU64::new(0),
            waits: Mutex::new(Vec::new()),
            multiplexed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            paused_until: AtomicU64::new(0),
            resting: AtomicBool::new(false),
        }
    }

    /// Whether the client speaks HTTP/2 or HTTP/3.
    pub fn is_multiplexed(&self) -> bool {
        self.multiplexed.load(Ordering::Relaxed)
    }

    pub fn multiplexes(&self) {
        self.multiplexed.store(true, Ordering::Relaxed);
    }

    /// The service shuts down. A request may be on its way, however long the connection has been
    /// idle.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.idle_since.store(self.now(), Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// A request was rejected: the next one is read after this time.
    pub fn pause(&self, time: Duration) {
        let until = self.now() + time.as_millis() as u64;
        self.paused_until.store(until, Ordering::Relaxed);
    }

    /// Until when no request must be read. A draining connection does not pause.
    pub fn paused_until(&self) -> Option<Instant> {
        let until = self.paused_until.load(Ordering::Relaxed);
        if until == 0 || !self.is_idle() || self.is_draining() {
            return None;
        }
        Some(self.opened + Duration::from_millis(until))
    }

    pub fn resume(&self) {
        self.paused_until.store(0, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64 + 1
    }

    /// The connection is idle: until bytes arrive, only that timeout counts.
    pub fn rest(&self) {
        self.resting.store(true, Ordering::Relaxed);
    }

    /// Other timeouts count again.
    pub fn wake(&self) {
        if self.is_resting() {
            self.resting.store(false, Ordering::Relaxed);
        }
    }

    pub fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    /// Bytes have arrived.
    pub fn read(&self) {
        self.wake();
        if self.in_flight.load(Ordering::Relaxed) == 0
            && self.headers_since.load(Ordering::Relaxed) == 0
        {
            self.headers_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// A header section is complete.
    pub fn request_begins(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.headers_since.store(0, Ordering::Relaxed);
    }

    /// How long ago the first byte of the incomplete header section arrived.
    pub fn headers_took(&self) -> Duration {
        let since = self.headers_since.load(Ordering::Relaxed);
        Duration::from_millis(self.now().saturating_sub(since.max(1)))
    }

    /// A response is complete or given up.
    pub fn request_ends(&self) {
        self.idle_since.store(self.now(), Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        activity::ENDS.record();
    }

    /// Whether no request is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0
    }

    /// Since when the connection has had no request and nothing left to send.
    pub fn idle_since(&self) -> Option<Instant> {
        let awaits_headers =
            !self.is_multiplexed() && self.headers_since.load(Ordering::Relaxed) != 0;
        let has_all = self.write_since.load(Ordering::Relaxed) == 0 && self.waits_since() == 0;
        let is_idle = self.is_idle() && !awaits_headers && has_all;
        let since = self.idle_since.load(Ordering::Relaxed);
        is_idle.then(|| self.opened + Duration::from_millis(since))
    }

    /// The client does not take written bytes.
    pub fn write_blocked(&self) {
        if self.write_since.load(Ordering::Relaxed) == 0 {
            self.write_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// The client has taken bytes.
    pub fn written(&self) {
        if self.write_since.load(Ordering::Relaxed) != 0 {
            self.write_since.store(0, Ordering::Relaxed);
            // The rest of a response may be written after its request has ended.
            self.idle_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// One of several responses waits for the client's window. Each stream has its own window, of
    /// which the socket shows nothing.
    pub fn wait(&self) -> WriteStall {
        let since = Arc::new(self.now());
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|wait| wait.strong_count() > 0);
        waits.push(Arc::downgrade(&since));
        WriteStall { _since: since }
    }

    /// HTTP/3: the client has acknowledged the rest of a response, whose request ended before.
    pub fn acknowledged(&self) {
        self.idle_since.store(self.now(), Ordering::Relaxed);
    }

    /// Since when one of several responses has waited for its window; 0 if none waits.
    fn waits_since(&self) -> u64 {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let since = waits.iter().filter_map(Weak::upgrade);
        since.map(|since| *since).min().unwrap_or(0)
    }

    /// The time until the next check. A connection that rests has a single timeout, so thousands of
    /// them do not wake all the time.
    pub fn until_check(&self, limits: ConnectionLimits) -> Duration {
        match self.idle_since().filter(|_| self.is_resting()) {
            // Counted in milliseconds, of which one has begun.
            Some(since) => (since + limits.keep_alive + Duration::from_millis(1))
                .saturating_duration_since(Instant::now()),
            None => limits.check_interval(),
        }
    }

    /// Why the connection must be closed, if it must.
    pub fn overdue(&self, limits: ConnectionLimits) -> Option<Timeout> {
        let now = self.now();
        let over = |since: u64, limit: Duration| {
            since != 0 && u128::from(now - since.min(now)) >= limit.as_millis()
        };
        let write_since = self.write_since.load(Ordering::Relaxed);
        let waits_since = self.waits_since();
        if over(write_since, limits.write) || over(waits_since, limits.write) {
            return Some(Timeout::Stalled("the client did not take its response"));
        }
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let headers_since = match self.is_multiplexed() {
            true => 0,
            false => self.headers_since.load(Ordering::Relaxed),
        };
        if over(headers_since, limits.headers) {
            return Some(Timeout::Stalled(
                "a request's headers did not arrive in time",
            ));
        }
        let has_all = headers_since == 0 && write_since == 0 && waits_since == 0;
        let idle = has_all && over(self.idle_since.load(Ordering::Relaxed), limits.keep_alive);
        idle.then_some(Timeout::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        headers: Duration::ZERO,
        keep_alive: Duration::from_secs(9),
        write: Duration::from_secs(9),
    };

    #[test]
    fn header_section_is_timed_from_its_first_byte_to_its_last() {
        let timers = ConnectionTimers::new();
        assert_eq!(timers.overdue(LIMITS), None);
        timers.read();
        assert!(timers.overdue(LIMITS).is_some());
        timers.request_begins();
        assert_eq!(timers.overdue(LIMITS), None);
        timers.read();
        timers.request_ends();
        assert_eq!(timers.overdue(LIMITS), None);
    }

    #[test]
    fn resting_connection_is_checked_when_its_idle_timeout_is_over() {
        let often = LIMITS.check_interval();
        for is_multiplexed in [false, true] {
            let timers = ConnectionTimers::new();
            if is_multiplexed {
                timers.multiplexes();
            }
            let until_check = || timers.until_check(LIMITS);
            assert_eq!(until_check(), often);
            for _ in 0..2 {
                timers.rest();
                assert!(until_check() > LIMITS.keep_alive - Duration::from_secs(5));
                timers.read();
                assert_eq!(until_check(), often);
                timers.request_begins();
                assert_eq!(until_check(), often);
                timers.request_ends();
                assert_eq!(until_check(), often);
            }
            timers.rest();
            timers.wake();
            assert_eq!(until_check(), often);
        }
    }

    #[test]
    fn http_2_bytes_between_requests_are_no_header_section() {
        let timers = ConnectionTimers::new();
        timers.multiplexes();
        timers.request_begins();
        timers.request_ends();
        timers.read();
        assert_eq!(timers.overdue(LIMITS), None);
    }

    #[test]
    fn connection_with_a_request_or_an_unsent_response_is_not_idle() {
        let timers = ConnectionTimers::new();
        let opened = timers.idle_since();
        assert!(opened.is_some());
        timers.read();
        assert_eq!(timers.idle_since(), None);
        timers.request_begins();
        assert_eq!(timers.idle_since(), None);
        timers.write_blocked();
        std::thread::sleep(Duration::from_millis(2));
        timers.request_ends();
        assert_eq!(timers.idle_since(), None);
        timers.written();
        assert!(timers.idle_since() > opened);
    }

    #[test]
    fn rest_of_a_response_can_stall_after_its_request() {
        let timers = ConnectionTimers::new();
        let limits = ConnectionLimits {
            keep_alive: Duration::from_millis(20),
            ..LIMITS
        };
        timers.request_begins();
        timers.write_blocked();
        timers.request_ends();
        std::thread::sleep(limits.keep_alive);
        assert_eq!(timers.overdue(limits), None);
        timers.written();
        assert_eq!(timers.overdue(limits), None);
        std::thread::sleep(limits.keep_alive);
        assert_eq!(timers.overdue(limits), Some(Timeout::Idle));
    }

    #[test]
    fn draining_restarts_the_idle_time() {
        let timers = ConnectionTimers::new();
        let limits = ConnectionLimits {
            keep_alive: Duration::from_millis(100),
            ..LIMITS
        };
        std::thread::sleep(limits.keep_alive);
        assert_eq!(timers.overdue(limits), Some(Timeout::Idle));
        timers.drain();
        assert_eq!(timers.overdue(limits), None);
        assert!(timers.is_draining());
    }

    #[test]
    fn response_without_window_counts_as_stalled() {
        let timers = ConnectionTimers::new();
        let limits = ConnectionLimits {
            write: Duration::ZERO,
            ..LIMITS
        };
        timers.request_begins();
        drop(timers.wait());
        assert_eq!(timers.overdue(limits), None);
        let waits = timers.wait();
        assert!(timers.overdue(limits).is_some());
        drop(waits);
        assert_eq!(timers.overdue(limits), None);
    }

    #[test]
    fn blocked_write_counts_during_a_request() {
        let timers = ConnectionTimers::new();
        let limits = ConnectionLimits {
            write: Duration::ZERO,
            ..LIMITS
        };
        timers.request_begins();
        assert_eq!(timers.overdue(limits), None);
        timers.write_blocked();
        assert!(timers.overdue(limits).is_some());
        timers.written();
        assert_eq!(timers.overdue(limits), None);
    }
}
