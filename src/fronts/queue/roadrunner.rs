//! Reads messages as jobs for workers of RoadRunner, and the answers of these workers
//! (docs/internals/roadrunner.md).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::settings::Queue;
use crate::event::JobContext;

/// The name of a job that has none, as RoadRunner names it.
const UNNAMED: &str = "deduced_by_rr";

pub type JobHeaders = BTreeMap<String, Vec<String>>;

/// A message: JSON that names its job, or a body without a name.
pub struct TaskMessage<'a> {
    id: Option<String>,
    name: Cow<'a, str>,
    headers: JobHeaders,
    body: Cow<'a, [u8]>,
}

/// The JSON of a message that names its job.
#[derive(Deserialize)]
struct ReadMessage<'a> {
    id: Option<String>,
    job: String,
    #[serde(default)]
    headers: Value,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// The same as Surus writes it.
#[derive(Serialize)]
struct WrittenMessage<'a> {
    id: &'a str,
    job: &'a str,
    headers: &'a JobHeaders,
    payload: &'a str,
}

impl<'a> TaskMessage<'a> {
    pub fn read(payload: &'a [u8]) -> TaskMessage<'a> {
        match serde_json::from_slice::<ReadMessage<'a>>(payload) {
            Ok(read) if !read.job.is_empty() => TaskMessage {
                id: read.id.filter(|id| !id.is_empty()),
                name: read.job.into(),
                headers: headers(&read.headers),
                body: match serde_json::from_str::<String>(read.payload.get()) {
                    Ok(text) => text.into_bytes().into(),
                    Err(_) => read.payload.get().as_bytes().into(),
                },
            },
            _ => TaskMessage {
                id: None,
                name: UNNAMED.into(),
                headers: JobHeaders::new(),
                body: payload.into(),
            },
        }
    }

    pub fn body(&self) -> Bytes {
        Bytes::copy_from_slice(&self.body)
    }

    /// What the worker gets ahead of the body. `id` is that of a message without one.
    pub fn context(&self, queue: &Queue, id: &str) -> JobContext {
        #[derive(Serialize)]
        struct Context<'a> {
            id: &'a str,
            job: &'a str,
            driver: &'static str,
            queue: &'a str,
            headers: &'a JobHeaders,
            pipeline: &'a str,
            timeout: u64,
        }
        let context = Context {
            id: self.id.as_deref().unwrap_or(id),
            job: &self.name,
            driver: driver(queue),
            queue: &queue.name,
            headers: &self.headers,
            pipeline: queue.pipeline.as_ref().unwrap_or(&queue.name),
            timeout: queue.timeout.0.as_secs().max(1),
        };
        // Strings, numbers and lists of them always serialize.
        JobContext(serde_json::to_vec(&context).unwrap_or_default().into())
    }

    /// The message with the headers that a worker has changed. None if there are none, or if its
    /// body is not UTF-8, which JSON cannot carry.
    pub fn with_headers(&self, changed: JobHeaders, id: &str) -> Option<Bytes> {
        if changed.is_empty() {
            return None;
        }
        let mut headers = self.headers.clone();
        headers.extend(changed);
        let id = self.id.as_deref().unwrap_or(id);
        let body = std::str::from_utf8(&self.body).ok()?;
        message(id, &self.name, &headers, body)
    }
}

/// Writes a message that names its job.
fn message(id: &str, job: &str, headers: &JobHeaders, payload: &str) -> Option<Bytes> {
    let written = WrittenMessage {
        id,
        job,
        headers,
        payload,
    };
    serde_json::to_vec(&written).ok().map(Bytes::from)
}

/// The message of a job that RoadRunner's AMQP driver has published with these headers. None if
/// they name no job.
#[cfg(feature = "amqp")]
pub fn message_of_amqp(sent: &BTreeMap<&str, Value>, body: &str) -> Option<Bytes> {
    let text = |name: &str| sent.get(name).and_then(Value::as_str);
    let written = text("rr_headers").and_then(|json| serde_json::from_str::<Value>(json).ok());
    let headers = headers(&written.unwrap_or_default());
    message(
        text("rr_id").unwrap_or_default(),
        text("rr_job")?,
        &headers,
        body,
    )
}

/// The id of a message, if it has one.
pub fn id(payload: &[u8]) -> Option<String> {
    TaskMessage::read(payload).id
}

/// The name of a job, for metrics.
pub fn name(payload: &[u8]) -> String {
    TaskMessage::read(payload).name.into_owned()
}

