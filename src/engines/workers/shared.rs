//! What a generation shares with the tasks that serve it: the events that it holds, its processes, and how these end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use surus_sys::process::{self, Pid};
use surus_sys::scoreboard::{Line, Scoreboard, State, now_micros};
use surus_sys::seqpacket::AsyncSeqpacket;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::outbox::Outbox;
use super::slots::{Reached, Refusal, Slot, Slots};
use super::template::{self, Report, Said, Spec, Stuck};
use super::why;
use crate::event::{Failure, Response};
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::observe::status::{WorkerState, WorkerStatus};

/// What a generation shares with the tasks that serve it and with the responses that come from it.
pub struct Shared {
    pub number: u64,
    pub board: Scoreboard,
    pub slots: Slots,
    pub metrics: Arc<Metrics>,
    engine: &'static str,
    workers: Mutex<Vec<Option<Worker>>>,
    /// Workers whose outbox is still open.
    alive: AtomicUsize,
    report: OnceLock<Report>,
    /// Told of everything that the template says, and of its end, for who waits for the boot.
    pub news: Notify,
    /// How the first worker ended that never came to wait for events: the others will not fare better.
    stillborn: OnceLock<String>,
    retire: Notify,
    retiring: AtomicBool,
    /// Cancelled when nobody needs the generation any more: all of its processes have to end.
    dropped: CancellationToken,
    /// A worker has died while it waited at the inbox. It may have received an event of which nobody will hear again: one
    /// that is killed as a message arrives takes it along.
    pub may_miss: AtomicBool,
    /// Reasons for replacing a worker that the log has.
    said: Mutex<Vec<&'static str>>,
    /// Cancelled when the template is gone.
    pub ended: CancellationToken,
}

struct Worker {
    pid: Arc<Pid>,
    /// Tells the outbox's reader how the worker ended.
    exit: Option<oneshot::Sender<Exit>>,
    /// We have killed it.
    killed: bool,
}

/// How a worker ended, and what it held.
#[derive(Debug, Clone, Copy)]
pub struct Exit {
    /// None when the template, which would know, is gone.
    pub wait_status: Option<i32>,
    pub state: State,
    pub request: u16,
    /// Events that it had taken from the inbox.
    pub taken: u64,
}

impl Shared {
    pub fn new(
        number: u64,
        spec: &Spec,
        board: Scoreboard,
        requests: u16,
        metrics: Arc<Metrics>,
    ) -> Shared {
        Shared {
            number,
            board,
            slots: Slots::new(requests),
            metrics,
            engine: spec.name,
            workers: Mutex::new((0..spec.workers).map(|_| None).collect()),
            alive: AtomicUsize::new(0),
            report: OnceLock::new(),
            news: Notify::new(),
            stillborn: OnceLock::new(),
            retire: Notify::new(),
            retiring: AtomicBool::new(false),
            dropped: CancellationToken::new(),
            may_miss: AtomicBool::new(false),
            said: Mutex::default(),
            ended: CancellationToken::new(),
        }
    }

    /// Lets the workers end when they have emptied the inbox.
    pub fn retire(&self) {
        self.retiring.store(true, Ordering::Release);
        self.retire.notify_one();
    }

    /// Nobody needs the generation any more: ends its processes, unless they are about to end by themselves.
    pub fn end_unless_retiring(&self) {
        if !self.retiring.load(Ordering::Acquire) {
            self.dropped.cancel();
        }
    }

    /// What PHP has become, once it has started.
    pub fn reported(&self) -> Option<&Report> {
        self.report.get()
    }

    /// How a worker ended that never waited for an event.
    pub fn stillborn(&self) -> Option<&String> {
        self.stillborn.get()
    }

    /// Has the template told of every worker?
    pub fn are_all_known(&self) -> bool {
        self.lock_workers().iter().all(Option::is_some)
    }

    /// Nobody waits for this event any more: no worker begins it, and one that has begun sees an aborted connection.
    pub fn abandon(&self, request: u16, event: u64) {
        self.slots.with(request, |slot| {
            if slot.event == event {
                slot.answer = None;
                self.board.set_gone(request, true);
            }
        });
    }

    /// Hands the response's head to who waits for it. False when nobody does.
    pub fn answer(&self, request: u16, response: Response) -> bool {
        let waiting = self
            .slots
            .with(request, |slot| slot.answer.take())
            .flatten();
        waiting.is_some_and(|answer| answer.send(Ok(response)).is_ok())
    }

