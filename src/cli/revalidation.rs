//! Boots the application again when it has changed since its boot: files, or what it names itself.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use tracing::{debug, error, info};

use crate::engine::{Change, Engine, Pending, Report};

/// The longest pause between two boots.
const LONGEST: Duration = Duration::from_secs(300);

/// Runs until it is aborted. `moved` finds changes that the engines do not find, except the one
/// with this number. `reload` boots all engines and switches, as `surus reload` does.
pub async fn run(
    engines: Vec<Arc<dyn Engine>>,
    moved: impl Fn(Option<u64>) -> Pending<'static, Change>,
    reload: impl Fn() -> Pending<'static, anyhow::Result<()>>,
) {
    let mut pace = BootPace::default();
    // The number of the change with which the boot has failed.
    let mut failed = None;
    loop {
        let change = match failed {
            None => any(&engines, &moved, None).await,
            Some(_) => tokio::select! {
                change = any(&engines, &moved, failed) => change,
                change = async {
                    pace.wait().await;
                    any(&engines, &moved, None).await
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

/// The first change that is found, except the one with the number `known`.
async fn any(
    engines: &[Arc<dyn Engine>],
    moved: &impl Fn(Option<u64>) -> Pending<'static, Change>,
    known: Option<u64>,
) -> Change {
    let found = engines.iter().map(|engine| engine.outdated(known));
    select_all(found.chain([moved(known)])).await.0
}

/// The change of an engine that has booted from another document root than files are served from: a
/// link on the way has another target now.
pub fn link_change(report: &Report, project: &Path, root: &Path) -> Option<Change> {
    let booted = report.get("document_root");
    // A report has lines.
    let is_comparable = !booted.is_empty() && !root.as_os_str().as_bytes().contains(&b'\n');
    (is_comparable && Path::new(booted) != root).then(|| {
        let mut number = DefaultHasher::new();
        booted.hash(&mut number);
        Change {
            what: project.display().to_string(),
            number: number.finish(),
            // Another boot might not help.
            is_immediate: true,
        }
    })
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn boot_from_another_document_root_is_a_change_of_the_link() {
        let [project, root] = ["/srv/app", "/srv/1/public"].map(Path::new);
        let change = |booted: &str| {
            let report = Report::read(&format!("document_root={booted}\n"));
            link_change(&report, project, root)
        };
        assert_eq!(change("/srv/1/public"), None);
        assert_eq!(change(""), None, "it has booted nothing");
        let moved = change("/srv/2/public").unwrap();
        assert_eq!(moved.what, "/srv/app");
        assert_ne!(change("/srv/3/public").unwrap().number, moved.number);
        let lines = Path::new("/srv/1\n/public");
        let report = Report::read("document_root=/srv/1");
        assert_eq!(link_change(&report, project, lines), None);
    }

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
