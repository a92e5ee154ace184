//! Adaptive busy polling: decides whether Surus and workers poll for up to 100 µs before they
//! block.
//!
//! On an idle CPU of a virtual machine, waking a sleeping thread costs about 30 µs of latency and
//! 15 µs of the waker's CPU. A short script takes less. So if one request comes at a time, Surus
//! polls for its response (`engines/workers/ipc/await_response.rs`), and the worker then for the
//! next request. Workers get their budget with the rings (`sapi/ipc/inbox.c`).

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest poll. There is no polling if waits are usually longer than this. A debug build gets
/// more time because it is that much slower.
pub const LONGEST_POLL: Duration =
    Duration::from_micros(if cfg!(debug_assertions) { 1_000 } else { 100 });

/// How many requests go without polling after a poll during which other threads wanted the CPU.
const PAUSE: RangeInclusive<u64> = 8..=8192;

/// The load while all requests are concurrent, and what each one adds. Each other request subtracts
/// one.
const MAX_LOAD: u32 = 256;
const LOAD_OF_EACH: u32 = 4;

/// The polling policy of a pool: one for Surus and its workers. Concurrent updates may get lost,
/// which the estimates tolerate.
pub struct PollPolicy {
    /// The longest poll; zero disables polling.
    max: Duration,
    began: Instant,
    /// From a request to its response.
    response: UsualWait,
    /// From the end of a request to the next one, while none is in flight.
    request: UsualWait,
    /// When the last request ended, in microseconds from `began` on.
    ended: AtomicU64,
    /// Whether workers poll now.
    workers_poll: AtomicBool,
    /// How often requests were recently concurrent.
    load: AtomicU32,
    batches: AtomicBool,
    /// How many requests go without polling the next time other threads want the CPU, and how many
    /// of the current pause remain.
    pause: AtomicU64,
    pause_left: AtomicU64,
}

/// What to do about one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polls {
    /// Surus polls for the response.
    pub for_response: bool,
    /// For how long workers poll for the next request.
    pub for_next_request: Duration,
    /// Requests arrive together, so workers should not preempt Surus.
    pub batches: bool,
}

impl PollPolicy {
    pub fn new(max: Duration) -> PollPolicy {
        PollPolicy {
            max,
            began: Instant::now(),
            response: UsualWait::new(max),
            request: UsualWait::new(max),
            ended: AtomicU64::new(0),
            workers_poll: AtomicBool::new(false),
            load: AtomicU32::new(0),
            batches: AtomicBool::new(false),
            pause: AtomicU64::new(*PAUSE.start()),
            pause_left: AtomicU64::new(0),
        }
    }

    /// A request is about to be sent. `is_concurrent`: others are in flight.
    pub fn request(&self, now: Instant, is_concurrent: bool) -> Polls {
        if !is_concurrent {
            let idle = self.micros(now).saturating_sub(self.ended.load(Relaxed));
            let idle = Duration::from_micros(idle);
            self.record(&self.request, idle, self.workers_poll.load(Relaxed));
        }
        let load = self.record_load(is_concurrent);
        let is_pausing = self.is_pausing();
        let polls_for = |wait: &UsualWait| !is_pausing && wait.is_shorter_than(self.max);
        let workers_poll = load == 0 && polls_for(&self.request);
        self.workers_poll.store(workers_poll, Relaxed);
        Polls {
            for_response: !is_concurrent && polls_for(&self.response),
            for_next_request: match workers_poll {
                true => self.max,
                false => Duration::ZERO,
            },
            batches: self.batches.load(Relaxed),
        }
    }

    /// A worker has answered, or has become idle after that.
    pub fn request_ended(&self, now: Instant) {
        self.ended.store(self.micros(now), Relaxed);
    }

    /// Records that a response took this long or longer.
    pub fn record_response(&self, took: Duration, has_polled: bool) {
        self.record(&self.response, took, has_polled);
    }

    /// Records a wait. Without polling, the CPUs sleep, and a wait is longer by the time that two
    /// wake-ups take: of the worker and Surus, or of the client and Surus.
    fn record(&self, wait: &UsualWait, took: Duration, has_polled: bool) {
        let wake_ups = match has_polled {
            true => Duration::ZERO,
            false => self.max * 3 / 4,
        };
        let took = took.saturating_sub(wake_ups).as_micros();
        wait.record(u64::try_from(took).unwrap_or(u64::MAX));
    }

    /// Records for how long one poll was without the CPU. One that lost a whole time slice
    /// (milliseconds) could have been woken fifty times instead. The pause doubles each time this
    /// happens.
    pub fn record_preemption(&self, longest: Duration) {
        let pause = self.pause.load(Relaxed);
        let next = match longest < self.max * 5 {
            true => pause - pause.div_ceil(64),
            false => {
                self.pause_left.store(pause, Relaxed);
                pause * 2
            }
        };
        let next = next.clamp(*PAUSE.start(), *PAUSE.end());
        self.pause.store(next, Relaxed);
    }

    fn record_load(&self, is_concurrent: bool) -> u32 {
        let load = self.load.load(Relaxed);
        let load = match is_concurrent {
            true => (load + LOAD_OF_EACH).min(MAX_LOAD),
            false => load.saturating_sub(1),
        };
        self.load.store(load, Relaxed);
        if load == 0 || load == MAX_LOAD {
            self.batches.store(load > 0, Relaxed);
        }
        load
    }

    fn is_pausing(&self) -> bool {
        let left = self.pause_left.load(Relaxed);
        if left > 0 {
            self.pause_left.store(left - 1, Relaxed);
        }
        left > 0
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_micros() as u64
    }
}

