//! A directory that a process holds for as long as it lives, however it ends.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

/// Nobody else can hold the directory as long as this exists, and systemd-tmpfiles(8) leaves it alone, however old it is.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "held until it is dropped")] Flock<File>);

/// Takes the directory's lock (flock(2)), which ends with the process at the latest. Never waits: who else holds it is an error,
/// [`io::ErrorKind::WouldBlock`].
pub fn hold(directory: &Path) -> io::Result<Held> {
    Flock::lock(File::open(directory)?, FlockArg::LockExclusiveNonblock)
        .map(Held)
        .map_err(|(_, errno)| errno.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_a_directory_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let held = hold(directory.path()).unwrap();
        let refused = hold(directory.path()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        hold(directory.path()).unwrap();
    }
}