/// Which of RoadRunner's drivers a worker sees. The packages know no databases.
fn driver(queue: &Queue) -> &'static str {
    let source = queue.source.as_deref().unwrap_or_default();
    match source.split(':').next().unwrap_or_default() {
        "amqp" | "amqps" => "amqp",
        "sqs" | "http" | "https" => "sqs",
        scheme if scheme.starts_with("redis") || scheme.starts_with("valkey") => "redis",
        _ => "unknown",
    }
}

/// An object of strings or lists of strings. PHP writes an empty one as a list.
fn headers(value: &Value) -> JobHeaders {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let entries = value.as_object().into_iter().flatten();
    let entries = entries.map(|(name, value)| {
        let values = match value {
            Value::Array(values) => values.iter().filter_map(text).collect(),
            // A list with other keys than 0, 1, 2 …
            Value::Object(values) => values.values().filter_map(text).collect(),
            value => text(value).into_iter().collect(),
        };
        (name.clone(), values)
    });
    entries.collect()
}

/// How a worker says that a job has ended.
#[derive(Debug, PartialEq)]
pub enum TaskAnswer {
    Done,
    Failed(String),
    Requeue {
        why: String,
        pause: Duration,
        headers: JobHeaders,
    },
}

impl TaskAnswer {
    /// Reads an answer. The packages name its type by a number.
    pub fn read(answer: &[u8]) -> Result<TaskAnswer, String> {
        #[derive(Deserialize)]
        struct Written {
            #[serde(rename = "type")]
            kind: u64,
            #[serde(default)]
            data: Value,
        }
        if answer.is_empty() {
            return Ok(TaskAnswer::Done);
        }
        let written: Written = serde_json::from_slice(answer)
            .map_err(|error| format!("cannot parse the worker's answer to a job: {error}"))?;
        let data = &written.data;
        let why = data["message"].as_str().unwrap_or_default();
        let why = match why.is_empty() {
            true => "the worker gave no reason".to_string(),
            false => why.to_string(),
        };
        let runs_again = match written.kind {
            0 | 2 => return Ok(TaskAnswer::Done),
            1 | 3 => data["requeue"].as_bool().unwrap_or_default(),
            4 => true,
            kind => return Err(format!("the worker's answer to a job has the type {kind}")),
        };
        Ok(match runs_again {
            false => TaskAnswer::Failed(why),
            true => TaskAnswer::Requeue {
                why,
                pause: Duration::from_secs(data["delay_seconds"].as_u64().unwrap_or_default())
                    .min(LONGEST),
                headers: headers(&data["headers"]),
            },
        })
    }
}

