//! Sends a request to a worker that is about to finish, because its caches are warm
//! (docs/internals/decisions.md#prefer-the-worker-that-is-just-finishing).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// The finishing workers of a generation.
#[derive(Default)]
pub struct WarmWorkerHint {
    now: AtomicUsize,
    /// Events that wait for a finishing worker.
    awaited: AtomicUsize,
    /// How long finishing usually takes: about the median, which a short load peak does not change.
    usual_nanos: AtomicU64,
    end: Notify,
}

/// Workers that take longer are not waited for.
const SHORT: Duration = Duration::from_micros(400);
/// The smallest step of the median.
const STEP: u64 = 1_000;
/// The longest wait, which is the shortest that a timer allows.
const LIMIT: Duration = Duration::from_millis(1);

impl WarmWorkerHint {
    /// A worker has answered.
    pub fn begin(&self) {
        self.now.fetch_add(1, Ordering::AcqRel);
    }

    /// The worker can take its next event, after finishing for `took`.
    pub fn end(&self, took: Duration) {
        self.now.fetch_sub(1, Ordering::AcqRel);
        let usual = self.usual_nanos.load(Ordering::Relaxed);
        let step = (usual / 16).max(STEP);
        let usual = match u128::from(usual) < took.as_nanos() {
            true => usual.saturating_add(step),
            false => usual.saturating_sub(step),
        };
        // A concurrent update may get lost.
        self.usual_nanos.store(usual, Ordering::Relaxed);
        if self.awaited.load(Ordering::Acquire) > 0 {
            self.end.notify_one();
        }
    }

    /// Returns at once, or after a finishing worker is done for which no other event waits.
    pub async fn wait(&self) {
        let is_short = self.usual_nanos.load(Ordering::Relaxed) < SHORT.as_nanos() as u64;
        if !is_short || self.now.load(Ordering::Acquire) <= self.awaited.load(Ordering::Acquire) {
            return;
        }
        let _awaited = Awaited::one(&self.awaited);
        let _ = tokio::time::timeout(LIMIT, self.end.notified()).await;
    }
}

/// Counts one waiting event until it is dropped.
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
    async fn finishing_worker_is_waited_for_by_one_event_and_briefly() {
        let finishing = Arc::new(WarmWorkerHint::default());
        let began = Instant::now();
        finishing.wait().await;
        assert!(began.elapsed().is_zero(), "no worker is finishing");

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
