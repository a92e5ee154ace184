//! The dead-letter queue: buries jobs there, and shows, retries and forgets them.

use std::time::{Duration, SystemTime};

use anyhow::bail;
use http::StatusCode;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::address::QueueAddress;
use super::batch::{MOST, Settled};
use super::message::{self, Held, SqsMessage};
use super::{LONGEST, SqsQueue, TIMEOUT};
use crate::aws::Error;
use crate::fronts::queue::job::{FailedJob, Failures, Job};

/// The message attributes with the reason, and with the name of the job's queue in SQS.
const REASON: &str = "surus-reason";
const QUEUE: &str = "surus-queue";
/// SQS's limit of attributes.
const MAX_ATTRIBUTES: usize = 10;
/// How much of a reason is kept, since a message has a limit, too.
const LONGEST_REASON: usize = 1000;
/// How long dead letters are reserved while they are looked through.
const RESERVE: Duration = Duration::from_secs(30);
/// How many dead letters are looked through.
const MAX_SHOWN: usize = 1000;

/// The queue of a dead letter, among those that share the dead-letter queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LetterOrigin {
    Own,
    Other,
    Unknown,
}

/// A message to be sent.
struct Sent<'a> {
    body: &'a str,
    attributes: Map<String, Value>,
    group: Option<&'a str>,
    /// For FIFO queues, which drop a second message with the same id.
    deduplication: String,
}

impl Sent<'_> {
    async fn to(self, queue: &QueueAddress) -> Result<(), Error> {
        let mut parameters = json!({ "MessageBody": self.body });
        if !self.attributes.is_empty() {
            parameters["MessageAttributes"] = self.attributes.into();
        }
        if queue.is_fifo() {
            parameters["MessageGroupId"] = self.group.unwrap_or("surus").into();
            parameters["MessageDeduplicationId"] = self.deduplication.into();
        }
        queue.ask("SendMessage", parameters, TIMEOUT).await?;
        Ok(())
    }
}

impl SqsQueue {
    /// Moves a job to the dead-letter queue. Without one, it stays hidden as long as SQS allows.
    pub(super) async fn bury(&self, job: &Job, held: &Held, why: &str) -> anyhow::Result<Settled> {
        let Some(dead_letter_queue) = &self.dead_letter_queue else {
            warn!(
                queue = self.name,
                job = job.lease.id,
                "the queue has no dead-letter queue (RedrivePolicy), so the failed job stays in \
                 it and is delivered again within 12 hours"
            );
            return self.hide(held, LONGEST).await;
        };
        let body = message::body(job, held, self.reads.format);
        let added = [(QUEUE, text(self.queue.name())), (REASON, text(why))];
        // A message near SQS's limit has no room for all of them.
        for count in (0..=added.len()).rev() {
            let mut attributes = held.attributes.clone();
            for (name, value) in &added[..count] {
                if attributes.len() < MAX_ATTRIBUTES || attributes.contains_key(*name) {
                    attributes.insert((*name).into(), value.clone());
                }
            }
            let sent = Sent {
                body: &body,
                attributes,
                group: held.group.as_deref(),
                deduplication: job.lease.id.clone(),
            };
            match sent.to(dead_letter_queue).await {
                Err(error) if count > 0 && may_be_too_long(&error) => {}
                sent => {
                    sent?;
                    break;
                }
            }
        }
        self.delete(held).await
    }

    /// Lists the dead letters, or retries or forgets one. Returns those concerned.
    pub(super) async fn failures(&self, requested: &Failures) -> anyhow::Result<Vec<FailedJob>> {
        let Some(dead_letter_queue) = &self.dead_letter_queue else {
            // Frameworks record failures themselves.
            if self.reads.format.is_frameworks() {
                return Ok(Vec::new());
            }
            bail!(
                "SQS keeps failed jobs only in a dead-letter queue, and the queue has none; give \
                 it a RedrivePolicy"
            );
        };
        let _one_at_a_time = self.listing.lock().await;
        let (shown, others) = self.look_through(dead_letter_queue, requested.id()).await?;
        let has_unknown = matches!(requested, Failures::List)
            && (shown.iter()).any(|letter| self.origin(letter) == LetterOrigin::Unknown);
        let is_only_source = has_unknown && self.is_only_source(dead_letter_queue).await;
        let mut found = Vec::new();
        for letter in &shown {
            match requested {
                Failures::Retry(_) => self.again(letter).await?,
                Failures::List | Failures::Find(_) | Failures::Forget(_) => {}
            }
            if requested.is_change() {
                let receipt = json!({ "ReceiptHandle": letter.receipt_handle });
                dead_letter_queue
                    .ask("DeleteMessage", receipt, TIMEOUT)
                    .await?;
            }
            found.push(self.failed(letter, is_only_source));
        }
        let listed = match requested.is_change() {
            false => &shown[..],
            true => &[],
        };
        let back: Vec<_> = listed.iter().chain(&others).collect();
        for some in back.chunks(MOST) {
            let entries = some.iter().enumerate().map(|(at, letter)| {
                json!({
                    "Id": at.to_string(),
                    "ReceiptHandle": letter.receipt_handle,
                    "VisibilityTimeout": 0,
                })
            });
            let parameters = json!({ "Entries": entries.collect::<Vec<_>>() });
            dead_letter_queue
                .ask("ChangeMessageVisibilityBatch", parameters, TIMEOUT)
                .await?;
        }
        Ok(found)
    }

