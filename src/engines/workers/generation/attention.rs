//! Wakes the sweeper, which has no timer while nothing is in flight.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::sync::Notify;

/// Whether the sweeper sleeps, and its wake-up.
#[derive(Default)]
pub struct Attention {
    sleeps: AtomicBool,
    call: Notify,
}

impl Attention {
    /// Call this after something to sweep has become visible. While the sweeper is awake, this only
    /// reads one word.
    pub fn call(&self) {
        if self.sleeps.load(SeqCst) {
            self.call.notify_one();
        }
    }

    /// From now on calls wake the sweeper. It sweeps once more after this, because earlier calls
    /// did not wake it.
    pub fn sleep(&self) {
        self.sleeps.store(true, SeqCst);
    }

    pub fn wake(&self) {
        self.sleeps.store(false, SeqCst);
    }

    /// Returns when the sweeper is called.
    pub async fn called(&self) {
        self.call.notified().await;
    }
}
