//! Takes jobs from their sources and runs them.

mod rest;
mod return_jobs;
mod settle;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use self::return_jobs::Interrupted;
use self::settle::HeldLease;
use crate::engine::Engine;
use crate::fronts::queue::backoff;
use crate::fronts::queue::crash_counts::CrashCounts;
use crate::fronts::queue::format::{self, Jobs, Outcome, Verdict};
use crate::fronts::queue::job::{Disposition, Job, Lease};
use crate::fronts::queue::runner::JobProgram;
use crate::fronts::queue::scheduler::{BegunJob, Isolation, Scheduler, Share};
use crate::fronts::queue::settings::{Queue, Settings};
use crate::fronts::queue::source::Source;
use crate::fronts::records::now;
use crate::fronts::records::suspects::Suspects;
use crate::observe::metrics::Metrics;

/// A queue and its broker.
pub struct Consumer {
    pub queue: Queue,
    /// The name of Laravel's connection.
    pub connection: String,
    pub source: Arc<dyn Source>,
    pub lease: Duration,
    pub runs: JobProgram,
}

impl Consumer {
    /// The group of a job, which its broker or its payload names.
    fn group(&self, job: &Job) -> Option<String> {
        let group = self.source.group(job);
        group.or_else(|| format::group(&self.queue, &job.payload))
    }
}

/// The queues whose jobs the same workers run.
pub struct Front {
    pub workers: usize,
    pub consumers: Vec<Consumer>,
    pub settings: Settings,
    pub metrics: Arc<Metrics>,
    pub suspects: Suspects,
    pub crash_counts: Arc<CrashCounts>,
    /// For each consumer, whether its jobs cannot be settled, which is logged once.
    pub unsettled: Vec<AtomicBool>,
    /// For each consumer, whether it takes no jobs.
    pub paused: watch::Sender<Vec<bool>>,
    /// The consumers whose application runs no jobs at present.
    pub resting: Vec<AtomicBool>,
}

impl Front {
    /// The engine of its workers; None if it runs commands.
    pub fn engine(&self) -> Option<&Arc<dyn Engine>> {
        self.consumers
            .iter()
            .find_map(|consumer| match &consumer.runs {
                JobProgram::Php(runner) => Some(&runner.engine),
                JobProgram::Command(_) => None,
            })
    }
}

/// How long a postponed suspect rests.
const SUSPECT_PAUSE: Duration = Duration::from_secs(60);

type Receiving = Work<(usize, anyhow::Result<Vec<Job>>)>;

type Work<T> = FuturesUnordered<Pin<Box<dyn Future<Output = T> + Send>>>;

struct Ended {
    begun: BegunJob,
    job: Job,
    took: Duration,
    verdict: Verdict,
}

/// The state of a running front end.
struct Drive {
    front: Arc<Front>,
    stop: CancellationToken,
    paused: watch::Receiver<Vec<bool>>,
    /// How many jobs the workers can run at once or soon. None if that is always the same.
    capacity: Option<watch::Receiver<usize>>,
    /// Ends the receiving of each queue while it is paused or all stop.
    stops: Vec<CancellationToken>,
    scheduler: Scheduler<Job>,
    /// The leases of all jobs that this process holds, by queue and job id.
    leases: Vec<HashMap<String, HeldLease>>,
    running: Work<Ended>,
    /// Running jobs by number, for the end of the shutdown timeout.
    begun: HashMap<usize, (usize, Job)>,
    receiving: Receiving,
    is_receiving: Vec<bool>,
    /// Jobs by queue, in order, that go back to their source once nothing is received from it.
    returned: Vec<Vec<Job>>,
    failures: Vec<u32>,
    settling: Work<(usize, Job)>,
    extending: Work<(usize, anyhow::Result<Vec<Lease>>)>,
    is_extending: Vec<bool>,
    /// Jobs of groups that are tried again.
    pausing: Work<(BegunJob, Job, Duration)>,
    /// Asks the applications of resting queues.
    asking: Work<usize>,
    /// For each queue, whether operators have paused it, as it was last logged.
    is_paused: Vec<bool>,
    is_draining: bool,
}

