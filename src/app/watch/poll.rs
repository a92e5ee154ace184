//! Changes as a comparison of all files shows them, once a second.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::warn;

use super::files::ProjectFiles;
use super::{Change, Effect};

const INTERVAL: Duration = Duration::from_secs(1);

/// Files that are compared; later ones are not watched.
const MAX_FILES: usize = 100_000;

/// Inode, size and time of the last change of a file.
type State = (u64, u64, i64, i64);

/// Runs until nothing receives changes.
pub fn run(files: &ProjectFiles, changes: &mpsc::Sender<Change>) {
    let mut known = scan(files);
    if known.len() >= MAX_FILES {
        warn!(
            limit = MAX_FILES,
            "not all files are watched; [watch] ignore lists directories to leave out"
        );
    }
    while !changes.is_closed() {
        std::thread::sleep(INTERVAL);
        let now = scan(files);
        for (path, effect) in difference(&known, &now) {
            let path = path.to_path_buf();
            if changes.blocking_send(Change { effect, path }).is_err() {
                return;
            }
        }
        known = now;
    }
}

type Known = HashMap<PathBuf, (State, Effect)>;

fn scan(files: &ProjectFiles) -> Known {
    let mut known = Known::new();
    let state =
        |found: std::fs::Metadata| (found.ino(), found.size(), found.mtime(), found.mtime_nsec());
    if let Some(path) = files.configuration()
        && let Ok(found) = path.metadata()
    {
        known.insert(path.to_path_buf(), (state(found), Effect::Configuration));
    }
    // Ends early at the limit.
    let _ = files.walk(files.root(), &mut |_| Ok(()), &mut |entry, effect| {
        if let Ok(found) = entry.metadata() {
            known.insert(entry.path(), (state(found), effect));
        }
        match known.len() >= MAX_FILES {
            true => Err(()),
            false => Ok(()),
        }
    });
    known
}

fn difference<'a>(old: &'a Known, new: &'a Known) -> impl Iterator<Item = (&'a Path, Effect)> {
    let changed = new
        .iter()
        .filter(|(path, state)| old.get(*path) != Some(*state));
    let removed = old.iter().filter(|(path, _)| !new.contains_key(*path));
    changed
        .chain(removed)
        .map(|(path, (_, effect))| (&**path, *effect))
}
