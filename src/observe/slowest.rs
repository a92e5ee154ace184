//! Remembers the slowest requests of the last minutes, with the backtraces of those that ran for
//! long or were stopped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests that are remembered, and for how long.
const KEPT: usize = 10;
const FOR: Duration = Duration::from_secs(600);

/// Characters of a request target.
const MAX_TARGET: usize = 300;

/// Backtraces that are remembered or awaited, and bytes of each.
const BACKTRACES: usize = 32 + KEPT;
const MAX_BACKTRACE: usize = 8 << 10;

/// What PHP's log has of a request that was stopped at its deadline
/// (`sapi/php/request_timeout.c`).
const STOPPED: &str = "Stopped at its deadline. Stack trace:\n";

/// What PHP's log has of a slow request that goes on (`sapi/php/slow_request.c`).
const SLOW: &str = "Slow request, still running. Stack trace:\n";

/// A request that has ended.
#[derive(Debug, Clone)]
pub struct Slow {
    pub request_id: u64,
    pub method: String,
    pub target: String,
    pub status: u16,
    pub engine: &'static str,
    pub took: Duration,
    pub ended: Instant,
    pub backtrace: Backtrace,
}

/// PHP's backtrace of a request. That of a stopped request comes after the request's end.
#[derive(Debug, Clone, Default)]
pub struct Backtrace(Arc<Mutex<Option<String>>>);

impl Backtrace {
    /// The last one that PHP has logged.
    pub fn get(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The slowest requests.
#[derive(Debug)]
pub struct Slowest {
    base: Instant,
    /// Microseconds: a request that took less is not among them, until the oldest is forgotten.
    least: AtomicU64,
    oldest_ends: AtomicU64,
    all: Mutex<Vec<Slow>>,
}

impl Default for Slowest {
    fn default() -> Self {
        Slowest {
            base: Instant::now(),
            least: AtomicU64::new(0),
            oldest_ends: AtomicU64::new(0),
            all: Mutex::default(),
        }
    }
}

impl Slowest {
    /// Whether a request that has ended just now is among the slowest. Costs every request two
    /// loads, and no lock.
    pub fn is_one(&self, ended: Instant, took: Duration) -> bool {
        took.as_micros() as u64 > self.least.load(Relaxed)
            || self.micros(ended) > self.oldest_ends.load(Relaxed)
    }

    pub fn add(&self, mut slow: Slow) {
        if let Some((end, _)) = slow.target.char_indices().nth(MAX_TARGET) {
            slow.target.truncate(end);
            slow.target.push('…');
        }
        slow.backtrace = remember(slow.request_id);
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let now = slow.ended;
        all.retain(|slow| now.saturating_duration_since(slow.ended) < FOR);
        all.push(slow);
        all.sort_by_key(|slow| std::cmp::Reverse(slow.took));
        all.truncate(KEPT);
        let least = match all.len() {
            KEPT => all[KEPT - 1].took.as_micros() as u64,
            _ => 0,
        };
        let oldest = all.iter().map(|slow| slow.ended).min();
        let ends = oldest.map_or(0, |oldest| self.micros(oldest + FOR));
        self.least.store(least, Relaxed);
        self.oldest_ends.store(ends, Relaxed);
    }

    /// The slowest first.
    pub fn list(&self, now: Instant) -> Vec<Slow> {
        let mut all = self
            .all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        all.retain(|slow| now.saturating_duration_since(slow.ended) < FOR);
        all
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.base).as_micros() as u64
    }
}

/// The backtraces of the requests that last logged one or last became one of the slowest, oldest
/// first.
static STACKS: Mutex<VecDeque<(u64, Backtrace)>> = Mutex::new(VecDeque::new());

/// Remembers the backtrace in a message of PHP, if it is one.
pub fn note_message(text: &str, request_id: Option<u64>) {
    let stack = text.strip_prefix(STOPPED).or(text.strip_prefix(SLOW));
    let (Some(stack), Some(request_id)) = (stack, request_id) else {
        return;
    };
    let mut end = stack.len().min(MAX_BACKTRACE);
    while !stack.is_char_boundary(end) {
        end -= 1;
    }
    let noted = remember(request_id).0;
    *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(stack[..end].to_owned());
}

/// Returns the backtrace of a request, which is empty until PHP logs one. Adds it to `STACKS`.
fn remember(request_id: u64) -> Backtrace {
    let mut stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, stack)) = stacks.iter().rfind(|(id, _)| *id == request_id) {
        return stack.clone();
    }
    // Requests that are no longer among the slowest await none.
    stacks.retain(|(_, stack)| Arc::strong_count(&stack.0) > 1 || stack.get().is_some());
    if stacks.len() == BACKTRACES {
        stacks.pop_front();
    }
    let stack = Backtrace::default();
    stacks.push_back((request_id, stack.clone()));
    stack
}

