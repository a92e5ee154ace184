//! The keeper's main loop: starts the front end, serves its requests, forwards signals, reaps
//! children, and replaces a front end that exits.

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
use surus_sys::signals::{self, SignalAction, Signals};
use surus_sys::socket;
use tracing::{debug, error, warn};

use super::message::{KeeperReply, KeeperRequest, MAX_BYTES};
use super::processes::EndedProcess;
use super::queues::Queues;
use super::running::Running;
use super::services::Services;
use super::{
    KILL_INTERVAL, KILL_TIMEOUT, PAUSES, PrivilegedOperations, SETTLED, ServedDirectories,
};
use crate::observe::rate_limit::RateLimit;
use crate::observe::reopen::{Logs, SiteLogs};
use crate::observe::service_manager::{self, ServiceManager, ServiceState};

/// How long PHP processes may run on after their front end has exited.
const PHP_GRACE: Duration = Duration::from_secs(2);
/// How long a front end may run on after its grace period; it normally exits by itself.
const RESERVE: Duration = Duration::from_secs(5);
/// How long a front end may take to exit immediately.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How often a front end is killed that does not exit.
const MAX_KILLS: u32 = 10;

/// A signal this soon after the first repeats it: timeout(1), npm and foreman pass on what the
/// whole process group has got, such as Ctrl-C.
pub const REPEATED: Duration = Duration::from_secs(1);

/// The wait status of a process that a signal has killed is the signal's number (wait(2)).
const SIGKILL: i32 = 9;

/// What a front end's process receives from the keeper.
pub struct ForkedFrontEnd {
    /// Connected to the keeper.
    pub socket: OwnedFd,
    /// The directories of each site, or why they cannot be opened.
    pub directories: Vec<anyhow::Result<ServedDirectories>>,
    /// The keeper's process id.
    pub keeper: u32,
    /// Signals that arrived since the fork. They stay pending until the front end handles signals.
    pub signals: Signals,
}

/// The process in which [`Keeper::run`] returns.
pub enum KeeperOutcome {
    /// The front end, which has the keeper's rights until it drops them.
    FrontEnd(ForkedFrontEnd),
    /// The keeper, with its exit status.
    Ended(u8),
}

pub struct Keeper<D: PrivilegedOperations> {
    services: Services<D>,
    queues: Queues,
    signals: Signals,
    logs: Logs,
    manager: Option<ServiceManager>,
    /// Set when a shutdown was requested. A front end that still runs at this time is killed.
    end: Option<Instant>,
    /// The time of the first signal that requested the end.
    stop_requested: Option<Instant>,
}

impl<D: PrivilegedOperations> Keeper<D> {
    /// Takes over signal handling, and leaves what a terminal's user types. The process must be
    /// single-threaded and remain so.
    pub fn new(operations: D, logs: SiteLogs) -> anyhow::Result<Keeper<D>> {
        fork::leave_input().context("cannot open /dev/null")?;
        Ok(Keeper {
            services: Services::new(operations),
            queues: Queues::default(),
            signals: Signals::take().context("cannot receive signals")?,
            logs: Logs::remember(logs),
            manager: ServiceManager::find(),
            end: None,
            stop_requested: None,
        })
    }

