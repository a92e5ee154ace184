//! The state that a generation shares with its tasks: events in flight and processes.

mod claims;
mod status;
mod warm_ups;

#[cfg(test)]
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use surus_sys::process;
use surus_sys::scoreboard::{Scoreboard, State, WorkerLine};
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::backtraces::WorkerMemories;
use super::in_flight::{Holder, InFlightRequests, Key, RequestProgress};
use super::includes::Includes;
use super::master::Spec;
use super::parking::Parking;
use super::revalidation::Revalidation;
use super::scale::Scale;
use crate::busy_poll::PollPolicy;
use crate::engine::Report;
use crate::engines::workers::exit_reason;
use crate::engines::workers::exit_reason::Killed;
use crate::engines::workers::ipc::response_poller::ResponsePoller;
use crate::engines::workers::pool_memory::WorkerSize;
use crate::event::Failure;
use crate::launcher::{Launcher, Pid, ProcessSignal};
use crate::observe::metrics::Metrics;
use crate::observe::php_log::ProcessLog;
use prometheus_client::metrics::histogram::Histogram;

/// The state of a generation, shared with its tasks and with streamed responses.
pub struct GenerationState {
    pub number: u64,
    pub board: Scoreboard,
    pub poller: Arc<ResponsePoller>,
    pub in_flight: InFlightRequests,
    pub parking: Parking,
    pub revalidation: Revalidation,
    pub polling: PollPolicy,
    pub metrics: Arc<Metrics>,
    pub queue_wait: Histogram,
    /// None if no application is booted.
    pub includes: Option<Includes>,
    pub(crate) engine: &'static str,
    /// Decides the number of workers. None if it is fixed.
    pub(super) scale: Option<Arc<Scale>>,
    /// It is the one that new events are sent to.
    pub(super) serves: AtomicBool,
    /// Notified when the master process must be told how many workers there should be.
    pub(super) scaled: Notify,
    /// Notified when the master process must check whether OPcache accepts new files.
    pub(super) opcache_due: Notify,
    workers: Mutex<Vec<Option<Worker>>>,
    /// The workers' memory, with `http.slow_request`.
    pub(super) memories: WorkerMemories,
    /// How often the worker of each slot has shown a ticket.
    tickets_shown: Vec<AtomicU64>,
    /// Whether the worker of each slot has waited for events, since growth has added the slot.
    pub(super) has_slot_begun: Vec<AtomicBool>,
    /// Workers are forked from a booted process.
    boots_in_master: bool,
    /// Each worker boots the application itself.
    boots_in_workers: bool,
    /// Each worker serves one event.
    pub(super) serves_one: bool,
    /// Workers whose response ring and socket are still read.
    pub(crate) alive: AtomicUsize,
    pub(crate) report: OnceLock<Report>,
    /// The learned pages that this boot is asked for, and URLs of `engine.warmup`.
    learned: Vec<String>,
    named: Vec<String>,
    /// Notified of each message from the master process and of its exit, for the caller that waits
    /// for the boot.
    pub changed: Notify,
    /// How the first worker exited that never waited for events; the others would exit the same
    /// way.
    pub(crate) failed_before_ready: OnceLock<String>,
    pub(crate) drain: Notify,
    pub(crate) draining: AtomicBool,
    pub(crate) restart_workers: Notify,
    /// The workers that the master process ended for the last refresh. None until it has said
    /// which.
    restarting: Mutex<Option<Vec<u32>>>,
    /// Cancelled when no caller needs the generation any more: all of its processes must exit.
    pub(crate) dropped: CancellationToken,
    /// The worker slots and processes whose responses are still read.
    pub(crate) readers: Mutex<Vec<(usize, u32)>>,
    /// A worker exited because it found the inbox closed; it may be closed for all of them.
    pub is_inbox_suspect: AtomicBool,
    pub(crate) is_inbox_closed: AtomicBool,
    /// A worker has shown the ticket of an event that was sent by the socket. Reset at each loss.
    pub is_socket_read: AtomicBool,
    /// Events wait, and no worker takes any.
    pub is_stuck: AtomicBool,
    /// The next generation gets the events that wait here.
    pub(crate) hands_over: AtomicBool,
    /// Cancelled when another generation must take this one's place.
    pub replace: CancellationToken,
    /// Reasons for replacing a worker that have been logged.
    pub(crate) logged_reasons: Mutex<Vec<&'static str>>,
    /// What the processes write to stdout and stderr.
    logs: Mutex<Vec<ProcessLog>>,
    /// Cancelled when the master process has exited and the log has what its processes wrote.
    pub ended: CancellationToken,
    pub(crate) master: OnceLock<u32>,
    /// How it exited, if known.
    pub end: OnceLock<String>,
    /// Signals the workers, if this process may not.
    pub(crate) launcher: Option<Arc<dyn Launcher>>,
}

