//! Messages as SQS delivers them, and what of them is needed to settle a job.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::fronts::queue::Format;
use crate::fronts::queue::job::{Job, Lease};
use crate::fronts::queue::messenger;

/// The attribute with the headers of Messenger whose names SQS does not allow.
const HEADERS: &str = "X-Symfony-Messenger";

/// How bodies become jobs.
#[derive(Clone, Copy)]
pub struct Reads {
    pub format: Format,
    /// The longest message, in bytes of body and headers, that becomes one.
    pub max_payload: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SqsMessage {
    pub message_id: String,
    pub receipt_handle: String,
    #[serde(default)]
    pub body: String,
    #[serde(default)]
    pub attributes: Attributes,
    /// The sender's own attributes, as they are sent.
    #[serde(default)]
    pub message_attributes: Map<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct Attributes {
    #[serde(rename = "ApproximateReceiveCount")]
    pub receives: String,
    #[serde(rename = "MessageGroupId")]
    pub group: Option<String>,
    /// Milliseconds since 1970.
    #[serde(rename = "SentTimestamp")]
    pub sent: String,
    /// The ARN of the queue from which SQS has moved it to a dead-letter queue.
    #[serde(rename = "DeadLetterQueueSourceArn")]
    pub source: Option<String>,
}

/// Reads the response to a receive call.
pub fn read(answer: Value) -> anyhow::Result<Vec<SqsMessage>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Received {
        messages: Option<Vec<SqsMessage>>,
    }
    let received: Option<Received> =
        serde_json::from_value(answer).context("the response of SQS is not a list of messages")?;
    Ok(received.and_then(|it| it.messages).unwrap_or_default())
}

impl SqsMessage {
    /// The text of an attribute of the sender's.
    pub fn text(&self, attribute: &str) -> Option<&str> {
        self.message_attributes.get(attribute)?["StringValue"].as_str()
    }

    /// `group` is that of a FIFO queue; `received` when it was received, as its queue counts it.
    pub fn into_job(self, group: Option<String>, received: Duration, reads: Reads) -> Job {
        let headers = match reads.format {
            Format::Messenger => self.headers(),
            Format::Plain | Format::Laravel | Format::RoadRunner => String::new(),
        };
        let is_read = (self.body.len() + headers.len()) as u64 <= reads.max_payload;
        let (payload, unread) = match reads.format {
            _ if !is_read => (Bytes::new(), Some(self.body)),
            Format::Messenger => (messenger::payload(&self.body, &headers), None),
            Format::Plain | Format::Laravel | Format::RoadRunner => (Bytes::from(self.body), None),
        };
        let deliveries = self.attributes.receives.parse().unwrap_or(1);
        let held = Held {
            receipt: self.receipt_handle,
            received: received.as_secs(),
            deliveries,
            group,
            attributes: self.message_attributes,
            unread,
        };
        Job {
            lease: Lease {
                id: self.message_id,
                // Strings always serialize.
                token: serde_json::to_vec(&held).unwrap_or_default().into(),
            },
            payload,
            unread: None,
            attempts: deliveries,
        }
    }

