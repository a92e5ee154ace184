//! Tests of dead letters against a stand-in for SQS.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use super::*;
use crate::aws::Provider;
use crate::fronts::queue::Format;
use crate::fronts::queue::sources::sqs::{Access, Reads};

const READS: Reads = Reads {
    format: Format::Plain,
    max_payload: 1 << 20,
};

type Calls = Arc<Mutex<Vec<(String, Value)>>>;

/// A queue `jobs` with the dead-letter queue `dead`, which has these letters. SQS takes messages
/// with this many bytes, and does not say which queues are sources. Also returns the calls that it
/// gets.
async fn queue(longest: usize, letters: &[Value]) -> (SqsQueue, Calls) {
    queue_of(longest, letters, None).await
}

/// The same, where SQS says which queues have the dead-letter queue.
async fn queue_of(
    longest: usize,
    letters: &[Value],
    sources: Option<Vec<&'static str>>,
) -> (SqsQueue, Calls) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/0", listener.local_addr().unwrap());
    let calls = Calls::default();
    let noted = calls.clone();
    let mut letters = letters.to_vec();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (action, parameters) = request(&mut stream);
            noted
                .lock()
                .unwrap()
                .push((action.clone(), parameters.clone()));
            let (status, answer) = match action.as_str() {
                "GetQueueAttributes" => {
                    let policy = json!({"deadLetterTargetArn": "arn:aws:sqs:us-east-1:0:dead"});
                    let attributes = json!({"RedrivePolicy": policy.to_string()});
                    (200, json!({ "Attributes": attributes }))
                }
                "ReceiveMessage" => (200, json!({"Messages": std::mem::take(&mut letters)})),
                "ListDeadLetterSourceQueues" => match &sources {
                    Some(sources) => (200, json!({ "queueUrls": sources })),
                    None => (403, json!({"__type": "com.amazonaws.sqs#AccessDenied"})),
                },
                "SendMessage" if bytes(&parameters) > longest => {
                    let message = "One or more parameters are invalid. Reason: too long";
                    let kind = "com.amazonaws.sqs#InvalidParameterValueException";
                    (400, json!({"__type": kind, "message": message}))
                }
                _ => (200, json!({})),
            };
            let body = answer.to_string();
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
            let answer = format!("{head}content-length: {length}\r\n\r\n{body}");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    let access = Access {
        base,
        credentials: Some(Provider::fixed("key", "secret", None)),
        region: Some("us-east-1".into()),
        ..Access::default()
    };
    let lease = Duration::from_secs(90);
    let queue = SqsQueue::open("mails", "jobs", access, lease, READS).await;
    (queue.unwrap(), calls)
}

/// Reads the action and the parameters of a call.
fn request(stream: &mut impl BufRead) -> (String, Value) {
    let (mut action, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0);
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ").unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "x-amz-target" => action = value.replace("AmazonSQS.", ""),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (action, serde_json::from_slice(&body).unwrap())
}

/// The length of a message as SQS counts it: body, and names, types and values of attributes.
fn bytes(message: &Value) -> usize {
    let len = |value: &Value| value.as_str().unwrap().len();
    let attributes = message["MessageAttributes"].as_object();
    let attributes = attributes.into_iter().flatten();
    let attributes = attributes
        .map(|(name, value)| name.len() + len(&value["DataType"]) + len(&value["StringValue"]));
    len(&message["MessageBody"]) + attributes.sum::<usize>()
}

/// The messages sent: the name of the queue, and the texts of the attributes.
fn sent(calls: &Calls) -> Vec<(String, BTreeMap<String, String>)> {
    let calls = calls.lock().unwrap();
    let calls = calls.iter().filter(|(action, _)| action == "SendMessage");
    let sent = calls.map(|(_, parameters)| {
        let url = parameters["QueueUrl"].as_str().unwrap();
        let attributes = parameters["MessageAttributes"].as_object();
        let attributes = attributes.into_iter().flatten().map(|(name, value)| {
            let text = value["StringValue"].as_str().unwrap();
            (name.clone(), text.to_string())
        });
        (
            url.rsplit('/').next().unwrap().to_string(),
            attributes.collect(),
        )
    });
    sent.collect()
}

fn actions(calls: &Calls, action: &str) -> usize {
    let calls = calls.lock().unwrap();
    calls.iter().filter(|(it, _)| it == action).count()
}

/// A job with this body.
fn received(body: &str) -> (Job, Held) {
    let message = json!({"MessageId": "1", "ReceiptHandle": "1", "Body": body});
    let messages = message::read(json!({ "Messages": [message] })).unwrap();
    let message = messages.into_iter().next().unwrap();
    let job = message.into_job(None, Duration::ZERO, READS);
    let held = Held::read(&job.lease).unwrap();
    (job, held)
}

fn letter(id: &str, queue: Option<&str>, moved_from: Option<&str>) -> Value {
    let mut letter = json!({"MessageId": id, "ReceiptHandle": id, "Body": "{}"});
    if let Some(queue) = queue {
        letter["MessageAttributes"] = json!({
            QUEUE: {"DataType": "String", "StringValue": queue},
            REASON: {"DataType": "String", "StringValue": "as told"},
            "tenant": {"DataType": "String", "StringValue": "a"},
        });
    }
    if let Some(name) = moved_from {
        let arn = format!("arn:aws:sqs:us-east-1:0:{name}");
        letter["Attributes"] = json!({ "DeadLetterQueueSourceArn": arn });
    }
    letter
}

fn letters() -> [Value; 6] {
    [
        letter("own", Some("jobs"), None),
        letter("others", Some("other"), None),
        letter("moved", None, Some("jobs")),
        letter("moved others", None, Some("other")),
        // SQS has moved it later than another queue has buried it.
        letter("moved last", Some("other"), Some("jobs")),
        letter("unknown", None, None),
    ]
}

