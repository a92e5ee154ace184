//! What the template tells: workers that come, how they end, and its own end.

use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use surus_sys::process;
use surus_sys::scoreboard::State;
use surus_sys::seqpacket::AsyncSeqpacket;
use tokio::sync::oneshot;
use tracing::{debug, error, info, warn};

use super::state::{Exit, Shared, Worker};
use crate::engines::workers::exit_reason;
use crate::engines::workers::generation::master;
use crate::engines::workers::generation::master::{Said, Stuck};
use crate::engines::workers::ipc::responses::Outbox;
use crate::launcher::{Child, Pid};
use crate::observe::php_log;

impl Shared {
    /// Hears the template until it ends.
    pub async fn listen(self: Arc<Self>, control: AsyncSeqpacket, mut child: Child) {
        let _ = self.template.set(child.pid());
        loop {
            let said = tokio::select! {
                said = master::listen(&control) => said,
                () = self.retire.notified() => {
                    // A template that is gone shows in the next word.
                    let _ = control.send(&[std::io::IoSlice::new(b"retire")], None).await;
                    continue;
                }
                () = self.renew.notified() => {
                    let _ = control.send(&[std::io::IoSlice::new(b"renew")], None).await;
                    continue;
                }
                () = self.dropped.cancelled() => break,
            };
            match said {
                Ok(Said::Ready(report)) => drop(self.report.set(report)),
                Ok(Said::Worker {
                    index,
                    pid,
                    outbox,
                    log,
                    pidfd,
                }) => {
                    if let Err(error) = self.clone().employ(index, pid, outbox, log, pidfd) {
                        error!(pid, %error, "cannot talk to a new worker");
                    }
                }
                Ok(Said::Exited {
                    index,
                    pid,
                    wait_status,
                    state,
                    request,
                    tag,
                }) => {
                    let request = self.board.request_from(request);
                    let exit = Exit {
                        wait_status: Some(wait_status),
                        state: State::from_number(state),
                        held: request.map(|request| (request, tag)),
                    };
                    self.dismissed(index, pid, wait_status, exit);
                }
                Ok(Said::Renewing) => *self.lock_renewed() = Some(self.pids()),
                Ok(Said::OpcacheStuck(why)) => self.opcache_is_stuck(why),
                Ok(Said::End) => break,
                Err(error) => {
                    error!(%error, "the template cannot be understood");
                    break;
                }
            }
            self.news.notify_one();
        }
        // It ends its workers when it sees this.
        drop(control);
        let how = self.reap(&mut child).await.map(|status| {
            use std::os::unix::process::ExitStatusExt;
            let how = process::describe_exit(status.into_raw());
            self.end.get_or_init(|| how)
        });
        self.ended.cancel();
        self.attention.call();
        self.news.notify_one();
        // Nobody will say how the workers end; their readers look for themselves.
        for worker in self.lock_workers().iter_mut().flatten() {
            worker.exit = None;
        }
        if let Some(how) = how
            && !self.retiring.load(Ordering::Acquire)
            && !self.dropped.is_cancelled()
            && self.report.get().is_some()
        {
            error!(how, "the template has ended");
        }
        self.lose_orphans();
    }