    /// Reserves dead letters, until it has found the one with this id. Returns those that are
    /// meant, and the others, among them all of other queues.
    async fn look_through(
        &self,
        dead_letter_queue: &QueueAddress,
        id: Option<&str>,
    ) -> anyhow::Result<(Vec<SqsMessage>, Vec<SqsMessage>)> {
        let (mut shown, mut others) = (Vec::new(), Vec::new());
        while shown.len() + others.len() < MAX_SHOWN {
            let parameters = json!({
                "MaxNumberOfMessages": MOST,
                // Without a wait SQS asks only some of its servers.
                "WaitTimeSeconds": 1,
                "VisibilityTimeout": RESERVE.as_secs(),
                "AttributeNames": ["All"],
                "MessageAttributeNames": ["All"],
            });
            let received = dead_letter_queue.ask("ReceiveMessage", parameters, TIMEOUT);
            let received = message::read(received.await?)?;
            if received.is_empty() {
                break;
            }
            for letter in received {
                let is_requested = id.is_none_or(|id| id == letter.message_id);
                // SQS may deliver a message twice.
                let is_again = shown
                    .iter()
                    .any(|it: &SqsMessage| it.message_id == letter.message_id);
                let is_meant = is_requested && !is_again;
                match is_meant && self.origin(&letter) != LetterOrigin::Other {
                    true => shown.push(letter),
                    false => others.push(letter),
                }
            }
            if id.is_some() && !shown.is_empty() {
                break;
            }
        }
        Ok((shown, others))
    }

    /// Sends a dead letter to the queue as a new message.
    async fn again(&self, letter: &SqsMessage) -> anyhow::Result<()> {
        let mut attributes = letter.message_attributes.clone();
        attributes.remove(REASON);
        attributes.remove(QUEUE);
        let sent = Sent {
            body: &letter.body,
            attributes,
            group: letter.attributes.group.as_deref(),
            deduplication: format!("{}-again", letter.message_id),
        };
        sent.to(&self.queue).await?;
        Ok(())
    }

    fn origin(&self, letter: &SqsMessage) -> LetterOrigin {
        // An ARN ends with the name.
        let moved = letter.attributes.source.as_deref();
        let moved = moved.and_then(|arn| arn.rsplit(':').next());
        match moved.or(letter.text(QUEUE)) {
            Some(name) if name == self.queue.name() => LetterOrigin::Own,
            Some(_) => LetterOrigin::Other,
            None => LetterOrigin::Unknown,
        }
    }

    /// Whether no other queue has this dead-letter queue. False if SQS does not say.
    async fn is_only_source(&self, dead_letter_queue: &QueueAddress) -> bool {
        let asked = dead_letter_queue.ask("ListDeadLetterSourceQueues", json!({}), TIMEOUT);
        let told = asked.await.unwrap_or_default();
        let names = told["queueUrls"].as_array().map(Vec::as_slice);
        let name = match (names, told["NextToken"].as_str()) {
            (Some([url]), None) => url.as_str().and_then(|url| url.rsplit('/').next()),
            _ => None,
        };
        name == Some(self.queue.name())
    }

    fn failed(&self, letter: &SqsMessage, is_only_source: bool) -> FailedJob {
        let origin = self.origin(letter);
        let unstated = match origin {
            LetterOrigin::Unknown => "unknown, and the message does not name its queue",
            _ if letter.attributes.source.is_some() => {
                "SQS has moved it here, because it was received too often"
            }
            _ => "the message has no room for the reason, which the log has",
        };
        let sent: u64 = letter.attributes.sent.parse().unwrap_or_default();
        // Dates have four digits for the year.
        let sent = sent.min(1 << 45);
        let sent = SystemTime::UNIX_EPOCH + Duration::from_millis(sent);
        let job = FailedJob::new(
            letter.message_id.clone(),
            &self.name,
            letter.body.as_bytes(),
            letter.text(REASON).unwrap_or(unstated),
            httpdate::fmt_http_date(sent),
        );
        FailedJob {
            has_unknown_queue: origin == LetterOrigin::Unknown && !is_only_source,
            ..job
        }
    }
}

/// Whether a message may be accepted if it is shorter. SQS has no code of its own for that.
fn may_be_too_long(error: &Error) -> bool {
    match error {
        Error::Refused { status, .. } => {
            !error.is_temporary()
                && [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE].contains(status)
        }
        Error::Unreachable(_) | Error::Failed(_) => false,
    }
}

/// A reason as a message attribute, which can have only characters of XML.
fn text(why: &str) -> Value {
    let is_allowed = |char: &char| {
        !char.is_control() && !matches!(char, '\u{fffe}' | '\u{ffff}')
            || matches!(char, '\n' | '\t')
    };
    let why: String = why
        .chars()
        .filter(is_allowed)
        .take(LONGEST_REASON)
        .collect();
    let why = if why.is_empty() { "unknown" } else { &why };
    json!({ "DataType": "String", "StringValue": why })
}

#[cfg(test)]
mod tests;
