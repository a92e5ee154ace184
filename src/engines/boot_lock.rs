//! Lets one boot of a site run at a time, and tells one that can wait that another is wanted.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard, watch};

/// The lock of a site's boots.
#[derive(Debug, Default)]
pub struct BootLock {
    lock: Arc<Mutex<()>>,
    /// How many boots wait that must not be delayed.
    waiting: watch::Sender<usize>,
}

impl BootLock {
    /// For a boot that is asked for. Boots in the background end early.
    pub async fn lock(&self) -> MutexGuard<'_, ()> {
        let _waiting = WaitingBoot::new(&self.waiting);
        self.lock.lock().await
    }

    /// For a boot that has to watch [`wanted`](Self::wanted).
    pub async fn lock_in_background(&self) -> OwnedMutexGuard<()> {
        self.lock.clone().lock_owned().await
    }

    /// Returns when a boot waits that must not be delayed.
    pub async fn wanted(&self) {
        let mut waiting = self.waiting.subscribe();
        // It cannot fail, because `self` has the sender.
        let _ = waiting.wait_for(|count| *count > 0).await;
    }
}

/// A boot that waits, also if its future is dropped.
struct WaitingBoot<'a>(&'a watch::Sender<usize>);

impl<'a> WaitingBoot<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> WaitingBoot<'a> {
        waiting.send_modify(|count| *count += 1);
        WaitingBoot(waiting)
    }
}

impl Drop for WaitingBoot<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn background_boot_learns_that_another_waits() {
        let lock = BootLock::default();
        let background = lock.lock_in_background().await;
        assert!(lock.wanted().now_or_never().is_none());
        {
            let mut waiting = Box::pin(lock.lock());
            assert!(waiting.as_mut().now_or_never().is_none());
            assert!(lock.wanted().now_or_never().is_some());
        }
        assert!(lock.wanted().now_or_never().is_none(), "it has given up");
        drop(background);
        let held = lock.lock().await;
        assert!(lock.wanted().now_or_never().is_none(), "it does not wait");
        drop(held);
    }
}
