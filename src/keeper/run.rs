//! The keeper's life: starts the front, answers it, passes signals on, reaps children, and starts
//! another front if one dies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::Context;
use surus_sys::fork::{self, Forked};
use surus_sys::privileges;
use surus_sys::process;
use surus_sys::seqpacket::Seqpacket;
use surus_sys::signals::{self, Signals, Told};
use tracing::{debug, error, warn};

use super::message::{MOST_BYTES, Reply, Request};
use super::processes::Ended;
use super::running::Running;
use super::services::Services;
use super::{Duties, Place};
use crate::observe::rate_limit::Rarely;
use crate::observe::reopen::Logs;

/// PHP may take so long to end when its front has ended.
const LAST: Duration = Duration::from_secs(2);
/// What does not end when it is killed, as in a system call of a file system that hangs, is waited
/// for no longer than this.
const LAST_OF_ALL: Duration = Duration::from_secs(10);
/// The pause between two attempts to kill what does not end.
const AGAIN: Duration = Duration::from_millis(100);
/// A front that ends by itself when its grace period is over may take so long for it.
const RESERVE: Duration = Duration::from_secs(5);
/// A front that is told to end at once may take so long.
const AT_ONCE: Duration = Duration::from_secs(1);
/// A front that has lived so long did not die of its start.
const SETTLED: Duration = Duration::from_secs(60);
/// The pause before the next front.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// In the front's process: what it has from the keeper.
pub struct Front {
    /// The other end is the keeper's.
    pub socket: OwnedFd,
    pub place: Place,
    /// The keeper.
    pub keeper: u32,
    /// Signals that have come since the fork, and wait until this process can take them.
    pub signals: Signals,
}

/// Which process [`Keeper::run`] returns in.
pub enum Outcome {
    /// The front, which has all of the keeper's rights until it gives them up.
    Front(Front),
    /// The keeper, with the status to exit with.
    Ended(u8),
}

pub struct Keeper<D: Duties> {
    services: Services<D>,
    signals: Signals,
    logs: Logs,
    /// An end was asked for, and a front that lives then is killed.
    end: Option<Instant>,
}

impl<D: Duties> Keeper<D> {
    /// Takes the signals. The process must have one thread, and keep one.
    pub fn new(duties: D) -> anyhow::Result<Keeper<D>> {
        Ok(Keeper {
            services: Services::new(duties),
            signals: Signals::take().context("cannot receive signals")?,
            logs: Logs::remember(),
            end: None,
        })
    }

