//! Model of a batch: events of every source, scripted workers, and Lambda's reading of the result.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::event::Failure;
use crate::fronts::lambda::batch::{Batches, read};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueKind {
    Standard,
    Fifo,
    Kinesis,
    DynamoDb,
    Kafka,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScriptedOutcome {
    Well,
    Throws,
    NamesIt,
    Dies,
    /// The engine does not keep the deadline either.
    Hangs,
}

#[derive(Debug, Clone)]
pub struct Work {
    pub group: usize,
    pub takes: u64,
    pub outcome: ScriptedOutcome,
}

/// One run of a record.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub index: usize,
    pub began: Instant,
    pub ended: Instant,
    pub well: bool,
    /// Records running when this one began, including it.
    pub concurrent: usize,
}

pub fn id(index: usize) -> String {
    format!("{:021}", index + 1)
}

pub fn record(kind: QueueKind, index: usize, group: usize) -> Value {
    match kind {
        QueueKind::Standard => json!({
            "messageId": id(index),
            "body": format!("{{\"n\":{index}}} \u{1f418}"),
            "attributes": { "ApproximateReceiveCount": "1", "MessageGroupId": "tenant" },
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-west-1:1:q",
        }),
        QueueKind::Fifo => json!({
            "messageId": id(index),
            "body": "\"\\n",
            "attributes": { "MessageGroupId": group.to_string() },
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-west-1:1:q.fifo",
        }),
        QueueKind::Kinesis => json!({
            "kinesis": {
                "partitionKey": group.to_string(),
                "sequenceNumber": id(index),
                "data": "aGk=",
            },
            "eventSource": "aws:kinesis",
            "eventID": format!("shardId-000000000006:{}", id(index)),
        }),
        QueueKind::DynamoDb => json!({
            "eventSource": "aws:dynamodb",
            "eventName": "INSERT",
            "dynamodb": {
                "Keys": { "Id": { "N": group.to_string() } },
                "SequenceNumber": id(index),
            },
        }),
        QueueKind::Kafka => json!({
            "topic": "t",
            "partition": group,
            "offset": index,
            "value": "aGk=",
        }),
    }
}

pub fn event(kind: QueueKind, work: &[Work]) -> Bytes {
    let records = work.iter().enumerate();
    let mut records = records.map(|(index, work)| (work.group, record(kind, index, work.group)));
    let event = if kind == QueueKind::Kafka {
        let mut topics = BTreeMap::<String, Vec<Value>>::new();
        records.for_each(|(group, record)| {
            let list = topics.entry(format!("t-{group}")).or_default();
            list.push(record);
        });
        json!({ "eventSource": "aws:kafka", "bootstrapServers": "b:9092", "records": topics })
    } else {
        json!({ "Records": records.by_ref().map(|(_, record)| record).collect::<Vec<_>>() })
    };
    // Whitespace that Surus must not touch, from another serializer.
    serde_json::to_vec_pretty(&event).unwrap().into()
}

/// The index of the event's only record. Also checks that nothing else has changed.
pub fn index_of(kind: QueueKind, event: &[u8], work: &[Work]) -> usize {
    let event: Value = serde_json::from_slice(event).unwrap();
    let (list, id) = if kind == QueueKind::Kafka {
        assert_eq!(event["bootstrapServers"], "b:9092");
        let topics = event["records"].as_object().unwrap();
        assert_eq!(topics.len(), 1);
        let (name, list) = topics.iter().next().unwrap();
        assert_eq!(*name, format!("t-{}", list[0]["partition"]));
        (
            list.clone(),
            (list[0]["offset"].as_u64().unwrap() + 1).to_string(),
        )
    } else {
        let list = event["Records"].clone();
        let one = &list[0];
        let ids = [
            &one["messageId"],
            &one["kinesis"]["sequenceNumber"],
            &one["dynamodb"]["SequenceNumber"],
        ];
        let id = ids.iter().find_map(|id| id.as_str()).unwrap().to_string();
        (list, id)
    };
    assert_eq!(list.as_array().unwrap().len(), 1);
    let index = id.parse::<usize>().unwrap() - 1;
    assert_eq!(list[0], record(kind, index, work[index].group));
    index
}

