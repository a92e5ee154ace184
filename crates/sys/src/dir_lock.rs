//! Locks a directory, or an open file, until the process exits, in whatever way.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
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

/// Takes an open file's lock (flock(2)), which ends when all descriptors of this open file are
/// closed, also in forked processes. Never blocks: [`io::ErrorKind::WouldBlock`] if it is locked.
pub fn lock_file(file: &File) -> io::Result<()> {
    // SAFETY: flock(2) takes no pointers, and the descriptor is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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

    #[test]
    fn file_is_locked_until_its_last_descriptor_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let held = File::create(&path).unwrap();
        lock_file(&held).unwrap();
        let copy = held.try_clone().unwrap();
        drop(held);
        let other = File::open(&path).unwrap();
        let refused = lock_file(&other).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(copy);
        lock_file(&other).unwrap();
    }
}