    /// Keeps a front end running until a shutdown is requested, or the first one fails to start.
    pub fn run(mut self) -> anyhow::Result<KeeperOutcome> {
        let mut pause = PAUSES.0;
        loop {
            match self.start() {
                Err(error) if self.services.has_served => {
                    error!(
                        error = format!("{error:#}"),
                        "cannot start another front end"
                    );
                }
                Err(error) => return Err(error),
                Ok(Started::Child(directories, socket, keeper)) => {
                    return Ok(KeeperOutcome::FrontEnd(ForkedFrontEnd {
                        socket,
                        directories,
                        keeper,
                        signals: self.signals,
                    }));
                }
                Ok(Started::Parent(pid, socket)) => {
                    privileges::set_name(c"surus keeper");
                    let began = Instant::now();
                    let status = self.keep(pid, socket);
                    if let Some(code) = self.over(status) {
                        self.end_queues();
                        return Ok(KeeperOutcome::Ended(code));
                    }
                    error!(
                        pid,
                        exit = process::describe_exit(status.into_raw()),
                        "the front end exited; starting another"
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
                self.handle_signals(None);
                if self.end.is_some() {
                    self.end_queues();
                    return Ok(KeeperOutcome::Ended(0));
                }
            }
        }
    }

    /// Forks a front end without exec, because it needs what the keeper has read and opened. A
    /// replacement therefore starts even if the program file was replaced meanwhile. The front end
    /// starts with a copy of the keeper's memory; see docs/reference/privileges.md.
    fn start(&mut self) -> anyhow::Result<Started> {
        let directories = self.services.all_site_directories()?;
        let (ours, theirs) = Seqpacket::pair().context("cannot make a socket pair")?;
        let keeper = std::process::id();
        match fork::fork().context("cannot fork the front end")? {
            Forked::Child => {
                drop(ours);
                fork::close_inherited();
                self.services.leave_site_directories();
                Ok(Started::Child(directories, theirs, keeper))
            }
            Forked::Parent(pid) => Ok(Started::Parent(pid, ours)),
        }
    }

    /// The exit status, if the keeper must exit with this front end.
    fn over(&self, status: ExitStatus) -> Option<u8> {
        let is_over = self.end.is_some() || !self.services.has_served;
        is_over.then(|| status_of(status))
    }

    /// Serves a front end until it exits, then ends the processes it started.
    fn keep(&mut self, pid: u32, socket: Seqpacket) -> ExitStatus {
        let mut front = Running::new(pid, socket);
        let mut kills = 0;
        let status = loop {
            let left = |end: Instant| end.saturating_duration_since(Instant::now());
            let out = front.has_waiting().then(|| front.socket.as_fd());
            let all = [self.signals.as_fd(), front.socket.as_fd()];
            let watched = if front.is_read() { 2 } else { 1 };
            if self.services.has_served && self.end.is_none() {
                self.queues.start_if_due(&mut self.services);
            }
            let next = [self.end, self.queues.next()].into_iter().flatten().min();
            signals::wait(&all[..watched], out, next.map(left));
            self.queues.kill_if_late();
            if let Some(status) = self.handle_signals(Some(&mut front)) {
                break ExitStatus::from_raw(status);
            }
            if self.end.is_some_and(|end| Instant::now() >= end) {
                warn!(
                    pid,
                    "the front end did not exit in time (http.shutdown_timeout); it is killed"
                );
                if let Err(error) = process::kill(front.pid) {
                    // It ends when its socket is closed.
                    error!(pid, %error, "cannot kill the front end; closing its socket");
                    break ExitStatus::from_raw(SIGKILL);
                }
                kills += 1;
                if kills > 1 {
                    // A script can hold a write to its memory (`backtraces.rs`), and with it the
                    // front end. Its process must end first.
                    self.services.processes.kill_all();
                }
                if kills > MAX_KILLS {
                    error!(
                        pid,
                        "the killed front end does not exit; the keeper stops waiting"
                    );
                    break ExitStatus::from_raw(SIGKILL);
                }
                self.end = Some(Instant::now() + AT_ONCE);
            }
            self.serve_requests(&mut front);
            if std::mem::take(&mut self.services.is_ready) {
                service_manager::tell(&self.manager, ServiceState::Ready);
            }
            front.flush();
        };
        debug!(pid, lived = ?front.since.elapsed(), "the front end has exited");
        drop(front);
        self.end_all();
        status
    }

    /// Ends the processes of an exited front end. Master processes detect the exit themselves.
    fn end_all(&mut self) {
        self.services.processes.end_all();
        let until = Instant::now() + PHP_GRACE;
        while !self.services.processes.is_empty() {
            let now = Instant::now();
            match until.checked_duration_since(now) {
                Some(left) => signals::wait(&[self.signals.as_fd()], None, Some(left)),
                None if now < until + KILL_TIMEOUT => {
                    self.services.processes.kill_all();
                    signals::wait(&[self.signals.as_fd()], None, Some(KILL_INTERVAL));
                }
                None => {
                    error!(
                        "killed processes of the front end did not exit; the keeper stops waiting"
                    );
                    break;
                }
            }
            self.handle_signals(None);
        }
        self.services.clear();
    }

    /// Waits for the process that runs the queues, which has been asked to end.
    fn end_queues(&mut self) {
        while let Some(until) = self.queues.end() {
            let left = until.saturating_duration_since(Instant::now());
            signals::wait(&[self.signals.as_fd()], None, Some(left));
            self.handle_signals(None);
            self.queues.kill_if_late();
        }
    }

    /// Handles pending signals. Returns the front end's wait status if it has exited.
    fn handle_signals(&mut self, mut front: Option<&mut Running>) -> Option<i32> {
        let pid = front.as_ref().map(|front| front.pid);
        let mut has_child_ended = false;
        while let Some(action) = self.signals.read() {
            match action {
                SignalAction::Child => has_child_ended = true,
                SignalAction::End | SignalAction::Drain => {
                    let now = Instant::now();
                    match self.stop_requested {
                        None => {
                            service_manager::tell(&self.manager, ServiceState::Stopping);
                            self.stop_requested = Some(now);
                            let jobs = self.services.queues_shutdown_timeout().unwrap_or_default();
                            self.queues.end_by(now + jobs + RESERVE);
                            self.end = Some(now + self.services.shutdown_timeout() + RESERVE);
                            self.services.stop_listening();
                        }
                        // As in the front end: the same order, passed on by another process.
                        Some(stop_requested) if now - stop_requested < REPEATED => continue,
                        Some(_) => {
                            let at_once = now + AT_ONCE;
                            self.end = Some(self.end.map_or(at_once, |end| end.min(at_once)));
                            self.queues.end_by(at_once);
                        }
                    }
                    signal(self.queues.pid(), process::terminate);
                    signal(pid, process::terminate);
                }
                SignalAction::Reload => {
                    service_manager::tell(&self.manager, ServiceState::Reloading);
                    signal(self.queues.pid(), process::hang_up);
                    signal(pid, process::hang_up);
                }
                SignalAction::Reopen => match self.logs.reopen() {
                    Ok(fds) => {
                        self.queues.reopen(&fds);
                        if let Some(front) = &mut front {
                            front.send(&KeeperReply::Reopen, fds.into());
                            self.logs.sites.files().for_each(|file| match file {
                                Ok((log, file)) => {
                                    front.send(&KeeperReply::ReopenSite { log }, vec![file]);
                                }
                                Err(error) => warn!(%error, "cannot reopen the logs"),
                            });
                        }
                    }
                    Err(error) => warn!(%error, "cannot reopen the logs"),
                },
            }
        }
        if !has_child_ended {
            return None;
        }
        self.queues.reap();
        self.queues.resume_if_stopped();
        self.services.processes.resume_stopped_openers();
        let is_shutdown = self.end.is_some();
        // One SIGCHLD may stand for several children.
        for ended in self.services.processes.reap() {
            let EndedProcess {
                pid, wait_status, ..
            } = ended;
            self.services.note(ended, is_shutdown);
            if let Some(front) = &mut front {
                front.send(&KeeperReply::Exited { pid, wait_status }, Vec::new());
            }
        }
        pid.and_then(fork::reap)
    }

    /// Serves the front end's pending requests.
    fn serve_requests(&mut self, front: &mut Running) {
        let mut buffer = [0; MAX_BYTES + 1];
        // Bounded, so that the front end cannot delay signals.
        for _ in 0..64 {
            if !front.is_read() {
                return;
            }
            let received = match front.socket.receive(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    debug!(%error, "cannot read from the front end");
                    front.is_closed = true;
                    return;
                }
            };
            if received.len == 0 && received.fds.is_empty() {
                // The front end is about to exit. Or it has sent an empty message, which a correct
                // front end never does; it is ignored from now on.
                front.is_closed = true;
                return;
            }
            for fd in &received.fds {
                // Closing a socket must not block.
                socket::set_linger(fd, None);
            }
            let done = match KeeperRequest::decode(&buffer[..received.len]) {
                // Descriptors are missing, for example because this process has reached its limit.
                Ok(request) if !received.is_whole => {
                    refuse(front, &request, "descriptors of a message are lost")
                }
                Ok(request) if !received.fds.is_empty() && !request.carries_descriptors() => {
                    refuse(front, &request, "a message with descriptors that has none")
                }
                Ok(request) => self.services.serve(front, request, received.fds),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = done {
                static REPORTED: RateLimit = RateLimit::new();
                if REPORTED.is_time(Instant::now()) {
                    warn!(
                        pid = front.pid,
                        error = format!("{error:#}"),
                        "rejected a request of the front end"
                    );
                }
            }
        }
    }
}

/// Answers a request with an error, or returns that, if the request has no reply.
fn refuse(front: &mut Running, request: &KeeperRequest, why: &'static str) -> anyhow::Result<()> {
    let error = || anyhow::anyhow!(why);
    let id = request.id().inspect(|id| front.answer(*id, Err(error())));
    id.map(drop).ok_or_else(error)
}

/// Signals the front end or the process of the queues, if one runs.
fn signal(pid: Option<u32>, send: impl FnOnce(u32) -> io::Result<()>) {
    let Some(pid) = pid else { return };
    if let Err(error) = send(pid) {
        error!(pid, %error, "cannot signal a process");
    }
}

/// The process in which [`Keeper::start`] returns.
enum Started {
    Parent(u32, Seqpacket),
    Child(Vec<anyhow::Result<ServedDirectories>>, OwnedFd, u32),
}

/// The exit status that reports another process's exit.
pub(super) fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(1)).unwrap_or(1)
}