#[test]
fn reason_has_only_characters_that_sqs_accepts() {
    let value = |why: &str| text(why)["StringValue"].clone();
    assert_eq!(value("a\u{0}b\u{1b}[0m\n\u{e4}"), "ab[0m\n\u{e4}");
    assert_eq!(value("\u{0}"), "unknown");
    let long = "x".repeat(5000);
    assert_eq!(value(&long).as_str().map(str::len), Some(LONGEST_REASON));
}

#[tokio::test]
async fn job_is_buried_without_what_makes_its_message_too_long() {
    let body = "x".repeat(1000);
    let of_queue = QUEUE.len() + "String".len() + "jobs".len();
    for (longest, attributes, tries) in [
        (10_000, vec![QUEUE, REASON], 1),
        (1000 + of_queue, vec![QUEUE], 2),
        (1000, Vec::new(), 3),
    ] {
        let (queue, calls) = queue(longest, &[]).await;
        let (job, held) = received(&body);
        let buried = queue.bury(&job, &held, &"why".repeat(100)).await;
        assert_eq!(buried.unwrap(), Settled::Done, "{longest}");
        let sent = sent(&calls);
        assert_eq!(sent.len(), tries, "{longest}");
        let (to, kept) = sent.last().unwrap();
        assert_eq!(to, "dead");
        let kept: Vec<_> = kept.keys().map(String::as_str).collect();
        assert_eq!(kept, attributes, "{longest}");
        assert_eq!(actions(&calls, "DeleteMessageBatch"), 1);
    }
    // Not even the message as it was received.
    let (queue, calls) = queue(999, &[]).await;
    let (job, held) = received(&body);
    let error = queue.bury(&job, &held, "why").await.unwrap_err();
    assert!(error.to_string().contains("too long"), "{error:#}");
    assert_eq!(actions(&calls, "DeleteMessageBatch"), 0);
}

#[tokio::test]
async fn letters_of_other_queues_are_not_listed() {
    let (queue, calls) = queue(10_000, &letters()).await;
    let listed = queue.failures(&Failures::List).await.unwrap();
    let seen: Vec<_> = listed
        .iter()
        .map(|job| (job.id.as_str(), job.why.as_str(), job.has_unknown_queue))
        .collect();
    let moved = "SQS has moved it here, because it was received too often";
    let unknown = "unknown, and the message does not name its queue";
    let expected = [
        ("own", "as told", false),
        ("moved", moved, false),
        ("moved last", "as told", false),
        ("unknown", unknown, true),
    ];
    assert_eq!(seen, expected);
    // All of them can be received again.
    let calls = calls.lock().unwrap();
    let back = calls
        .iter()
        .filter(|(action, _)| action == "ChangeMessageVisibilityBatch");
    let back = back.map(|(_, parameters)| parameters["Entries"].as_array().unwrap().len());
    assert_eq!(back.sum::<usize>(), letters().len());
}

#[tokio::test]
async fn letters_of_other_queues_are_neither_retried_nor_forgotten() {
    for (id, is_meant) in [
        ("own", true),
        ("others", false),
        ("moved", true),
        ("moved others", false),
        ("moved last", true),
        ("unknown", true),
    ] {
        for requested in [Failures::Retry(id.into()), Failures::Forget(id.into())] {
            let (queue, calls) = queue(10_000, &letters()).await;
            let found = queue.failures(&requested).await.unwrap();
            let found: Vec<_> = found.iter().map(|job| job.id.as_str()).collect();
            let expected = if is_meant { vec![id] } else { Vec::new() };
            assert_eq!(found, expected, "{requested:?}");
            assert_eq!(actions(&calls, "DeleteMessage"), expected.len());
            let again = sent(&calls);
            let is_retry = matches!(requested, Failures::Retry(_));
            assert_eq!(again.len(), usize::from(is_retry && is_meant));
            for (to, attributes) in again {
                assert_eq!(to, "jobs");
                let is_senders = attributes.keys().all(|name| name == "tenant");
                assert!(is_senders, "{attributes:?}");
            }
        }
    }
}

#[tokio::test]
async fn letter_of_an_unknown_queue_is_that_of_the_only_source() {
    let other = "http://h/0/other";
    let jobs = "https://queue.amazonaws.com/0/jobs";
    for (sources, is_unknown) in [
        (Some(vec![jobs]), false),
        (Some(vec![jobs, other]), true),
        (Some(vec![other]), true),
        (Some(vec![]), true),
        (None, true),
    ] {
        let letters = [letter("1", None, None), letter("2", None, None)];
        let (queue, calls) = queue_of(10_000, &letters, sources.clone()).await;
        let listed = queue.failures(&Failures::List).await.unwrap();
        let unknown: Vec<_> = listed.iter().map(|job| job.has_unknown_queue).collect();
        assert_eq!(unknown, [is_unknown; 2], "{sources:?}");
        assert_eq!(actions(&calls, "ListDeadLetterSourceQueues"), 1);
    }
    let (queue, calls) = queue_of(10_000, &[letter("1", Some("jobs"), None)], None).await;
    assert_eq!(queue.failures(&Failures::List).await.unwrap().len(), 1);
    assert_eq!(actions(&calls, "ListDeadLetterSourceQueues"), 0);
}

#[tokio::test]
async fn letter_that_is_delivered_twice_is_listed_once() {
    let letters = [
        letter("own", Some("jobs"), None),
        letter("own", Some("jobs"), None),
    ];
    let (queue, _) = queue(10_000, &letters).await;
    assert_eq!(queue.failures(&Failures::List).await.unwrap().len(), 1);
}
