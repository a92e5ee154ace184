//! Waits until files of a directory are written (inotify).

use std::ffi::OsString;
use std::io;
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// A directory whose writes wake a thread.
pub struct DirectoryWatch(Inotify);

impl DirectoryWatch {
    /// Watches a directory. Writes by other machines to a network file system are not seen.
    pub fn open(directory: &Path) -> io::Result<DirectoryWatch> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
        inotify.add_watch(
            directory,
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO,
        )?;
        Ok(DirectoryWatch(inotify))
    }

    /// Blocks until files are written, and returns their names, possibly more than once.
    pub fn wait(&self) -> io::Result<Vec<OsString>> {
        let events = self.0.read_events()?;
        Ok(events.into_iter().filter_map(|event| event.name).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn write_to_a_file_is_seen_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let watch = DirectoryWatch::open(directory.path()).unwrap();
        std::fs::write(directory.path().join("a.db"), "x").unwrap();
        assert!(watch.wait().unwrap().contains(&"a.db".into()));
    }
}
