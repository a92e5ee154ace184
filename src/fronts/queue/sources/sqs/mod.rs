//! Queues in Amazon SQS, standard and FIFO.
//!
//! A reservation is the message's visibility timeout. Messages of one group of a FIFO queue come in
//! order: SQS gives none to others while one of them is reserved.

mod address;
mod batch;
mod dead_letters;
mod message;
mod unrun;

use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::address::QueueAddress;
pub use self::address::{Access, with_suffix};
use self::batch::{Batch, MOST, Settled};
use self::message::Held;
pub use self::message::Reads;
use self::unrun::UnrunDeliveries;
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};
use crate::fronts::queue::source::{Pending, Source};

/// How long SQS waits for a message. A longer wait costs fewer requests, and a shutdown or a pause
/// waits for its end, because SQS may reserve messages until then.
const POLL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(10);
/// SQS's limit for a reservation, counted from the receipt of the message.
const LONGEST: Duration = Duration::from_secs(12 * 3600 - 60);

/// One queue.
pub struct SqsQueue {
    queue: QueueAddress,
    /// Its name in the configuration.
    name: String,
    lease: Duration,
    reads: Reads,
    /// The one that the queue's `RedrivePolicy` names.
    dead_letter_queue: Option<QueueAddress>,
    deletions: Batch,
    visibilities: Batch,
    unrun: UnrunDeliveries,
    /// One list of dead letters at a time, because it reserves them.
    listing: tokio::sync::Mutex<()>,
    /// The time from which the receipts of messages are counted.
    began: Instant,
}

impl SqsQueue {
    /// Finds a queue and checks that it can be used.
    pub async fn open(
        name: &str,
        full_name: &str,
        access: Access,
        lease: Duration,
        reads: Reads,
    ) -> anyhow::Result<SqsQueue> {
        let remedy = "cannot use the SQS queue; check its name, the region, and that the \
                      credentials may use it (queue.source, AWS_REGION)";
        let queue = QueueAddress::find(full_name, access)
            .await
            .context(remedy)?;
        let parameters = json!({ "AttributeNames": ["RedrivePolicy"] });
        let found = queue.ask("GetQueueAttributes", parameters, TIMEOUT).await;
        let found = found.context(remedy)?;
        let policy = found["Attributes"]["RedrivePolicy"].as_str();
        let policy: Option<Value> = policy.and_then(|policy| serde_json::from_str(policy).ok());
        let dead_letter_queue =
            policy.and_then(|policy| queue.of_arn(policy["deadLetterTargetArn"].as_str()?));
        Ok(SqsQueue {
            queue,
            name: name.into(),
            lease: lease.min(LONGEST),
            reads,
            dead_letter_queue,
            deletions: Batch::new("DeleteMessageBatch"),
            visibilities: Batch::new("ChangeMessageVisibilityBatch"),
            unrun: UnrunDeliveries::default(),
            listing: tokio::sync::Mutex::default(),
            began: Instant::now(),
        })
    }

    pub fn url(&self) -> &str {
        &self.queue.url
    }

    pub fn has_dead_letters(&self) -> bool {
        self.dead_letter_queue.is_some()
    }

    async fn take(&self, most: usize) -> anyhow::Result<Vec<Job>> {
        // Counted from before the call: SQS must not be asked for more than the rest.
        let received = self.began.elapsed();
        let parameters = json!({
            "MaxNumberOfMessages": most.clamp(1, MOST),
            "WaitTimeSeconds": POLL.as_secs(),
            "VisibilityTimeout": self.lease.as_secs(),
            "AttributeNames": ["ApproximateReceiveCount", "MessageGroupId"],
            "MessageAttributeNames": ["All"],
        });
        let answer = self
            .queue
            .ask("ReceiveMessage", parameters, POLL + TIMEOUT)
            .await?;
        let jobs = message::read(answer)?.into_iter().map(|message| {
            let group = message.attributes.group.clone();
            let group = group.filter(|_| self.queue.is_fifo());
            let mut job = message.into_job(group, received, self.reads);
            job.attempts = self.unrun.tries(&job.lease.id, job.attempts);
            job
        });
        Ok(jobs.collect())
    }

