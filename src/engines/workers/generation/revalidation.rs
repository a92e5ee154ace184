//! Asks the master process whether the application has changed since its boot, as OPcache asks
//! about scripts: at most once per `opcache.revalidate_freq`, and only when a request comes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use crate::engine::Change;

/// For how long an application must stay as it is before it boots: a deploy changes one file after
/// the other.
const SETTLES: Duration = Duration::from_millis(500);

/// An application that still changes after this time boots anyway.
const LONGEST: Duration = Duration::from_secs(30);

/// How long the master process may take to check all files.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// When the master process checks, and what it has found.
pub struct Revalidation {
    began: Instant,
    /// Milliseconds between two checks. Unset: requests cause none.
    interval: OnceLock<u64>,
    /// Milliseconds from `began` to the last check that a request has caused.
    checked_at: AtomicU64,
    /// Notified when the master process must check.
    pub(super) due: Notify,
    /// What the last check has found: the number and the name of a change.
    checks: watch::Sender<Option<(u64, String)>>,
    /// A check since the boot has found no change.
    found_unchanged: AtomicBool,
}

impl Revalidation {
    pub fn new() -> Revalidation {
        Revalidation {
            began: Instant::now(),
            interval: OnceLock::new(),
            checked_at: AtomicU64::new(0),
            due: Notify::new(),
            checks: watch::Sender::default(),
            found_unchanged: AtomicBool::new(false),
        }
    }

    /// PHP has reported `seconds`.
    pub(super) fn every(&self, seconds: &str) {
        if let Ok(seconds @ 1..) = seconds.parse::<u64>() {
            let _ = self.interval.set(seconds.saturating_mul(1000));
        }
    }

    /// A request has come. Makes the master process check if that is due and the result is needed.
    pub fn request(&self, now: Instant) {
        let Some(interval) = self.interval.get() else {
            return;
        };
        let now = now.saturating_duration_since(self.began).as_millis() as u64;
        let last = self.checked_at.load(Ordering::Relaxed);
        let is_due = now.saturating_sub(last) >= *interval && self.checks.receiver_count() > 0;
        let only = || {
            let order = Ordering::Relaxed;
            self.checked_at.compare_exchange(last, now, order, order)
        };
        if is_due && only().is_ok() {
            self.due.notify_one();
        }
    }

    /// The master process has checked.
    pub(super) fn checked(&self, found: Option<(u64, String)>) {
        self.checks.send_replace(found);
    }

    /// Returns when a request has led to the discovery that the application has changed, and the
    /// change is complete. `known`: the number of a change that does not count.
    pub async fn outdated(&self, known: Option<u64>) -> Change {
        if !self.is_on() {
            // A check of the learner may find one, but only a reload may boot it.
            return std::future::pending().await;
        }
        let mut checks = self.checks.subscribe();
        loop {
            let Some(change) = self.next(&mut checks).await else {
                self.found_unchanged.store(true, Ordering::Relaxed);
                continue;
            };
            if let Some(change) = self.completed(change, known).await {
                return change;
            }
        }
    }

    /// Returns the change once nothing more changes. None if it has been undone, or does not count.
    async fn completed(&self, mut change: Change, known: Option<u64>) -> Option<Change> {
        let began = Instant::now();
        while Some(change.number) != known {
            tokio::time::sleep(SETTLES).await;
            let again = self.check().await?;
            if again == change || began.elapsed() > LONGEST {
                return Some(again);
            }
            change = again;
        }
        None
    }

    /// Whether requests cause checks.
    pub fn is_on(&self) -> bool {
        self.interval.get().is_some()
    }

    /// Makes the master process check now. None if nothing has changed, or if it does not answer.
    /// If requests cause no checks, only a boot that learns knows its files.
    pub async fn check(&self) -> Option<Change> {
        let mut checks = self.checks.subscribe();
        self.due.notify_one();
        let found = tokio::time::timeout(CHECK_TIMEOUT, self.next(&mut checks)).await;
        found.ok().flatten()
    }

    /// What the next check finds.
    async fn next(&self, checks: &mut watch::Receiver<Option<(u64, String)>>) -> Option<Change> {
        // It cannot fail, because `self` has the sender.
        let _ = checks.changed().await;
        let found = checks.borrow_and_update().clone();
        found.map(|(number, what)| Change {
            number,
            what,
            is_immediate: !self.found_unchanged.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Whether a request after `millis` makes the master process check.
    async fn checks_after(revalidation: &Revalidation, millis: u64) -> bool {
        revalidation.request(revalidation.began + Duration::from_millis(millis));
        let due = revalidation.due.notified();
        tokio::time::timeout(Duration::ZERO, due).await.is_ok()
    }

    #[tokio::test]
    async fn first_request_after_the_interval_causes_one_check() {
        let revalidation = Revalidation::new();
        let receiver = revalidation.checks.subscribe();
        assert!(!checks_after(&revalidation, 5000).await, "no interval");
        revalidation.every("0");
        assert!(!checks_after(&revalidation, 5000).await, "switched off");
        revalidation.every("2");
        assert!(!checks_after(&revalidation, 1999).await);
        assert!(checks_after(&revalidation, 2000).await);
        assert!(!checks_after(&revalidation, 3999).await);
        assert!(checks_after(&revalidation, 9000).await);
        drop(receiver);
        assert!(!checks_after(&revalidation, 20_000).await, "nothing waits");
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_interval_only_the_caller_of_a_check_learns_of_a_change() {
        let revalidation = Revalidation::new();
        revalidation.every("0");
        assert!(!revalidation.is_on());
        let answers = async {
            for _ in 0..100 {
                revalidation.due.notified().await;
                revalidation.checked(Some((1, "/a".into())));
            }
        };
        let checks = async {
            for _ in 0..2 {
                assert_eq!(revalidation.check().await.unwrap().number, 1);
            }
            tokio::time::sleep(LONGEST).await;
        };
        let found = tokio::select! {
            biased;
            change = revalidation.outdated(None) => Some(change),
            () = answers => None,
            () = checks => None,
        };
        assert_eq!(found, None);
    }

    /// The changes that the checks of the master process find, one after the other.
    async fn outdated(known: Option<u64>, found: &[Option<u64>]) -> Option<Change> {
        let revalidation = Revalidation::new();
        revalidation.every("1");
        let answers = async {
            for number in found {
                revalidation.checked(number.map(|number| (number, "/a".into())));
                revalidation.due.notified().await;
            }
            std::future::pending::<()>().await
        };
        tokio::select! {
            biased;
            change = revalidation.outdated(known) => Some(change),
            () = answers => None,
            () = tokio::time::sleep(Duration::from_secs(3600)) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn change_counts_when_it_is_complete_and_new() {
        let number = |change: Option<Change>| change.map(|change| change.number);
        let found = outdated(None, &[Some(1), Some(1)]).await;
        assert!(found.as_ref().unwrap().is_immediate);
        assert_eq!(number(found), Some(1));
        let found = outdated(None, &[Some(1), Some(2), Some(3), Some(3)]).await;
        assert_eq!(number(found), Some(3));
        assert_eq!(number(outdated(None, &[Some(1), None]).await), None);
        assert_eq!(number(outdated(Some(1), &[Some(1), Some(1)]).await), None);
    }
}
