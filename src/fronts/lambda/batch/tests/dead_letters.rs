//! Deliveries of a FIFO queue with a dead-letter queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{paused, settings};
use crate::event::Failure;
use crate::fronts::lambda::batch::{Batches, FifoFailure, read};

const MAX_RECEIVES: u32 = 5;

/// A message, such as `a2` of group `a`, and how it fails, if it does.
type Message = (&'static str, Option<Bad>);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bad {
    Hangs,
    Throws,
}

/// Delivers the queue's messages in one batch, each time to another environment, until none is
/// left. Returns the dead letters, and how often each message was done.
fn deliver(
    fifo_failure: FifoFailure,
    workers: usize,
    messages: &[Message],
) -> (BTreeSet<&'static str>, BTreeMap<&'static str, u32>) {
    let mut left: Vec<Message> = messages.to_vec();
    let mut done = BTreeMap::new();
    for receives in 1..=MAX_RECEIVES {
        let records = left.iter().map(|(id, _)| {
            json!({
                "messageId": id,
                "body": "",
                "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:eu-west-1:1:q.fifo",
                "attributes": {
                    "MessageGroupId": &id[..1],
                    "ApproximateReceiveCount": receives.to_string(),
                },
            })
        });
        let event = json!({"Records": records.collect::<Vec<_>>()}).to_string();
        let batch = read(&event.into()).unwrap();
        let batches = Batches::new(
            &super::Settings {
                fifo_failure,
                ..settings()
            },
            workers,
        );
        let answer = paused(async {
            let deadline = Instant::now() + Duration::from_secs(10);
            let handle = |record: super::Record| {
                let bad = left.iter().find(|(id, _)| *id == record.id).unwrap().1;
                async move {
                    match bad {
                        None => Ok("null".into()),
                        Some(Bad::Throws) => Err(Failure::Thrown("no".into())),
                        Some(Bad::Hangs) => {
                            tokio::time::sleep_until(Instant::from_std(record.deadline)).await;
                            Err(Failure::TimedOut)
                        }
                    }
                }
            };
            batches.run(&batch, 1, deadline.into_std(), handle).await
        });
        let answer: Value = serde_json::from_slice(&answer.unwrap()).unwrap();
        let failed = answer["batchItemFailures"].as_array().unwrap().clone();
        left.retain(|(id, _)| {
            let comes_again = failed.iter().any(|it| it["itemIdentifier"] == *id);
            if !comes_again {
                *done.entry(*id).or_insert(0) += 1;
            }
            comes_again
        });
    }
    (left.into_iter().map(|(id, _)| id).collect(), done)
}

#[test]
fn good_message_of_another_group_never_becomes_a_dead_letter() {
    for bad in [Bad::Hangs, Bad::Throws] {
        for fifo_failure in [FifoFailure::Group, FifoFailure::Message, FifoFailure::Batch] {
            for workers in [1, 2, 4] {
                let messages = [
                    ("a1", Some(bad)),
                    ("b1", None),
                    ("b2", None),
                    ("c1", None),
                    ("d1", Some(bad)),
                    ("e1", None),
                    ("f1", None),
                ];
                let (dead, done) = deliver(fifo_failure, workers, &messages);
                let what = format!("{bad:?} {fifo_failure:?} {workers}");
                assert_eq!(dead, ["a1", "d1"].into(), "{what}");
                assert!(done.values().all(|times| *times == 1), "{what}: {done:?}");
            }
        }
    }
}

#[test]
fn good_message_of_the_same_group_runs_if_configured() {
    let messages = [
        ("a1", None),
        ("a2", Some(Bad::Throws)),
        ("a3", None),
        ("b1", None),
    ];
    let dead = |fifo_failure| deliver(fifo_failure, 2, &messages).0;
    assert_eq!(dead(FifoFailure::Group), ["a2", "a3"].into());
    assert_eq!(dead(FifoFailure::Message), ["a2"].into());
}
