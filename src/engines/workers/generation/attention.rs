//! Wakes the watch, which has no timer while nothing is in flight.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::sync::Notify;

/// Whether the watch sleeps, and the call that wakes it.
#[derive(Default)]
pub struct Attention {
    sleeps: AtomicBool,
    call: Notify,
}

impl Attention {
    /// To be called when there is something to look at, after that can be seen. While the watch is
    /// awake this reads one word.
    pub fn call(&self) {
        if self.sleeps.load(SeqCst) {
            self.call.notify_one();
        }
    }

    /// From here on the watch is called. It looks once more after that: what came before has called
    /// nobody.
    pub fn sleep(&self) {
        self.sleeps.store(true, SeqCst);
    }

    pub fn wake(&self) {
        self.sleeps.store(false, SeqCst);
    }

    /// Returns when the watch is called.
    pub async fn called(&self) {
        self.call.notified().await;
    }
}