    /// The headers of Messenger's message as JSON. Its transport writes each as an attribute, and
    /// those whose names SQS does not allow together in one.
    fn headers(&self) -> String {
        let text = |attribute: &Value| {
            let is_text = attribute["DataType"] == "String";
            attribute["StringValue"]
                .as_str()
                .filter(|_| is_text)
                .map(str::to_string)
        };
        let others = self.message_attributes.get(HEADERS).and_then(text);
        let others = others.and_then(|json| serde_json::from_str(&json).ok());
        let mut headers: Map<String, Value> = others.unwrap_or_default();
        for (name, attribute) in &self.message_attributes {
            if let Some(value) = text(attribute).filter(|_| name != HEADERS) {
                headers.insert(name.clone(), value.into());
            }
        }
        Value::Object(headers).to_string()
    }
}

/// The body of a job's message.
pub fn body(job: &Job, held: &Held, format: Format) -> String {
    match format {
        _ if held.unread.is_some() => held.unread.clone().unwrap_or_default(),
        Format::Messenger => messenger::message(&job.payload).body,
        Format::Plain | Format::Laravel | Format::RoadRunner => {
            String::from_utf8_lossy(&job.payload).into_owned()
        }
    }
}

/// What a job's lease has of its message.
#[derive(Serialize, Deserialize)]
pub struct Held {
    pub receipt: String,
    received: u64,
    /// How often SQS has delivered it, this time included.
    pub deliveries: u32,
    pub group: Option<String>,
    /// For the dead-letter queue.
    pub attributes: Map<String, Value>,
    /// The body of a message that is too long to become a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unread: Option<String>,
}

impl Held {
    pub fn read(lease: &Lease) -> anyhow::Result<Held> {
        serde_json::from_slice(&lease.token).context("the lease is not one of SQS")
    }

    pub fn received(&self) -> Duration {
        Duration::from_secs(self.received)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reads(format: Format) -> Reads {
        Reads {
            format,
            max_payload: 1000,
        }
    }

    #[test]
    fn message_becomes_a_job_whose_lease_can_be_read() {
        let attribute = json!({"DataType": "String", "StringValue": "v"});
        let answer = json!({"Messages": [{
            "MessageId": "id", "ReceiptHandle": "handle", "MD5OfBody": "x", "Body": "{}",
            "Attributes": {"ApproximateReceiveCount": "3", "MessageGroupId": "g"},
            "MessageAttributes": {"name": attribute},
        }]});
        let message = read(answer).unwrap().pop().unwrap();
        let group = message.attributes.group.clone();
        let job = message.into_job(group, Duration::from_secs(7), reads(Format::Plain));
        assert_eq!((job.lease.id.as_str(), job.attempts), ("id", 3));
        assert_eq!(&job.payload[..], b"{}");
        let held = Held::read(&job.lease).unwrap();
        assert_eq!(held.received(), Duration::from_secs(7));
        assert_eq!(
            (held.receipt, held.group),
            ("handle".into(), Some("g".into()))
        );
        assert_eq!(held.attributes["name"], attribute);
    }

    #[test]
    fn attributes_become_the_headers_of_messengers_message() {
        let text = |value: &str| json!({"DataType": "String", "StringValue": value});
        let message = |attributes: Value| {
            let answer = json!({"Messages": [{
                "MessageId": "id", "ReceiptHandle": "handle", "Body": "\u{e4} \"b\"",
                "MessageAttributes": attributes,
            }]});
            let message = read(answer).unwrap().pop().unwrap();
            message.into_job(None, Duration::ZERO, reads(Format::Messenger))
        };
        let job = message(json!({
            "type": text(r"App\Order"),
            "X-Symfony-Messenger": text(r#"{"X-Message-Stamp-A\\B":"[]"}"#),
            "number": {"DataType": "Number", "StringValue": "1"},
        }));
        let payload: Value = serde_json::from_slice(&job.payload).unwrap();
        let headers = json!({"type": r"App\Order", r"X-Message-Stamp-A\B": "[]"});
        assert_eq!(payload, json!({"body": "\u{e4} \"b\"", "headers": headers}));
        let held = Held::read(&job.lease).unwrap();
        assert_eq!(body(&job, &held, Format::Messenger), "\u{e4} \"b\"");
        for broken in [json!({}), json!({"X-Symfony-Messenger": text("[")})] {
            let payload: Value = serde_json::from_slice(&message(broken).payload).unwrap();
            assert_eq!(payload["headers"], json!({}));
        }
    }

    #[test]
    fn response_without_messages_is_an_empty_list() {
        for answer in [json!({}), Value::Null, json!({"Messages": null})] {
            assert!(read(answer).unwrap().is_empty());
        }
        assert!(read(json!({"Messages": 1})).is_err());
    }
}
