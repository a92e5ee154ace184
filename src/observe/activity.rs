//! Wakes an idle task when a request, job or connection has ended.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Ends of requests, jobs and connections, which free memory.
pub static ENDS: Activity = Activity::new();

/// A kind of event, and the one task that waits for it.
pub struct Activity {
    is_quiet: AtomicBool,
    recorded: Notify,
}

impl Activity {
    pub(crate) const fn new() -> Activity {
        Activity {
            is_quiet: AtomicBool::new(false),
            recorded: Notify::const_new(),
        }
    }

    /// Records an event. Only the first call after [`Activity::reset`] costs more than reading a
    /// word.
    pub fn record(&self) {
        if self.is_quiet.load(Ordering::Relaxed) {
            self.is_quiet.store(false, Ordering::Relaxed);
            self.recorded.notify_one();
        }
    }

    /// Makes [`Activity::is_quiet`] true until the next event.
    pub fn reset(&self) {
        self.is_quiet.store(true, Ordering::Relaxed);
    }

    /// Whether there was no event since [`Activity::reset`].
    pub fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Returns as soon as there was an event since [`Activity::reset`]. Cancel-safe.
    pub async fn recorded(&self) {
        while self.is_quiet() {
            self.recorded.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn recorded_returns_at_once_for_an_event_before_the_wait() {
        let activity = Activity::new();
        activity.record();
        activity.recorded().await;
        for _ in 0..2 {
            activity.reset();
            assert!(activity.is_quiet());
            let late = tokio::time::timeout(Duration::from_secs(1), activity.recorded()).await;
            assert!(late.is_err());
            activity.record();
            activity.record();
            assert!(!activity.is_quiet());
            activity.recorded().await;
        }
    }
}