pub(crate) struct Worker {
    pub(crate) pid: Arc<Pid>,
    /// Tells the worker's reader how the worker exited.
    pub(crate) exit: Option<oneshot::Sender<Exit>>,
    /// Surus has killed it.
    pub(crate) killed: Option<Killed>,
    pub(crate) started: Instant,
    /// Surus's sending end of the worker's socket. The worker exits when it is idle and finds it
    /// closed.
    pub(crate) end: Option<OwnedWriteHalf>,
    /// It has waited for events, so it does not boot any more.
    pub(crate) has_waited: bool,
    pub(super) size: WorkerSize,
}

/// How long a worker forked from a booted process may take until it waits for events.
const BEGINS: Duration = Duration::from_secs(1);

/// How a worker exited, and what it held.
#[derive(Debug, Clone, Copy)]
pub struct Exit {
    /// None if the master process, which would know, has exited.
    pub wait_status: Option<i32>,
    /// What its scoreboard line said.
    pub state: State,
    /// The slot and the ticket tag in its scoreboard line.
    pub held: Option<(u16, u64)>,
}

impl GenerationState {
    pub fn new(
        number: u64,
        spec: &Spec,
        board: Scoreboard,
        poller: Arc<ResponsePoller>,
        slots: u16,
        scale: Option<Arc<Scale>>,
        metrics: Arc<Metrics>,
    ) -> GenerationState {
        metrics.expect_no_exit(spec.name, &exit_reason::UNEXPECTED);
        GenerationState {
            number,
            board,
            poller,
            in_flight: InFlightRequests::new(slots),
            parking: Parking::default(),
            revalidation: Revalidation::new(),
            polling: PollPolicy::new(spec.busy_poll),
            queue_wait: metrics.queue_duration(spec.name),
            includes: Includes::new(spec, number, &metrics),
            metrics,
            engine: spec.name,
            scale,
            serves: AtomicBool::new(false),
            scaled: Notify::new(),
            opcache_due: Notify::new(),
            workers: Mutex::new((0..spec.workers).map(|_| None).collect()),
            memories: WorkerMemories::default(),
            tickets_shown: (0..spec.workers).map(|_| AtomicU64::new(0)).collect(),
            has_slot_begun: (0..spec.workers).map(|_| AtomicBool::new(false)).collect(),
            boots_in_master: spec.boots_in_master(),
            boots_in_workers: spec.boots_in_workers(),
            serves_one: spec.serves_one(),
            alive: AtomicUsize::new(0),
            report: OnceLock::new(),
            learned: spec
                .learned
                .as_ref()
                .map(|it| it.pages())
                .unwrap_or_default(),
            named: spec.warmup.clone(),
            changed: Notify::new(),
            failed_before_ready: OnceLock::new(),
            drain: Notify::new(),
            draining: AtomicBool::new(false),
            restart_workers: Notify::new(),
            restarting: Mutex::default(),
            dropped: CancellationToken::new(),
            readers: Mutex::default(),
            is_inbox_suspect: AtomicBool::new(false),
            is_inbox_closed: AtomicBool::new(false),
            is_socket_read: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            hands_over: AtomicBool::new(false),
            replace: CancellationToken::new(),
            logged_reasons: Mutex::default(),
            logs: Mutex::default(),
            ended: CancellationToken::new(),
            master: OnceLock::new(),
            end: OnceLock::new(),
            launcher: spec.launch.as_ref().map(|launch| launch.by.clone()),
        }
    }

