//! What a generation shares with the tasks that serve it: the events that it holds and its
//! processes.

mod claims;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use surus_sys::process;
use surus_sys::scoreboard::{Line, Scoreboard, State, now_micros};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::attention::Attention;
use super::in_flight::{Holder, Key, Reached, Slot, Slots};
use super::master::Spec;
use crate::busy_poll::Spin;
use crate::engine::Report;
use crate::engines::workers::exit_reason;
use crate::engines::workers::exit_reason::Killed;
use crate::engines::workers::ipc::doorbell::Post;
use crate::engines::workers::warm_worker::Finishing;
use crate::event::Failure;
use crate::launcher::{Launcher, Pid, Which};
use crate::observe::metrics::Metrics;
use crate::observe::status::{WorkerState, WorkerStatus};
use prometheus_client::metrics::histogram::Histogram;

/// What a generation shares with the tasks that serve it and with the responses that come from it.
pub struct Shared {
    pub number: u64,
    pub board: Scoreboard,
    pub post: Arc<Post>,
    pub slots: Slots,
    pub attention: Attention,
    pub finishing: Finishing,
    pub spin: Spin,
    pub metrics: Arc<Metrics>,
    pub queue_wait: Histogram,
    pub(crate) engine: &'static str,
    workers: Mutex<Vec<Option<Worker>>>,
    /// How often the worker of each place has shown a ticket.
    spoken: Vec<AtomicU64>,
    /// Each worker boots the application for itself.
    boots_in_workers: bool,
    /// Workers whose outbox is still open.
    pub(crate) alive: AtomicUsize,
    pub(crate) report: OnceLock<Report>,
    /// Told of everything that the template says, and of its end, for who waits for the boot.
    pub news: Notify,
    /// How the first worker ended that never came to wait for events: the others will not fare
    /// better.
    pub(crate) stillborn: OnceLock<String>,
    pub(crate) retire: Notify,
    pub(crate) retiring: AtomicBool,
    pub(crate) renew: Notify,
    /// The workers that the template has ended last so that others take their places; None until it
    /// has said which.
    renewed: Mutex<Option<Vec<u32>>>,
    /// Cancelled when nobody needs the generation any more: all of its processes have to end.
    pub(crate) dropped: CancellationToken,
    /// The places and processes whose outboxes are being read.
    pub(crate) heard: Mutex<Vec<(usize, u32)>>,
    /// A worker has ended because it found the inbox closed, which it may be for all of them.
    pub is_inbox_suspect: AtomicBool,
    pub(crate) is_inbox_closed: AtomicBool,
    /// A worker has shown the ticket of an event that went by the socket; reset at each loss.
    pub is_socket_read: AtomicBool,
    /// Events wait, and no worker takes any.
    pub is_stuck: AtomicBool,
    /// Cancelled when another generation has to take this one's place.
    pub replace: CancellationToken,
    /// Reasons for replacing a worker that the log has.
    pub(crate) said: Mutex<Vec<&'static str>>,
    /// Cancelled when the template is gone.
    pub ended: CancellationToken,
    pub(crate) template: OnceLock<u32>,
    /// How it ended, if that is known.
    pub end: OnceLock<String>,
    /// Who signals the workers, if this process may not.
    pub(crate) launcher: Option<Arc<dyn Launcher>>,
}

pub(crate) struct Worker {
    pub(crate) pid: Arc<Pid>,
    /// Tells the outbox's reader how the worker ended.
    pub(crate) exit: Option<oneshot::Sender<Exit>>,
    /// We have killed it.
    pub(crate) killed: Option<Killed>,
    pub(crate) came: Instant,
    /// It has come to wait for events, so it does not boot any more.
    pub(crate) has_waited: bool,
}

/// How long a worker that is forked booted may take to come to wait for events.
const BEGINS: Duration = Duration::from_secs(1);

/// How a worker ended, and what it held.
#[derive(Debug, Clone, Copy)]
pub struct Exit {
    /// None when the template, which would know, is gone.
    pub wait_status: Option<i32>,
    /// As its line said it.
    pub state: State,
    /// The request that its line named, and the tag of its ticket.
    pub held: Option<(u16, u64)>,
}

impl Shared {
    pub fn new(
        number: u64,
        spec: &Spec,
        board: Scoreboard,
        post: Arc<Post>,
        requests: u16,
        metrics: Arc<Metrics>,
    ) -> Shared {
        metrics.expect_no_end(spec.name, &exit_reason::WRONG);
        Shared {
            number,
            board,
            post,
            slots: Slots::new(requests),
            attention: Attention::default(),
            finishing: Finishing::default(),
            spin: Spin::new(spec.spin),
            queue_wait: metrics.queue_wait(spec.name),
            metrics,
            engine: spec.name,
            workers: Mutex::new((0..spec.workers).map(|_| None).collect()),
            spoken: (0..spec.workers).map(|_| AtomicU64::new(0)).collect(),
            boots_in_workers: spec.boots_in_workers(),
            alive: AtomicUsize::new(0),
            report: OnceLock::new(),
            news: Notify::new(),
            stillborn: OnceLock::new(),
            retire: Notify::new(),
            retiring: AtomicBool::new(false),
            renew: Notify::new(),
            renewed: Mutex::default(),
            dropped: CancellationToken::new(),
            heard: Mutex::default(),
            is_inbox_suspect: AtomicBool::new(false),
            is_inbox_closed: AtomicBool::new(false),
            is_socket_read: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            replace: CancellationToken::new(),
            said: Mutex::default(),
            ended: CancellationToken::new(),
            template: OnceLock::new(),
            end: OnceLock::new(),
            launcher: spec.launch.as_ref().map(|launch| launch.by.clone()),
        }
    }