/// The records that Lambda takes for done.
pub fn acknowledged(kind: QueueKind, work: &[Work], answer: &[u8]) -> BTreeSet<usize> {
    let answer: Value = serde_json::from_slice(answer).unwrap();
    let failures = answer["batchItemFailures"].as_array().unwrap();
    let failed: Vec<usize> = failures
        .iter()
        .map(|failure| match &failure["itemIdentifier"] {
            Value::String(id) => id.parse::<usize>().unwrap() - 1,
            kafka => {
                let index = kafka["offset"].as_u64().unwrap() as usize;
                assert_eq!(kafka["partition"], format!("t-{}", work[index].group));
                index
            }
        })
        .collect();
    let all = 0..work.len();
    all.filter(|index| match kind {
        QueueKind::Standard | QueueKind::Fifo => !failed.contains(index),
        QueueKind::Kinesis | QueueKind::DynamoDb => failed.iter().all(|failed| index < failed),
        QueueKind::Kafka => failed
            .iter()
            .all(|failed| work[*failed].group != work[*index].group || index < failed),
    })
    .collect()
}

pub struct Batched {
    pub answer: Result<Bytes, Failure>,
    pub runs: Vec<Run>,
    pub began: Instant,
    pub ended: Instant,
}

/// Runs a batch with workers as an engine would have them.
pub async fn run(batches: &Batches, kind: QueueKind, work: &[Work], time: Duration) -> Batched {
    let batch = read(&event(kind, work)).unwrap();
    let began = Instant::now();
    let runs = RefCell::new(Vec::new());
    let running = RefCell::new(0);
    struct Running<'a>(&'a RefCell<usize>);
    impl Drop for Running<'_> {
        fn drop(&mut self) {
            *self.0.borrow_mut() -= 1;
        }
    }
    let answer = batches
        .run(&batch, 1, (began + time).into_std(), |record| {
            let index = index_of(kind, &record.event, work);
            let work = work[index].clone();
            *running.borrow_mut() += 1;
            let guard = Running(&running);
            let concurrent = *running.borrow();
            let began = Instant::now();
            let slot = runs.borrow().len();
            runs.borrow_mut().push(Run {
                index,
                began,
                ended: began,
                well: false,
                concurrent,
            });
            let runs = &runs;
            async move {
                let _guard = guard;
                let end = began + Duration::from_millis(work.takes);
                let deadline = Instant::from_std(record.deadline);
                let result = match work.outcome {
                    ScriptedOutcome::Hangs => std::future::pending().await,
                    _ if end > deadline => {
                        tokio::time::sleep_until(deadline).await;
                        Err(Failure::TimedOut)
                    }
                    outcome => {
                        tokio::time::sleep_until(end).await;
                        match outcome {
                            ScriptedOutcome::Well => Ok("null".into()),
                            ScriptedOutcome::Throws => Err(Failure::Thrown("no".into())),
                            ScriptedOutcome::Dies => {
                                Err(Failure::WorkerCrashed("signal 11".into()))
                            }
                            _ => Ok(r#"{"batchItemFailures":[{"itemIdentifier":"x"}]}"#.into()),
                        }
                    }
                };
                let run = &mut runs.borrow_mut()[slot];
                run.ended = Instant::now();
                run.well = work.outcome == ScriptedOutcome::Well && result.is_ok();
                result
            }
        })
        .await;
    assert_eq!(*running.borrow(), 0, "nothing goes on after the answer");
    Batched {
        answer,
        runs: runs.into_inner(),
        began,
        ended: Instant::now(),
    }
}
