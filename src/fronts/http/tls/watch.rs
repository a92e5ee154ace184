//! Serves new certificates when their files change, and checks them when the clock is set.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tracing::warn;

use super::Tls;
use super::clock::ClockWatch;
use crate::observe::activity::Activity;

/// How often the files are read while clients connect.
const INTERVAL: Duration = Duration::from_secs(5);

/// How often the files are read while no client connects. In a server that root has started, each
/// reading forks the keeper.
const IDLE_INTERVAL: Duration = Duration::from_secs(300);

/// How often a certificate that ends soon is worth a warning.
const WARNING_INTERVAL: Duration = Duration::from_secs(12 * 3600);

/// Runs until it is cancelled.
pub async fn run(tls: Arc<Tls>) {
    let started = Instant::now();
    let mut clock = ClockWatch::new(SystemTime::now(), Duration::ZERO);
    let mut warned = started;
    let text = |error: anyhow::Error| format!("{error:#}");
    let mut persistent = PersistentError {
        // Reported at the start.
        last: tls.check_sites().err().map(text),
        is_reported: true,
    };
    loop {
        let is_unrenewed = tls.current.load().files.unrenewed.is_some();
        next_check(&tls.connecting, persistent.is_pending(), is_unrenewed).await;
        let reloaded = reload(&tls).await.and_then(|()| tls.check_sites());
        let error = reloaded.err().map(text);
        if let Some(error) = persistent.report(error) {
            warn!(%error, "cannot reload the certificates; the current ones stay in use");
        }
        let moved = clock.moved(SystemTime::now(), started.elapsed());
        if let Some(moved) = moved {
            warn!(
                clock = %moved,
                "the clock of this machine was set; certificates are checked"
            );
            tls.clock_moved.notify_one();
        }
        if moved.is_some() || warned.elapsed() > WARNING_INTERVAL {
            warned = Instant::now();
            tls.warn_of_ends();
        }
    }
}

/// Waits until the files must be read again. The first client after a pause causes that.
/// Otherwise a timer would run every few seconds for certificates that no client gets. Each
/// reading tries to store local certificates again, so `is_unrenewed` makes them rare.
async fn next_check(connecting: &Activity, is_urgent: bool, is_unrenewed: bool) {
    connecting.reset();
    tokio::time::sleep(INTERVAL).await;
    if is_urgent {
        return;
    }
    let rest = IDLE_INTERVAL - INTERVAL;
    if is_unrenewed {
        tokio::time::sleep(rest).await;
    } else if connecting.is_quiet() {
        let _ = tokio::time::timeout(rest, connecting.recorded()).await;
    }
}

/// Serves what has changed.
pub async fn reload(tls: &Tls) -> anyhow::Result<()> {
    let _one_at_a_time = tls.reloading.lock().await;
    if let Some(changed) = tls.read().await? {
        tls.change_over(tls.prepare(changed)?);
    }
    Ok(())
}

/// Certificate and key are rarely written at the same instant, so an error counts if it is still
/// there at the next check. It is reported once.
#[derive(Default)]
struct PersistentError {
    last: Option<String>,
    is_reported: bool,
}

impl PersistentError {
    /// Whether the next check decides if an error is reported.
    fn is_pending(&self) -> bool {
        self.last.is_some() && !self.is_reported
    }

    /// The error, if it must be reported now.
    fn report(&mut self, error: Option<String>) -> Option<&str> {
        if error != self.last {
            self.last = error;
            self.is_reported = false;
            return None;
        }
        let is_first = !std::mem::replace(&mut self.is_reported, true);
        self.last.as_deref().filter(|_| is_first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_reported_once_when_it_persists() {
        let mut persistent = PersistentError::default();
        let mut report = |error: Option<&str>| {
            let reported = persistent.report(error.map(str::to_owned));
            reported.map(str::to_owned)
        };
        for error in [None, Some("a"), None, Some("a"), Some("b")] {
            assert_eq!(report(error), None, "{error:?}");
        }
        assert_eq!(report(Some("b")).as_deref(), Some("b"));
        assert_eq!(report(Some("b")), None);
        assert_eq!(report(None), None);
        assert_eq!(report(None), None);
        assert_eq!(report(Some("b")), None);
        assert_eq!(report(Some("b")).as_deref(), Some("b"));
    }

    #[test]
    fn error_is_pending_until_it_is_reported_or_gone() {
        let mut persistent = PersistentError::default();
        for (error, is_pending) in [
            (None, false),
            (Some("a"), true),
            (Some("a"), false),
            (Some("b"), true),
            (None, false),
        ] {
            persistent.report(error.map(str::to_owned));
            assert_eq!(persistent.is_pending(), is_pending, "{error:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_are_read_often_only_while_clients_connect() {
        let connecting = Activity::new();
        let seconds = async |is_urgent, is_unrenewed| {
            let began = tokio::time::Instant::now();
            next_check(&connecting, is_urgent, is_unrenewed).await;
            began.elapsed().as_secs()
        };
        assert_eq!(seconds(false, false).await, 300);
        assert_eq!(seconds(true, false).await, 5);
        assert_eq!(seconds(true, true).await, 5);
        // A client connects after so many seconds.
        for (at, is_unrenewed, expected) in [
            (1, false, 5),
            (60, false, 60),
            (1, true, 300),
            (60, true, 300),
        ] {
            let client = async {
                tokio::time::sleep(Duration::from_secs(at)).await;
                connecting.record();
            };
            let (taken, ()) = tokio::join!(seconds(false, is_unrenewed), client);
            assert_eq!(taken, expected, "after {at} s, unrenewed: {is_unrenewed}");
        }
    }
}
