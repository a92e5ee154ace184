//! Makes stdout and stderr lead to files, and reopens these after a tool such as logrotate has
//! renamed them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use surus_sys::{fork, openat2, process};
use tracing::{info, warn};

use super::log;

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

/// Makes stdout and stderr lead to the files of `access_log.file` and `log.file`, relative to the
/// project. Those that are not set stay.
pub fn lead_to(project: &Path, out: Option<&Path>, err: Option<&Path>) -> anyhow::Result<()> {
    let open = |path: Option<&Path>, setting: &str| -> anyhow::Result<Option<(PathBuf, File)>> {
        let Some(path) = path else { return Ok(None) };
        let path = std::path::absolute(project.join(path))?;
        let opened = openat2::append_regular(&path, process::uid());
        let file = opened.map_err(|error| cannot_open(&path, setting, &error))?;
        Ok(Some((path, file)))
    };
    let out = open(out, ACCESS_LOG)?;
    let err = open(err, LOG)?;
    if let Some((path, _)) = &err {
        info!(path = %path.display(), "the log continues in a file");
        log::flush();
        log::copy_failures_to(fork::output(io::stderr().as_fd())?);
    }
    let now = [
        match out {
            Some((_, file)) => file.into(),
            None => io::stdout().as_fd().try_clone_to_owned()?,
        },
        match err {
            Some((_, file)) => file.into(),
            None => io::stderr().as_fd().try_clone_to_owned()?,
        },
    ];
    take(&now).context("cannot replace stdout and stderr")
}

/// Checks that [`lead_to`] could open these files. Creates none.
pub fn check(project: &Path, out: Option<&Path>, err: Option<&Path>) -> anyhow::Result<()> {
    for (path, setting) in [(out, ACCESS_LOG), (err, LOG)] {
        let Some(path) = path else { continue };
        let path = std::path::absolute(project.join(path))?;
        openat2::may_append_regular(&path, process::uid())
            .map_err(|error| cannot_open(&path, setting, &error))?;
    }
    Ok(())
}

const ACCESS_LOG: &str = "access_log.file";
const LOG: &str = "log.file";

fn cannot_open(path: &Path, setting: &str, error: &io::Error) -> anyhow::Error {
    let found = std::fs::symlink_metadata(path);
    let is_others = found.is_ok_and(|found| found.uid() != process::uid());
    let remedy = match is_others {
        true => {
            "`surus serve` and `surus work` that run as different users need a file each, \
             for example by SURUS_LOG_FILE"
        }
        false => "its directory must exist and be writable",
    };
    let path = path.display();
    anyhow::anyhow!("cannot open the file {path} ({setting}): {error}; {remedy}")
}

/// Replaces stdout and stderr of this process.
pub fn take(fds: &[OwnedFd; 2]) -> io::Result<()> {
    process::replace_output(fds[0].as_fd(), fds[1].as_fd())
}
