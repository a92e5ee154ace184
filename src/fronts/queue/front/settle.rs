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
    /// The job is done, or goes back: if it is received now, it is another run.
    is_settling: bool,
}

impl Drive {
    /// Notes the lease of a received job. False if this process holds the job already: its
    /// reservation has expired because a clock was set or the broker was away. It is not run a
    /// second time, and is settled with its new lease.
    pub(super) fn hold(&mut self, queue: usize, lease: &Lease) -> bool {
        let consumer = &self.front.consumers[queue];
        let leases = &mut self.leases[queue];
        if let Some(held) = leases.get_mut(&lease.id).filter(|held| !held.is_settling)
            && consumer.source.is_renewed(&held.lease, lease)
        {
            let (queue, job) = (&consumer.queue.name, &lease.id);
            warn!(
                queue,
                job, "the reservation of a job has expired; reserved again, and not run twice"
            );
            held.lease = lease.clone();
            return false;
        }
        let held = HeldLease {
            first: lease.clone(),
            lease: lease.clone(),
            is_settling: false,
        };
        leases.insert(lease.id.clone(), held);
        true
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
            held.is_settling = true;
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

    pub(super) fn extend(&mut self) {
        if !self.extending.is_empty() {
            return;
        }
        for (queue, leases) in self
            .leases
            .iter()
            .enumerate()
            .filter(|(_, all)| !all.is_empty())
        {
            let leases = leases.values().map(|held| held.lease.clone()).collect();
            let front = self.front.clone();
            self.extending.push(Box::pin(async move {
                (queue, front.consumers[queue].source.extend(leases).await)
            }));
        }
    }

    pub(super) fn extended(&mut self, queue: usize, extended: anyhow::Result<Vec<Lease>>) {
        match extended {
            Ok(lost) => {
                for lease in lost {
                    // Settled since, or lost.
                    let held = self.leases[queue].get(&lease.id);
                    if held.is_some_and(|held| held.lease == lease) {
                        self.leases[queue].remove(&lease.id);
                        let (queue, job) = (&self.front.consumers[queue].queue.name, lease.id);
                        warn!(queue, job, "another worker has got this job meanwhile");
                    }
                }
            }
            Err(error) => self.failed(queue, "extend", &error),
        }
    }
}
