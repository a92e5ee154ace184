//! Locks a directory until the process exits, in whatever way.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

/// No other process can lock the directory while this exists. systemd-tmpfiles(8) does not clean it
/// up either, however old it is.
#[derive(Debug)]
pub struct DirLock(#[expect(dead_code, reason = "held until it is dropped")] Flock<File>);

/// Takes the directory's lock (flock(2)), which ends with the process at the latest. Never blocks:
/// [`io::ErrorKind::WouldBlock`] if another process has the lock.
pub fn lock(directory: &Path) -> io::Result<DirLock> {
    Flock::lock(File::open(directory)?, FlockArg::LockExclusiveNonblock)
        .map(DirLock)
        .map_err(|(_, errno)| errno.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_locked_by_one_process_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let held = lock(directory.path()).unwrap();
        let refused = lock(directory.path()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        lock(directory.path()).unwrap();
    }
}
