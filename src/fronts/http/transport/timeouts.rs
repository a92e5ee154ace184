//! When a connection has been silent for too long.
//!
//! A timer per request would cost more than the request's parsing; instead the connection notes
//! what happens, and looks at its notes now and then.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What a connection has last done. Times are milliseconds since it was opened, 0 for "is not".
#[derive(Debug)]
pub struct Activity {
    opened: Instant,
    /// Requests whose response is not complete.
    in_flight: AtomicU32,
    /// Since when it has been idle: opened, or the last response completed.
    idle_since: AtomicU64,
    /// When the first byte of a request's head came.
    head_since: AtomicU64,
    /// Since when the client has not taken what we write.
    write_since: AtomicU64,
    /// HTTP/2: since when the client has had no room for each response that waits for some.
    waits: Mutex<Vec<Weak<u64>>>,
    /// HTTP/2: bytes between two requests are not a request's head, but acknowledgements and pings.
    multiplexed: AtomicBool,
    /// Each answer is to be the last.
    draining: AtomicBool,
    /// Until when no request is read, because one was refused.
    paused_until: AtomicU64,
}

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub head: Duration,
    pub keep_alive: Duration,
    pub write: Duration,
}

impl Limits {
    /// How often to look at the notes: no timeout takes much longer than it says, and thousands of
    /// idle connections do not wake all the time.
    pub fn look(&self) -> Duration {
        const LEAST: Duration = Duration::from_millis(50);
        const MOST: Duration = Duration::from_secs(5);
        let shortest = self.head.min(self.keep_alive).min(self.write);
        (shortest / 4).clamp(LEAST, MOST)
    }
}

/// Why a connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overdue {
    /// The client does not do its part.
    Stuck(&'static str),
    /// Nobody has used it for long.
    Idle,
}

/// The client has no room for one of several responses, until this is dropped.
#[derive(Debug)]
pub struct Wait {
    /// Found there as long as it is.
    _since: Arc<u64>,
}

impl Activity {
    pub fn new() -> Activity {
        Activity {
            opened: Instant::now(),
            in_flight: AtomicU32::new(0),
            idle_since: AtomicU64::new(1),
            head_since: AtomicU64::new(0),
            write_since: AtomicU64::new(0),
            waits: Mutex::new(Vec::new()),
            multiplexed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            paused_until: AtomicU64::new(0),
        }
    }

    /// The client speaks HTTP/2.
    pub fn is_multiplexed(&self) -> bool {
        self.multiplexed.load(Ordering::Relaxed)
    }

    pub fn multiplexes(&self) {
        self.multiplexed.store(true, Ordering::Relaxed);
    }

    /// The service is about to end. However long the connection has been idle, a request may be on
    /// its way now.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.idle_since.store(self.now(), Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// A request was refused: the next one is read after this time.
    pub fn pause(&self, time: Duration) {
        let until = self.now() + time.as_millis() as u64;
        self.paused_until.store(until, Ordering::Relaxed);
    }

    /// Until when no request is to be read. A connection that drains has no time for that.
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