/// How long a wait usually takes.
struct UsualWait {
    /// In microseconds: about four out of five waits are shorter.
    usual: AtomicU64,
    /// The upper bound of `usual`, and its value before the first wait.
    long: u64,
}

impl UsualWait {
    fn new(max: Duration) -> UsualWait {
        let long = max.as_micros() as u64 * 10;
        UsualWait {
            usual: AtomicU64::new(long),
            long,
        }
    }

    fn is_shorter_than(&self, max: Duration) -> bool {
        self.usual.load(Relaxed) < max.as_micros() as u64
    }

    fn record(&self, micros: u64) {
        let usual = self.usual.load(Relaxed);
        let usual = match micros < usual {
            true => usual - usual.div_ceil(16),
            false => (usual + usual / 4 + 1).min(self.long),
        };
        self.usual.store(usual, Relaxed);
    }
}

/// One poll. Dropping it ends the poll, successful or not.
pub struct PollLoop<'a> {
    policy: &'a PollPolicy,
    since: Instant,
    now: Instant,
    /// The longest time for which it yielded the CPU.
    longest: Duration,
}

impl<'a> PollLoop<'a> {
    /// Starts polling now.
    pub fn begin(policy: &'a PollPolicy) -> PollLoop<'a> {
        let now = Instant::now();
        PollLoop {
            policy,
            since: now,
            now,
            longest: Duration::ZERO,
        }
    }

    /// Whether the poll has used up its time.
    pub fn is_over(&self) -> bool {
        self.now - self.since > self.policy.max
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
        self.policy.record_preemption(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_micros(100);

    fn after(policy: &PollPolicy, micros: u64) -> Instant {
        policy.began + Duration::from_micros(micros)
    }

    /// Requests that come one at a time, each this long after the last one has ended. Returns the
    /// last decision.
    fn requests(policy: &PollPolicy, gaps: impl Iterator<Item = u64>) -> Option<Polls> {
        let mut last = None;
        for gap in gaps {
            policy.request_ended(after(policy, 1_000_000));
            last = Some(policy.request(after(policy, 1_000_000 + gap), false));
        }
        last
    }

    fn responses(policy: &PollPolicy, count: usize, micros: u64, has_polled: bool) {
        for _ in 0..count {
            policy.record_response(Duration::from_micros(micros), has_polled);
        }
    }

    fn polls_for_response(policy: &PollPolicy) -> bool {
        policy.request(policy.began, false).for_response
    }

    #[test]
    fn surus_polls_only_if_responses_are_usually_quick() {
        let policy = PollPolicy::new(MAX);
        assert!(!polls_for_response(&policy), "nothing is known yet");
        responses(&policy, 100, 50, true);
        assert!(polls_for_response(&policy));
        responses(&policy, 1, 1_000_000, true);
        assert!(
            polls_for_response(&policy),
            "one slow response changes nothing"
        );
        for _ in 0..100 {
            responses(&policy, 1, 50, true);
            responses(&policy, 1, 500, true);
        }
        assert!(!polls_for_response(&policy), "every other response is slow");
        responses(&policy, 100, 0, true);
        assert!(polls_for_response(&policy));
        assert!(!policy.request(policy.began, true).for_response);
        let policy = PollPolicy::new(Duration::ZERO);
        responses(&policy, 100, 0, true);
        assert!(!polls_for_response(&policy), "polling is disabled");
    }

    #[test]
    fn parked_wait_is_corrected_by_wakeup_latency() {
        for (took, is_short) in [(105, true), (300, false)] {
            let policy = PollPolicy::new(MAX);
            responses(&policy, 100, took, false);
            assert_eq!(polls_for_response(&policy), is_short, "{took} us");
        }
    }

    #[test]
    fn workers_poll_only_if_the_next_request_usually_comes_soon() {
        let policy = PollPolicy::new(MAX);
        let budget = |gaps: &[u64]| {
            let gaps = gaps.iter().copied().cycle().take(100);
            requests(&policy, gaps).map(|polls| polls.for_next_request)
        };
        assert_eq!(budget(&[50]), Some(MAX));
        assert_eq!(budget(&[50, 500]), Some(Duration::ZERO));
    }

    #[test]
    fn wake_ups_do_not_keep_workers_from_polling() {
        let policy = PollPolicy::new(MAX);
        let mut gap = 150;
        for _ in 0..200 {
            let polls = requests(&policy, std::iter::once(gap)).expect("one decision");
            gap = if polls.for_next_request.is_zero() {
                150
            } else {
                50
            };
        }
        assert_eq!(gap, 50);
    }

    #[test]
    fn concurrent_requests_end_polling_at_once_and_batching_later() {
        let policy = PollPolicy::new(MAX);
        let one = |is_concurrent| {
            policy.request_ended(policy.began);
            policy.request(policy.began, is_concurrent)
        };
        for _ in 0..100 {
            one(false);
        }
        assert_eq!(one(false).for_next_request, MAX);
        let concurrent = one(true);
        assert_eq!(concurrent.for_next_request, Duration::ZERO);
        assert!(!concurrent.batches);
        for _ in 0..100 {
            one(true);
        }
        assert!(one(true).batches && one(false).batches);
        for _ in 0..MAX_LOAD {
            one(false);
        }
        assert!(!one(false).batches && one(false).for_next_request == MAX);
    }

    #[test]
    fn lost_time_slice_pauses_polling() {
        let policy = PollPolicy::new(MAX);
        responses(&policy, 100, 0, true);
        let paused = |took: u64| {
            policy.record_preemption(Duration::from_micros(took));
            let paused = || (!polls_for_response(&policy)).then_some(());
            std::iter::from_fn(paused).count()
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
