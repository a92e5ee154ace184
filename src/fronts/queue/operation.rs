//! Status, pause and failed jobs of running queues, for the admin listener.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::front::{Consumer, Front};
use super::job::{Depth, FailedJob, Failures};
use super::runner::{JobAnswer, JobProgram, Runner};
use super::settings::Format;
use crate::event::Failure;

/// How long a broker may take to count its jobs.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long PHP may take at least to answer; all workers may be busy.
const PHP: Duration = Duration::from_secs(30);

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

    /// Lists failed jobs, or retries or forgets one. Returns those concerned. A framework's are all
    /// of the application, whatever their queue.
    pub async fn failures(&self, requested: &Failures) -> anyhow::Result<Vec<FailedJob>> {
        let mut found = Vec::new();
        let application = self
            .consumers
            .iter()
            .find_map(|consumer| match &consumer.runs {
                JobProgram::Php(runner) if consumer.queue.format().is_frameworks() => Some(runner),
                _ => None,
            });
        if let Some(runner) = application {
            let limit = self.limit_of(requested);
            found = failures_of_application(runner, requested, limit).await?;
        }
        for consumer in &self.consumers {
            let failures = consumer.source.failures(requested.clone()).await;
            found.extend(failures.with_context(|| format!("queue {}", consumer.queue.name))?);
        }
        Ok(found)
    }

    /// How long PHP may take. Messenger handles a message at once that is retried.
    fn limit_of(&self, asked: &Failures) -> Duration {
        let is_messenger = |it: &&Consumer| it.queue.format() == Format::Messenger;
        let handled = self.consumers.iter().filter(is_messenger);
        let longest = handled.map(|consumer| consumer.queue.timeout.0).max();
        match asked {
            Failures::Retry(_) => longest.unwrap_or_default().max(PHP),
            Failures::List | Failures::Forget(_) => PHP,
        }
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

async fn failures_of_application(
    runner: &Runner,
    requested: &Failures,
    limit: Duration,
) -> anyhow::Result<Vec<FailedJob>> {
    #[derive(Serialize)]
    struct Question<'a> {
        failures: &'a Failures,
    }
    let question = serde_json::to_vec(&Question {
        failures: requested,
    })?;
    let answer = match (requested, runner.ask(question.into(), "", limit).await) {
        (Failures::Retry(_), Err(Failure::TimedOut)) => bail!(
            "the retry has not ended within {} s (queue.timeout), or all workers are busy; \
             `surus work failed` shows whether the job is still there",
            limit.as_secs()
        ),
        (_, answer) => answer,
    };
    let busy = "cannot ask the application, whose workers may all be busy; try again";
    match answer.context(busy)? {
        JobAnswer::Result(json) => {
            serde_json::from_slice(&json).context("the application's failed jobs")
        }
        JobAnswer::Error { message, .. } => bail!("the application's failed jobs: {message}"),
    }
}
