//! Boots the application again when it has changed since its boot: files, or what it names itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use tracing::{debug, error, info};

use crate::engine::{Change, Engine, Pending};

/// The longest pause between two boots.
const LONGEST: Duration = Duration::from_secs(300);

/// Runs until it is aborted. `reload` boots all engines and switches, as `surus reload` does.
pub async fn run(
    engines: Vec<Arc<dyn Engine>>,
    reload: impl Fn() -> Pending<'static, anyhow::Result<()>>,
) {
    let mut pace = BootPace::default();
    // The number of the change with which the boot has failed.
    let mut failed = None;
    loop {
        let change = match failed {
            None => any(&engines, None).await,
            Some(_) => tokio::select! {
                change = any(&engines, failed) => change,
                change = async {
                    pace.wait().await;
                    any(&engines, None).await
                } => change,
            },
        };
        let is_known = failed == Some(change.number);
        pace.wait().await;
        let changed = &change.what;
        if !is_known {
            info!(changed, "the application has changed; it boots again");
        }
        let began = Instant::now();
        let result = reload().await;
        pace.booted(began, change.is_immediate || is_known);
        failed = match result {
            Ok(()) => None,
            Err(error) => {
                let error = format!("{error:#}");
                match is_known {
                    // A boot that needs a database may succeed later.
                    true => debug!(error, "the application still cannot be booted"),
                    false => error!(changed, error, "the changed application cannot be booted"),
                }
                Some(change.number)
            }
        };
    }
}

/// The first change that an engine finds, except the one with the number `known`.
async fn any(engines: &[Arc<dyn Engine>], known: Option<u64>) -> Change {
    match engines {
        [] => std::future::pending().await,
        _ => {
            select_all(engines.iter().map(|engine| engine.outdated(known)))
                .await
                .0
        }
    }
}

/// The pauses between boots, so that files that always change, or a script that always says so,
/// cannot keep the machine busy.
#[derive(Default)]
pub(super) struct BootPace {
    not_before: Option<Instant>,
    /// Boots in a row after which the application had changed at once, or that failed again.
    useless: u32,
}

impl BootPace {
    pub async fn wait(&self) {
        if let Some(not_before) = self.not_before {
            tokio::time::sleep_until(not_before.into()).await;
        }
    }

    /// A boot that `began` then has ended.
    pub fn booted(&mut self, began: Instant, is_useless: bool) {
        self.useless = match is_useless {
            true => self.useless.saturating_add(1),
            false => 0,
        };
        self.not_before = Some(Instant::now() + pause(began.elapsed(), self.useless));
    }
}

/// At most a quarter of the time is spent on boots, and less and less if they do not help.
fn pause(took: Duration, useless: u32) -> Duration {
    let pause = (took * 3).max(Duration::from_secs(u64::from(useless > 0)));
    pause.saturating_mul(1 << useless.min(16)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_while_boots_do_not_help() {
        let millis = |took, useless| pause(Duration::from_millis(took), useless).as_millis();
        assert_eq!(millis(200, 0), 600);
        assert_eq!(millis(200, 1), 2000);
        assert_eq!(millis(200, 3), 8000);
        assert_eq!(millis(200, u32::MAX), LONGEST.as_millis());
        assert_eq!(millis(10_000_000, 0), LONGEST.as_millis());
    }
}