/// Runs jobs until `stop` is cancelled, then finishes the running ones within
/// `work.shutdown_timeout` and returns the others. Afterwards the caller ends PHP's processes and
/// releases what is left.
pub async fn run(front: Arc<Front>, stop: CancellationToken) -> Interrupted {
    Drive::new(front, stop).run().await
}

impl Drive {
    fn new(front: Arc<Front>, stop: CancellationToken) -> Drive {
        let shares = front.consumers.iter().map(|consumer| Share {
            weight: consumer.queue.weight,
            concurrency: consumer.queue.concurrency.unwrap_or(usize::MAX).max(1),
            rate: consumer.queue.rate,
        });
        let count = front.consumers.len();
        Drive {
            scheduler: Scheduler::new(shares, front.workers, front.settings.strict),
            leases: vec![HashMap::new(); count],
            running: Work::new(),
            begun: HashMap::new(),
            receiving: Work::new(),
            is_receiving: vec![false; count],
            returned: vec![Vec::new(); count],
            failures: vec![0; count],
            settling: Work::new(),
            extending: Work::new(),
            is_extending: vec![false; count],
            pausing: Work::new(),
            asking: Work::new(),
            is_paused: vec![false; count],
            is_draining: false,
            paused: front.paused.subscribe(),
            capacity: front.engine().and_then(|engine| engine.capacity()),
            stops: (0..count).map(|_| stop.child_token()).collect(),
            front,
            stop,
        }
    }

    async fn run(mut self) -> Interrupted {
        let stop = self.stop.clone();
        self.pause();
        let shortest = self
            .front
            .consumers
            .iter()
            .map(|consumer| consumer.lease)
            .min();
        let mut extend = tokio::time::interval(shortest.unwrap_or(Duration::from_secs(30)) / 3);
        let mut deadline = None;
        loop {
            if let Some(capacity) = &mut self.capacity {
                let able = *capacity.borrow_and_update();
                self.scheduler.set_workers(able.min(self.front.workers));
            }
            self.begin();
            self.receive();
            let is_over = self.running.is_empty()
                && self.receiving.is_empty()
                && self.settling.is_empty()
                && self.pausing.is_empty();
            if self.is_draining && is_over {
                break;
            }
            let due = self.scheduler.due(now()).filter(|_| !self.is_draining);
            tokio::select! {
                Some((queue, received)) = self.receiving.next() => self.received(queue, received),
                Some(ended) = self.running.next() => self.ended(ended),
                Some((queue, job)) = self.settling.next() => self.settled(queue, &job),
                Some((queue, extended)) = self.extending.next() => self.extended(queue, extended),
                Some((begun, job, left)) = self.pausing.next() => self.resume(begun, job, left),
                Some(queue) = self.asking.next() => self.end_rest(queue),
                _ = extend.tick() => self.extend(),
                // Its sender lives as long as the front end.
                Ok(()) = self.paused.changed() => self.pause(),
                () = changed(&mut self.capacity) => {}
                () = until(due) => {}
                () = stop.cancelled(), if !self.is_draining => {
                    self.drain();
                    let limit = self.front.settings.shutdown_timeout.0;
                    deadline = Some(now() + limit);
                }
                () = until(deadline) => {
                    warn!(
                        jobs = self.running.len(),
                        unsettled = self.settling.len(),
                        "shutdown timeout exceeded (work.shutdown_timeout); jobs are released"
                    );
                    break;
                }
            }
        }
        self.interrupted()
    }

