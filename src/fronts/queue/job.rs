//! A job that is reserved for this process, and the ways to settle it with its source.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::observe::bounded::bounded;

/// A job that a source has reserved for this process.
#[derive(Debug, Clone)]
pub struct Job {
    pub lease: Lease,
    /// The message as its producer wrote it. Empty if it is longer than `work.max_payload`.
    pub payload: Bytes,
    /// Why the payload is empty, if it is not too long.
    pub unread: Option<String>,
    /// How often it has been received, this time included.
    pub attempts: u32,
}

/// What a source needs to extend or settle a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The broker's id of the job.
    pub id: String,
    /// The broker's mark of this reservation. It changes with each, so that a late settlement does
    /// not touch another's.
    pub token: Bytes,
}

/// The jobs of a queue at its broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Depth {
    /// Due jobs that no worker has.
    pub waiting: u64,
    pub delayed: u64,
    pub reserved: u64,
    /// For how many seconds the oldest waiting job has been due. None if no job waits, or if that
    /// is unknown.
    pub oldest: Option<u64>,
}

/// How a job is settled. Until it is settled, its lease is extended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// It is done, or another component has recorded it as failed: the broker forgets it.
    Done,
    /// It has not begun: the broker gets it back as if it had never been received.
    Return,
    /// It has begun and was interrupted by the shutdown: the broker delivers it again at once.
    Interrupt,
    /// It runs again after a pause.
    Release(Duration),
    /// No worker could take it: it runs after a pause, and this attempt does not count.
    Postpone(Duration),
    /// It does not run again; the reason is kept with it.
    Bury(String),
}

/// A job that does not run again, as it is listed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedJob {
    pub id: String,
    pub queue: String,
    /// The class of Laravel's job; empty for others.
    pub class: String,
    /// The first line of the reason.
    pub why: String,
    pub failed_at: String,
    /// Why it has failed again, if its framework has just run it for a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it may be a job of another queue, so that only its id retries or deletes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_unknown_queue: bool,
}

impl FailedJob {
    pub fn new(id: String, queue: &str, payload: &[u8], why: &str, failed_at: String) -> FailedJob {
        #[derive(Deserialize)]
        struct LaravelJob {
            #[serde(rename = "displayName")]
            class: String,
        }
        let job = serde_json::from_slice::<LaravelJob>(payload).ok();
        FailedJob {
            id,
            queue: queue.into(),
            class: job.map_or_else(String::new, |job| bounded(&job.class).into_owned()),
            why: why.lines().next().unwrap_or_default().into(),
            failed_at,
            error: None,
            has_unknown_queue: false,
        }
    }
}

/// Failed jobs of several queues.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FailedJobs {
    pub jobs: Vec<FailedJob>,
    /// The ids of Laravel's other failed jobs, of which too many have failed to be shown.
    #[serde(default)]
    pub unlisted: Vec<String>,
    /// How many further ones have failed, whose ids are not told either.
    #[serde(default)]
    pub unnamed: usize,
    /// Why the jobs of some queues or applications are missing.
    pub unreachable: Vec<String>,
    /// Where further jobs may be.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// An operator's request about failed jobs.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "verb", content = "id", rename_all = "lowercase")]
pub enum Failures {
    List,
    /// Shows one.
    Find(String),
    Retry(String),
    Forget(String),
}

impl Failures {
    /// The requested job; None for all.
    pub fn id(&self) -> Option<&str> {
        match self {
            Failures::List => None,
            Failures::Find(id) | Failures::Retry(id) | Failures::Forget(id) => Some(id),
        }
    }

    /// Whether the job leaves its place.
    pub fn is_change(&self) -> bool {
        matches!(self, Failures::Retry(_) | Failures::Forget(_))
    }

    /// The same about another job.
    pub fn with_id(&self, id: &str) -> Failures {
        match self {
            Failures::List => Failures::List,
            Failures::Find(_) => Failures::Find(id.into()),
            Failures::Retry(_) => Failures::Retry(id.into()),
            Failures::Forget(_) => Failures::Forget(id.into()),
        }
    }
}
