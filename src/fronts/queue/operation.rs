//! Status and pause of running queues, for the admin listener.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::front::Front;
use super::job::Depth;

/// How long a broker may take to count its jobs.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A queue at one instant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueueStatus {
    pub queue: String,
    pub weight: usize,
    pub is_paused: bool,
    /// Its application runs no jobs at present.
    #[serde(default)]
    pub is_resting: bool,
    /// How many of its jobs this process runs.
    pub running: u64,
    /// None if the broker does not answer.
    pub depth: Option<Depth>,
}

impl Front {
    /// The state of its queues, which also sets their metrics.
    pub async fn status(&self) -> Vec<QueueStatus> {
        let counted = self.consumers.iter().map(|consumer| async {
            let counted = tokio::time::timeout(TIMEOUT, consumer.source.depth()).await;
            counted.ok().and_then(Result::ok)
        });
        let counted = join_all(counted).await;
        let paused = self.paused.borrow().clone();
        let states = paused.into_iter().zip(&self.resting);
        let consumers = self.consumers.iter().zip(counted).zip(states);
        let status = consumers.map(|((consumer, depth), (is_paused, is_resting))| {
            let queue = consumer.queue.name.clone();
            let jobs = depth.map(|it| [it.waiting, it.delayed, it.reserved]);
            let oldest = depth.and_then(|it| it.oldest);
            self.metrics.jobs.set_depth(&queue, jobs, oldest);
            QueueStatus {
                running: self.metrics.jobs.running(&queue),
                weight: consumer.queue.weight,
                queue,
                is_paused,
                is_resting: is_resting.load(Ordering::Relaxed),
                depth,
            }
        });
        status.collect()
    }

    /// Pauses or resumes a queue; without a name, all. Returns the names of those that it has
    /// found. A paused queue returns the jobs that have not begun, and takes no others.
    pub fn pause(&self, name: Option<&str>, is_paused: bool) -> Vec<String> {
        let is_meant = |queue: &str| name.is_none_or(|name| name == queue);
        let names = self.consumers.iter().map(|consumer| &consumer.queue.name);
        self.paused.send_modify(|paused| {
            for (consumer, paused) in self.consumers.iter().zip(paused) {
                if is_meant(&consumer.queue.name) {
                    *paused = is_paused;
                }
            }
        });
        names.filter(|name| is_meant(name)).cloned().collect()
    }
}
