//! Settles jobs with their sources (acknowledges or returns them), and extends the leases of those
//! that this process holds.

use std::sync::atomic::Ordering;

use tracing::warn;

use super::Drive;
use crate::fronts::queue::backoff;
use crate::fronts::queue::job::{Disposition, Job, Lease};

/// The lease of a job that this process holds.
#[derive(Clone)]
pub(super) struct HeldLease {
    /// With which the job was received.
    first: Lease,
    /// The present one.
    lease: Lease,
    state: LeaseState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    /// The job waits or runs.
    Held,
    /// The broker has ended the reservation: a job that has not begun does not run.
    Lost,
    /// The job is done or buried, and the broker does not know it yet. If it is received now, it is
    /// another run.
    Ending,
    /// The same for one that goes back: an extension would hide it from its next run.
    Returning,
}

impl Drive {
    /// Notes the lease of a received job. False if this process holds the job already: its
    /// reservation has expired because a clock was set or the broker was away. It is not run a
    /// second time, and is settled with its new lease.
    pub(super) fn hold(&mut self, queue: usize, lease: &Lease) -> bool {
        let consumer = &self.front.consumers[queue];
        let leases = &mut self.leases[queue];
        let is_there =
            |held: &&mut HeldLease| matches!(held.state, LeaseState::Held | LeaseState::Lost);
        if let Some(held) = leases.get_mut(&lease.id).filter(is_there)
            && consumer.source.is_renewed(&held.lease, lease)
        {
            let (queue, job) = (&consumer.queue.name, &lease.id);
            warn!(
                queue,
                job, "the reservation of a job has expired; reserved again, and not run twice"
            );
            held.lease = lease.clone();
            held.state = LeaseState::Held;
            return false;
        }
        let held = HeldLease {
            first: lease.clone(),
            lease: lease.clone(),
            state: LeaseState::Held,
        };
        leases.insert(lease.id.clone(), held);
        true
    }

    /// Whether a job that is about to begin is no longer reserved for this process. Its lease is
    /// forgotten then. A job without a lease is not lost: equal jobs of Laravel share one in Redis.
    pub(super) fn is_lost(&mut self, queue: usize, job: &Job) -> bool {
        let held = self.leases[queue].get(&job.lease.id);
        let held = held.filter(|held| held.first == job.lease);
        let lease = held.map_or(&job.lease, |held| &held.lease);
        let is_lost = held.is_some_and(|held| held.state == LeaseState::Lost)
            || !self.front.consumers[queue].source.is_held(lease);
        if is_lost && held.is_some() {
            self.leases[queue].remove(&job.lease.id);
        }
        is_lost
    }

    /// Gives a job the lease by which this process holds it now.
    pub(super) fn update_lease(&self, queue: usize, job: &mut Job) {
        let held = self.leases[queue].get(&job.lease.id);
        if let Some(held) = held.filter(|held| held.first == job.lease) {
            job.lease = held.lease.clone();
        }
    }

    pub(super) fn settle(&mut self, queue: usize, mut job: Job, disposition: Disposition) {
        self.update_lease(queue, &mut job);
        let held = self.leases[queue].get_mut(&job.lease.id);
        if let Some(held) = held.filter(|held| held.lease == job.lease) {
            held.state = match disposition {
                Disposition::Done | Disposition::Bury(_) => LeaseState::Ending,
                _ => LeaseState::Returning,
            };
        }
        let front = self.front.clone();
        self.settling.push(Box::pin(async move {
            let consumer = &front.consumers[queue];
            let mut failures = 0;
            while let Err(error) = consumer
                .source
                .settle(job.clone(), disposition.clone())
                .await
            {
                front
                    .metrics
                    .jobs
                    .broker_failed(&consumer.queue.name, "settle");
                failures += 1;
                if !front.unsettled[queue].swap(true, Ordering::Relaxed) {
                    let (queue, job) = (&consumer.queue.name, &job.lease.id);
                    let error = format!("{error:#}");
                    warn!(queue, job, error, "cannot settle a job; trying again");
                }
                tokio::time::sleep(backoff::pause(failures)).await;
            }
            front.unsettled[queue].store(false, Ordering::Relaxed);
            (queue, job)
        }));
    }

    pub(super) fn settled(&mut self, queue: usize, job: &Job) {
        let leases = &mut self.leases[queue];
        let held = leases.get(&job.lease.id);
        if held.is_some_and(|held| held.lease == job.lease) {
            leases.remove(&job.lease.id);
        }
    }

    /// Extends the leases of each queue, unless its broker has not answered the last time yet.
    pub(super) fn extend(&mut self) {
        for (queue, leases) in self.leases.iter().enumerate() {
            let is_extended =
                |held: &&HeldLease| matches!(held.state, LeaseState::Held | LeaseState::Ending);
            let leases = leases.values().filter(is_extended);
            let leases: Vec<_> = leases.map(|held| held.lease.clone()).collect();
            if leases.is_empty() || std::mem::replace(&mut self.is_extending[queue], true) {
                continue;
            }
            let front = self.front.clone();
            self.extending.push(Box::pin(async move {
                (queue, front.consumers[queue].source.extend(leases).await)
            }));
        }
    }

    pub(super) fn extended(&mut self, queue: usize, extended: anyhow::Result<Vec<Lease>>) {
        self.is_extending[queue] = false;
        match extended {
            Ok(lost) => {
                for lease in lost {
                    // Otherwise settled or reserved again since.
                    if let Some(held) = self.leases[queue].get_mut(&lease.id)
                        && held.lease == lease
                        && held.state == LeaseState::Held
                    {
                        held.state = LeaseState::Lost;
                        let (queue, job) = (&self.front.consumers[queue].queue.name, lease.id);
                        warn!(
                            queue,
                            job, "the reservation of a job is lost; its broker delivers it again"
                        );
                    }
                }
            }
            Err(error) => self.failed(queue, "extend", &error),
        }
    }
}
