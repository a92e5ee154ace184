//! Wakes a task that rests while nothing happens.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Ends of requests, jobs and connections, which free memory.
pub static ENDS: Activity = Activity::new();

/// Something that happens often, and the one task that wants to know whether it has.
pub struct Activity {
    is_quiet: AtomicBool,
    noted: Notify,
}

impl Activity {
    const fn new() -> Activity {
        Activity {
            is_quiet: AtomicBool::new(false),
            noted: Notify::const_new(),
        }
    }

    /// It has happened. Only the first call after [`Activity::forget`] costs more than reading a
    /// word.
    pub fn note(&self) {
        if self.is_quiet.load(Ordering::Relaxed) {
            self.is_quiet.store(false, Ordering::Relaxed);
            self.noted.notify_one();
        }
    }

    /// Makes [`Activity::is_quiet`] true until it happens again.
    pub fn forget(&self) {
        self.is_quiet.store(true, Ordering::Relaxed);
    }

    /// Whether it has not happened since [`Activity::forget`].
    pub fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Returns when it has happened since [`Activity::forget`]. Cancel-safe.
    pub async fn noted(&self) {
        while self.is_quiet() {
            self.noted.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn noted_returns_at_once_for_what_happened_before_the_wait() {
        let activity = Activity::new();
        activity.note();
        activity.noted().await;
        for _ in 0..2 {
            activity.forget();
            assert!(activity.is_quiet());
            let late = tokio::time::timeout(Duration::from_secs(1), activity.noted()).await;
            assert!(late.is_err());
            activity.note();
            activity.note();
            assert!(!activity.is_quiet());
            activity.noted().await;
        }
    }
}
