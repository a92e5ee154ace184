//! Who waits for something that usually comes within a moment looks for it all the time instead of sleeping: to be woken takes longer than a
//! short script. On a CPU that has nothing else to do, and is a virtual machine's, that is 30 us, and 15 of the one who wakes. So Surus waits
//! for the answer to an event (`engines/workers/wait.rs`) and for the next request (`fronts/http/lookout.rs`), and a worker for its next event
//! (`sapi/event.c`), each where there is no other but such as take long (`in_flight.rs`).

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nobody looks for longer, nor at all where it usually takes longer, asleep or not. A build for tests is as much slower.
pub const SPIN: Duration = Duration::from_micros(if cfg!(debug_assertions) { 1_000 } else { 100 });

/// How many times in a row nobody looks after one for which others wanted the CPU.
const PAUSE: RangeInclusive<u64> = 8..=8192;

/// Whether it pays to look for something that comes again and again.
pub struct Spin {
    /// Nobody looks for longer.
    pub most: Duration,
    /// In microseconds: about four of five take less.
    usual: AtomicU64,
    /// What takes longer is taken for this, and what is not known yet.
    long: u64,
    /// How many times nobody looks the next time that others want the CPU, and how many of the last time are left.
    pause: AtomicU64,
    pause_left: AtomicU64,
}

impl Spin {
    /// At most for so long; not at all, where it is zero.
    pub fn new(most: Duration) -> Spin {
        let long = most.as_micros() as u64 * 10;
        Spin {
            most,
            usual: AtomicU64::new(long),
            long,
            pause: AtomicU64::new(*PAUSE.start()),
            pause_left: AtomicU64::new(0),
        }
    }

    /// Is it to be looked for this time?
    pub fn is_worth_it(&self) -> bool {
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

    /// It took so long, or longer, to one who was looking for it.
    pub fn note(&self, took: Duration) {
        let usual = self.usual.load(Ordering::Relaxed);
        let usual = match took.as_micros() < u128::from(usual) {
            true => usual - usual.div_ceil(16),
            false => (usual + usual / 4 + 1).min(self.long),
        };
        // Another thread's may get lost.
        self.usual.store(usual, Ordering::Relaxed);
    }

    /// It took so long to one who slept. Awake, it would have been less by what it takes to wake both.
    pub fn note_asleep(&self, took: Duration) {
        self.note(took.saturating_sub(self.most * 3 / 4));
    }

    /// To give way took at most so long. Who had to wait for others' slice, milliseconds, could have been woken fifty times instead. If it goes on
    /// so, it is for twice as many times the next time.
    fn note_turns(&self, longest: Duration) {
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

/// One who looks; when it is dropped, it has seen it or given up.
pub struct Look<'a> {
    spin: &'a Spin,
    since: Instant,
    now: Instant,
    /// What it took at most to give way.
    longest: Duration,
}

impl<'a> Look<'a> {
    /// From now on.
    pub fn begin(spin: &'a Spin) -> Look<'a> {
        let now = Instant::now();
        Look {
            spin,
            since: now,
            now,
            longest: Duration::ZERO,
        }
    }

    /// Has it been looked for as long as it may be?
    pub fn is_over(&self) -> bool {
        self.now - self.since > self.spin.most
    }

    /// Whatever else has something to do on this CPU goes first.
    pub fn give_way(&mut self) {
        let before = self.now;
        std::thread::yield_now();
        self.now = Instant::now();
        self.longest = self.longest.max(self.now - before);
    }

    /// Whatever else our runtime has to do goes first: tasks, and what its sockets have for them.
    pub async fn give_turn(&mut self) {
        tokio::task::yield_now().await;
        self.now = Instant::now();
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.spin.note_turns(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_usually_short_is_waited_for_awake() {
        let spin = Spin::new(Duration::from_micros(100));
        assert!(!spin.is_worth_it(), "nothing is known");
        for _ in 0..100 {
            spin.note(Duration::from_micros(50));
        }
        assert!(spin.is_worth_it());
        spin.note(Duration::from_secs(1));
        assert!(spin.is_worth_it(), "once says nothing");
        for _ in 0..100 {
            spin.note(Duration::from_micros(50));
            spin.note(Duration::from_micros(500));
        }
        assert!(!spin.is_worth_it(), "every other one takes long");
        for _ in 0..100 {
            spin.note(Duration::ZERO);
        }
        assert!(spin.is_worth_it());
        let spin = Spin::new(Duration::ZERO);
        for _ in 0..100 {
            spin.note(Duration::ZERO);
        }
        assert!(!spin.is_worth_it(), "there is no CPU for it");
    }

    #[test]
    fn to_one_who_slept_it_came_later_for_that() {
        for (took, is_short) in [(105, true), (300, false)] {
            let spin = Spin::new(Duration::from_micros(100));
            for _ in 0..100 {
                spin.note_asleep(Duration::from_micros(took));
            }
            assert_eq!(spin.is_worth_it(), is_short, "{took} us");
        }
    }

    #[test]
    fn who_has_lost_the_cpu_sleeps_for_a_while() {
        let spin = Spin::new(Duration::from_micros(100));
        let paused = |took: u64| {
            spin.note_turns(Duration::from_micros(took));
            std::iter::from_fn(|| spin.is_pausing().then_some(())).count()
        };
        assert_eq!(paused(50), 0);
        assert_eq!(paused(150), 0, "nothing came in time");
        assert_eq!(paused(3_000), 8);
        assert_eq!(paused(3_000), 16, "it goes on so");
        for _ in 0..100 {
            assert_eq!(paused(50), 0);
        }
        assert_eq!(paused(3_000), 8, "that is long ago");
        for _ in 0..20 {
            paused(3_000);
        }
        assert_eq!(paused(3_000), 8192);
    }
}