    /// Says that there will be no answer, if somebody waits for it.
    pub fn refuse(&self, request: u16, failure: Failure, reached: Reached) {
        self.slots
            .with(request, |slot| slot.refuse(failure, reached));
    }

    /// Says that there will be no answer, and to a worker that finds the event that nobody waits. For those who do not know
    /// whether the request id is still this event's; None when it is not.
    pub fn give_up<T>(
        &self,
        request: u16,
        event: u64,
        refusal: Refusal,
        change: impl FnOnce(&mut Slot) -> T,
    ) -> Option<T> {
        self.slots
            .with(request, |slot| {
                (slot.event == event).then(|| {
                    self.board.set_gone(request, true);
                    slot.refuse(refusal.failure, refusal.reached);
                    change(slot)
                })
            })
            .flatten()
    }

    /// The event that a worker holds, by its own id.
    fn event_at(&self, worker: usize) -> Option<u64> {
        let line = self.line(worker);
        let holds = line.state.holds_event();
        holds.then(|| self.slots.with(line.request, |slot| slot.event))?
    }

    pub fn line(&self, worker: usize) -> Line {
        self.board.line(worker)
    }

    pub fn worker_count(&self) -> usize {
        self.lock_workers().len()
    }

    pub fn report(&self) -> Report {
        self.report.get().cloned().unwrap_or_default()
    }

    /// Is the template alive, and a worker?
    pub fn usable(&self) -> bool {
        !self.is_template_gone() && self.alive.load(Ordering::Acquire) > 0
    }

    /// Is no process left?
    pub fn is_over(&self) -> bool {
        self.is_template_gone() && self.alive.load(Ordering::Acquire) == 0
    }