    /// Lets the workers end when they have emptied the inbox.
    pub fn retire(&self) {
        self.retiring.store(true, Ordering::Release);
        self.retire.notify_one();
    }

    /// Has the template fork all workers anew. Returns when those that there were are gone.
    pub async fn renew(&self) -> anyhow::Result<()> {
        *self.lock_renewed() = None;
        self.renew.notify_one();
        while !self.are_renewed() {
            tokio::select! {
                () = self.news.notified() => {}
                () = self.ended.cancelled() => bail!("the template has ended"),
            }
        }
        // Their numbers may be others' from now on.
        *self.lock_renewed() = None;
        Ok(())
    }

    fn are_renewed(&self) -> bool {
        let standing = self.pids();
        let renewed = self.lock_renewed();
        renewed
            .as_ref()
            .is_some_and(|ended| !ended.iter().any(|pid| standing.contains(pid)))
    }

    /// Has the template ended this worker for that reason?
    pub(crate) fn is_renewed(&self, pid: u32) -> bool {
        let renewed = self.lock_renewed();
        renewed.as_ref().is_some_and(|ended| ended.contains(&pid))
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        let workers = self.lock_workers();
        workers
            .iter()
            .flatten()
            .map(|worker| worker.pid.get())
            .collect()
    }

    pub(crate) fn lock_renewed(&self) -> MutexGuard<'_, Option<Vec<u32>>> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody needs the generation any more: ends its processes, unless they are about to end by
    /// themselves.
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

    pub fn line(&self, worker: usize) -> Line {
        self.board.line(worker)
    }

    pub fn worker_count(&self) -> usize {
        self.lock_workers().len()
    }

    pub fn report(&self) -> Report {
        self.report.get().cloned().unwrap_or_default()
    }

    /// Is no process left?
    pub fn is_over(&self) -> bool {
        self.alive.load(Ordering::Acquire) == 0 && self.is_template_gone()
    }

    /// The template's process, once it has booted and as long as it is there.
    pub fn template(&self) -> Option<u32> {
        let pid = self.template.get().copied();
        pid.filter(|_| self.report.get().is_some() && !self.is_template_gone())
    }

    /// Signals the template, of which [`template`](Self::template) has just given the number.
    pub fn signal_template(&self, pid: u32, which: Which) -> io::Result<()> {
        match (&self.launcher, which) {
            (Some(launcher), _) => {
                launcher.signal(pid, None, which);
                Ok(())
            }
            (None, Which::Resume) => process::resume(pid),
            (None, _) => process::kill(pid),
        }
    }

    pub fn is_template_gone(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Asks a worker to end its event. False when that worker is gone.
    pub fn stop(&self, holder: &Holder, key: Key) -> bool {
        // The line may be its successor's already, whose events have other tickets.
        self.board.stop(holder.worker, key.ticket);
        if let Err(error) = holder.pid.stop() {
            debug!(pid = holder.pid.get(), %error, "cannot signal the worker");
            return false;
        }
        true
    }

    /// Ends a process at once, if it still has this place among the workers.
    pub fn kill(&self, worker: usize, pid: &Arc<Pid>, why: Killed) {
        if let Some(worker) = self.lock_workers().get_mut(worker).and_then(Option::as_mut)
            && Arc::ptr_eq(&worker.pid, pid)
        {
            worker.killed = Some(why);
            if let Err(error) = worker.pid.kill() {
                debug!(pid = worker.pid.get(), %error, "cannot kill the worker");
            }
        }
    }

    /// The process that is this worker at the moment.
    pub fn pid(&self, worker: usize) -> Option<Arc<Pid>> {
        self.lock_workers()
            .get(worker)
            .and_then(Option::as_ref)
            .map(|worker| worker.pid.clone())
    }

    /// Notes which workers have come to wait for events.
    pub fn note_waiting(&self) {
        for (index, worker) in self.lock_workers().iter_mut().enumerate() {
            if let Some(worker) = worker {
                worker.has_waited |= self.line(index).state != State::Starting;
            }
        }
    }

    /// Has this process, which must not be signalled then, not come to wait for events? Its line
    /// says so, and Surus's own memory that it may be true: it has begun lately, and was never seen
    /// to wait.
    pub fn boots(&self, index: usize, boot: Duration) -> bool {
        let limit = if self.boots_in_workers { boot } else { BEGINS };
        let workers = self.lock_workers();
        let worker = workers.get(index).and_then(Option::as_ref);
        worker.is_some_and(|worker| {
            !worker.has_waited
                && worker.came.elapsed() < limit
                && self.line(index).state == State::Starting
        })
    }

    pub(crate) fn lock_workers(&self) -> MutexGuard<'_, Vec<Option<Worker>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the template and all workers gone, nobody will take what is left in the inbox.
    pub fn lose_orphans(&self) {
        if self.is_over() {
            for (request, mut slot) in self.slots.close_all() {
                let failure = Failure::Died("all PHP processes have ended".into());
                let reached = match slot.revoke(&self.board, request) {
                    true => Reached::Nobody,
                    // One of which the template could not tell us any more has claimed it.
                    false => Reached::Php,
                };
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
                let event = line.held().and_then(|held| {
                    let what = |slot: &mut Slot| format!("{} {}", slot.method, slot.uri);
                    self.slots.named(held, what)
                });
                Some(WorkerStatus {
                    pid: pid?,
                    state,
                    for_ms: now.saturating_sub(line.since) / 1000,
                    served: line
                        .taken
                        .saturating_sub(u64::from(line.state.holds_event())),
                    memory: line.memory,
                    event,
                })
            })
            .collect()
    }
}