    /// Waits for the template's end, which is at hand, unless PHP hangs while it starts.
    async fn reap(&self, child: &mut Child) -> Option<ExitStatus> {
        let until = Instant::now() + Duration::from_secs(1);
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => {}
                Err(_) => return None,
            }
            if Instant::now() > until {
                for worker in self.lock_workers().iter().flatten() {
                    let _ = worker.pid.kill();
                }
                child.kill();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// A new worker.
    fn employ(
        self: Arc<Self>,
        index: usize,
        pid: u32,
        outbox: OwnedFd,
        log: OwnedFd,
        pidfd: Option<OwnedFd>,
    ) -> std::io::Result<()> {
        let stream = std::os::unix::net::UnixStream::from(outbox);
        stream.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(stream)?;
        let log = tokio::net::unix::pipe::Receiver::from_owned_fd(log)?;
        let (exit, exited) = oneshot::channel();
        self.lock_heard().push((index, pid));
        let pid = Arc::new(Pid::new(pid, pidfd, self.launcher.clone()));
        debug!(pid = pid.get(), "worker started");
        if let Some(place) = self.lock_workers().get_mut(index) {
            *place = Some(Worker {
                pid: pid.clone(),
                exit: Some(exit),
                killed: None,
                came: Instant::now(),
                has_waited: false,
            });
        }
        self.alive.fetch_add(1, Ordering::AcqRel);
        self.post.rings.repair(index);
        let written = {
            let shared = self.clone();
            php_log::follow_worker(log, pid.get(), move || shared.event_at(index))
        };
        // Here and not in its task: the tasks of a process that has ended at once and of its
        // successor may begin in any order, and the one who is woken for letters is the last that
        // came.
        let mut outbox = Outbox::new(self.clone(), stream, index, pid, exited, written);
        tokio::spawn(async move {
            outbox.run().await;
            let heard = (index, outbox.pid());
            self.lock_heard().retain(|other| *other != heard);
            if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.lose_orphans();
                self.attention.call();
            }
        });
        Ok(())
    }

    /// A worker has ended.
    fn dismissed(&self, index: usize, pid: u32, wait_status: i32, exit: Exit) {
        let worker = self.lock_workers().get_mut(index).and_then(|place| {
            place
                .as_ref()
                .is_some_and(|worker| worker.pid.get() == pid)
                .then(|| place.take())
                .flatten()
        });
        self.post.rings.forget_spinner(index);
        let killed = worker.as_ref().and_then(|worker| worker.killed);
        let why = match self.is_renewed(pid) {
            true => exit_reason::RENEWED,
            false => exit_reason::of(wait_status, killed),
        };
        self.metrics.worker_ended(self.engine, why.label);
        if why.label == "drained" {
            // Or it said so, or a script has shut the inbox down.
            self.is_inbox_suspect.store(true, Ordering::SeqCst);
            self.attention.call();
        }
        if matches!(exit.state, State::Starting) {
            let _ = self.stillborn.set(process::describe_exit(wait_status));
        }
        // One that is replaced after each of many events would fill the log.
        let said = why.remedy.is_some() && {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            let known = said.contains(&why.label);
            if !known {
                said.push(why.label);
            }
            known
        };
        // Nor does the log need one for each event, where a worker is made for each.
        let is_usual = matches!(why.label, "served" | "drained" | "renewed");
        match why.expected {
            true if said || is_usual => debug!(pid, reason = why.label, "worker ended"),
            true if why.remedy.is_some() => {
                warn!(
                    pid,
                    reason = why.label,
                    remedy = why.remedy,
                    "worker replaced instead of rewound (said once; counted in the metrics)"
                )
            }
            true => info!(pid, reason = why.label, "worker ended"),
            false => {
                let event = exit.held.and_then(|held| self.event_of(exit.state, held));
                let how = process::describe_exit(wait_status);
                warn!(pid, event, reason = why.label, how, "worker died")
            }
        }
        if let Some(hear) = worker.and_then(|worker| worker.exit) {
            let _ = hear.send(exit);
        }
    }

    /// Files that no event has used so far are compiled by every event that uses them, from now on.
    fn opcache_is_stuck(&self, why: Stuck) {
        let (reason, remedy) = match why {
            Stuck::Full => (
                "full",
                "raise opcache.memory_consumption or opcache.max_accelerated_files in [php] and restart Surus; or, if old versions \
                 of files fill it, `surus reload`",
            ),
            Stuck::Restart => (
                "restart",
                "`surus reload`, also in place of what called opcache_reset()",
            ),
        };
        self.metrics.opcache_stuck(self.engine, reason);
        warn!(
            engine = self.engine,
            reason,
            remedy,
            "OPcache takes no new files until a reload; each event compiles those that are missing in it"
        );
    }
}