    pub fn is_template_gone(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Asks a worker to end its event number `taken`, as its line has just said it. None when that worker is gone.
    pub fn stop(&self, worker: usize, taken: u64) -> Option<Arc<Pid>> {
        let pid = self.pid(worker)?;
        self.board.stop(worker, taken);
        if let Err(error) = pid.stop() {
            // The line may be its successor's already, whose events have numbers of their own.
            self.board.stop(worker, 0);
            debug!(pid = pid.get(), %error, "cannot signal the worker");
            return None;
        }
        Some(pid)
    }

    /// Ends a process at once, if it still has this place among the workers.
    pub fn kill(&self, worker: usize, pid: &Arc<Pid>) {
        if let Some(worker) = self.lock_workers().get_mut(worker).and_then(Option::as_mut)
            && Arc::ptr_eq(&worker.pid, pid)
        {
            worker.killed = true;
            if let Err(error) = worker.pid.kill() {
                debug!(pid = worker.pid.get(), %error, "cannot kill the worker");
            }
        }
    }

    fn pid(&self, worker: usize) -> Option<Arc<Pid>> {
        self.lock_workers()
            .get(worker)
            .and_then(Option::as_ref)
            .map(|worker| worker.pid.clone())
    }

    fn lock_workers(&self) -> std::sync::MutexGuard<'_, Vec<Option<Worker>>> {
        self.workers
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Hears the template until it ends.
    pub async fn listen(self: Arc<Self>, control: AsyncSeqpacket, mut child: std::process::Child) {
        loop {
            let said = tokio::select! {
                said = template::listen(&control) => said,
                () = self.retire.notified() => {
                    // A template that is gone shows in the next word.
                    let _ = control.send(&[std::io::IoSlice::new(b"retire")], None).await;
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
                    taken,
                }) => {
                    let exit = Exit {
                        wait_status: Some(wait_status),
                        state: State::from_number(state),
                        request,
                        taken,
                    };
                    self.dismissed(index, pid, wait_status, exit);
                }
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
        let status = self.reap(&mut child).await;
        self.ended.cancel();
        self.news.notify_one();
        // Nobody will say how the workers end; their readers look for themselves.
        for worker in self.lock_workers().iter_mut().flatten() {
            worker.exit = None;
        }
        if let Some(status) = status
            && !self.retiring.load(Ordering::Acquire)
            && !self.dropped.is_cancelled()
            && self.report.get().is_some()
        {
            use std::os::unix::process::ExitStatusExt;
            error!(how = %process::describe_exit(status.into_raw()), "the template has ended");
        }
        self.lose_orphans();
    }

    /// Waits for the template's end, which is at hand, unless PHP hangs while it starts.
    async fn reap(&self, child: &mut std::process::Child) -> Option<std::process::ExitStatus> {
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
                let _ = child.kill();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// A new worker.
    fn employ(
        self: Arc<Self>,
        index: usize,
        pid: u32,
        outbox: std::os::fd::OwnedFd,
        log: std::os::fd::OwnedFd,
        pidfd: Option<std::os::fd::OwnedFd>,
    ) -> std::io::Result<()> {
        let stream = std::os::unix::net::UnixStream::from(outbox);
        stream.set_nonblocking(true)?;
        let stream = tokio::net::UnixStream::from_std(stream)?;
        let log = tokio::net::unix::pipe::Receiver::from_owned_fd(log)?;
        let (exit, exited) = oneshot::channel();
        let pid = Arc::new(Pid::new(pid, pidfd));
        debug!(pid = pid.get(), "worker started");
        if let Some(place) = self.lock_workers().get_mut(index) {
            *place = Some(Worker {
                pid: pid.clone(),
                exit: Some(exit),
                killed: false,
            });
        }
        self.alive.fetch_add(1, Ordering::AcqRel);
        let written = {
            let shared = self.clone();
            log::follow_worker(log, pid.get(), move || shared.event_at(index))
        };
        tokio::spawn(async move {
            let mut outbox = Outbox::new(self.clone(), stream, index, pid.get(), written);
            let broken = outbox.read().await;
            let exit = exited.await.unwrap_or_else(|_| {
                let line = self.board.line(index);
                Exit {
                    wait_status: None,
                    state: line.state,
                    request: line.request,
                    taken: line.taken,
                }
            });
            outbox.worker_ended(exit, broken).await;
            if self.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.lose_orphans();
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
        let killed = worker.as_ref().is_some_and(|worker| worker.killed);
        let why = why::of(wait_status, killed);
        self.metrics.worker_ended(self.engine, why.label);
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
                warn!(pid, reason = why.label, how = %process::describe_exit(wait_status), "worker died")
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

    /// With the template and all workers gone, nobody will take what is left in the inbox.
    fn lose_orphans(&self) {
        if self.is_template_gone() && self.alive.load(Ordering::Acquire) == 0 {
            // A worker of which the template could not tell us any more may have held one.
            let lines: Vec<_> = (0..self.worker_count()).map(|i| self.line(i)).collect();
            for (request, mut slot) in self.slots.close_all() {
                let failure = Failure::Died("all PHP processes have ended".into());
                let holder = lines
                    .iter()
                    .find(|line| line.request == request && line.state.holds_event());
                let reached = holder.map_or(Reached::Nobody, |line| Reached::with(line.state));
                slot.refuse(failure, reached);
            }
        }
    }

    /// Events that wait in the inbox.
    pub fn waiting(&self) -> usize {
        let held = (0..self.worker_count()).filter(|worker| self.line(*worker).state.holds_event());
        let held = held.count();
        let mut sent = 0;
        self.slots
            .each(|_, slot| sent += usize::from(slot.place.is_some()));
        sent.saturating_sub(held)
    }

    /// What every worker does now.
    pub fn status(&self) -> Vec<WorkerStatus> {
        let pids: Vec<_> = self
            .lock_workers()
            .iter()
            .map(|w| w.as_ref().map(|w| w.pid.get()))
            .collect();
        let now = now_micros();
        pids.into_iter()
            .enumerate()
            .filter_map(|(index, pid)| {
                let line = self.board.line(index);
                let state = match line.state {
                    State::Starting => WorkerState::Starting,
                    State::Idle => WorkerState::Idle,
                    State::Received | State::Running => WorkerState::Busy,
                    State::Finishing => WorkerState::Finishing,
                    State::Retired => return None,
                };
                let event = line.state.holds_event().then(|| {
                    self.slots
                        .with(line.request, |slot| format!("{} {}", slot.method, slot.uri))
                });
                Some(WorkerStatus {
                    pid: pid?,
                    state,
                    for_ms: now.saturating_sub(line.since) / 1000,
                    served: line
                        .taken
                        .saturating_sub(u64::from(line.state.holds_event())),
                    memory: line.memory,
                    event: event.flatten(),
                })
            })
            .collect()
    }
}
