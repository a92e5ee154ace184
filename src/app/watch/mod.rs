//! Watches the application's files for `surus serve --watch`: by inotify, or by comparing all of
//! them each second where inotify cannot.

mod files;
mod inotify;
mod poll;

use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tracing::{info, warn};

use self::files::ProjectFiles;
use crate::units::one_or_more;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Paths relative to the project whose changes do not count, such as `public/uploads`.
    #[serde(deserialize_with = "one_or_more")]
    pub ignore: Vec<PathBuf>,
    /// Polls all files each second, for file systems that do not report changes.
    pub poll: bool,
}

/// The effect of a change. The greater one includes the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Browsers load their page again.
    Page,
    /// The application boots again.
    Boot,
    /// Surus reads its configuration.
    Configuration,
}

/// A file has been changed, made or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub effect: Effect,
    pub path: PathBuf,
}

/// Changes that wait to be read; inotify's own queue holds the others.
const QUEUE: usize = 256;

/// Watches the files below `root`, and the configuration file wherever it is. The thread ends after
/// the receiver.
pub fn start(
    settings: &Settings,
    root: PathBuf,
    configuration: Option<PathBuf>,
) -> anyhow::Result<mpsc::Receiver<Change>> {
    // Links are not followed below the root, but the project itself may be one.
    let root = root
        .canonicalize()
        .with_context(|| format!("cannot watch {}", root.display()))?;
    let configuration = configuration.map(|file| file.canonicalize().unwrap_or(file));
    let (changes, receiver) = mpsc::channel(QUEUE);
    let files = ProjectFiles::new(root, configuration, &settings.ignore);
    let polls = settings.poll;
    std::thread::Builder::new()
        .name("watch".into())
        .spawn(move || run(&files, polls, &changes))
        .context("cannot start the thread that watches files")?;
    Ok(receiver)
}

fn run(files: &ProjectFiles, polls: bool, changes: &mpsc::Sender<Change>) {
    let root = files.root().display();
    if !polls {
        match inotify::run(files, changes) {
            Ok(()) => return,
            Err(error) => warn!(
                error = format!("{error:#}"),
                "cannot watch the files by inotify; polling them every second instead; leave \
                 directories out (watch.ignore)"
            ),
        }
    }
    info!(%root, "watching files by polling them every second");
    poll::run(files, changes);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    async fn next(changes: &mut mpsc::Receiver<Change>) -> Change {
        let next = tokio::time::timeout(Duration::from_secs(60), changes.recv());
        next.await.unwrap().unwrap()
    }

    /// Reads changes until this one.
    async fn until(changes: &mut mpsc::Receiver<Change>, effect: Effect, path: &Path) {
        let wanted = Change {
            effect,
            path: path.to_path_buf(),
        };
        while next(changes).await != wanted {}
    }

    #[tokio::test]
    async fn changed_new_and_removed_files_are_reported_and_ignored_ones_are_not() {
        for poll in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            let other = tempfile::tempdir().unwrap();
            let toml = other.path().canonicalize().unwrap().join("other.toml");
            std::fs::create_dir_all(root.join("var/cache")).unwrap();
            std::fs::create_dir_all(root.join("up/loads")).unwrap();
            std::fs::create_dir_all(root.join("src")).unwrap();
            std::fs::write(root.join("src/a.php"), "one").unwrap();
            std::fs::write(&toml, "one").unwrap();
            let settings = Settings {
                ignore: vec!["up/loads".into()],
                poll,
            };
            let mut changes = start(&settings, root.clone(), Some(toml.clone())).unwrap();
            // The thread watches as soon as it sees a change of this file.
            let first = root.join("first.css");
            let mut seen = None;
            for n in 0..2000 {
                std::fs::write(&first, "x".repeat(n + 1)).unwrap();
                let soon = tokio::time::timeout(Duration::from_millis(50), changes.recv());
                if let Ok(change) = soon.await {
                    seen = change;
                    break;
                }
            }
            assert_eq!(seen.unwrap().effect, Effect::Page);
            std::fs::write(root.join("var/cache/b.php"), "x").unwrap();
            std::fs::write(root.join("up/loads/b.php"), "x").unwrap();
            std::fs::write(root.join("data.sqlite"), "x").unwrap();
            std::fs::write(other.path().join("b.php"), "x").unwrap();
            std::fs::write(root.join("src/a.php"), "changed").unwrap();
            loop {
                let change = next(&mut changes).await;
                if change.path == first {
                    continue;
                }
                assert_eq!(change.path, root.join("src/a.php"), "poll: {poll}");
                break;
            }
            std::fs::create_dir_all(root.join("new/deep")).unwrap();
            std::fs::write(root.join("new/deep/c.php"), "x").unwrap();
            until(&mut changes, Effect::Boot, &root.join("new/deep/c.php")).await;
            std::fs::write(root.join("new/deep/d.php"), "x").unwrap();
            until(&mut changes, Effect::Boot, &root.join("new/deep/d.php")).await;
            std::fs::remove_file(root.join("src/a.php")).unwrap();
            until(&mut changes, Effect::Boot, &root.join("src/a.php")).await;
            std::fs::rename(root.join("new"), root.join("moved")).unwrap();
            // inotify's watches are made again, and a change of the root reports that.
            let (effect, moved) = match poll {
                true => (Effect::Boot, root.join("moved/deep/c.php")),
                false => (Effect::Boot, root.clone()),
            };
            until(&mut changes, effect, &moved).await;
            std::fs::write(root.join("moved/deep/e.php"), "x").unwrap();
            until(&mut changes, Effect::Boot, &root.join("moved/deep/e.php")).await;
            std::fs::write(&toml, "changed").unwrap();
            until(&mut changes, Effect::Configuration, &toml).await;
        }
    }
}
