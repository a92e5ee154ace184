//! Locks a directory, or an open file, until the process exits, in whatever way.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// A lock of a directory or a file. No other process can lock it while this exists.
/// systemd-tmpfiles(8) does not clean it up either, however old it is.
#[derive(Debug)]
pub struct DirLock(#[expect(dead_code, reason = "held until it is dropped")] Flock<File>);

/// Takes the directory's lock (flock(2)), which ends with the process at the latest. Never blocks:
/// [`io::ErrorKind::WouldBlock`] if another process has the lock.
pub fn lock(directory: &Path) -> io::Result<DirLock> {
    Flock::lock(File::open(directory)?, FlockArg::LockExclusiveNonblock)
        .map(DirLock)
        .map_err(|(_, errno)| errno.into())
}

/// Shares the directory's lock with others that call this. systemd-tmpfiles(8) does not clean the
/// directory up meanwhile. Waits as long as that program does so.
pub fn share(directory: &Path) -> io::Result<DirLock> {
    wait(File::open(directory)?, FlockArg::LockShared)
}

/// Takes an open file's lock (flock(2)), which ends with the process at the latest. Waits as long
/// as another process has it.
pub fn wait_for_file(file: File) -> io::Result<DirLock> {
    wait(file, FlockArg::LockExclusive)
}

fn wait(mut file: File, how: FlockArg) -> io::Result<DirLock> {
    loop {
        match Flock::lock(file, how) {
            Ok(locked) => return Ok(DirLock(locked)),
            Err((back, Errno::EINTR)) => file = back,
            Err((_, errno)) => return Err(errno.into()),
        }
    }
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
        let _shared = [
            share(directory.path()).unwrap(),
            share(directory.path()).unwrap(),
        ];
        assert!(lock(directory.path()).is_err());
    }

    #[test]
    fn file_is_waited_for_until_it_is_unlocked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let held = wait_for_file(File::create(&path).unwrap()).unwrap();
        let (has, waits) = std::sync::mpsc::channel();
        let other = File::open(&path).unwrap();
        let waiter = std::thread::spawn(move || {
            let _locked = wait_for_file(other).unwrap();
            has.send(()).unwrap();
        });
        assert!(waits.try_recv().is_err());
        drop(held);
        waits.recv().unwrap();
        waiter.join().unwrap();
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
        // Other tests fork meanwhile: their children have a copy until they execute a program.
        let _locked = wait_for_file(other).unwrap();
    }
}
