//! Who waits for the only event in hand, and usually not for long, looks for its answer all the time instead of sleeping: to be woken takes
//! longer than a short script. On a CPU that has nothing else to do, and is a virtual machine's, that is 30 us, and 15 of the one
//! who wakes. Workers do the same for their next event (`sapi/event.c`). A hello world on one connection has 2.7 times as many requests/s so
//! (2 CPUs, KVM), for less of the CPUs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::RecvError;

use super::post::Post;

/// Nobody looks for longer, nor at all where it usually takes longer, asleep or not. A build for tests is as much slower.
pub const SPIN: Duration = Duration::from_micros(if cfg!(debug_assertions) { 1_000 } else { 100 });

/// What it may cost each answer, in microseconds, that others had the CPU meanwhile.
const COST: u64 = 2;

/// Answers in a row for which nobody looks.
const MOST_PAUSED: u64 = 10_000;

/// What a generation's answers take.
pub struct Spin {
    most: Duration,
    /// In microseconds: about four of five take less.
    usual: AtomicU64,
    /// What takes longer is taken for this, and what is not known yet.
    long: u64,
    /// Answers for which nobody looks, after one for which others wanted the CPU.
    pause: AtomicU64,
}

impl Spin {
    /// At most for so long.
    pub fn new(most: Duration) -> Spin {
        let long = most.as_micros() as u64 * 10;
        Spin {
            most,
            usual: AtomicU64::new(long),
            long,
            pause: AtomicU64::new(0),
        }
    }

    /// Waits for the answer to an event that was sent at `began`.
    pub async fn wait<T>(
        &self,
        post: &Post,
        began: Instant,
        answer: Receiver<T>,
    ) -> Result<T, RecvError> {
        if self.is_short() && !self.is_pausing() {
            self.look(post, began);
        }
        let answer = answer.await;
        self.note(began.elapsed());
        answer
    }

    fn is_pausing(&self) -> bool {
        let left = self.pause.load(Ordering::Relaxed);
        if left > 0 {
            self.pause.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    fn is_short(&self) -> bool {
        self.usual.load(Ordering::Relaxed) < self.most.as_micros() as u64
    }

    fn note(&self, took: Duration) {
        let usual = self.usual.load(Ordering::Relaxed);
        let usual = match took.as_micros() < u128::from(usual) {
            true => usual - usual.div_ceil(16),
            false => (usual + usual / 4 + 1).min(self.long),
        };
        // Another thread's may get lost.
        self.usual.store(usual, Ordering::Relaxed);
    }

    /// Looks until there is a letter, or for long enough. Our other connections wait meanwhile, as they do for whatever a task of theirs computes;
    /// to go through tokio would wake its other threads each time.
    fn look(&self, post: &Post, began: Instant) {
        let _attending = post.attend();
        let mut before = Instant::now();
        while !post.look() && began.elapsed() < self.most {
            // Whatever else has something to do here goes first.
            std::thread::yield_now();
            let now = Instant::now();
            let away = now - before;
            if away > self.most {
                // Somebody else computes here, and had a slice, milliseconds. To sleep for the next answers costs less than that once more.
                let pause = away.as_micros() as u64 / COST;
                self.pause.store(pause.min(MOST_PAUSED), Ordering::Relaxed);
            }
            before = now;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[test]
    fn only_what_is_usually_short_is_waited_for_awake() {
        let spin = Spin::new(Duration::from_micros(100));
        assert!(!spin.is_short(), "nothing is known");
        for _ in 0..100 {
            spin.note(Duration::from_micros(50));
        }
        assert!(spin.is_short());
        spin.note(Duration::from_secs(1));
        assert!(spin.is_short(), "once says nothing");
        for _ in 0..100 {
            spin.note(Duration::from_micros(50));
            spin.note(Duration::from_micros(500));
        }
        assert!(!spin.is_short(), "every other one takes long");
        for _ in 0..100 {
            spin.note(Duration::ZERO);
        }
        assert!(spin.is_short());
        let spin = Spin::new(Duration::ZERO);
        for _ in 0..100 {
            spin.note(Duration::ZERO);
        }
        assert!(!spin.is_short(), "there is no CPU for it");
    }

    #[tokio::test]
    async fn the_answer_arrives_whenever_it_comes() {
        let post = Post::new(1).unwrap();
        let spin = Spin::new(Duration::from_micros(100));
        for _ in 0..100 {
            spin.note(Duration::ZERO);
        }
        for delay in [0, 50, 1_000, 20_000] {
            let (sends, answer) = oneshot::channel();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(delay)).await;
                sends.send(delay).unwrap();
            });
            let waited = spin.wait(&post, Instant::now(), answer).await;
            assert_eq!(waited, Ok(delay));
        }
        let (sends, answer) = oneshot::channel::<()>();
        drop(sends);
        assert!(spin.wait(&post, Instant::now(), answer).await.is_err());
    }
}
