//! What a generation shares with the tasks that serve it: the events that it holds and its processes.

mod listen;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::bail;
use surus_sys::scoreboard::{Line, Scoreboard, State, Took, now_micros};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::finishing::Finishing;
use super::post::Post;
use super::slots::{Reached, Refusal, Slot, Slots};
use super::template::Spec;
use super::why::{self, Killed};
use crate::engine::Report;
use crate::event::{Failure, Response};
use crate::launcher::{Launcher, Pid};
use crate::observe::metrics::Metrics;
use crate::observe::status::{WorkerState, WorkerStatus};
use crate::spin::Spin;
use prometheus_client::metrics::histogram::Histogram;

/// What a generation shares with the tasks that serve it and with the responses that come from it.
pub struct Shared {
    pub number: u64,
    pub board: Scoreboard,
    pub post: Arc<Post>,
    pub slots: Slots,
    pub finishing: Finishing,
    pub spin: Spin,
    pub metrics: Arc<Metrics>,
    pub queue_wait: Histogram,
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
    renew: Notify,
    /// The workers that the template has ended last so that others take their places; None until it has said which.
    renewed: Mutex<Option<Vec<u32>>>,
    /// Cancelled when nobody needs the generation any more: all of its processes have to end.
    dropped: CancellationToken,
    /// A worker has died while it waited at the inbox. It may have received an event of which nobody will hear again: one
    /// that is killed as a message arrives takes it along.
    pub may_miss: AtomicBool,
    /// Reasons for replacing a worker that the log has.
    said: Mutex<Vec<&'static str>>,
    /// Cancelled when the template is gone.
    pub ended: CancellationToken,
    /// How it ended, if that is known.
    pub end: OnceLock<String>,
    /// Who signals the workers, if this process may not.
    launcher: Option<Arc<dyn Launcher>>,
}

struct Worker {
    pid: Arc<Pid>,
    /// Tells the outbox's reader how the worker ended.
    exit: Option<oneshot::Sender<Exit>>,
    /// We have killed it.
    killed: Option<Killed>,
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

impl Exit {
    /// What it had taken as its event `number`.
    pub fn took(&self, number: u64) -> Took {
        match number.cmp(&self.taken) {
            std::cmp::Ordering::Less => Took::LongAgo,
            std::cmp::Ordering::Equal => Took::Request(self.request),
            std::cmp::Ordering::Greater => Took::Nothing,
        }
    }
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
        metrics.expect_no_end(spec.name, &why::WRONG);
        Shared {
            number,
            board,
            post,
            slots: Slots::new(requests),
            finishing: Finishing::default(),
            spin: Spin::new(spec.spin),
            queue_wait: metrics.queue_wait(spec.name),
            metrics,
            engine: spec.name,
            workers: Mutex::new((0..spec.workers).map(|_| None).collect()),
            alive: AtomicUsize::new(0),
            report: OnceLock::new(),
            news: Notify::new(),
            stillborn: OnceLock::new(),
            retire: Notify::new(),
            retiring: AtomicBool::new(false),
            renew: Notify::new(),
            renewed: Mutex::default(),
            dropped: CancellationToken::new(),
            may_miss: AtomicBool::new(false),
            said: Mutex::default(),
            ended: CancellationToken::new(),
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
    fn is_renewed(&self, pid: u32) -> bool {
        let renewed = self.lock_renewed();
        renewed.as_ref().is_some_and(|ended| ended.contains(&pid))
    }

    fn pids(&self) -> Vec<u32> {
        let workers = self.lock_workers();
        workers
            .iter()
            .flatten()
            .map(|worker| worker.pid.get())
            .collect()
    }

    fn lock_renewed(&self) -> MutexGuard<'_, Option<Vec<u32>>> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.event_of(line.state, line.request)
    }

    /// The event of a worker in this state.
    fn event_of(&self, state: State, request: u16) -> Option<u64> {
        let holds = state.holds_event();
        holds.then(|| self.slots.with(request, |slot| slot.event))?
    }

    pub fn line(&self, worker: usize) -> Line {
        self.board.line(worker)
    }

    pub fn is_anyone_idle(&self) -> bool {
        (0..self.worker_count()).any(|worker| self.line(worker).state == State::Idle)
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
        self.alive.load(Ordering::Acquire) == 0 && self.is_template_gone()
    }

    pub fn is_template_gone(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Asks a worker to end its event number `taken`, as its line has just said it. False when that worker is gone.
    pub fn stop(&self, worker: usize, pid: &Pid, taken: u64) -> bool {
        self.board.stop(worker, taken);
        if let Err(error) = pid.stop() {
            // The line may be its successor's already, whose events have numbers of their own.
            self.board.stop(worker, 0);
            debug!(pid = pid.get(), %error, "cannot signal the worker");
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

    fn lock_workers(&self) -> MutexGuard<'_, Vec<Option<Worker>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the template and all workers gone, nobody will take what is left in the inbox.
    pub fn lose_orphans(&self) {
        if self.is_over() {
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