    /// Keeps fronts running until it is told to end, or the first one fails to start.
    pub fn run(mut self) -> anyhow::Result<Outcome> {
        let mut pause = PAUSES.0;
        loop {
            match self.start() {
                Err(error) if self.services.has_served => {
                    error!("cannot start another front: {error:#}");
                }
                Err(error) => return Err(error),
                Ok(Started::Child(place, socket, keeper)) => {
                    return Ok(Outcome::Front(Front {
                        socket,
                        place,
                        keeper,
                        signals: self.signals,
                    }));
                }
                Ok(Started::Parent(pid, socket)) => {
                    privileges::set_name(c"surus keeper");
                    let began = Instant::now();
                    let status = self.keep(pid, socket);
                    if let Some(code) = self.over(status) {
                        return Ok(Outcome::Ended(code));
                    }
                    error!(
                        pid,
                        how = process::describe_exit(status.into_raw()),
                        "the front has died; another one is started"
                    );
                    if began.elapsed() > SETTLED {
                        pause = PAUSES.0;
                    }
                }
            }
            let until = Instant::now() + pause;
            pause = (pause * 2).min(PAUSES.1);
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                signals::wait(&[self.signals.as_fd()], None, Some(left));
                self.hear(None);
                if self.end.is_some() {
                    return Ok(Outcome::Ended(0));
                }
            }
        }
    }

    /// Forks a front, without exec: it needs what the keeper has read and opened, and a front that
    /// replaces a dead one starts even where the program was replaced meanwhile. So it has the
    /// keeper's memory as it was then; see docs/reference/privileges.md.
    fn start(&mut self) -> anyhow::Result<Started> {
        let place = self.services.place()?;
        let (ours, theirs) = Seqpacket::pair().context("cannot make a socket pair")?;
        let keeper = std::process::id();
        match fork::fork().context("cannot fork the front")? {
            Forked::Child => {
                drop(ours);
                fork::close_inherited();
                self.services.leave_places();
                Ok(Started::Child(place, theirs, keeper))
            }
            Forked::Parent(pid) => Ok(Started::Parent(pid, ours)),
        }
    }

    /// The status to exit with, if a front's end is the end of all.
    fn over(&self, status: ExitStatus) -> Option<u8> {
        let is_over = self.end.is_some() || !self.services.has_served;
        is_over.then(|| status_of(status))
    }

    /// Serves a front until it has ended, and ends what it has started.
    fn keep(&mut self, pid: u32, socket: Seqpacket) -> ExitStatus {
        let mut front = Running::new(pid, socket);
        let status = loop {
            let left = |end: Instant| end.saturating_duration_since(Instant::now());
            let out = front.has_waiting().then(|| front.socket.as_fd());
            let all = [self.signals.as_fd(), front.socket.as_fd()];
            let heard = if front.is_heard() { 2 } else { 1 };
            signals::wait(&all[..heard], out, self.end.map(left));
            if let Some(status) = self.hear(Some(&mut front)) {
                break ExitStatus::from_raw(status);
            }
            if self.end.is_some_and(|end| Instant::now() >= end) {
                warn!(
                    pid,
                    "the front does not end (http.shutdown_timeout); it is killed"
                );
                let _ = process::kill(front.pid);
                self.end = Some(Instant::now() + AT_ONCE);
            }
            self.listen(&mut front);
            front.flush();
        };
        debug!(pid, lived = ?front.since.elapsed(), "the front has ended");
        drop(front);
        self.end_all();
        status
    }

    /// Ends the processes that an exited front end has left. Its master processes detect the exit
    /// themselves.
    fn end_all(&mut self) {
        self.services.processes.end_all();
        let until = Instant::now() + LAST;
        while !self.services.processes.is_empty() {
            let now = Instant::now();
            match until.checked_duration_since(now) {
                Some(left) => signals::wait(&[self.signals.as_fd()], None, Some(left)),
                None if now < until + LAST_OF_ALL => {
                    self.services.processes.kill_all();
                    signals::wait(&[self.signals.as_fd()], None, Some(AGAIN));
                }
                None => {
                    error!("processes that the front has started do not end; they are left");
                    break;
                }
            }
            self.hear(None);
        }
        self.services.clear();
    }

    /// Reads the signals that wait. Returns how the front has ended, if it has.
    fn hear(&mut self, mut front: Option<&mut Running>) -> Option<i32> {
        let pid = front.as_ref().map(|front| front.pid);
        let mut has_child_ended = false;
        while let Some(told) = self.signals.read() {
            match told {
                Told::Child => has_child_ended = true,
                Told::End | Told::Drain => {
                    let now = Instant::now();
                    self.end = Some(match self.end {
                        None => now + self.services.grace() + RESERVE,
                        Some(end) => end.min(now + AT_ONCE),
                    });
                    let _ = pid.map(process::terminate);
                }
                Told::Reload => {
                    let _ = pid.map(process::hang_up);
                }
                Told::Reopen => match (self.logs.reopen(), &mut front) {
                    (Ok(fds), Some(front)) => front.send(&Reply::Reopen, fds.into()),
                    (Ok(_), None) => {}
                    (Err(error), _) => warn!(%error, "cannot reopen the logs"),
                },
            }
        }
        if !has_child_ended {
            return None;
        }
        // One signal may stand for many children.
        for ended in self.services.processes.reap() {
            let Ended {
                pid, wait_status, ..
            } = ended;
            self.services.note(ended);
            if let Some(front) = &mut front {
                front.send(&Reply::Exited { pid, wait_status }, Vec::new());
            }
        }
        pid.and_then(fork::reap)
    }

    /// Answers what the front asks.
    fn listen(&mut self, front: &mut Running) {
        let mut buffer = [0; MOST_BYTES + 1];
        // So that signals are heard whatever the front sends.
        for _ in 0..64 {
            if !front.is_heard() {
                return;
            }
            let received = match front.socket.receive(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    debug!(%error, "cannot hear the front");
                    front.is_closed = true;
                    return;
                }
            };
            if received.len == 0 && received.fds.is_empty() {
                // It is about to exit; or it has sent an empty message, which the front end never
                // does, and is ignored from now on.
                front.is_closed = true;
                return;
            }
            let request = Request::decode(&buffer[..received.len]);
            let done = match (request, received.is_whole) {
                (Ok(request), true) => self.services.serve(front, request, received.fds),
                // Descriptors are missing, such as when this process can have no more.
                (Ok(request), false) => {
                    let lost = || anyhow::anyhow!("descriptors of a message are lost");
                    let id = request.id().inspect(|id| front.answer(*id, Err(lost())));
                    id.map(drop).ok_or_else(lost)
                }
                (Err(error), _) => Err(error.into()),
            };
            if let Err(error) = done {
                static SAID: Rarely = Rarely::new();
                if SAID.is_time(Instant::now()) {
                    warn!(
                        front = front.pid,
                        "refused what the front asked for: {error:#}"
                    );
                }
            }
        }
    }
}

/// Which process [`Keeper::start`] returns in.
enum Started {
    Parent(u32, Seqpacket),
    Child(Place, OwnedFd, u32),
}

/// The status to exit with in the place of a process.
pub(super) fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(1)).unwrap_or(1)
}
