//! Serves new certificates when their files change, and has them checked when the clock is set.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tracing::warn;

use super::Tls;
use super::clock::ClockWatch;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(5);

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
        tokio::time::sleep(INTERVAL).await;
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

/// Serves what has changed.
pub async fn reload(tls: &Tls) -> anyhow::Result<()> {
    if let Some(files) = tls.read().await? {
        tls.change_over(tls.prepare(files)?);
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
}
