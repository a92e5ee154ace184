//! Removes the files of the queues once their process has ended: the admin socket, and the file of
//! crash counts.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use surus_sys::signals::Signals;
use surus_sys::{dir_lock, fork, privileges};

use super::running;
use crate::config::Config;
use crate::fronts::admin;
use crate::fronts::http::{Bound, SocketFile};

/// How often [`CrashCountsFile::open`] tries again while another process removes the file.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// The file of [`CrashCounts`](crate::fronts::queue::crash_counts::CrashCounts), locked for this
/// process. If it is empty at the end, its maker removes it.
pub struct CrashCountsFile {
    pub file: File,
    path: PathBuf,
    maker: u32,
}

impl CrashCountsFile {
    /// Opens the file, before this process gives up root.
    pub fn open(project: &Path, config: &Config) -> anyhow::Result<CrashCountsFile> {
        let (_, name) = running::find_work(project, config);
        let path = admin::private_file(&name, "jobs")?;
        for _ in 0..TRIES {
            if let Some(file) = lock(&path)? {
                let maker = std::process::id();
                return Ok(CrashCountsFile { file, path, maker });
            }
            std::thread::sleep(PAUSE);
        }
        bail!("another surus uses {}", path.display())
    }

    /// The same file for a forked process, which does not remove it.
    pub fn share(&self) -> io::Result<CrashCountsFile> {
        Ok(CrashCountsFile {
            file: self.file.try_clone()?,
            path: self.path.clone(),
            maker: 0,
        })
    }
}

impl Drop for CrashCountsFile {
    fn drop(&mut self) {
        if self.maker == std::process::id() {
            remove_if_empty(&self.file, &self.path);
        }
    }
}

/// Opens and locks a file. None if another process has locked it, or has just removed it.
fn lock(path: &Path) -> anyhow::Result<Option<File>> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let is_locked = dir_lock::lock_file(&file).is_ok() && is_at(&file, path);
    Ok(is_locked.then_some(file))
}

fn is_at(file: &File, path: &Path) -> bool {
    let id = |found: std::fs::Metadata| (found.dev(), found.ino());
    let found = std::fs::symlink_metadata(path).map(id);
    found.is_ok_and(|found| file.metadata().is_ok_and(|file| id(file) == found))
}

/// Removes a locked file.
fn remove_if_empty(file: &File, path: &Path) {
    let is_empty = file.metadata().is_ok_and(|found| found.len() == 0);
    if is_empty && is_at(file, path) {
        let _ = std::fs::remove_file(path);
    }
}

/// Starts a process that stays root, waits for the end of this one, and removes its files. This one
/// gives up root and can remove none then. It must keep the result until its end. Of root's rights,
/// the other process keeps only the right to remove files.
pub fn remove_after(
    admin: &Bound,
    crash_counts: Option<&CrashCountsFile>,
) -> anyhow::Result<UnixStream> {
    let (alive, end) = UnixStream::pair()?;
    let socket = admin.file();
    let directory = socket.and_then(SocketFile::directory);
    let keep: Vec<_> = [end.as_fd()].into_iter().chain(directory).collect();
    let path = crash_counts.map(|kept| kept.path.as_path());
    // Forked twice, so that it is not a child of this process.
    let forked = fork::fork_into(&keep, || {
        let forked = fork::fork_into(&keep, || {
            if privileges::keep_file_removal().is_err() {
                return 1;
            }
            wait_for_end(&end);
            if let Some(socket) = socket {
                socket.remove();
            }
            if let Some(path) = path
                && path.exists()
                && let Ok(Some(file)) = lock(path)
            {
                remove_if_empty(&file, path);
            }
            0
        });
        i32::from(forked.is_err())
    });
    let pid = forked.context("cannot fork the process that removes files at the end")?;
    while fork::reap(pid).is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(alive)
}

/// Returns when the other end of a connection is closed. Signals to all processes of a service, or
/// of a terminal, are for the other process.
fn wait_for_end(mut end: &UnixStream) {
    let _blocked = Signals::take();
    let _ = privileges::leave_terminal();
    privileges::set_name(c"surus cleaner");
    let interrupted =
        |read: io::Result<usize>| read.is_err_and(|error| error.kind() == ErrorKind::Interrupted);
    while interrupted(end.read(&mut [0])) {}
}
