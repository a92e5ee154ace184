//! Starts and signals PHP's processes for a front that has no right to do so itself.

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;

use surus_sys::process;
use tokio::sync::watch;

use crate::engine::Pending;

/// What an installed PHP is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// To say which functions its settings disable (`cli`).
    Probe,
    /// One request (`cgi`, `cli`).
    Request,
    /// Many requests (`fpm`, `builtin`).
    Server,
}

/// What a process is signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// To look whether its request is to end.
    Stop,
    /// To go on, where it was stopped (`SIGCONT`).
    Resume,
    /// `SIGTERM`.
    Terminate,
    /// `SIGKILL`.
    Kill,
    /// `SIGKILL` to a process that was started and to its process group.
    KillGroup,
}

/// Descriptors of a master process, in the order in which [`Launcher::master`] takes them.
pub const MASTER_DESCRIPTORS: usize = 8;

/// A directory that PHP is started with.
#[derive(Debug, Clone)]
pub struct Home {
    pub number: u32,
    pub path: PathBuf,
}

/// A process that has the rights which starting PHP takes, as the front sees it. Pools are those of
/// the configuration, by their place.
pub trait Launcher: fmt::Debug + Send + Sync {
    /// Starts the master process of a pool with: control, inbox, scoreboard, waiting, rings,
    /// doorbell, stdout, stderr.
    fn master(&self, pool: u16, fds: Vec<OwnedFd>) -> Pending<'_, anyhow::Result<Child>>;

    /// Makes what an installed PHP of a pool is started with.
    fn home(&self, pool: u16) -> Pending<'_, anyhow::Result<Home>>;

    /// Removes it.
    fn close_home(&self, number: u32);

    /// Starts an installed PHP, with: stdin, stdout, stderr, and the role's other descriptors. The
    /// launcher keeps the output of a [`Role::Probe`].
    fn php(&self, home: u32, role: Role, fds: Vec<OwnedFd>) -> Pending<'_, anyhow::Result<Child>>;

    /// Signals a process that was started, or its child. Does not report whether it existed.
    fn signal(&self, pid: u32, pidfd: Option<BorrowedFd<'_>>, which: Which);

    /// Connects to the php-fpm that a pool has configured.
    fn connect(&self, pool: u16) -> Pending<'_, anyhow::Result<OwnedFd>>;
}

/// A launcher, and the pool that it is asked for.
#[derive(Debug, Clone)]
pub struct Launch {
    pub by: Arc<dyn Launcher>,
    pub pool: u16,
}

/// A process of PHP's.
#[derive(Debug)]
pub enum Child {
    /// A child of this process.
    Own(Box<tokio::process::Child>),
    /// The same, which is only ever asked whether it has ended.
    Plain(std::process::Child),
    /// A child of the launcher.
    Kept(Kept),
}

/// A child of a launcher.
#[derive(Debug)]
pub struct Kept {
    pub pid: u32,
    pub by: Arc<dyn Launcher>,
    /// Its wait status, once it has ended.
    pub exit: watch::Receiver<Option<i32>>,
}

impl Child {
    /// Its number; 0 when it has ended.
    pub fn pid(&self) -> u32 {
        match self {
            Child::Own(child) => child.id().unwrap_or(0),
            Child::Plain(child) => child.id(),
            Child::Kept(kept) => kept.pid,
        }
    }

    /// Returns when it has ended. Cancelling before loses nothing.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Child::Own(child) => child.wait().await,
            Child::Plain(child) => child.wait(),
            Child::Kept(kept) => {
                let ended = kept.exit.wait_for(Option::is_some).await;
                let status = ended.ok().and_then(|status| *status);
                let status = status.ok_or(io::ErrorKind::BrokenPipe)?;
                Ok(ExitStatus::from_raw(status))
            }
        }
    }

    /// How it has ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Child::Own(child) => child.try_wait(),
            Child::Plain(child) => child.try_wait(),
            Child::Kept(kept) => Ok(kept.exit.borrow().map(ExitStatus::from_raw)),
        }
    }

    /// Ends it at once, if it is still there.
    pub fn kill(&mut self) {
        if self.has_ended() {
            return;
        }
        match self {
            Child::Own(child) => drop(child.start_kill()),
            Child::Plain(child) => drop(child.kill()),
            Child::Kept(kept) => kept.by.signal(kept.pid, None, Which::Kill),
        }
    }

    /// Ends what is left of the process group of a child that has ended. The keeper does that for
    /// its own.
    pub fn kill_rest(&self, leader: u32) {
        if let Child::Own(_) | Child::Plain(_) = self {
            let _ = process::kill_group(leader);
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.try_wait(), Ok(None))
    }

    /// Asks it to end, if it is still there.
    pub fn terminate(&mut self) {
        if self.has_ended() {
            return;
        }
        match self {
            Child::Own(child) => {
                let _ = child.id().map(process::terminate);
            }
            Child::Plain(child) => drop(process::terminate(child.id())),
            Child::Kept(kept) => kept.by.signal(kept.pid, None, Which::Terminate),
        }
    }

    /// Ends it and its process group at once, if it is still there.
    pub fn kill_group(&mut self) {
        if self.has_ended() {
            return;
        }
        match self {
            Child::Own(child) => {
                let _ = child.id().map(process::kill_group);
            }
            Child::Plain(child) => drop(process::kill_group(child.id())),
            Child::Kept(kept) => kept.by.signal(kept.pid, None, Which::KillGroup),
        }
    }
}

/// A process that a master process has started.
#[derive(Debug)]
pub struct Pid {
    process: process::Pid,
    /// `None` where this process may signal it.
    by: Option<Arc<dyn Launcher>>,
}

impl Pid {
    pub fn new(pid: u32, pidfd: Option<OwnedFd>, by: Option<Arc<dyn Launcher>>) -> Pid {
        let process = process::Pid::new(pid, pidfd);
        Pid { process, by }
    }

    /// The number.
    pub fn get(&self) -> u32 {
        self.process.get()
    }

    fn signal(&self, which: Which) -> io::Result<()> {
        match (&self.by, which) {
            (Some(_), _) if self.process.has_ended() => Err(io::ErrorKind::NotFound.into()),
            (Some(by), _) => {
                by.signal(self.get(), self.process.pidfd(), which);
                Ok(())
            }
            (None, Which::Stop) => self.process.stop(),
            (None, Which::Resume) => self.process.resume(),
            (None, _) => self.process.kill(),
        }
    }

    /// Sends the signal by which a worker looks at its line's `stop`.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Which::Stop)
    }

    /// Ends the process at once.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Which::Kill)
    }
}
