//! Looks for the next request when nobody waits for an answer of ours any more, but for those that
//! take long, if it usually comes at once: from a proxy, or whoever asks for one thing after the
//! other. One connection has 1.3 times as many requests/s so, of files 1.8 times as many (2 CPUs,
//! KVM), where the client leaves us alone on a CPU.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::busy_poll::load::InFlight;
use crate::busy_poll::{Look, Spin};

/// What is known of when requests come.
pub struct Lookout {
    spin: Spin,
    /// Requests whose response is not complete, of all connections.
    in_flight: InFlight,
    since: Instant,
    /// When the last one in flight was answered, in microseconds since `since`, and whether the
    /// next is looked for.
    answered: AtomicU64,
    looks: AtomicBool,
    wanted: Notify,
}

impl Lookout {
    /// Looks for at most so long.
    pub fn new(most: Duration) -> Lookout {
        Lookout {
            spin: Spin::new(most),
            in_flight: InFlight::default(),
            since: Instant::now(),
            answered: AtomicU64::new(0),
            looks: AtomicBool::new(false),
            wanted: Notify::new(),
        }
    }

    /// There is a request, since `now`.
    pub fn request_begins(&self, now: Instant) {
        if self.in_flight.begin(now) > 1 {
            return;
        }
        let answered = Duration::from_micros(self.answered.load(Ordering::Relaxed));
        let took = (now - self.since).saturating_sub(answered);
        match self.looks.load(Ordering::Relaxed) {
            true => self.spin.note(took),
            false => self.spin.note_asleep(took),
        }
    }

    /// The response to the one since `began` is complete, or given up.
    pub fn request_ends(&self, began: Instant) {
        if self.in_flight.end(began) > 0 {
            return;
        }
        self.answered
            .store(self.since.elapsed().as_micros() as u64, Ordering::Relaxed);
        let looks = self.spin.is_worth_it();
        self.looks.store(looks, Ordering::Relaxed);
        if looks {
            // The task that writes the response ends its turn first.
            self.wanted.notify_one();
        }
    }

    /// Keeps the runtime from sleeping where it pays. Never returns.
    pub async fn run(&self) {
        loop {
            self.wanted.notified().await;
            let answered = self.answered.load(Ordering::Relaxed);
            // One may have come and been answered while it was its turn.
            let none_has_come = || {
                self.in_flight.lately() == 0 && self.answered.load(Ordering::Relaxed) == answered
            };
            let mut look = Look::begin(&self.spin);
            while none_has_come() && !look.is_over() {
                look.give_way();
                look.give_turn().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// As many requests, each so long after the last one's answer.
    fn asked(lookout: &Lookout, times: usize, after: Duration) {
        for _ in 0..times {
            let answered = Duration::from_micros(lookout.answered.load(Ordering::Relaxed));
            let began = lookout.since + answered + after;
            lookout.request_begins(began);
            lookout.request_ends(began);
        }
    }

    fn looks(lookout: &Lookout) -> bool {
        lookout.looks.load(Ordering::Relaxed)
    }

    #[test]
    fn looks_where_the_next_request_usually_comes_at_once() {
        let lookout = Lookout::new(Duration::from_micros(100));
        asked(&lookout, 1, Duration::ZERO);
        assert!(!looks(&lookout), "nothing is known");
        asked(&lookout, 100, Duration::from_micros(20));
        assert!(looks(&lookout));
        asked(&lookout, 100, Duration::from_millis(5));
        assert!(!looks(&lookout), "people read in between");
        let never = Lookout::new(Duration::ZERO);
        asked(&never, 100, Duration::ZERO);
        assert!(!looks(&never), "there is no CPU for it");
    }

    #[test]
    fn looks_beside_one_that_takes_long() {
        let lookout = Lookout::new(Duration::from_micros(100));
        lookout.request_begins(lookout.since);
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(20));
            for _ in 0..200 {
                let now = Instant::now();
                lookout.request_begins(now);
                lookout.request_ends(now);
            }
        }
        assert!(looks(&lookout));
    }

    #[tokio::test(start_paused = true)]
    async fn looks_for_a_moment_and_for_nobody_who_waits() {
        let lookout = Arc::new(Lookout::new(Duration::from_micros(100)));
        asked(&lookout, 100, Duration::ZERO);
        let first = Instant::now();
        lookout.request_begins(first);
        // The clock goes on only when everybody sleeps: who looked without end would never let it.
        let task = tokio::spawn({
            let lookout = lookout.clone();
            async move { lookout.run().await }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        lookout.looks.store(false, Ordering::Relaxed);
        let second = Instant::now();
        lookout.request_begins(second);
        lookout.request_ends(second);
        assert!(!looks(&lookout), "the other one's answer is to come");
        lookout.request_ends(first);
        // Where others wanted the CPU while it looked, it pauses.
        asked(&lookout, 20, Duration::ZERO);
        assert!(looks(&lookout));
        tokio::time::sleep(Duration::from_secs(1)).await;
        task.abort();
    }
}