    async fn delete(&self, held: &Held) -> anyhow::Result<Settled> {
        let entry = json!({ "ReceiptHandle": held.receipt });
        self.deletions.submit(&self.queue, entry).await
    }

    /// Notes how many deliveries of a message were tries, before it can come back.
    fn count(&self, job: &Job, held: &Held, disposition: &Disposition) {
        let id = &job.lease.id;
        let runs = match disposition {
            Disposition::Done | Disposition::Bury(_) => return self.unrun.forget(id),
            Disposition::Return | Disposition::Postpone(_) => job.attempts.saturating_sub(1),
            Disposition::Release(_) | Disposition::Interrupt => job.attempts,
        };
        self.unrun.note(id, held.deliveries, runs);
    }

    /// Sets for how long a message stays reserved before it is delivered again.
    async fn hide(&self, held: &Held, pause: Duration) -> anyhow::Result<Settled> {
        let age = self.began.elapsed().saturating_sub(held.received());
        let pause = pause.min(LONGEST.saturating_sub(age));
        let entry = json!({
            "ReceiptHandle": held.receipt,
            "VisibilityTimeout": pause.as_millis().div_ceil(1000) as u64,
        });
        self.visibilities.submit(&self.queue, entry).await
    }
}

impl Source for SqsQueue {
    fn receive<'a>(&'a self, most: usize, stop: &'a CancellationToken) -> Pending<'a, Vec<Job>> {
        Box::pin(async move {
            while !stop.is_cancelled() {
                let jobs = self.take(most).await?;
                if !jobs.is_empty() {
                    return Ok(jobs);
                }
            }
            Ok(Vec::new())
        })
    }

    fn extend(&self, leases: Vec<Lease>) -> Pending<'_, Vec<Lease>> {
        Box::pin(async move {
            let extended = join_all(
                leases
                    .iter()
                    .map(|lease| async { self.hide(&Held::read(lease)?, self.lease).await }),
            );
            let mut lost = Vec::new();
            for (extended, lease) in extended.await.into_iter().zip(&leases) {
                if extended? == Settled::Lost {
                    lost.push(lease.clone());
                }
            }
            Ok(lost)
        })
    }

    fn is_renewed(&self, held: &Lease, received: &Lease) -> bool {
        held.id == received.id
    }

    fn settle(&self, job: Job, disposition: Disposition) -> Pending<'_, ()> {
        Box::pin(async move {
            let held = Held::read(&job.lease)?;
            self.count(&job, &held, &disposition);
            match disposition {
                Disposition::Done => self.delete(&held).await?,
                Disposition::Return | Disposition::Interrupt => {
                    self.hide(&held, Duration::ZERO).await?
                }
                Disposition::Release(pause) | Disposition::Postpone(pause) => {
                    self.hide(&held, pause).await?
                }
                Disposition::Bury(why) => self.bury(&job, &held, &why).await?,
            };
            Ok(())
        })
    }

    fn depth(&self) -> Pending<'_, Depth> {
        Box::pin(async move {
            let names = ["", "Delayed", "NotVisible"];
            let names = names.map(|kind| format!("ApproximateNumberOfMessages{kind}"));
            let parameters = json!({ "AttributeNames": names });
            let found = self
                .queue
                .ask("GetQueueAttributes", parameters, TIMEOUT)
                .await?;
            let count = |name: &String| {
                let count = found["Attributes"][name].as_str();
                count
                    .and_then(|count| count.parse().ok())
                    .unwrap_or_default()
            };
            let [waiting, delayed, reserved] = &names;
            Ok(Depth {
                waiting: count(waiting),
                delayed: count(delayed),
                reserved: count(reserved),
                oldest: None,
            })
        })
    }

    fn failures(&self, requested: Failures) -> Pending<'_, Vec<FailedJob>> {
        Box::pin(async move { SqsQueue::failures(self, &requested).await })
    }

    fn group(&self, job: &Job) -> Option<String> {
        Held::read(&job.lease).ok()?.group
    }
}