/// The longest pause. Brokers count seconds since 1970.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn queue(source: &str) -> Queue {
        Queue {
            name: "mail".into(),
            source: Some(source.into()),
            ..Queue::default()
        }
    }

    fn seen(payload: &str, queue: &Queue) -> (Value, String) {
        let message = TaskMessage::read(payload.as_bytes());
        let JobContext(context) = message.context(queue, "7");
        let body = String::from_utf8(message.body().to_vec()).unwrap();
        (serde_json::from_slice(&context).unwrap(), body)
    }

    #[test]
    fn message_that_names_its_job_has_its_id_headers_and_payload() {
        let payload = r#"{"id":"a","job":"App\\Mail","headers":{"n":["1","2"],"m":3},
            "payload":"{\"to\":\"b\"}","options":{"delay":1}}"#;
        let (context, body) = seen(payload, &queue("redis://h"));
        assert_eq!(body, r#"{"to":"b"}"#);
        let headers = json!({"m": ["3"], "n": ["1", "2"]});
        assert_eq!(
            context,
            json!({
                "id": "a", "job": "App\\Mail", "driver": "redis", "queue": "mail",
                "headers": headers, "pipeline": "mail", "timeout": 60,
            })
        );
        // Other JSON than a text is passed as it is.
        let (_, body) = seen(r#"{"job":"a","payload":{"n": 1.0}}"#, &queue("sqs:"));
        assert_eq!(body, r#"{"n": 1.0}"#);
    }

    #[test]
    fn message_that_names_no_job_is_its_body() {
        for payload in [
            r#"{"to":"b"}"#,
            r#"{"job":"","payload":1}"#,
            "text",
            r#"{"job":"a"}"#,
        ] {
            let (context, body) = seen(payload, &queue("sqlite:a"));
            assert_eq!(body, payload);
            assert_eq!(context["job"], UNNAMED);
            assert_eq!(
                (&context["id"], &context["headers"]),
                (&json!("7"), &json!({}))
            );
            assert_eq!(context["driver"], "unknown");
        }
    }

    #[test]
    fn pipeline_is_that_of_the_configuration() {
        let queue = Queue {
            pipeline: Some("emails".into()),
            ..queue("amqp://h")
        };
        let (context, _) = seen("{}", &queue);
        assert_eq!(
            (&context["pipeline"], &context["queue"]),
            (&json!("emails"), &json!("mail"))
        );
    }

    #[test]
    fn answers_of_each_version_are_read() {
        let requeue = |pause: u64, headers: Value| TaskAnswer::Requeue {
            why: "no".into(),
            pause: Duration::from_secs(pause),
            headers: super::headers(&headers),
        };
        for (answer, expected) in [
            ("", TaskAnswer::Done),
            (r#"{"type":0,"data":[]}"#, TaskAnswer::Done),
            (r#"{"type":2}"#, TaskAnswer::Done),
            (
                r#"{"type":1,"data":{"message":"no","requeue":false,"delay_seconds":0}}"#,
                TaskAnswer::Failed("no".into()),
            ),
            (
                r#"{"type":1,"data":{"message":"no","requeue":true,"delay_seconds":5,
                    "headers":[]}}"#,
                requeue(5, json!({})),
            ),
            (
                r#"{"type":3,"data":{"message":"no","requeue":true}}"#,
                requeue(0, json!({})),
            ),
            (
                r#"{"type":3,"data":{"message":"","requeue":false}}"#,
                TaskAnswer::Failed("the worker gave no reason".into()),
            ),
            (
                r#"{"type":4,"data":{"message":"no","headers":{"a":["1"]}}}"#,
                requeue(0, json!({"a": ["1"]})),
            ),
        ] {
            assert_eq!(
                TaskAnswer::read(answer.as_bytes()),
                Ok(expected),
                "{answer}"
            );
        }
        for (answer, why) in [("{", "cannot parse"), (r#"{"type":9}"#, "has the type 9")] {
            let error = TaskAnswer::read(answer.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn message_keeps_its_id_and_its_payload_when_a_worker_changes_headers() {
        let payload = br#"{"job":"a","headers":{"n":["3"],"k":["v"]},"payload":"\u00e4"}"#;
        let message = TaskMessage::read(payload);
        let changed = headers(&json!({"n": ["2"]}));
        let changed = message.with_headers(changed, "7");
        let changed: Value = serde_json::from_slice(&changed.unwrap()).unwrap();
        let headers = json!({"k": ["v"], "n": ["2"]});
        let expected = json!({"id": "7", "job": "a", "headers": headers, "payload": "\u{e4}"});
        assert_eq!(changed, expected);
        assert_eq!(message.with_headers(JobHeaders::new(), "7"), None);
    }

    #[cfg(feature = "amqp")]
    #[test]
    fn headers_of_roadrunners_amqp_driver_name_the_job() {
        let sent = [
            ("rr_id", json!("a")),
            ("rr_job", json!("App\\Mail")),
            ("rr_headers", json!(r#"{"n":["1"]}"#)),
            ("rr_delay", json!(0)),
        ];
        let message = message_of_amqp(&sent.into(), "body").unwrap();
        let (context, body) = seen(std::str::from_utf8(&message).unwrap(), &queue("amqp://h"));
        assert_eq!(body, "body");
        assert_eq!(
            (&context["id"], &context["job"]),
            (&json!("a"), &json!("App\\Mail"))
        );
        assert_eq!(context["headers"], json!({"n": ["1"]}));
        assert_eq!(context["driver"], "amqp");
        assert_eq!(message_of_amqp(&BTreeMap::new(), "body"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_answer_is_read_or_rejected(answer: Vec<u8>, kind in 0..6u64, data: String) {
            let _ = TaskAnswer::read(&answer);
            let answer = json!({"type": kind, "data": {"message": data, "delay_seconds": data}});
            let _ = TaskAnswer::read(answer.to_string().as_bytes());
        }

        #[test]
        fn arbitrary_message_has_a_body_and_a_name(payload: Vec<u8>) {
            let message = TaskMessage::read(&payload);
            prop_assert!(!message.name.is_empty());
            prop_assert_eq!(&message.body()[..], &payload[..]);
        }
    }
}
