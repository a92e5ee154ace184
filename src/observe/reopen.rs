//! Makes stdout and stderr lead to files, and reopens these after a tool such as logrotate has
//! renamed them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use surus_sys::{openat2, process};
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
        let file = open(&path).with_context(|| {
            format!(
                "cannot open the file {} ({setting}); its directory must exist, and its path have \
                 no symbolic link if root starts Surus",
                path.display()
            )
        })?;
        Ok(Some((path, file)))
    };
    let out = open(out, "access_log.file")?;
    let err = open(err, "log.file")?;
    if let Some((path, _)) = &err {
        info!(path = %path.display(), "the log continues in a file");
        log::flush();
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

/// Others may own a directory on the way, so that root follows no symbolic link there.
fn open(path: &Path) -> io::Result<File> {
    let uid = process::uid();
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if uid != 0 => {
            openat2::append_regular(&parent.canonicalize()?.join(name), uid)
        }
        _ => openat2::append_regular(path, uid),
    }
}

/// Replaces stdout and stderr of this process.
pub fn take(fds: &[OwnedFd; 2]) -> io::Result<()> {
    process::replace_output(fds[0].as_fd(), fds[1].as_fd())
}
