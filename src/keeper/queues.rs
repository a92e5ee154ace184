//! The process that runs the queues of a server: the keeper starts it, passes signals on to it, and
//! starts another when it exits. It is independent of the front end.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use surus_sys::{fork, process};
use tracing::{debug, error, warn};

use super::message::KeeperReply;
use super::running::Running;
use super::services::Services;
use crate::observe::rate_limit::LineRate;

use super::{KILL_INTERVAL, KILL_TIMEOUT, PAUSES, PrivilegedOperations, SETTLED};

/// The process, if it runs, and when another starts.
pub(super) struct Queues {
    running: Option<Running>,
    /// Not before.
    due: Instant,
    /// The delay before the one after that.
    pause: Duration,
    /// When it must have exited, once a shutdown was requested.
    end: Option<Instant>,
    /// When it was killed for the first time because it had not.
    killed: Option<Instant>,
}

impl Default for Queues {
    fn default() -> Queues {
        Queues {
            running: None,
            due: Instant::now(),
            pause: PAUSES.0,
            end: None,
            killed: None,
        }
    }
}

impl Queues {
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.pid)
    }

    /// Starts the process if there should be one.
    pub fn start_if_due<D: PrivilegedOperations>(&mut self, services: &mut Services<D>) {
        let is_due = self.running.is_none() && Instant::now() >= self.due;
        if !is_due || services.queues_shutdown_timeout().is_none() {
            return;
        }
        match services.start_queues() {
            Ok((pid, socket)) => {
                debug!(pid, "the process of the queues has started");
                self.running = Some(Running::new(pid, socket));
            }
            Err(error) => {
                let error = format!("{error:#}");
                error!(error, "cannot start the process of the queues");
                self.delay();
            }
        }
    }

    fn delay(&mut self) {
        self.due = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSES.1);
    }

    /// When something has to be done next.
    pub fn next(&self) -> Option<Instant> {
        match self.running {
            Some(_) => self.end,
            None => Some(self.due).filter(|due| *due > Instant::now()),
        }
    }

    /// When the running process must have exited. None if none runs, or if it cannot be killed.
    pub fn end(&self) -> Option<Instant> {
        let is_stuck = self.killed.is_some_and(|at| at.elapsed() > KILL_TIMEOUT);
        let end = self.end.unwrap_or_else(Instant::now);
        self.running.as_ref().filter(|_| !is_stuck).map(|_| end)
    }

    /// Gives a running process this long, and starts no other.
    pub fn end_by(&mut self, at: Instant) {
        self.end = Some(self.end.map_or(at, |end| end.min(at)));
    }

    pub fn kill_if_late(&mut self) {
        let now = Instant::now();
        let (Some(pid), true) = (self.pid(), self.end.is_some_and(|end| now >= end)) else {
            return;
        };
        if self.killed.is_none() {
            warn!(
                pid,
                "the process of the queues did not exit in time (work.shutdown_timeout); it is \
                 killed"
            );
            self.killed = Some(now);
        }
        if let Err(error) = process::kill(pid) {
            error!(pid, %error, "cannot kill the process of the queues");
        }
        self.end = Some(now + KILL_INTERVAL);
    }

    /// Makes the process write its logs to these descriptors.
    pub fn reopen(&mut self, fds: &[OwnedFd; 2]) {
        let Some(running) = &mut self.running else {
            return;
        };
        match fds.each_ref().map(OwnedFd::try_clone) {
            [Ok(out), Ok(err)] => running.send(&KeeperReply::Reopen, vec![out, err]),
            [Err(error), _] | [_, Err(error)] => warn!(%error, "cannot reopen the logs"),
        }
    }

    /// Resumes a process that was stopped: it runs as PHP's user, so a page or a job can do that.
    /// The kernel tells a parent by SIGCHLD (signal(7)). One that a debugger holds is left alone.
    pub fn resume_if_stopped(&self) {
        static REPORTED: LineRate = LineRate::new();
        let stopped = self.pid().filter(|pid| process::state(*pid) == Some('T'));
        let Some(pid) = stopped else { return };
        REPORTED.log(Instant::now(), |left_out| {
            warn!(
                pid,
                left_out, "the process of the queues was stopped (SIGSTOP); resumed"
            );
        });
        if let Err(error) = process::resume(pid) {
            error!(pid, %error, "cannot resume the process of the queues");
        }
    }

    /// Notices that the process has exited.
    pub fn reap(&mut self) {
        let Some(running) = &self.running else { return };
        let Some(wait_status) = fork::reap(running.pid) else {
            return;
        };
        let pid = running.pid;
        if running.since.elapsed() > SETTLED {
            self.pause = PAUSES.0;
        }
        self.running = None;
        let exit = process::describe_exit(wait_status);
        if self.end.is_some() {
            debug!(pid, exit, "the process of the queues has exited");
            return;
        }
        error!(
            pid,
            exit, "the process of the queues exited; starting another"
        );
        self.delay();
    }
}
