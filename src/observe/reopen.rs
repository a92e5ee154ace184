//! Opens the files again that stdout and stderr were sent to, after a tool such as logrotate has renamed them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use surus_sys::{open, process};
use tracing::{info, warn};

/// Where stdout and stderr lead: where they are files, their paths and owners.
#[derive(Debug, Default, Clone)]
pub struct Logs([Option<(PathBuf, u32)>; 2]);

impl Logs {
    /// Looks now, because a file that has been renamed shows its new name.
    pub fn remember() -> Logs {
        Logs([1, 2].map(|fd| {
            let name = format!("/proc/self/fd/{fd}");
            let found = std::fs::metadata(&name).ok()?;
            let path = std::fs::read_link(name).ok()?;
            found.is_file().then(|| (path, found.uid()))
        }))
    }

    /// Opens them again for this process. Returns stdout and stderr as they are now, for another process.
    pub fn reopen(&self) -> io::Result<[OwnedFd; 2]> {
        let mut opened: [Option<File>; 2] = [None, None];
        let mut has_failed = false;
        for (index, log) in self.0.iter().enumerate() {
            let Some((path, owner)) = log else { continue };
            // One file for both stays one.
            if index == 1 && self.0[0] == *log {
                opened[1] = opened[0].as_ref().map(File::try_clone).transpose()?;
                continue;
            }
            match open::append_regular(path, *owner) {
                Ok(file) => opened[index] = Some(file),
                Err(error) => {
                    has_failed = true;
                    warn!(path = %path.display(), %error, "cannot reopen the log; the old file is still written to");
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

/// Sends stdout and stderr of this process there.
pub fn take(fds: &[OwnedFd; 2]) -> io::Result<()> {
    process::replace_output(fds[0].as_fd(), fds[1].as_fd())
}
