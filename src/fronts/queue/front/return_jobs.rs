//! Returns jobs to their sources when a queue is paused or all stop.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use tracing::{info, warn};

use super::{Drive, Front, Receiving};
use crate::fronts::queue::job::{Disposition, Job};
use crate::fronts::queue::scheduler::BegunJob;

/// How long requests for jobs may take to end after the grace period.
const RECEIVE: Duration = Duration::from_secs(15);
/// How long a broker may take to take back a job after the grace period.
const SETTLE: Duration = Duration::from_secs(5);
/// How long a broker may take to take the last settlements.
const CLOSE: Duration = Duration::from_secs(5);

/// What was still under way when the grace period was over.
#[must_use]
pub struct Interrupted {
    pub(super) front: Arc<Front>,
    /// Running jobs by queue.
    pub(super) running: Vec<(usize, Job)>,
    /// Jobs by queue, in order, that have not begun.
    pub(super) returned: Vec<Vec<Job>>,
    pub(super) receiving: Receiving,
}

impl Drive {
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        for queue in 0..self.front.consumers.len() {
            self.stop_receiving(queue);
        }
    }

    /// Ends the receiving of a queue that has been stopped. Brokers that push jobs may have
    /// reserved some for this process already, which no request waits for.
    fn stop_receiving(&mut self, queue: usize) {
        if !self.is_receiving[queue] {
            self.receive_from(queue, 0);
        }
        self.return_jobs(queue);
    }

    /// Returns the jobs of a queue that have not begun, the last one first. Those that are still
    /// being received belong behind the others, so all wait for them.
    pub(super) fn return_jobs(&mut self, queue: usize) {
        let cleared = self.scheduler.clear(queue).into_iter().rev();
        self.returned[queue].extend(cleared);
        if self.is_receiving[queue] {
            return;
        }
        let jobs = std::mem::take(&mut self.returned[queue]);
        for job in jobs.into_iter().rev() {
            self.settle(queue, job, Disposition::Return);
        }
    }

    /// Lets a job of a group begin again after its pause, or gives it back if its queue has been
    /// stopped meanwhile.
    pub(super) fn resume(&mut self, begun: BegunJob, mut job: Job, left: Duration) {
        let queue = begun.queue;
        if !self.stops[queue].is_cancelled() {
            job.attempts += 1;
            let isolation = self.isolation(queue, &job);
            self.scheduler.again(begun, job, isolation);
            return;
        }
        self.scheduler.abandon(begun);
        if self.front.consumers[queue].source.group(&job).is_some() {
            // Its broker delivers no other job of the group before.
            self.settle(queue, job, Disposition::Release(left));
            return;
        }
        // Others of its group go back as well and would overtake it during a pause. Its next try
        // has not begun, and does not count.
        job.attempts += 1;
        self.returned[queue].insert(0, job);
        self.return_jobs(queue);
    }

    /// What is still under way, with the leases by which it is held.
    pub(super) fn interrupted(mut self) -> Interrupted {
        let begun = std::mem::take(&mut self.begun);
        let mut running: Vec<_> = begun.into_values().collect();
        let mut returned = std::mem::take(&mut self.returned);
        for (queue, job) in &mut running {
            self.update_lease(*queue, job);
        }
        for (queue, jobs) in returned.iter_mut().enumerate() {
            jobs.iter_mut()
                .for_each(|job| self.update_lease(queue, job));
        }
        Interrupted {
            front: self.front,
            running,
            returned,
            receiving: self.receiving,
        }
    }

    /// Stops or resumes queues as operators have asked, and logs what has changed.
    pub(super) fn pause(&mut self) {
        for queue in self.follow_operators() {
            let name = &self.front.consumers[queue].queue.name;
            match self.is_paused[queue] {
                true => info!(queue = name, "paused"),
                false => info!(queue = name, "resumed"),
            }
        }
    }

    /// Returns the queues that operators have paused or resumed, also those that rest meanwhile.
    pub(super) fn follow_operators(&mut self) -> Vec<usize> {
        let paused = self.paused.borrow_and_update().clone();
        for queue in 0..paused.len() {
            self.stop_or_resume(queue);
        }
        let before = std::mem::replace(&mut self.is_paused, paused);
        let changed = before.iter().zip(&self.is_paused).enumerate();
        let changed = changed.filter(|(_, (before, now))| before != now);
        changed.map(|(queue, _)| queue).collect()
    }

    /// Stops a queue that is paused or rests, and resumes others.
    pub(super) fn stop_or_resume(&mut self, queue: usize) {
        let is_paused = self.paused.borrow()[queue];
        let is_stopped = is_paused || self.front.resting[queue].load(Ordering::Relaxed);
        match (is_stopped, self.stops[queue].is_cancelled()) {
            (true, false) => {
                self.stops[queue].cancel();
                self.stop_receiving(queue);
            }
            (false, true) if !self.stop.is_cancelled() => {
                self.stops[queue] = self.stop.child_token();
            }
            _ => {}
        }
    }
}

impl Interrupted {
    /// Returns the jobs, once PHP no longer runs them. A broker may still reserve jobs for a
    /// request that has not ended, also those that have just been returned.
    pub async fn release(mut self) {
        let received = async {
            while let Some((queue, received)) = self.receiving.next().await {
                self.returned[queue].extend(received.unwrap_or_default());
            }
        };
        let _ = tokio::time::timeout(RECEIVE, received).await;
        let returned = self.returned.into_iter().enumerate();
        let returned = returned.flat_map(|(queue, jobs)| {
            let last_first = jobs.into_iter().rev();
            last_first.map(move |job| (queue, job, Disposition::Return))
        });
        let mut left: Vec<_> = returned.collect();
        let running = self.running.into_iter();
        left.extend(running.map(|(queue, job)| (queue, job, Disposition::Interrupt)));
        let mut hanging = HashSet::new();
        for (queue, job, disposition) in left {
            let id = job.lease.id.clone();
            let settled = self.front.consumers[queue].source.settle(job, disposition);
            // A broker that hangs would take as long for each of its jobs.
            let limit = match hanging.contains(&queue) {
                true => Duration::ZERO,
                false => SETTLE,
            };
            match tokio::time::timeout(limit, settled).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    warn!(
                        job = id,
                        error = format!("{error:#}"),
                        "cannot release a job"
                    );
                }
                Err(_) => {
                    hanging.insert(queue);
                    warn!(job = id, "cannot release a job in time");
                }
            }
        }
        for consumer in &self.front.consumers {
            let _ = tokio::time::timeout(CLOSE, consumer.source.close()).await;
        }
    }
}
