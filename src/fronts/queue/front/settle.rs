//! Settles jobs with their sources, and extends the leases of those that this process holds.

use std::sync::atomic::Ordering;

use tracing::warn;

use super::Drive;
use crate::fronts::queue::backoff;
use crate::fronts::queue::job::{Disposition, Job, Lease};

impl Drive {
    pub(super) fn settle(&mut self, queue: usize, job: Job, disposition: Disposition) {
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
        if leases.get(&job.lease.id) == Some(&job.lease) {
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
            let leases = leases.values().cloned().collect();
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
                    if self.leases[queue].get(&lease.id) == Some(&lease) {
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
