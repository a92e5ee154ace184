//! Makes stdout and stderr lead to files, opens the access logs of sites, and reopens all of these
//! after a tool such as logrotate has renamed them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use arc_swap::ArcSwapOption;
use surus_sys::{fork, openat2, process};
use tracing::{error, info, warn};

use super::log;

/// The paths and owners of stdout and stderr if they are files, and the files of sites.
#[derive(Debug, Clone)]
pub struct Logs {
    streams: [Option<(PathBuf, u32)>; 2],
    pub sites: SiteLogs,
}

impl Logs {
    /// Reads the paths at start-up, because a renamed file shows its new name.
    pub fn remember(sites: SiteLogs) -> Logs {
        let streams = [1, 2].map(|fd| {
            let name = format!("/proc/self/fd/{fd}");
            let found = std::fs::metadata(&name).ok()?;
            let path = std::fs::read_link(name).ok()?;
            found.is_file().then(|| (path, found.uid()))
        });
        Logs { streams, sites }
    }

    /// Reopens the files for this process. Returns the current stdout and stderr, for another
    /// process.
    pub fn reopen(&self) -> io::Result<[OwnedFd; 2]> {
        let mut opened: [Option<File>; 2] = [None, None];
        let mut has_failed = false;
        for (index, log) in self.streams.iter().enumerate() {
            let Some((path, owner)) = log else { continue };
            // Both streams may share one file.
            if index == 1 && self.streams[0] == *log {
                opened[1] = opened[0].as_ref().map(File::try_clone).transpose()?;
                continue;
            }
            match openat2::append_regular(path, *owner) {
                Ok(file) => opened[index] = Some(file),
                Err(error) => {
                    has_failed = true;
                    warn_of(path, &error);
                }
            }
        }
        for log in self.sites.0.iter() {
            if let Err(error) = log.reopen() {
                has_failed = true;
                warn_of(&log.path, &error);
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

fn warn_of(path: &Path, error: &io::Error) {
    let path = path.display();
    warn!(%path, %error, "cannot reopen the log; its lines go where they went before");
}

/// The access logs of the sites that have a file of their own.
#[derive(Debug, Clone, Default)]
pub struct SiteLogs(Arc<[Arc<SiteLog>]>);

/// The file of a site's access log. Until it can be opened, its lines go to stdout.
#[derive(Debug)]
struct SiteLog {
    site: String,
    path: PathBuf,
    file: ArcSwapOption<File>,
}

impl SiteLogs {
    /// Opens the files of these sites. One that cannot be opened does not stop the others.
    pub fn open(sites: impl Iterator<Item = (String, PathBuf)>) -> SiteLogs {
        let open = |(site, path): (String, PathBuf)| {
            let log = SiteLog {
                site,
                path,
                file: ArcSwapOption::empty(),
            };
            if let Err(error) = log.reopen() {
                let error = format!("{:#}", cannot_open(&log.path, ACCESS_LOG, &error));
                error!(
                    site = log.site,
                    error,
                    "cannot open the access log of a site, whose lines go to the common one; \
                     SIGUSR1 tries again"
                );
            }
            Arc::new(log)
        };
        SiteLogs(sites.map(open).collect())
    }

    /// Writes to the file of a site; None if it has none of its own.
    pub fn writer(&self, site: &str) -> Option<SiteLogWriter> {
        let log = self.0.iter().find(|log| log.site == site);
        log.cloned().map(SiteLogWriter)
    }

    /// The open files by their number, for another process.
    pub fn files(&self) -> impl Iterator<Item = io::Result<(u16, OwnedFd)>> {
        let open = (0..).zip(self.0.iter());
        open.filter_map(|(number, log)| {
            let file = log.file.load_full()?;
            Some(file.try_clone().map(|file| (number, file.into())))
        })
    }

    /// Takes the file with this number of another process.
    pub fn take(&self, number: u16, file: OwnedFd) {
        if let Some(log) = self.0.get(usize::from(number)) {
            log.file.store(Some(Arc::new(file.into())));
        }
    }
}

impl SiteLog {
    fn reopen(&self) -> io::Result<()> {
        let file = openat2::append_regular(&self.path, process::uid())?;
        self.file.store(Some(Arc::new(file)));
        Ok(())
    }
}

/// Writes to the file that is open now.
pub struct SiteLogWriter(Arc<SiteLog>);

impl Write for SiteLogWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match &*self.0.file.load() {
            Some(file) => (&**file).write(text),
            None => io::stdout().write(text),
        }
    }

    /// All of it to the same file.
    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        match &*self.0.file.load() {
            Some(file) => (&**file).write_all(text),
            None => io::stdout().write_all(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.file.load().is_some() {
            true => Ok(()),
            false => io::stdout().flush(),
        }
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

/// Checks that [`lead_to`] and [`SiteLogs`] could open these files. Creates none.
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
