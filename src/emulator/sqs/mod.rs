//! An event source mapping: receives messages, runs the function on batches, deletes what
//! succeeded.
//!
//! Failed messages stay in the queue and become visible again after the visibility timeout. The
//! queue moves them to its dead-letter queue. A FIFO queue itself withholds the messages of a group
//! that has others in flight.

mod client;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Emulator, Invocation};
use client::SqsClient;

/// The most messages that one SQS call returns.
const MAX_PER_CALL: usize = 10;
/// The longest long poll of SQS, in seconds.
const LONG_POLL: u64 = 20;
/// The pause after a failed call.
const PAUSE: Duration = Duration::from_secs(1);

/// A mapping from a queue to the function.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// URL of the queue.
    pub queue: String,
    /// `BatchSize`.
    pub batch: usize,
    /// `MaximumBatchingWindowInSeconds`.
    pub window: Duration,
    /// `ReportBatchItemFailures`: the function's answer names the failed messages.
    pub reports_failures: bool,
    /// How many batches may run at once.
    pub pollers: usize,
}

/// The properties of a queue.
#[derive(Debug, Clone)]
struct QueueAttributes {
    arn: String,
    region: String,
    is_fifo: bool,
}

/// A mapping that Lambda would accept.
pub struct Poller {
    emulator: Emulator,
    mapping: Mapping,
    queue: QueueAttributes,
    /// Receives messages about problems with the queue.
    tell: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Poller {
    /// Reads the queue's properties and rejects what Lambda rejects.
    pub async fn new(
        emulator: Emulator,
        mapping: Mapping,
        tell: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> anyhow::Result<Poller> {
        let mut client = SqsClient::new(&mapping.queue)?;
        let attributes = client
            .call("GetQueueAttributes", json!({"AttributeNames": ["All"]}))
            .await?;
        let attributes = &attributes["Attributes"];
        let arn = attributes["QueueArn"]
            .as_str()
            .context("the queue's attributes lack QueueArn")?
            .to_string();
        let is_fifo = arn.ends_with(".fifo");
        let visibility = attributes["VisibilityTimeout"].as_str();
        let visibility = visibility.and_then(|text| text.parse().ok()).unwrap_or(30);
        let timeout = emulator.function().timeout;
        if Duration::from_secs(visibility) < timeout {
            bail!(
                "{arn}: its visibility timeout of {visibility} seconds is less than the \
                 function's timeout of {} seconds, so messages would reappear during their \
                 processing; Lambda rejects that. Six times the timeout is recommended",
                timeout.as_secs()
            );
        }
        let max = if is_fifo { 10 } else { 10_000 };
        if mapping.batch == 0 || mapping.batch > max {
            bail!(
                "{arn}: invalid batch size {}; use 1 to {max}",
                mapping.batch
            );
        }
        if is_fifo && !mapping.window.is_zero() {
            bail!("{arn}: FIFO queues do not support a batching window");
        }
        if mapping.batch > 10 && mapping.window < Duration::from_secs(1) {
            bail!(
                "{arn}: batches of more than 10 messages need a batching window of at least 1 \
                 second"
            );
        }
        Ok(Poller {
            queue: QueueAttributes {
                region: arn.split(':').nth(3).unwrap_or_default().to_string(),
                arn,
                is_fifo,
            },
            emulator,
            mapping,
            tell,
        })
    }

    /// Polls until dropped.
    pub async fn run(self) {
        let poller = Arc::new(self);
        let mut polling = tokio::task::JoinSet::new();
        for _ in 0..poller.mapping.pollers.max(1) {
            polling.spawn(poller.clone().poll());
        }
        while polling.join_next().await.is_some() {}
    }

    async fn poll(self: Arc<Poller>) {
        let Ok(mut client) = SqsClient::new(&self.mapping.queue) else {
            return;
        };
        loop {
            if let Err(error) = self.turn(&mut client).await {
                (self.tell)(&format!("{error:#}"));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Receives and runs one batch.
    async fn turn(&self, client: &mut SqsClient) -> anyhow::Result<()> {
        let messages = self.gather(client).await?;
        if messages.is_empty() {
            return Ok(());
        }
        let event = event(&self.queue, &messages);
        let invocation = self.emulator.invoke(event).await;
        let done = done(&messages, &invocation, self.mapping.reports_failures);
        for entries in done.chunks(MAX_PER_CALL) {
            let entries: Vec<Value> = entries
                .iter()
                .enumerate()
                .map(|(at, message)| {
                    json!({"Id": at.to_string(), "ReceiptHandle": message.receipt_handle})
                })
                .collect();
            let deleted = client
                .call("DeleteMessageBatch", json!({"Entries": entries}))
                .await?;
            if let Some(failed) = deleted["Failed"].as_array().filter(|list| !list.is_empty()) {
                let failed = Value::from(failed.clone());
                (self.tell)(&format!(
                    "{}: cannot delete processed messages: {failed}",
                    self.queue.arn
                ));
            }
        }
        Ok(())
    }

    /// Receives messages for one batch: all that are available, or all that arrive within the
    /// window.
    async fn gather(&self, client: &mut SqsClient) -> anyhow::Result<Vec<EmulatedMessage>> {
        let mut all: Vec<EmulatedMessage> = Vec::new();
        let mut end: Option<Instant> = None;
        while all.len() < self.mapping.batch {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            // SQS waits for whole seconds.
            let wait = left.map_or(LONG_POLL, |left| left.as_secs().min(LONG_POLL));
            let max = (self.mapping.batch - all.len()).min(MAX_PER_CALL);
            let received = client
                .call(
                    "ReceiveMessage",
                    json!({
                        "MaxNumberOfMessages": max,
                        "WaitTimeSeconds": wait,
                        "AttributeNames": ["All"],
                        "MessageSystemAttributeNames": ["All"],
                        "MessageAttributeNames": ["All"],
                    }),
                )
                .await?;
            let received: ReceivedMessages = serde_json::from_value(received)
                .context("the queue's response is not a list of messages")?;
            let received = received.messages.unwrap_or_default();
            let is_over = received.is_empty() && (end.is_none() || wait == 0);
            if end.is_none() && !received.is_empty() {
                end = Some(Instant::now() + self.mapping.window);
            }
            all.extend(received);
            if is_over {
                break;
            }
        }
        Ok(all)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceivedMessages {
    messages: Option<Vec<EmulatedMessage>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EmulatedMessage {
    message_id: String,
    receipt_handle: String,
    #[serde(rename = "MD5OfBody", default)]
    md5_of_body: String,
    #[serde(default)]
    body: String,
    #[serde(default)]
    attributes: Value,
    #[serde(default)]
    message_attributes: Value,
}

/// The event that Lambda builds from the messages.
fn event(queue: &QueueAttributes, messages: &[EmulatedMessage]) -> String {
    let records: Vec<Value> = messages
        .iter()
        .map(|message| {
            let own = match message.attributes.is_null() {
                true => json!({}),
                false => message.attributes.clone(),
            };
            json!({
                "messageId": message.message_id,
                "receiptHandle": message.receipt_handle,
                "body": message.body,
                "attributes": own,
                "messageAttributes": attributes(&message.message_attributes),
                "md5OfBody": message.md5_of_body,
                "eventSource": "aws:sqs",
                "eventSourceARN": queue.arn,
                "awsRegion": queue.region,
            })
        })
        .collect();
    json!({"Records": records}).to_string()
}

/// `{"DataType": …, "StringValue": …}` in the form of the event.
fn attributes(of_sqs: &Value) -> Value {
    let mut all = serde_json::Map::new();
    for (name, value) in of_sqs.as_object().into_iter().flatten() {
        let mut attribute = json!({
            "stringListValues": [],
            "binaryListValues": [],
            "dataType": value["DataType"],
        });
        for (there, here) in [
            ("StringValue", "stringValue"),
            ("BinaryValue", "binaryValue"),
        ] {
            if let Some(value) = value.get(there).filter(|value| !value.is_null()) {
                attribute[here] = value.clone();
            }
        }
        all.insert(name.clone(), attribute);
    }
    Value::Object(all)
}

/// The messages to delete.
fn done<'a>(
    messages: &'a [EmulatedMessage],
    invocation: &Invocation,
    reports_failures: bool,
) -> Vec<&'a EmulatedMessage> {
    let Ok(answer) = &invocation.result else {
        return Vec::new();
    };
    let all = || messages.iter().collect();
    if !reports_failures {
        return all();
    }
    match failures(answer, messages) {
        Some(failed) => messages
            .iter()
            .filter(|message| !failed.contains(&message.message_id))
            .collect(),
        None => Vec::new(),
    }
}

/// The messages that the answer reports as failed; None if the answer means that the whole batch
/// failed.
fn failures(answer: &[u8], messages: &[EmulatedMessage]) -> Option<BTreeSet<String>> {
    if answer.is_empty() {
        return Some(BTreeSet::new());
    }
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let failures = match answer.get("batchItemFailures") {
        None | Some(Value::Null) => return Some(BTreeSet::new()),
        Some(failures) => failures.as_array()?,
    };
    failures
        .iter()
        .map(|failure| {
            let id = failure.get("itemIdentifier")?.as_str()?;
            let is_known = messages.iter().any(|message| message.message_id == id);
            is_known.then(|| id.to_string())
        })
        .collect()
}

impl std::fmt::Display for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.queue.is_fifo { "FIFO " } else { "" };
        write!(
            f,
            "{kind}queue {}, batches of {}",
            self.queue.arn, self.mapping.batch
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn message(id: &str) -> EmulatedMessage {
        serde_json::from_value(json!({
            "MessageId": id,
            "ReceiptHandle": format!("receipt-{id}"),
            "MD5OfBody": "md5",
            "Body": "{\"job\":1}",
            "Attributes": {"ApproximateReceiveCount": "2", "MessageGroupId": "g"},
            "MessageAttributes": {"kind": {"DataType": "String", "StringValue": "mail"}},
        }))
        .unwrap()
    }

    #[test]
    fn unreadable_failure_report_fails_the_whole_batch() {
        let messages = [message("a"), message("b")];
        let failed = |answer: &str| {
            let failed = failures(answer.as_bytes(), &messages)?;
            Some(failed.into_iter().collect::<Vec<_>>().join(","))
        };
        for nothing in [
            "",
            "null",
            "{}",
            "\"text\"",
            r#"{"batchItemFailures":null}"#,
            r#"{"batchItemFailures":[]}"#,
        ] {
            assert_eq!(failed(nothing).as_deref(), Some(""), "{nothing}");
        }
        let one = r#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#;
        assert_eq!(failed(one).as_deref(), Some("b"));
        for all in [
            "no JSON",
            r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":"c"}]}"#,
            r#"{"batchItemFailures":[{"id":"a"}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":"a"},{}]}"#,
            r#"{"batchItemFailures":"a"}"#,
        ] {
            assert_eq!(failed(all), None, "{all}");
        }
    }

    #[test]
    fn event_has_the_fields_of_lambda() {
        let queue = QueueAttributes {
            arn: "arn:aws:sqs:eu-west-1:000000000000:jobs".into(),
            region: "eu-west-1".into(),
            is_fifo: false,
        };
        let event: Value = serde_json::from_str(&event(&queue, &[message("a")])).unwrap();
        assert_eq!(
            event,
            json!({"Records": [{
                "messageId": "a",
                "receiptHandle": "receipt-a",
                "body": "{\"job\":1}",
                "attributes": {"ApproximateReceiveCount": "2", "MessageGroupId": "g"},
                "messageAttributes": {"kind": {
                    "dataType": "String",
                    "stringValue": "mail",
                    "stringListValues": [],
                    "binaryListValues": [],
                }},
                "md5OfBody": "md5",
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:eu-west-1:000000000000:jobs",
                "awsRegion": "eu-west-1",
            }]})
        );
    }
}