    /// Begins jobs, unless their queue has been paused or all stop. Lost jobs do not begin, because
    /// their broker delivers them again.
    fn begin(&mut self) {
        if self.paused.has_changed().is_ok_and(|changed| changed) {
            self.pause();
        }
        while !self.stop.is_cancelled()
            && let Some((begun, job)) = self.scheduler.next(now())
        {
            if self.is_lost(begun.queue, &job) {
                self.scheduler.skip(begun);
                continue;
            }
            self.begun.insert(begun.id(), (begun.queue, job.clone()));
            self.front
                .metrics
                .jobs
                .started_or_ended(&self.front.consumers[begun.queue].queue.name, 1);
            self.running
                .push(Box::pin(ended(self.front.clone(), begun, job)));
        }
    }

    fn receive(&mut self) {
        for queue in 0..self.front.consumers.len() {
            let room = match self.is_receiving[queue] || self.stops[queue].is_cancelled() {
                true => 0,
                false => self.scheduler.room(queue),
            };
            if room == 0 {
                continue;
            }
            self.receive_from(queue, room);
        }
    }

    /// Asks a source for up to `most` jobs.
    fn receive_from(&mut self, queue: usize, most: usize) {
        self.is_receiving[queue] = true;
        let (front, stop) = (self.front.clone(), self.stops[queue].clone());
        let failures = self.failures[queue];
        self.receiving.push(Box::pin(async move {
            if failures > 0 {
                tokio::select! {
                    () = tokio::time::sleep(backoff::pause(failures)) => {}
                    () = stop.cancelled() => {}
                }
            }
            (
                queue,
                front.consumers[queue].source.receive(most, &stop).await,
            )
        }));
    }

    fn received(&mut self, queue: usize, received: anyhow::Result<Vec<Job>>) {
        self.is_receiving[queue] = false;
        let received = match received {
            Ok(jobs) => {
                if std::mem::take(&mut self.failures[queue]) > 0 {
                    let queue = &self.front.consumers[queue].queue.name;
                    info!(queue, "the broker answers again");
                }
                jobs
            }
            Err(error) => {
                self.failed(queue, "receive", &error);
                Vec::new()
            }
        };
        let mut jobs = std::mem::take(&mut self.returned[queue]);
        jobs.extend(
            received
                .into_iter()
                .filter(|job| self.hold(queue, &job.lease)),
        );
        if self.stops[queue].is_cancelled() {
            self.returned[queue] = jobs;
            self.return_jobs(queue);
            return;
        }
        for job in jobs {
            let consumer = &self.front.consumers[queue];
            let group = consumer.group(&job);
            let isolation = self.isolation(queue, &job);
            if isolation != Isolation::Shared
                && group.is_none()
                && !self.scheduler.has_room_for_suspect(queue)
            {
                self.settle(queue, job, Disposition::Postpone(SUSPECT_PAUSE));
                continue;
            }
            self.scheduler.push(queue, group, job, isolation);
        }
    }

    /// Which jobs may run together with a job, judged by the crashes of its earlier runs.
    fn isolation(&self, queue: usize, job: &Job) -> Isolation {
        let front = &self.front;
        let queue = &front.consumers[queue].queue;
        let is_suspect = || {
            let suspects = &front.suspects;
            !suspects.is_empty() && suspects.is_crash_suspect(&format::name(queue, job))
        };
        match front.crash_counts.suspicion(queue, job) {
            // The next kill is the last, so it must not be the fault of another job.
            Some(crashes) if crashes as usize + 1 >= front.settings.max_losses => Isolation::Alone,
            Some(_) => Isolation::Suspect,
            None if is_suspect() => Isolation::Suspect,
            None => Isolation::Shared,
        }
    }

    /// A broker that cannot be reached is logged once until it answers again.
    fn failed(&mut self, queue: usize, what: &'static str, error: &anyhow::Error) {
        let consumer = &self.front.consumers[queue].queue;
        self.front.metrics.jobs.broker_failed(&consumer.name, what);
        self.failures[queue] += 1;
        if self.failures[queue] == 1 {
            let error = format!("{error:#}");
            warn!(
                queue = consumer.name,
                operation = what,
                error,
                "the broker failed; trying again"
            );
        }
    }