    /// Bytes have come.
    pub fn read(&self) {
        if self.in_flight.load(Ordering::Relaxed) == 0
            && self.head_since.load(Ordering::Relaxed) == 0
        {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// A head is complete.
    pub fn request_begins(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
    }

    /// How long ago the first byte of the head came that is not complete.
    pub fn head_took(&self) -> Duration {
        let since = self.head_since.load(Ordering::Relaxed);
        Duration::from_millis(self.now().saturating_sub(since.max(1)))
    }

    /// A response is complete, or given up.
    pub fn request_ends(&self) {
        self.idle_since.store(self.now(), Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Is no request in flight?
    pub fn is_idle(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) == 0
    }

    /// Since when nothing has been asked of the connection, and nothing is left to be sent.
    pub fn idle_since(&self) -> Option<Instant> {
        let awaits_head = !self.is_multiplexed() && self.head_since.load(Ordering::Relaxed) != 0;
        let is_idle =
            self.is_idle() && !awaits_head && self.write_since.load(Ordering::Relaxed) == 0;
        let since = self.idle_since.load(Ordering::Relaxed);
        is_idle.then(|| self.opened + Duration::from_millis(since))
    }

    /// The client does not take what we write.
    pub fn write_blocked(&self) {
        if self.write_since.load(Ordering::Relaxed) == 0 {
            self.write_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// It has taken something.
    pub fn written(&self) {
        if self.write_since.load(Ordering::Relaxed) != 0 {
            self.write_since.store(0, Ordering::Relaxed);
            // What is left of a response to write has no request any more.
            self.idle_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// A response of several on this connection has to wait until its client has room. Each has a
    /// window of its own to be closed, which the connection's socket does not show.
    pub fn wait(&self) -> Wait {
        let since = Arc::new(self.now());
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|wait| wait.strong_count() > 0);
        waits.push(Arc::downgrade(&since));
        Wait { _since: since }
    }

    /// Since when the client has had no room for one of several responses, 0 when there is none.
    fn waits_since(&self) -> u64 {
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let since = waits.iter().filter_map(Weak::upgrade);
        since.map(|since| *since).min().unwrap_or(0)
    }

    /// Why the connection is to be closed, if it is.
    pub fn overdue(&self, limits: Limits) -> Option<Overdue> {
        let now = self.now();
        let over = |since: u64, limit: Duration| {
            since != 0 && u128::from(now - since.min(now)) >= limit.as_millis()
        };
        let write_since = self.write_since.load(Ordering::Relaxed);
        if over(write_since, limits.write) || over(self.waits_since(), limits.write) {
            return Some(Overdue::Stuck("the client did not take its response"));
        }
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let head_since = match self.is_multiplexed() {
            true => 0,
            false => self.head_since.load(Ordering::Relaxed),
        };
        if over(head_since, limits.head) {
            return Some(Overdue::Stuck("a request's head did not arrive in time"));
        }
        let has_all = head_since == 0 && write_since == 0;
        let idle = has_all && over(self.idle_since.load(Ordering::Relaxed), limits.keep_alive);
        idle.then_some(Overdue::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        head: Duration::ZERO,
        keep_alive: Duration::from_secs(9),
        write: Duration::from_secs(9),
    };

    #[test]
    fn a_head_is_timed_from_its_first_byte_until_it_is_complete() {
        let activity = Activity::new();
        assert_eq!(activity.overdue(LIMITS), None);
        activity.read();
        assert!(activity.overdue(LIMITS).is_some());
        activity.request_begins();
        assert_eq!(activity.overdue(LIMITS), None);
        activity.read();
        activity.request_ends();
        assert_eq!(activity.overdue(LIMITS), None);
    }

    #[test]
    fn between_two_requests_of_http_2_bytes_are_no_head() {
        let activity = Activity::new();
        activity.multiplexes();
        activity.request_begins();
        activity.request_ends();
        activity.read();
        assert_eq!(activity.overdue(LIMITS), None);
    }

    #[test]
    fn who_has_asked_or_has_not_taken_the_answer_is_not_idle() {
        let activity = Activity::new();
        let opened = activity.idle_since();
        assert!(opened.is_some());
        activity.read();
        assert_eq!(activity.idle_since(), None);
        activity.request_begins();
        assert_eq!(activity.idle_since(), None);
        activity.write_blocked();
        std::thread::sleep(Duration::from_millis(2));
        activity.request_ends();
        assert_eq!(activity.idle_since(), None);
        activity.written();
        assert!(activity.idle_since() > opened);
    }

    #[test]
    fn what_has_no_request_any_more_is_still_to_be_taken() {
        let activity = Activity::new();
        let limits = Limits {
            keep_alive: Duration::from_millis(20),
            ..LIMITS
        };
        activity.request_begins();
        activity.write_blocked();
        activity.request_ends();
        std::thread::sleep(limits.keep_alive);
        assert_eq!(activity.overdue(limits), None);
        activity.written();
        assert_eq!(activity.overdue(limits), None);
        std::thread::sleep(limits.keep_alive);
        assert_eq!(activity.overdue(limits), Some(Overdue::Idle));
    }

    #[test]
    fn draining_gives_an_idle_connection_its_time_anew() {
        let activity = Activity::new();
        let limits = Limits {
            keep_alive: Duration::from_millis(100),
            ..LIMITS
        };
        std::thread::sleep(limits.keep_alive);
        assert_eq!(activity.overdue(limits), Some(Overdue::Idle));
        activity.drain();
        assert_eq!(activity.overdue(limits), None);
        assert!(activity.is_draining());
    }

    #[test]
    fn a_response_that_waits_for_room_counts_until_it_has_some() {
        let activity = Activity::new();
        let limits = Limits {
            write: Duration::ZERO,
            ..LIMITS
        };
        activity.request_begins();
        drop(activity.wait());
        assert_eq!(activity.overdue(limits), None);
        let waits = activity.wait();
        assert!(activity.overdue(limits).is_some());
        drop(waits);
        assert_eq!(activity.overdue(limits), None);
    }

    #[test]
    fn a_blocked_write_counts_even_while_a_request_is_in_flight() {
        let activity = Activity::new();
        let limits = Limits {
            write: Duration::ZERO,
            ..LIMITS
        };
        activity.request_begins();
        assert_eq!(activity.overdue(limits), None);
        activity.write_blocked();
        assert!(activity.overdue(limits).is_some());
        activity.written();
        assert_eq!(activity.overdue(limits), None);
    }
}
