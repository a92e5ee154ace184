//! Handles the master process's messages: workers that started or exited, and its own exit.

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

use super::state::{Exit, GenerationState, Worker};
use crate::engines::workers::exit_reason;
use crate::engines::workers::generation::master;
use crate::engines::workers::generation::master::{MasterMessage, OpcacheBlocked};
use crate::engines::workers::ipc::responses::Outbox;
use crate::engines::workers::pool_memory::WorkerSize;
use crate::launcher::{Child, Pid};
use crate::observe::php_log;
use crate::observe::rate_limit::LineRate;

impl GenerationState {
    /// Handles messages until the master process exits.
    pub async fn listen(self: Arc<Self>, control: AsyncSeqpacket, mut child: Child) {
        let _ = self.master.set(child.pid());
        // It starts no worker before it knows how many.
        self.scaled.notify_one();
        loop {
            // A message raises SIGIO in a process that boots the application, which would end its
            // sleep() early. So all but the end wait; none is lost.
            let is_ready = self.report.get().is_some();
            let message = tokio::select! {
                message = master::listen(&control) => message,
                () = self.drain.notified() => {
                    // A failure shows in the next message.
                    let _ = control.send_with(b"drain", &[]).await;
                    continue;
                }
                () = self.restart_workers.notified(), if is_ready => {
                    let _ = control.send_with(b"restart", &[]).await;
                    continue;
                }
                () = self.scaled.notified(), if is_ready => {
                    let target = format!("scale {}", self.target());
                    let _ = control.send_with(target.as_bytes(), &[]).await;
                    // Later: it would replace a worker that exits before it knows the number.
                    self.release_workers();
                    continue;
                }
                () = self.revalidation.due.notified(), if is_ready => {
                    let _ = control.send_with(b"check", &[]).await;
                    continue;
                }
                () = self.opcache_due.notified(), if is_ready => {
                    let _ = control.send_with(b"opcache", &[]).await;
                    continue;
                }
                () = self.dropped.cancelled() => break,
            };
            match message {
                Ok(MasterMessage::Ready(report)) => {
                    self.revalidation.every(report.get("revalidate"));
                    drop(self.report.set(report));
                }
                Ok(MasterMessage::Worker {
                    index,
                    pid,
                    outbox,
                    log,
                    pidfd,
                }) => {
                    if let Err(error) = self.clone().add_worker(index, pid, outbox, log, pidfd) {
                        error!(pid, %error, "cannot connect to a new worker");
                    }
                }
                Ok(MasterMessage::Memory { pid, flag, memory }) => {
                    self.memories.add(pid, memory, flag);
                }
                Ok(MasterMessage::Exited {
                    index,
                    pid,
                    wait_status,
                    state,
                    slot,
                    tag,
                }) => {
                    let slot = self.board.slot_from(slot);
                    let exit = Exit {
                        wait_status: Some(wait_status),
                        state: State::from_number(state),
                        held: slot.map(|slot| (slot, tag)),
                    };
                    self.worker_exited(index, pid, wait_status, exit);
                }
                Ok(MasterMessage::Restarting) => *self.lock_restarting() = Some(self.pids()),
                Ok(MasterMessage::Checked(found)) => self.revalidation.checked(found),
                Ok(MasterMessage::OpcacheBlocked(why)) => self.opcache_is_stuck(why),
                Ok(MasterMessage::End) => break,
                Err(error) => {
                    error!(%error, "the master process sent an invalid message");
                    break;
                }
            }
            self.changed.notify_one();
        }
        // The master process stops its workers when it sees this.
        drop(control);
        let how = self.reap(&mut child).await.map(|status| {
            use std::os::unix::process::ExitStatusExt;
            let how = process::describe_exit(status.into_raw());
            self.end.get_or_init(|| how)
        });
        self.end_logs().await;
        self.ended.cancel();
        self.parking.notify();
        self.changed.notify_one();
        // No message will tell how the workers exit; their readers find out themselves.
        for worker in self.lock_workers().iter_mut().flatten() {
            worker.exit = None;
        }
        if let Some(how) = how
            && !self.draining.load(Ordering::Acquire)
            && !self.dropped.is_cancelled()
            && self.report.get().is_some()
        {
            error!(exit = how, "the master process exited");
        }
        self.lose_orphans();
    }

    /// Waits for the master process, which exits soon unless PHP hangs during start-up.
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

