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

/// What a generation's answers take.
pub struct Spin {
    most: Duration,
    /// In microseconds: about four of five take less.
    usual: AtomicU64,
    /// What takes longer is taken for this, and what is not known yet.
    long: u64,
    /// Answers for which nobody looks, after one for which others wanted the CPU; and how many of them are left.
    pause: AtomicU64,
    pause_left: AtomicU64,
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
            pause_left: AtomicU64::new(0),
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
            let is_alone = self.look(post, began);
            self.note_alone(is_alone);
        }
        let answer = answer.await;
        self.note(began.elapsed());
        answer
    }

    fn is_pausing(&self) -> bool {
        let left = self.pause_left.load(Ordering::Relaxed);
        self.pause_left
            .store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    /// Who has not been let run, does not spin for the next answers, of which there are twice as many each time.
    fn note_alone(&self, is_alone: bool) {
        let pause = self.pause.load(Ordering::Relaxed);
        let pause = match is_alone {
            true => pause.saturating_sub(1),
            false => (pause * 2).clamp(64, 16_384),
        };
        self.pause.store(pause, Ordering::Relaxed);
        if !is_alone {
            self.pause_left.store(pause, Ordering::Relaxed);
        }
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
    /// to go through tokio would wake its other threads each time. False: others want this CPU, too, and had it.
    fn look(&self, post: &Post, began: Instant) -> bool {
        let _attending = post.attend();
        let mut before = Instant::now();
        while !post.look() && began.elapsed() < self.most {
            // Whatever else has something to do here goes first.
            std::thread::yield_now();
            let now = Instant::now();
            if now - before > self.most / 2 {
                return false;
            }
            before = now;
        }
        true
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
