//! Changes as the kernel reports them (inotify), with a watch for each directory.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use tokio::sync::mpsc;
use tracing::info;

use super::files::ProjectFiles;
use super::{Change, Effect};

/// Watches of one process. The kernel's own limit is per user
/// (`/proc/sys/fs/inotify/max_user_watches`).
const MAX_DIRECTORIES: usize = 8192;

/// Room for events, which take at most 272 bytes each.
const BUFFER: usize = 64 << 10;

const EVENTS: WatchMask = WatchMask::CREATE
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::ONLYDIR)
    .union(WatchMask::EXCL_UNLINK);

/// Why the watching has ended.
enum WatchEnd {
    /// Nothing receives changes.
    Unread,
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for WatchEnd {
    fn from(error: anyhow::Error) -> WatchEnd {
        WatchEnd::Failed(error)
    }
}

/// Runs until nothing receives changes. Fails if not all directories can be watched.
pub fn run(files: &ProjectFiles, changes: &mpsc::Sender<Change>) -> anyhow::Result<()> {
    match watch(files, changes) {
        Ok(()) | Err(WatchEnd::Unread) => Ok(()),
        Err(WatchEnd::Failed(error)) => Err(error),
    }
}

fn watch(files: &ProjectFiles, changes: &mpsc::Sender<Change>) -> Result<(), WatchEnd> {
    let mut watches = Watches::open(files)?;
    let directories = watches.paths.len();
    info!(root = %files.root().display(), directories, "watching files");
    loop {
        watches.follow(changes)?;
        watches = Watches::open(files)?;
        // The changes meanwhile are unknown.
        let (effect, path) = (Effect::Boot, files.root().to_path_buf());
        let change = Change { effect, path };
        changes
            .blocking_send(change)
            .map_err(|_| WatchEnd::Unread)?;
    }
}

struct Watches<'a> {
    files: &'a ProjectFiles,
    inotify: Inotify,
    paths: HashMap<WatchDescriptor, PathBuf>,
}

impl<'a> Watches<'a> {
    fn open(files: &'a ProjectFiles) -> Result<Watches<'a>, WatchEnd> {
        let inotify = Inotify::init().context("cannot use inotify")?;
        let mut watches = Watches {
            files,
            inotify,
            paths: HashMap::new(),
        };
        watches.add_tree(files.root(), &mut |_, _| Ok(()))?;
        if let Some(directory) = files.configuration().and_then(Path::parent) {
            watches.add(directory)?;
        }
        Ok(watches)
    }

    fn add(&mut self, directory: &Path) -> anyhow::Result<()> {
        if self.paths.len() >= MAX_DIRECTORIES {
            bail!("there are more than {MAX_DIRECTORIES} directories to watch");
        }
        match self.inotify.watches().add(directory, EVENTS) {
            Ok(descriptor) => {
                self.paths.insert(descriptor, directory.to_path_buf());
                Ok(())
            }
            // It may have been removed again.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            Err(error) if error.kind() == ErrorKind::StorageFull => Err(anyhow!(
                "this user's inotify watches are used up (sysctl fs.inotify.max_user_watches)"
            )),
            Err(error) => {
                Err(error).with_context(|| format!("cannot watch {}", directory.display()))
            }
        }
    }

    /// Watches a directory and those below it. `file` is called for files that count.
    fn add_tree(
        &mut self,
        directory: &Path,
        file: &mut impl FnMut(PathBuf, Effect) -> Result<(), WatchEnd>,
    ) -> Result<(), WatchEnd> {
        let files = self.files;
        files.walk(
            directory,
            &mut |directory| self.add(directory).map_err(WatchEnd::from),
            &mut |entry, effect| file(entry.path(), effect),
        )
    }

    /// Reports changes. Returns if the watches must be made again.
    fn follow(mut self, changes: &mpsc::Sender<Change>) -> Result<(), WatchEnd> {
        let send = |path, effect| {
            let change = Change { effect, path };
            changes.blocking_send(change).map_err(|_| WatchEnd::Unread)
        };
        let mut buffer = vec![0; BUFFER];
        loop {
            let events = self.inotify.read_events_blocking(&mut buffer);
            let events = events.context("cannot read from inotify")?;
            let events: Vec<_> = events.map(|event| event.to_owned()).collect();
            for event in events {
                if event.mask.contains(EventMask::Q_OVERFLOW) {
                    return Ok(());
                }
                if event.mask.contains(EventMask::IGNORED) {
                    self.paths.remove(&event.wd);
                    continue;
                }
                let (Some(directory), Some(name)) = (self.paths.get(&event.wd), &event.name) else {
                    continue;
                };
                let path = directory.join(name);
                if !event.mask.contains(EventMask::ISDIR) {
                    if let Some(effect) = self.files.effect(&path) {
                        send(path, effect)?;
                    }
                    continue;
                }
                if !self.files.is_watched(&path) {
                    continue;
                }
                if event.mask.contains(EventMask::MOVED_FROM) {
                    // The directory's watches would report paths that are wrong.
                    return Ok(());
                }
                if event
                    .mask
                    .intersects(EventMask::CREATE | EventMask::MOVED_TO)
                {
                    // Files may have been written before the watch was there.
                    self.add_tree(&path, &mut |path, effect| send(path, effect))?;
                }
            }
        }
    }
}