    /// A worker has started.
    fn add_worker(
        self: Arc<Self>,
        index: usize,
        pid: u32,
        outbox: OwnedFd,
        log: OwnedFd,
        pidfd: Option<OwnedFd>,
    ) -> std::io::Result<()> {
        let stream = std::os::unix::net::UnixStream::from(outbox);
        stream.set_nonblocking(true)?;
        let (stream, end) = tokio::net::UnixStream::from_std(stream)?.into_split();
        let log = tokio::net::unix::pipe::Receiver::from_owned_fd(log)?;
        let (exit, exited) = oneshot::channel();
        self.lock_readers().push((index, pid));
        let pid = Arc::new(Pid::new(pid, pidfd, self.launcher.clone()));
        debug!(pid = pid.get(), "worker started");
        if let Some(slot) = self.lock_workers().get_mut(index) {
            *slot = Some(Worker {
                pid: pid.clone(),
                exit: Some(exit),
                killed: None,
                started: Instant::now(),
                end: Some(end),
                has_waited: false,
                size: WorkerSize::default(),
            });
        }
        self.alive.fetch_add(1, Ordering::AcqRel);
        self.poller.rings.repair(index);
        // The pool may have become smaller while the worker was forked.
        self.release_workers();
        let written = {
            let shared = self.clone();
            php_log::follow_worker(log, pid.get(), move || shared.event_at(index))
        };
        self.add_log(written.clone());
        // Created here and not in the task, because the last created reader receives the wake-ups.
        // The tasks of a process that exited at once and of its successor may start in any order.
        let mut outbox = Outbox::new(self.clone(), stream, index, pid, exited, written);
        tokio::spawn(async move {
            outbox.run().await;
            let ended = (index, outbox.pid());
            self.lock_readers().retain(|reader| *reader != ended);
            if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.lose_orphans();
                self.parking.notify();
            }
        });
        Ok(())
    }

    /// A worker has exited.
    fn worker_exited(&self, index: usize, pid: u32, wait_status: i32, exit: Exit) {
        let worker = self.lock_workers().get_mut(index).and_then(|slot| {
            slot.as_ref()
                .is_some_and(|worker| worker.pid.get() == pid)
                .then(|| slot.take())
                .flatten()
        });
        self.memories.remove(pid);
        // Surus may have counted on it for a request, and the doorbell may be its successor's now.
        self.poller.rings.wake(index);
        if self.poller.rings.has_event() {
            self.poller.rings.notify_one();
        }
        let killed = worker.as_ref().and_then(|worker| worker.killed);
        let why = match self.is_restarting(pid) {
            true => exit_reason::RESTARTED,
            false => exit_reason::classify(wait_status, killed),
        };
        self.metrics.worker_exited(self.engine, why.label);
        if why.label == "signal" {
            self.note_kill(wait_status);
        }
        if !matches!(exit.state, State::Starting) {
            self.set_begun(index, true);
        }
        if why.label == "drained" {
            // The worker may say so itself, or a script has shut the inbox down.
            self.is_inbox_suspect.store(true, Ordering::SeqCst);
            self.parking.notify();
        }
        // The boot of the one that takes its place may succeed.
        let is_outdated = why.label == "boot_outdated";
        if matches!(exit.state, State::Starting) && !is_outdated {
            let _ = self
                .failed_before_ready
                .set(process::describe_exit(wait_status));
        }
        // A line per replacement would fill the log.
        let is_logged = why.remedy.is_some() && {
            let mut logged = self
                .logged_reasons
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let known = logged.contains(&why.label);
            if !known {
                logged.push(why.label);
            }
            known
        };
        // So would a line per event where each event has its own worker.
        let is_usual = matches!(
            why.label,
            "single_use" | "drained" | "pcre_refresh" | "scaled_down"
        );
        match why.expected {
            _ if is_logged => debug!(pid, reason = why.label, "worker exited"),
            false if why.remedy.is_some() => {
                warn!(
                    pid,
                    reason = why.label,
                    remedy = why.remedy,
                    "worker replaced (logged once; counted in the metrics)"
                )
            }
            true if is_usual => debug!(pid, reason = why.label, "worker exited"),
            true if why.remedy.is_some() => {
                warn!(
                    pid,
                    reason = why.label,
                    remedy = why.remedy,
                    "worker replaced instead of rewound (logged once; counted in the metrics)"
                )
            }
            true => info!(pid, reason = why.label, "worker exited"),
            false => {
                let event = exit.held.and_then(|held| self.event_of(exit.state, held));
                let exit = process::describe_exit(wait_status);
                static REPORTED: LineRate = LineRate::new();
                REPORTED.log(Instant::now(), |left_out| {
                    warn!(
                        pid,
                        request_id = event,
                        reason = why.label,
                        exit,
                        left_out,
                        "worker crashed"
                    );
                });
            }
        }
        if let Some(reader) = worker.and_then(|worker| worker.exit) {
            let _ = reader.send(exit);
        }
    }

    /// From now on, each request compiles the files that are not in OPcache yet.
    fn opcache_is_stuck(&self, why: OpcacheBlocked) {
        let (reason, remedy) = match why {
            OpcacheBlocked::Full => (
                "full",
                "raise opcache.memory_consumption or opcache.max_accelerated_files in [php] and \
                 restart Surus; or, if old versions of files fill it, `surus reload`",
            ),
            OpcacheBlocked::Restart => (
                "restart",
                "`surus reload`, also in place of what called opcache_reset()",
            ),
        };
        self.metrics.opcache_blocked(self.engine, reason);
        warn!(
            engine = self.engine,
            reason,
            remedy,
            "OPcache takes no new files until a reload; each request compiles those that are \
            missing in it"
        );
    }
}
