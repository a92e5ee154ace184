//! Adaptive busy polling: polls for up to 100 µs before blocking if recent waits were short.
//!
//! On an idle CPU of a virtual machine, waking a sleeping thread costs about 30 µs of latency and
//! 15 µs of the waker's CPU, which is longer than a short script takes. Surus therefore polls for
//! the response to a request (`engines/workers/ipc/await_response.rs`). A worker polls for its next
//! request (`sapi/ipc/inbox.c`) while no other request is in flight.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest poll. There is no polling if waits are usually longer than this. A debug build gets
/// more time because it is that much slower.
pub const LONGEST_POLL: Duration =
    Duration::from_micros(if cfg!(debug_assertions) { 1_000 } else { 100 });

/// How many polls are skipped after one during which other threads wanted the CPU.
const PAUSE: RangeInclusive<u64> = 8..=8192;

/// Decides whether to poll for something that happens again and again.
pub struct PollBudget {
    /// The longest poll.
    pub most: Duration,
    /// The usual wait in microseconds: about four out of five waits are shorter.
    usual: AtomicU64,
    /// The upper bound of `usual`, and its value before the first wait.
    long: u64,
    /// How many polls to skip the next time other threads want the CPU, and how many of the current
    /// pause remain.
    pause: AtomicU64,
    pause_left: AtomicU64,
}

impl PollBudget {
    /// Polls for at most `most`; zero disables polling.
    pub fn new(most: Duration) -> PollBudget {
        let long = most.as_micros() as u64 * 10;
        PollBudget {
            most,
            usual: AtomicU64::new(long),
            long,
            pause: AtomicU64::new(*PAUSE.start()),
            pause_left: AtomicU64::new(0),
        }
    }

    /// Whether to poll this time.
    pub fn should_poll(&self) -> bool {
        self.is_short() && !self.is_pausing()
    }

    fn is_short(&self) -> bool {
        self.usual.load(Ordering::Relaxed) < self.most.as_micros() as u64
    }

    fn is_pausing(&self) -> bool {
        let left = self.pause_left.load(Ordering::Relaxed);
        if left > 0 {
            self.pause_left.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Records a wait of `took` or longer by a caller that polled.
    pub fn record_polled(&self, took: Duration) {
        let usual = self.usual.load(Ordering::Relaxed);
        let usual = match took.as_micros() < u128::from(usual) {
            true => usual - usual.div_ceil(16),
            false => (usual + usual / 4 + 1).min(self.long),
        };
        // A concurrent update may get lost; the estimate tolerates it.
        self.usual.store(usual, Ordering::Relaxed);
    }

    /// Records a wait by a caller that blocked. A poll would have been shorter by the time that the
    /// two wake-ups take.
    pub fn record_parked(&self, took: Duration) {
        self.record_polled(took.saturating_sub(self.most * 3 / 4));
    }

    /// Records the longest time for which a poll yielded the CPU. A caller that lost a whole time
    /// slice (milliseconds) could have been woken fifty times instead. The pause doubles each time
    /// this happens.
    fn record_preemption(&self, longest: Duration) {
        let pause = self.pause.load(Ordering::Relaxed);
        let next = match longest < self.most * 5 {
            true => pause - pause.div_ceil(64),
            false => {
                self.pause_left.store(pause, Ordering::Relaxed);
                pause * 2
            }
        };
        let next = next.clamp(*PAUSE.start(), *PAUSE.end());
        self.pause.store(next, Ordering::Relaxed);
    }
}

/// One poll. Dropping it ends the poll, successful or not.
pub struct PollLoop<'a> {
    budget: &'a PollBudget,
    since: Instant,
    now: Instant,
    /// The longest time for which it yielded the CPU.
    longest: Duration,
}

impl<'a> PollLoop<'a> {
    /// Starts polling now.
    pub fn begin(budget: &'a PollBudget) -> PollLoop<'a> {
        let now = Instant::now();
        PollLoop {
            budget,
            since: now,
            now,
            longest: Duration::ZERO,
        }
    }

    /// Whether the poll has used up its time.
    pub fn is_over(&self) -> bool {
        self.now - self.since > self.budget.most
    }

    /// Yields to the other threads of this CPU.
    pub fn yield_cpu(&mut self) {
        let before = self.now;
        std::thread::yield_now();
        self.now = Instant::now();
        self.longest = self.longest.max(self.now - before);
    }

    /// Yields to the other tasks of the runtime, and lets it poll its sockets.
    pub async fn yield_task(&mut self) {
        tokio::task::yield_now().await;
        self.now = Instant::now();
    }
}

impl Drop for PollLoop<'_> {
    fn drop(&mut self) {
        self.budget.record_preemption(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_is_worth_it_only_if_waits_are_usually_short() {
        let budget = PollBudget::new(Duration::from_micros(100));
        assert!(!budget.should_poll(), "nothing is known yet");
        for _ in 0..100 {
            budget.record_polled(Duration::from_micros(50));
        }
        assert!(budget.should_poll());
        budget.record_polled(Duration::from_secs(1));
        assert!(budget.should_poll(), "one long wait changes nothing");
        for _ in 0..100 {
            budget.record_polled(Duration::from_micros(50));
            budget.record_polled(Duration::from_micros(500));
        }
        assert!(!budget.should_poll(), "every other wait is long");
        for _ in 0..100 {
            budget.record_polled(Duration::ZERO);
        }
        assert!(budget.should_poll());
        let budget = PollBudget::new(Duration::ZERO);
        for _ in 0..100 {
            budget.record_polled(Duration::ZERO);
        }
        assert!(!budget.should_poll(), "polling is disabled");
    }

    #[test]
    fn parked_wait_is_corrected_by_wakeup_latency() {
        for (took, is_short) in [(105, true), (300, false)] {
            let budget = PollBudget::new(Duration::from_micros(100));
            for _ in 0..100 {
                budget.record_parked(Duration::from_micros(took));
            }
            assert_eq!(budget.should_poll(), is_short, "{took} us");
        }
    }

    #[test]
    fn lost_time_slice_pauses_polling() {
        let budget = PollBudget::new(Duration::from_micros(100));
        let paused = |took: u64| {
            budget.record_preemption(Duration::from_micros(took));
            std::iter::from_fn(|| budget.is_pausing().then_some(())).count()
        };
        assert_eq!(paused(50), 0);
        assert_eq!(paused(150), 0, "a poll that timed out is no lost slice");
        assert_eq!(paused(3_000), 8);
        assert_eq!(
            paused(3_000),
            16,
            "the second loss in a row doubles the pause"
        );
        for _ in 0..100 {
            assert_eq!(paused(50), 0);
        }
        assert_eq!(paused(3_000), 8, "the last loss was long ago");
        for _ in 0..20 {
            paused(3_000);
        }
        assert_eq!(paused(3_000), 8192);
    }
}
