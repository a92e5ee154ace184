//! Who waits for the only event in hand, and usually not for long, looks for its answer all the time instead of sleeping: to be woken takes
//! longer than a short script. On a CPU that has nothing else to do, and is a virtual machine's, that is 30 us, and 15 of the one
//! who wakes. Workers do the same for their next event (`sapi/event.c`). A hello world on one connection has 2.7 times as many requests/s so
//! (2 CPUs, KVM), for less of the CPUs.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::post::Post;

/// Nobody looks for longer, nor at all where it usually takes longer, asleep or not. A build for tests is as much slower.
pub const SPIN: Duration = Duration::from_micros(if cfg!(debug_assertions) { 1_000 } else { 100 });

/// Answers in a row for which nobody looks after one for which others wanted the CPU.
const PAUSE: RangeInclusive<u64> = 8..=8192;

/// What a generation's answers take.
pub struct Spin {
    most: Duration,
    /// In microseconds: about four of five take less.
    usual: AtomicU64,
    /// What takes longer is taken for this, and what is not known yet.
    long: u64,
    /// Answers for which nobody looks the next time that others want the CPU, and that of the last time which are left.
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
            pause: AtomicU64::new(*PAUSE.start()),
            pause_left: AtomicU64::new(0),
        }
    }

    /// Waits for the answer to an event that was sent at `began`. None: it will never come. `in_vain` is called when it has been looked for and has not
    /// come in time, before the long wait.
    pub async fn wait<T>(
        &self,
        post: &Post,
        began: Instant,
        mut answer: Receiver<T>,
        in_vain: impl FnOnce(),
    ) -> Option<T> {
        if self.is_short() && !self.is_pausing() {
            let seen = self.look(post, &mut answer).await;
            // Not later: who asks may give up.
            self.note(began.elapsed());
            match seen {
                Err(TryRecvError::Empty) => in_vain(),
                seen => return seen.ok(),
            }
            return answer.await.ok();
        }
        let answer = answer.await;
        // Awake, it would have taken less by what it has taken to wake both.
        self.note(began.elapsed().saturating_sub(self.most * 3 / 4));
        answer.ok()
    }

    fn is_pausing(&self) -> bool {
        let left = self.pause_left.load(Ordering::Relaxed);
        if left > 0 {
            self.pause_left.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// To give way took at most so long. Who had to wait for others' slice, milliseconds, could have been woken for fifty answers instead. If it goes on
    /// so, it is for twice as many the next time.
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

    /// Our other connections wait meanwhile, as they do for whatever a task of theirs computes: where they have events, too, one after the other is had
    /// done by a worker that is awake, and all of them in no more time than it takes to wake the others.
    async fn look<T>(&self, post: &Post, answer: &mut Receiver<T>) -> Result<T, TryRecvError> {
        let _attending = post.attend();
        let since = Instant::now();
        let (mut now, mut longest) = (since, Duration::ZERO);
        let seen = loop {
            match answer.try_recv() {
                Err(TryRecvError::Empty) => (),
                seen => break seen,
            }
            let is_news = post.look();
            if now - since > self.most {
                break Err(TryRecvError::Empty);
            }
            let before = now;
            if is_news {
                // The reader of that letter has its turn.
                tokio::task::yield_now().await;
                now = Instant::now();
            } else {
                // Whatever else has something to do here goes first; by way of tokio, that would be its other threads.
                std::thread::yield_now();
                now = Instant::now();
                longest = longest.max(now - before);
            }
        };
        self.note_turns(longest);
        seen
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

    #[test]
    fn who_has_lost_the_cpu_sleeps_for_a_while() {
        let spin = Spin::new(Duration::from_micros(100));
        let paused = |took: u64| {
            spin.note_turns(Duration::from_micros(took));
            std::iter::from_fn(|| spin.is_pausing().then_some(())).count()
        };
        assert_eq!(paused(50), 0);
        assert_eq!(paused(150), 0, "no answer in time");
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

    #[tokio::test]
    async fn an_answer_for_which_nobody_looked_came_later_for_that() {
        let post = Post::new(1).unwrap();
        for (ago, is_short) in [(300, true), (3_000, false)] {
            let spin = Spin::new(Duration::from_millis(1));
            for _ in 0..100 {
                spin.pause_left.store(1, Ordering::Relaxed);
                let (sends, answer) = oneshot::channel();
                sends.send(()).unwrap();
                let began = Instant::now() - Duration::from_micros(750 + ago);
                spin.wait(&post, began, answer, || ()).await;
            }
            assert_eq!(spin.is_short(), is_short, "{ago} us");
        }
    }

    fn that_looks() -> Spin {
        let spin = Spin::new(Duration::from_micros(100));
        for _ in 0..100 {
            spin.note(Duration::ZERO);
        }
        spin
    }

    #[tokio::test]
    async fn the_answer_arrives_whenever_it_comes() {
        let post = Post::new(1).unwrap();
        let spin = that_looks();
        for delay in [0, 50, 1_000, 20_000] {
            let (sends, answer) = oneshot::channel();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_micros(delay)).await;
                sends.send(delay).unwrap();
            });
            let waited = spin.wait(&post, Instant::now(), answer, || ());
            assert_eq!(waited.await, Some(delay));
        }
        let (sends, answer) = oneshot::channel::<()>();
        drop(sends);
        assert!(
            spin.wait(&post, Instant::now(), answer, || ())
                .await
                .is_none()
        );
    }

    #[tokio::test]
    async fn who_looks_does_so_for_a_moment() {
        let (post, spin) = (Post::new(1).unwrap(), that_looks());
        let (sends, answer) = oneshot::channel();
        let in_vain = || sends.send("slept for").unwrap();
        let waited = spin.wait(&post, Instant::now(), answer, in_vain);
        let waited = tokio::time::timeout(Duration::from_secs(10), waited);
        assert_eq!(waited.await.unwrap(), Some("slept for"));
    }
}
