//! Workers that have answered and go on for a moment: shutdown functions, what follows
//! `fastcgi_finish_request()`, PHP's own end of a request. An event that comes meanwhile is better
//! off with such a worker than with one that has been idle, whose memory is in no cache: a page of
//! Laravel takes it a quarter longer (4 workers, 1 connection).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Those of a generation.
#[derive(Default)]
pub struct Finishing {
    now: AtomicUsize,
    /// Events that wait for one of them.
    awaited: AtomicUsize,
    /// How long it usually takes: about the median, which a machine that is busy elsewhere for a
    /// moment does not change.
    usual_nanos: AtomicU64,
    end: Notify,
}

/// What takes longer is not waited for.
const SHORT: Duration = Duration::from_micros(400);
/// Towards a median that is near nothing.
const STEP: u64 = 1_000;
/// Nor does anybody wait longer than this, the least that a timer can.
const LIMIT: Duration = Duration::from_millis(1);

impl Finishing {
    /// A worker has answered.
    pub fn begin(&self) {
        self.now.fetch_add(1, Ordering::AcqRel);
    }

    /// It can take its next event, after so long.
    pub fn end(&self, took: Duration) {
        self.now.fetch_sub(1, Ordering::AcqRel);
        let usual = self.usual_nanos.load(Ordering::Relaxed);
        let step = (usual / 16).max(STEP);
        let usual = match u128::from(usual) < took.as_nanos() {
            true => usual.saturating_add(step),
            false => usual.saturating_sub(step),
        };
        // Another thread's may get lost.
        self.usual_nanos.store(usual, Ordering::Relaxed);
        if self.awaited.load(Ordering::Acquire) > 0 {
            self.end.notify_one();
        }
    }

    /// Returns at once, or when a worker has finished that nobody else waits for and that is about
    /// to.
    pub async fn wait(&self) {
        let is_short = self.usual_nanos.load(Ordering::Relaxed) < SHORT.as_nanos() as u64;
        if !is_short || self.now.load(Ordering::Acquire) <= self.awaited.load(Ordering::Acquire) {
            return;
        }
        let _awaited = Awaited::one(&self.awaited);
        let _ = tokio::time::timeout(LIMIT, self.end.notified()).await;
    }
}

/// Counts one that waits, for as long as it exists.
struct Awaited<'a>(&'a AtomicUsize);

impl<'a> Awaited<'a> {
    fn one(count: &'a AtomicUsize) -> Awaited<'a> {
        count.fetch_add(1, Ordering::AcqRel);
        Awaited(count)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn who_is_about_to_finish_is_waited_for_by_one_and_not_for_long() {
        let finishing = Arc::new(Finishing::default());
        let began = Instant::now();
        finishing.wait().await;
        assert!(began.elapsed().is_zero(), "nobody finishes");

        finishing.begin();
        let waits = tokio::spawn({
            let finishing = finishing.clone();
            async move { finishing.wait().await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        finishing.wait().await;
        assert!(began.elapsed().is_zero(), "there is one, for the other");
        finishing.end(Duration::from_micros(50));
        assert!(waits.await.is_ok());
        assert!(began.elapsed().is_zero());

        finishing.begin();
        finishing.wait().await;
        assert!(began.elapsed() >= LIMIT && began.elapsed() < 3 * LIMIT);
        finishing.end(Duration::from_secs(1));
        finishing.begin();
        let again = Instant::now();
        finishing.wait().await;
        assert!(again.elapsed() >= LIMIT, "once says nothing");

        for _ in 0..200 {
            finishing.end(Duration::from_secs(1));
            finishing.begin();
        }
        let again = Instant::now();
        finishing.wait().await;
        assert!(again.elapsed().is_zero(), "it usually takes long");

        for _ in 0..2000 {
            finishing.end(Duration::from_micros(50));
            finishing.begin();
        }
        finishing.wait().await;
        assert!(again.elapsed() >= LIMIT, "it has become short");
    }
}