    fn ended(&mut self, ended: Ended) {
        let Ended {
            begun,
            mut job,
            took,
            verdict,
        } = ended;
        let queue = begun.queue;
        self.begun.remove(&begun.id());
        let consumer = &self.front.consumers[queue].queue;
        self.front.metrics.jobs.started_or_ended(&consumer.name, -1);
        let class = format::class(consumer, &job.payload);
        let outcome = verdict.outcome.name();
        let metrics = &self.front.metrics;
        metrics.jobs.ended(&consumer.name, &class, outcome, took);
        let (id, attempts) = (&job.lease.id, job.attempts);
        match &verdict.outcome {
            Outcome::Done | Outcome::Released | Outcome::Refused(_) => {}
            Outcome::Retried(why) => {
                warn!(
                    queue = consumer.name,
                    job = id,
                    attempts,
                    reason = why,
                    "job failed; it will run again"
                );
            }
            Outcome::Failed(why) => {
                error!(
                    queue = consumer.name,
                    job = id,
                    attempts,
                    reason = why,
                    "job failed for good"
                );
            }
            Outcome::Busy(why) => {
                warn!(
                    queue = consumer.name,
                    job = id,
                    reason = why,
                    "job returned to its queue"
                );
            }
        }
        let has_group = self.front.consumers[queue].group(&job).is_some();
        let is_postponed = matches!(verdict.disposition, Disposition::Postpone(_));
        match verdict.disposition {
            // Its group waits for it, so this process keeps it.
            Disposition::Release(pause) | Disposition::Postpone(pause)
                if has_group && !self.stops[queue].is_cancelled() =>
            {
                self.scheduler.paused(&begun, took, now());
                if is_postponed {
                    // The next run counts again.
                    job.attempts = job.attempts.saturating_sub(1);
                }
                let stop = self.stops[queue].clone();
                self.pausing.push(Box::pin(async move {
                    let until = now() + pause;
                    tokio::select! {
                        () = tokio::time::sleep_until(until.into()) => {}
                        () = stop.cancelled() => {}
                    }
                    (begun, job, until.saturating_duration_since(now()))
                }));
            }
            // Only a job that was refused: it has not run.
            Disposition::Return => {
                self.scheduler.refused(begun);
                let wait = match verdict.outcome {
                    Outcome::Refused(wait) => wait,
                    _ => None,
                };
                self.refused(queue, job, wait);
            }
            disposition => {
                self.scheduler.ended(begun, took, now());
                self.settle(queue, job, disposition);
            }
        }
    }
}

/// Waits until an instant; without one, for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns when the workers can run another number of jobs.
async fn changed(capacity: &mut Option<watch::Receiver<usize>>) {
    // Its sender lives as long as the engine.
    if let Some(capacity) = capacity
        && capacity.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

async fn ended(front: Arc<Front>, begun: BegunJob, mut job: Job) -> Ended {
    let began = Instant::now();
    let consumer = &front.consumers[begun.queue];
    let (running, crashes) = front.crash_counts.begin(&consumer.queue, &job);
    let jobs = Jobs {
        crashes,
        runs: &consumer.runs,
        queue: &consumer.queue,
        connection: &consumer.connection,
        suspects: &front.suspects,
        max_losses: front.settings.max_losses,
    };
    let verdict = AssertUnwindSafe(jobs.run(&mut job)).catch_unwind().await;
    let verdict = verdict.unwrap_or_else(|panic| bug(&*panic));
    if matches!(verdict.outcome, Outcome::Refused(_) | Outcome::Busy(_)) {
        running.skip();
    }
    Ended {
        begun,
        job,
        took: began.elapsed(),
        verdict,
    }
}

/// A panic costs one job's run, as a crash of PHP does.
fn bug(panic: &(dyn Any + Send)) -> Verdict {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Verdict {
        disposition: Disposition::Release(Duration::from_secs(60)),
        outcome: Outcome::Retried(format!("a bug in surus: {}", text.unwrap_or_default())),
    }
}