    pub(crate) fn add_log(&self, log: ProcessLog) {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|log| !log.has_ended());
        logs.push(log);
    }

    /// Returns when the log has what processes wrote before they exited.
    pub(crate) async fn end_logs(&self) {
        let logs = std::mem::take(&mut *self.logs.lock().unwrap_or_else(PoisonError::into_inner));
        for log in logs {
            log.end().await;
        }
    }

    /// Lets the workers exit once the inbox is empty.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.drain.notify_one();
        self.parking.notify();
    }

    /// Makes the master process replace all workers. Returns when the old ones have exited.
    pub async fn restart_workers(&self) -> anyhow::Result<()> {
        *self.lock_restarting() = None;
        self.restart_workers.notify_one();
        while !self.have_restarted() {
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.ended.cancelled() => bail!("the master process exited"),
            }
        }
        // Their process ids may be reused from now on.
        *self.lock_restarting() = None;
        Ok(())
    }

    fn have_restarted(&self) -> bool {
        let standing = self.pids();
        let restarting = self.lock_restarting();
        restarting
            .as_ref()
            .is_some_and(|ended| !ended.iter().any(|pid| standing.contains(pid)))
    }

    /// Whether the master process ended this worker for a refresh.
    pub(crate) fn is_restarting(&self, pid: u32) -> bool {
        let restarting = self.lock_restarting();
        restarting
            .as_ref()
            .is_some_and(|ended| ended.contains(&pid))
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        let workers = self.lock_workers();
        workers
            .iter()
            .flatten()
            .map(|worker| worker.pid.get())
            .collect()
    }

    pub(crate) fn lock_restarting(&self) -> MutexGuard<'_, Option<Vec<u32>>> {
        self.restarting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Called when no caller needs the generation any more. Ends its processes, unless they are
    /// about to exit anyway.
    pub fn end_unless_draining(&self) {
        if !self.draining.load(Ordering::Acquire) {
            self.dropped.cancel();
        }
    }

    /// PHP's start-up report, once there is one.
    pub fn reported(&self) -> Option<&Report> {
        self.report.get()
    }

    /// How a worker exited that never waited for an event.
    pub fn failed_before_ready(&self) -> Option<&String> {
        self.failed_before_ready.get()
    }

    /// Whether the master process has announced every worker.
    pub fn are_all_known(&self) -> bool {
        let target = self.target();
        self.lock_workers().iter().take(target).all(Option::is_some)
    }

    pub fn line(&self, worker: usize) -> WorkerLine {
        self.board.line(worker)
    }

    pub fn worker_count(&self) -> usize {
        self.lock_workers().len()
    }

    pub fn report(&self) -> Report {
        self.report.get().cloned().unwrap_or_default()
    }

    /// Whether no process is left.
    pub fn is_over(&self) -> bool {
        self.alive.load(Ordering::Acquire) == 0 && self.has_master_exited()
    }

    /// The master process's id, from the end of its boot until it exits.
    pub fn master(&self) -> Option<u32> {
        let pid = self.started_master();
        pid.filter(|_| self.report.get().is_some())
    }

    /// The master process's id, until it exits.
    pub fn started_master(&self) -> Option<u32> {
        let pid = self.master.get().copied();
        pid.filter(|_| !self.has_master_exited())
    }

    /// Signals the master process, whose id `master` or `started_master` has just returned.
    pub fn signal_master(&self, pid: u32, which: ProcessSignal) -> io::Result<()> {
        match (&self.launcher, which) {
            (Some(launcher), _) => {
                launcher.signal(pid, None, which);
                Ok(())
            }
            (None, ProcessSignal::Resume) => process::resume(pid),
            (None, _) => process::kill(pid),
        }
    }

    pub fn has_master_exited(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Asks a worker to end its event. False if that worker has exited.
    pub fn stop(&self, holder: &Holder, key: Key) -> bool {
        // The line may belong to its successor, whose events have other tickets.
        self.board.stop(holder.worker, key.ticket);
        if let Err(error) = holder.pid.stop() {
            debug!(pid = holder.pid.get(), %error, "cannot signal the worker");
            return false;
        }
        true
    }

    /// Kills a process, if it still has this worker slot.
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

    /// The worker's current process.
    pub fn pid(&self, worker: usize) -> Option<Arc<Pid>> {
        self.lock_workers()
            .get(worker)
            .and_then(Option::as_ref)
            .map(|worker| worker.pid.clone())
    }

    /// Records which workers have come to wait for events.
    pub fn record_waiting(&self) {
        for (index, worker) in self.lock_workers().iter_mut().enumerate() {
            if let Some(worker) = worker {
                worker.has_waited |= self.line(index).state != State::Starting;
                if worker.has_waited {
                    self.set_begun(index, true);
                }
            }
        }
    }

    /// Records whether the worker of a slot has ever waited for events.
    pub(super) fn set_begun(&self, slot: usize, has_begun: bool) {
        if let Some(begun) = self.has_slot_begun.get(slot) {
            begun.store(has_begun, Ordering::Relaxed);
        }
    }

    /// Requests may have filled OPcache or asked for its restart.
    pub fn check_opcache(&self) {
        if self.boots_in_master {
            self.opcache_due.notify_one();
        }
    }

    /// Whether this process has not yet waited for events and must therefore not be signalled. Its
    /// line says so, and Surus's own memory confirms that it is possible: the process started
    /// recently and was never seen to wait.
    pub fn boots(&self, index: usize, boot: Duration) -> bool {
        let limit = if self.boots_in_workers { boot } else { BEGINS };
        let workers = self.lock_workers();
        let worker = workers.get(index).and_then(Option::as_ref);
        worker.is_some_and(|worker| {
            !worker.has_waited
                && worker.started.elapsed() < limit
                && self.line(index).state == State::Starting
        })
    }

    pub(crate) fn lock_workers(&self) -> MutexGuard<'_, Vec<Option<Worker>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails the events left in the inbox if the master process and all workers have exited.
    pub fn lose_orphans(&self) {
        if self.is_over() {
            for (request, mut slot) in self.in_flight.close_all() {
                let failure = Failure::WorkerCrashed("all PHP processes have exited".into());
                let progress = match slot.revoke(&self.board, request) {
                    true => RequestProgress::Queued,
                    // A worker has claimed it, but the master process could not report it any more.
                    false => RequestProgress::Started,
                };
                slot.fail(failure, progress);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
impl GenerationState {
    /// One worker slot and two requests, and no process.
    pub fn without_processes(busy_poll: Duration) -> Arc<GenerationState> {
        GenerationState::with_workers(1, busy_poll)
    }

    /// Places for workers and as many requests and one more, and no process.
    pub fn with_workers(workers: usize, busy_poll: Duration) -> Arc<GenerationState> {
        let spec = Spec {
            name: "classic",
            engine: "classic",
            program: "surus-php".into(),
            loader: None,
            workers,
            min_workers: workers,
            first_workers: workers,
            script: None,
            learned: None,
            warmup: Vec::new(),
            reports_leaks: false,
            profile: None,
            shared_sockets: Vec::new(),
            verify_restore: false,
            direct_binding: false,
            traces_slow: false,
            busy_poll,
            max_requests: 0,
            max_memory: 0,
            user: None,
            ini_file: None,
            ini: Vec::new(),
            clear_env: false,
            env: BTreeMap::new(),
            launch: None,
        };
        let slots = workers as u16 + 1;
        let board = Scoreboard::new(workers, slots.into()).unwrap();
        let poller = ResponsePoller::new(workers).unwrap();
        let metrics = Arc::new(Metrics::default());
        let new = GenerationState::new(1, &spec, board, poller, slots, None, metrics);
        Arc::new(new)
    }
}
