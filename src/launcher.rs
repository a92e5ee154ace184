//! Starts and signals PHP processes for a front end that lacks the rights to do so.

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

/// Why an installed PHP is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reports which functions PHP's settings disable (`cli`).
    Probe,
    /// Serves one request (`cgi`, `cli`).
    Request,
    /// Serves many requests (`fpm`, `builtin`).
    Server,
}

/// A signal to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessSignal {
    /// Makes a worker check whether its request must stop.
    Stop,
    /// Stops a process where it is (`SIGSTOP`).
    Suspend,
    /// Continues a stopped process (`SIGCONT`).
    Resume,
    /// `SIGTERM`.
    Terminate,
    /// `SIGKILL`.
    Kill,
    /// `SIGKILL` to a started process and its process group.
    KillGroup,
}

/// The number of descriptors of a master process, in the order of [`Launcher::master`].
pub const MASTER_DESCRIPTORS: usize = 8;

/// A directory that an installed PHP is started with.
#[derive(Debug, Clone)]
pub struct DirHandle {
    pub number: u32,
    pub path: PathBuf,
}

/// The front end's interface to the process that has the rights to start PHP, which has numbered
/// the pools.
pub trait Launcher: fmt::Debug + Send + Sync {
    /// Starts the master process of a pool. The descriptors are: control, inbox, scoreboard,
    /// waiting, rings, doorbell, stdout, stderr.
    fn master(&self, pool: u32, fds: Vec<OwnedFd>) -> Pending<'_, anyhow::Result<Child>>;

    /// Creates the directory that a pool's installed PHP is started with.
    fn runtime_dir(&self, pool: u32) -> Pending<'_, anyhow::Result<DirHandle>>;

    /// Removes such a directory.
    fn close_runtime_dir(&self, number: u32);

    /// Starts an installed PHP. The descriptors are stdin, stdout, stderr, and those of the role.
    /// The launcher keeps the output of a [`Role::Probe`].
    fn php(
        &self,
        runtime_dir: u32,
        role: Role,
        fds: Vec<OwnedFd>,
    ) -> Pending<'_, anyhow::Result<Child>>;

    /// Signals a started process or its child. Does not report whether the process existed.
    fn signal(&self, pid: u32, pidfd: Option<BorrowedFd<'_>>, which: ProcessSignal);

    /// Connects to the php-fpm that the pool's configuration names.
    fn connect(&self, pool: u32) -> Pending<'_, anyhow::Result<OwnedFd>>;
}

/// A launcher and the pool that it is used for.
#[derive(Debug, Clone)]
pub struct Launch {
    pub by: Arc<dyn Launcher>,
    pub pool: u32,
}

/// A PHP process.
#[derive(Debug)]
pub enum Child {
    /// A child of this process.
    Own(Box<tokio::process::Child>),
    /// A child of this process that is only polled for its exit.
    Plain(std::process::Child),
    /// A child of the launcher.
    Launched(LaunchedChild),
}

/// A child of a launcher.
#[derive(Debug)]
pub struct LaunchedChild {
    pub pid: u32,
    pub by: Arc<dyn Launcher>,
    /// The wait status, once the child has exited.
    pub exit: watch::Receiver<Option<i32>>,
}

impl Child {
    /// The process id; 0 if the child has exited.
    pub fn pid(&self) -> u32 {
        match self {
            Child::Own(child) => child.id().unwrap_or(0),
            Child::Plain(child) => child.id(),
            Child::Launched(launched) => launched.pid,
        }
    }

    /// Returns when the child has exited. Cancel-safe.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Child::Own(child) => child.wait().await,
            Child::Plain(child) => child.wait(),
            Child::Launched(launched) => {
                let ended = launched.exit.wait_for(Option::is_some).await;
                let status = ended.ok().and_then(|status| *status);
                let status = status.ok_or(io::ErrorKind::BrokenPipe)?;
                Ok(ExitStatus::from_raw(status))
            }
        }
    }

    /// The exit status, if the child has exited.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Child::Own(child) => child.try_wait(),
            Child::Plain(child) => child.try_wait(),
            Child::Launched(launched) => Ok(launched.exit.borrow().map(ExitStatus::from_raw)),
        }
    }

    /// Kills the child if it still runs.
    pub fn kill(&mut self) {
        if self.has_ended() {
            return;
        }
        match self {
            Child::Own(child) => drop(child.start_kill()),
            Child::Plain(child) => drop(child.kill()),
            Child::Launched(launched) => {
                launched.by.signal(launched.pid, None, ProcessSignal::Kill)
            }
        }
    }

    /// Kills the remaining process group of an exited child. The keeper does this for its own
    /// children.
    pub fn kill_rest(&self, leader: u32) {
        if let Child::Own(_) | Child::Plain(_) = self {
            let _ = process::kill_group(leader);
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.try_wait(), Ok(None))
    }

    /// Sends `SIGTERM` to the child if it still runs.
    pub fn terminate(&mut self) {
        if self.has_ended() {
            return;
        }
        match self {
            Child::Own(child) => {
                let _ = child.id().map(process::terminate);
            }
            Child::Plain(child) => drop(process::terminate(child.id())),
            Child::Launched(launched) => {
                launched
                    .by
                    .signal(launched.pid, None, ProcessSignal::Terminate)
            }
        }
    }

    /// Kills the child and its process group if it still runs.
    pub fn kill_group(&mut self) {
        if self.has_ended() {
            return;
        }
        match self {
            Child::Own(child) => {
                let _ = child.id().map(process::kill_group);
            }
            Child::Plain(child) => drop(process::kill_group(child.id())),
            Child::Launched(launched) => {
                launched
                    .by
                    .signal(launched.pid, None, ProcessSignal::KillGroup)
            }
        }
    }
}

/// A process that a master process started.
#[derive(Debug)]
pub struct Pid {
    process: process::Pid,
    /// `None` if this process may signal it directly.
    by: Option<Arc<dyn Launcher>>,
}

impl Pid {
    pub fn new(pid: u32, pidfd: Option<OwnedFd>, by: Option<Arc<dyn Launcher>>) -> Pid {
        let process = process::Pid::new(pid, pidfd);
        Pid { process, by }
    }

    /// The process id.
    pub fn get(&self) -> u32 {
        self.process.get()
    }

    fn signal(&self, which: ProcessSignal) -> io::Result<()> {
        match (&self.by, which) {
            (Some(_), _) if self.process.has_ended() => Err(io::ErrorKind::NotFound.into()),
            (Some(by), _) => {
                by.signal(self.get(), self.process.pidfd(), which);
                Ok(())
            }
            (None, ProcessSignal::Stop) => self.process.stop(),
            (None, ProcessSignal::Suspend) => self.process.suspend(),
            (None, ProcessSignal::Resume) => self.process.resume(),
            (None, _) => self.process.kill(),
        }
    }

    /// Sends the signal that makes a worker check the `stop` flag in its scoreboard line.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(ProcessSignal::Stop)
    }

    /// Stops the process where it is. It may run on for a moment.
    pub fn suspend(&self) -> io::Result<()> {
        self.signal(ProcessSignal::Suspend)
    }

    /// Continues the process if it was stopped.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(ProcessSignal::Resume)
    }

    /// Kills the process.
    pub fn kill(&self) -> io::Result<()> {
        self.signal(ProcessSignal::Kill)
    }
}