/// The last backtrace of a request that was slow or stopped.
pub fn backtrace(request_id: u64) -> Option<String> {
    let stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = stacks.iter().rfind(|(id, _)| *id == request_id);
    found.and_then(|(_, stack)| stack.get())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn slow(request_id: u64, millis: u64, ended: Instant) -> Slow {
        Slow {
            request_id,
            method: "GET".into(),
            target: "/".into(),
            status: 200,
            engine: "classic",
            took: Duration::from_millis(millis),
            ended,
            backtrace: Backtrace::default(),
        }
    }

    #[test]
    fn slowest_requests_are_kept_until_they_are_old() {
        let slowest = Slowest::default();
        let now = slowest.base + Duration::from_secs(1);
        assert!(slowest.is_one(now, Duration::from_millis(1)));
        for millis in 1..=20 {
            slowest.add(slow(millis, millis, now));
        }
        let kept: Vec<_> = slowest
            .list(now)
            .iter()
            .map(|slow| slow.request_id)
            .collect();
        assert_eq!(kept, (11..=20).rev().collect::<Vec<_>>());
        assert!(!slowest.is_one(now, Duration::from_millis(10)));
        assert!(slowest.is_one(now, Duration::from_millis(12)));
        let later = now + FOR + Duration::from_secs(1);
        assert!(slowest.list(later).is_empty());
        assert!(slowest.is_one(later, Duration::from_millis(1)));
        slowest.add(slow(99, 1, later));
        assert_eq!(slowest.list(later).len(), 1);
    }

    #[test]
    fn long_target_is_cut() {
        let slowest = Slowest::default();
        let mut long = slow(1, 1, Instant::now());
        long.target = "ä".repeat(400);
        slowest.add(long);
        let target = slowest.list(Instant::now()).remove(0).target;
        assert_eq!(target, "ä".repeat(MAX_TARGET) + "…");
    }

    #[test]
    fn backtrace_is_found_by_the_id_of_its_request() {
        let id = u64::MAX - 7;
        note_message("something else", Some(id));
        assert_eq!(backtrace(id), None);
        note_message(&format!("{STOPPED}#0 a.php(3): sleep()"), Some(id));
        assert_eq!(backtrace(id).unwrap(), "#0 a.php(3): sleep()");
        for other in 0..BACKTRACES as u64 {
            note_message(
                &format!("{STOPPED}{}", "ä".repeat(MAX_BACKTRACE)),
                Some(other),
            );
        }
        assert_eq!(backtrace(id), None);
        assert!(backtrace(1).unwrap().len() <= MAX_BACKTRACE);

        // Here and not in a test of its own, because all share the memory of backtraces.
        let slowest = Slowest::default();
        note_message(&format!("{SLOW}at a.php:3\n#0 {{main}}"), Some(id));
        slowest.add(slow(id, 10, Instant::now()));
        for other in 0..BACKTRACES as u64 {
            note_message(&format!("{SLOW}#0 {{main}}"), Some(other));
        }
        let kept = slowest.list(Instant::now()).remove(0);
        assert_eq!(kept.backtrace.get().unwrap(), "at a.php:3\n#0 {main}");

        // It was stopped, and PHP says so after the end of the request.
        let stopped = id - 1;
        slowest.add(slow(stopped, 20, Instant::now()));
        for other in 0..2 * BACKTRACES as u64 {
            if other == 1 {
                note_message(&format!("{STOPPED}#0 b.php(4): sleep()"), Some(stopped));
            }
            note_message(&format!("{SLOW}#0 {{main}}"), Some(other));
        }
        assert_eq!(backtrace(stopped), None);
        let kept = slowest.list(Instant::now()).remove(0);
        assert_eq!(kept.backtrace.get().unwrap(), "#0 b.php(4): sleep()");
    }
}
