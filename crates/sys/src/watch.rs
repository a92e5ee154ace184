//! Waits until files of a directory are written (inotify).

use std::ffi::OsString;
use std::io;
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// A directory whose writes wake a thread.
pub struct DirectoryWatch {
    inotify: Inotify,
    directory: WatchDescriptor,
}

impl DirectoryWatch {
    /// Watches a directory. Writes by other machines to a network file system are not seen.
    pub fn open(directory: &Path) -> io::Result<DirectoryWatch> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
        let directory = inotify.add_watch(
            directory,
            AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO,
        )?;
        Ok(DirectoryWatch { inotify, directory })
    }

    /// Blocks until files are written, and returns their names, possibly more than once. Fails
    /// after [`end`](Self::end), and once the directory has been deleted.
    pub fn wait(&self) -> io::Result<Vec<OsString>> {
        let events = self.inotify.read_events()?;
        let has_ended = |mask: AddWatchFlags| mask.contains(AddWatchFlags::IN_IGNORED);
        if events.iter().any(|event| has_ended(event.mask)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(events.into_iter().filter_map(|event| event.name).collect())
    }

    /// Ends the watch, and wakes the thread that waits.
    pub fn end(&self) {
        // It fails if the directory has been deleted, which has ended the watch.
        let _ = self.inotify.rm_watch(self.directory);
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

    #[test]
    fn ended_watch_wakes_its_thread() {
        let directory = tempfile::tempdir().unwrap();
        let watch = DirectoryWatch::open(directory.path()).unwrap();
        std::thread::scope(|scope| {
            let waited = scope.spawn(|| watch.wait());
            watch.end();
            assert!(waited.join().unwrap().is_err());
        });
    }

    #[test]
    fn watch_ends_with_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let watch = DirectoryWatch::open(directory.path()).unwrap();
        directory.close().unwrap();
        assert!(watch.wait().is_err());
        watch.end();
    }
}
