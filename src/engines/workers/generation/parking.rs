//! Parks the sweeper while nothing is in flight, and wakes it: it has no timer then.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::sync::Notify;

/// Whether the sweeper is parked, and what wakes it.
#[derive(Default)]
pub struct Parking {
    is_parked: AtomicBool,
    notify: Notify,
}

impl Parking {
    /// Call this after something to sweep has become visible. While the sweeper is unparked, this
    /// only reads one word.
    pub fn notify(&self) {
        if self.is_parked.load(SeqCst) {
            self.notify.notify_one();
        }
    }

    /// From now on notifications wake the sweeper. It sweeps once more after this, because earlier
    /// ones did not wake it.
    pub fn park(&self) {
        self.is_parked.store(true, SeqCst);
    }

    pub fn unpark(&self) {
        self.is_parked.store(false, SeqCst);
    }

    /// Returns when the sweeper is notified.
    pub async fn notified(&self) {
        self.notify.notified().await;
    }
}
