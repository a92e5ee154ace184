//! Reopens the files behind stdout and stderr after a tool such as logrotate has renamed them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use surus_sys::{openat2, process};
use tracing::{info, warn};

/// The paths and owners of stdout and stderr if they are files.
#[derive(Debug, Default, Clone)]
pub struct Logs([Option<(PathBuf, u32)>; 2]);

impl Logs {
    /// Reads the paths at start-up, because a renamed file shows its new name.
    pub fn remember() -> Logs {
        Logs([1, 2].map(|fd| {
            let name = format!("/proc/self/fd/{fd}");
            let found = std::fs::metadata(&name).ok()?;
            let path = std::fs::read_link(name).ok()?;
            found.is_file().then(|| (path, found.uid()))
        }))
    }

    /// Reopens the files for this process. Returns the current stdout and stderr, for another
    /// process.
    pub fn reopen(&self) -> io::Result<[OwnedFd; 2]> {
        let mut opened: [Option<File>; 2] = [None, None];
        let mut has_failed = false;
        for (index, log) in self.0.iter().enumerate() {
            let Some((path, owner)) = log else { continue };
            // Both streams may share one file.
            if index == 1 && self.0[0] == *log {
                opened[1] = opened[0].as_ref().map(File::try_clone).transpose()?;
                continue;
            }
            match openat2::append_regular(path, *owner) {
                Ok(file) => opened[index] = Some(file),
                Err(error) => {
                    has_failed = true;
                    let path = path.display();
                    warn!(%path, %error, "cannot reopen the log; still writing to the old file");
                }
            }
        }
        let [out, err] = opened;
        let current = [
            io::stdout().as_fd().try_clone_to_owned()?,
            io::stderr().as_fd().try_clone_to_owned()?,
        ];
        let [out_before, err_before] = current;
        let now = [
            out.map_or(out_before, OwnedFd::from),
            err.map_or(err_before, OwnedFd::from),
        ];
        take(&now)?;
        if !has_failed {
            info!("logs reopened");
        }
        Ok(now)
    }
}

/// Replaces stdout and stderr of this process.
pub fn take(fds: &[OwnedFd; 2]) -> io::Result<()> {
    process::replace_output(fds[0].as_fd(), fds[1].as_fd())
}
