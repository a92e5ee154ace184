//! Rests a queue while its application runs no jobs of it. Laravel runs none in maintenance mode,
//! after `queue:pause`, or because of a listener of `Looping`; Messenger, if a rate limiter waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tracing::{debug, info};

use super::{Drive, Front};
use crate::fronts::queue::job::Job;
use crate::fronts::queue::runner::{JobAnswer, JobProgram};
use crate::fronts::queue::settings::Format;

/// How long a queue rests before the application is asked again: as long as `queue:work` sleeps.
const REST: Duration = Duration::from_secs(3);
/// The first rest after the wait of a rate limiter: most limiters round it down to a second.
const AFTER_WAIT: Duration = Duration::from_millis(250);
/// How long PHP may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Drive {
    /// Returns a job that its application has refused, and rests the queue for a rate limiter's
    /// wait. Brokers such as SQS count each return as a delivery. So the application is asked, and
    /// no job tries it out.
    pub(super) fn refused(&mut self, queue: usize, job: Job, wait: Option<Duration>) {
        self.returned[queue].push(job);
        if !self.front.resting[queue].swap(true, Ordering::Relaxed) {
            let name = &self.front.consumers[queue].queue.name;
            if self.has_limiter(queue) {
                debug!(
                    queue = name,
                    seconds = wait.unwrap_or(REST).as_secs_f64(),
                    "the transport's rate limiter refuses messages"
                );
            } else {
                info!(
                    queue = name,
                    "the application runs no jobs at present: maintenance mode, queue:pause, \
                     Looping, or a cache that fails, which Laravel reports"
                );
            }
            let asked = until_it_runs_jobs(self.front.clone(), queue, wait);
            self.asking.push(Box::pin(asked));
        }
        self.stop_or_resume(queue);
        // A queue that has been stopped before.
        self.return_jobs(queue);
    }

    /// Receives jobs again, unless the queue is paused.
    pub(super) fn end_rest(&mut self, queue: usize) {
        self.front.resting[queue].store(false, Ordering::Relaxed);
        let name = &self.front.consumers[queue].queue.name;
        if self.has_limiter(queue) {
            debug!(
                queue = name,
                "the transport's rate limiter lets messages run"
            );
        } else {
            info!(queue = name, "the application runs jobs again");
        }
        self.stop_or_resume(queue);
    }

    /// Whether a rate limiter rests the queue, which may be so every few seconds.
    fn has_limiter(&self, queue: usize) -> bool {
        self.front.consumers[queue].queue.format() == Format::Messenger
    }
}

/// Asks the application when the wait is over, and every few seconds until then: sliding windows
/// often let messages run much earlier than they say. Returns the queue once it runs its jobs.
async fn until_it_runs_jobs(front: Arc<Front>, queue: usize, wait: Option<Duration>) -> usize {
    let mut left = wait.unwrap_or(REST);
    let mut next = wait.map_or(REST, |_| AFTER_WAIT);
    loop {
        let rest = left.min(REST);
        tokio::time::sleep(rest).await;
        if front.runs_jobs(queue).await {
            return queue;
        }
        left -= rest;
        if left.is_zero() {
            left = next;
            next = (2 * next).min(REST);
        }
    }
}

impl Front {
    /// Whether the application runs jobs of a queue now.
    async fn runs_jobs(&self, queue: usize) -> bool {
        let consumer = &self.consumers[queue];
        let JobProgram::Php(runner) = &consumer.runs else {
            return true;
        };
        let asked = json!({ "connection": consumer.connection, "queue": consumer.queue.name });
        let question = json!({ "may_run": asked }).to_string();
        match runner.ask(question.into(), "", TIMEOUT).await {
            Ok(JobAnswer::Result(json)) => {
                let told = serde_json::from_slice::<Value>(&json);
                told.is_ok_and(|told| told["may_run"] == true)
            }
            // PHP is restarting, or answers another question.
            _ => false,
        }
    }
}
