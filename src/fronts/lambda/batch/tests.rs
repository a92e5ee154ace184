//! Is nothing lost, nothing acknowledged that failed, and order kept, whatever happens?

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Standard,
    Fifo,
    Kinesis,
    DynamoDb,
    Kafka,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Well,
    Throws,
    NamesIt,
    Dies,
    /// The engine does not keep to the deadline either.
    Hangs,
}

#[derive(Debug, Clone)]
struct Work {
    group: usize,
    takes: u64,
    outcome: Outcome,
}

/// What became of a record.
#[derive(Debug, Clone, Copy)]
struct Run {
    index: usize,
    began: Instant,
    ended: Instant,
    well: bool,
    /// How many ran when it began, with it.
    beside: usize,
}

fn id(index: usize) -> String {
    format!("{:021}", index + 1)
}

fn record(kind: Kind, index: usize, group: usize) -> Value {
    match kind {
        Kind::Standard => {
            json!({ "messageId": id(index), "body": format!("{{\"n\":{index}}} \u{1f418}"),
            "attributes": { "ApproximateReceiveCount": "1", "MessageGroupId": "tenant" },
            "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-west-1:1:q" })
        }
        Kind::Fifo => {
            json!({ "messageId": id(index), "body": "\"\\n", "attributes": { "MessageGroupId": group.to_string() },
            "eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-west-1:1:q.fifo" })
        }
        Kind::Kinesis => {
            json!({ "kinesis": { "partitionKey": group.to_string(), "sequenceNumber": id(index), "data": "aGk=" },
            "eventSource": "aws:kinesis", "eventID": format!("shardId-000000000006:{}", id(index)) })
        }
        Kind::DynamoDb => json!({ "eventSource": "aws:dynamodb", "eventName": "INSERT",
            "dynamodb": { "Keys": { "Id": { "N": group.to_string() } }, "SequenceNumber": id(index) } }),
        Kind::Kafka => {
            json!({ "topic": "t", "partition": group, "offset": index, "value": "aGk=" })
        }
    }
}

fn event(kind: Kind, work: &[Work]) -> Bytes {
    let records = work.iter().enumerate();
    let mut records = records.map(|(index, work)| (work.group, record(kind, index, work.group)));
    let event = if kind == Kind::Kafka {
        let mut topics = BTreeMap::<String, Vec<Value>>::new();
        records.for_each(|(group, record)| {
            let list = topics.entry(format!("t-{group}")).or_default();
            list.push(record);
        });
        json!({ "eventSource": "aws:kafka", "bootstrapServers": "b:9092", "records": topics })
    } else {
        json!({ "Records": records.by_ref().map(|(_, record)| record).collect::<Vec<_>>() })
    };
    // Bytes that we must not touch: another writer's spaces.
    serde_json::to_vec_pretty(&event).unwrap().into()
}

/// Which record the one of this event is, and that nothing else has changed.
fn index_of(kind: Kind, event: &[u8], work: &[Work]) -> usize {
    let event: Value = serde_json::from_slice(event).unwrap();
    let (list, id) = if kind == Kind::Kafka {
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

/// Which records Lambda takes for done.
fn acknowledged(kind: Kind, work: &[Work], answer: &[u8]) -> BTreeSet<usize> {
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
        Kind::Standard | Kind::Fifo => !failed.contains(index),
        Kind::Kinesis | Kind::DynamoDb => failed.iter().all(|failed| index < failed),
        Kind::Kafka => failed
            .iter()
            .all(|failed| work[*failed].group != work[*index].group || index < failed),
    })
    .collect()
}

struct Batched {
    answer: Result<Bytes, Failure>,
    runs: Vec<Run>,
    began: Instant,
    ended: Instant,
}

/// Runs a batch with workers as an engine would have them.
async fn run(batches: &Batches, kind: Kind, work: &[Work], time: Duration) -> Batched {
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
        .run(&batch, (began + time).into_std(), |record| {
            let index = index_of(kind, &record.event, work);
            let work = work[index].clone();
            *running.borrow_mut() += 1;
            let guard = Running(&running);
            let beside = *running.borrow();
            let began = Instant::now();
            let slot = runs.borrow().len();
            runs.borrow_mut().push(Run {
                index,
                began,
                ended: began,
                well: false,
                beside,
            });
            let runs = &runs;
            async move {
                let _guard = guard;
                let end = began + Duration::from_millis(work.takes);
                let deadline = Instant::from_std(record.deadline);
                let result = match work.outcome {
                    Outcome::Hangs => std::future::pending().await,
                    _ if end > deadline => {
                        tokio::time::sleep_until(deadline).await;
                        Err(Failure::TimedOut)
                    }
                    outcome => {
                        tokio::time::sleep_until(end).await;
                        match outcome {
                            Outcome::Well => Ok("null".into()),
                            Outcome::Throws => Err(Failure::Thrown("no".into())),
                            Outcome::Dies => Err(Failure::Died("signal 11".into())),
                            _ => Ok(r#"{"batchItemFailures":[{"itemIdentifier":"x"}]}"#.into()),
                        }
                    }
                };
                let run = &mut runs.borrow_mut()[slot];
                run.ended = Instant::now();
                run.well = work.outcome == Outcome::Well && result.is_ok();
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

fn paused<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}

fn settings() -> Settings {
    Settings {
        reserve: crate::units::Time::millis(100),
        ..Settings::default()
    }
}

fn works() -> impl Strategy<Value = Vec<Work>> {
    let outcome = prop_oneof![
        12 => Just(Outcome::Well),
        2 => Just(Outcome::Throws),
        1 => Just(Outcome::NamesIt),
        2 => Just(Outcome::Dies),
        1 => Just(Outcome::Hangs),
    ];
    let work = (0..5_usize, 0..300_u64, outcome);
    let work = work.prop_map(|(group, takes, outcome)| Work {
        group,
        takes,
        outcome,
    });
    prop::collection::vec(work, 1..40)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![
        Kind::Standard,
        Kind::Fifo,
        Kind::Kinesis,
        Kind::DynamoDb,
        Kind::Kafka,
    ])
}

fn check(kind: Kind, work: &[Work], workers: usize, strict: bool, time: Duration, done: &Batched) {
    let runs = &done.runs;
    let mut seen = BTreeSet::new();
    assert!(
        runs.iter().all(|run| seen.insert(run.index)),
        "none runs twice"
    );
    assert!(runs.iter().all(|run| run.beside <= workers));
    assert!(done.ended <= done.began + time, "answered in time");

    let cut = done.began + time - settings().reserve.0.min(time);
    assert!(
        runs.iter().all(|run| run.began < cut),
        "nothing begins after the cut"
    );

    let answer = done.answer.as_ref().unwrap();
    let acknowledged = acknowledged(kind, work, answer);
    let well: BTreeSet<usize> = runs
        .iter()
        .filter(|run| run.well)
        .map(|run| run.index)
        .collect();
    assert!(
        acknowledged.is_subset(&well),
        "nothing that failed or did not run is acknowledged"
    );
    if matches!(kind, Kind::Standard | Kind::Fifo) {
        assert_eq!(acknowledged, well, "nothing that was done comes again");
    }
    let of = |index: usize| runs.iter().find(|run| run.index == index);
    if kind != Kind::Standard {
        for (index, one) in work.iter().enumerate() {
            let before = (0..index)
                .rev()
                .find(|before| work[*before].group == one.group);
            let (Some(run), Some(before)) = (of(index), before) else {
                continue;
            };
            let before = of(before).expect("order: the one before has run");
            assert!(
                before.well,
                "behind a failure of its partition nothing begins"
            );
            assert!(before.ended <= run.began, "one of a partition at a time");
        }
    }
    if matches!(kind, Kind::Kinesis | Kind::DynamoDb) || (kind == Kind::Fifo && strict) {
        for failed in runs.iter().filter(|run| !run.well) {
            let later = runs.iter().filter(|run| run.index > failed.index || strict);
            let begun_after = later.filter(|run| {
                run.began > failed.ended.max(failed.began) && run.index != failed.index
            });
            let hung = work[failed.index].outcome == Outcome::Hangs;
            assert!(
                hung || begun_after.count() == 0,
                "nothing begins that would come again anyway"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_nothing_acknowledged_that_failed(
        kind in kinds(), work in works(), workers in 1..6_usize, strict: bool, own: Option<u8>, time in 50..3000_u64,
    ) {
        let settings = Settings {
            fifo_failure: if strict { FifoFailure::Batch } else { FifoFailure::Group },
            record_timeout: own.map(|own| crate::units::Time::millis(own.into())),
            ..settings()
        };
        let time = Duration::from_millis(time);
        paused(async {
            let batches = Batches::new(&settings, workers);
            let done = run(&batches, kind, &work, time).await;
            check(kind, &work, workers, strict && kind == Kind::Fifo, time, &done);
        });
    }

    #[test]
    fn whatever_can_be_read_can_be_taken_apart(
        kind in kinds(), work in works(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut event = event(kind, &work).to_vec();
        for (place, byte) in changes {
            let place = place.index(event.len());
            event[place] = byte;
        }
        if let Some(batch) = read(&event.into()) {
            for index in 0..batch.len() {
                let one = batch.record(index, std::time::Instant::now());
                let again = read(&one.event).expect("an event with one record is a batch");
                assert_eq!((again.len(), again.id(0)), (1, batch.id(index)));
            }
        }
    }

    #[test]
    fn what_has_killed_workers_twice_runs_alone(kind in kinds(), work in works(), workers in 1..6_usize) {
        // No time limit, so that whatever may begin does.
        let mut work = work;
        work.retain(|work| work.outcome != Outcome::Hangs);
        prop_assume!(!work.is_empty());
        let time = Duration::from_secs(3600);
        paused(async {
            let batches = Batches::new(&settings(), workers);
            let mut kills = vec![0; work.len()];
            for _ in 0..4 {
                let done = run(&batches, kind, &work, time).await;
                check(kind, &work, workers, false, time, &done);
                for run in &done.runs {
                    let alone = done.runs.iter().all(|other| other.index == run.index
                        || other.ended <= run.began || run.ended <= other.began);
                    let is_suspect = kills[run.index] >= 2;
                    assert!(alone || !is_suspect, "{} is alone", run.index);
                    let unordered = kind == Kind::Standard && is_suspect;
                    let later = done.runs.iter().filter(|later| later.began >= run.ended && later.index != run.index);
                    assert!(!unordered || later.clone().all(|later| kills[later.index] >= 2), "and last");
                }
                for run in &done.runs {
                    kills[run.index] += usize::from(work[run.index].outcome == Outcome::Dies);
                }
            }
        });
    }
}

fn waiting(records: usize) -> Vec<Work> {
    let work = Work {
        group: 0,
        takes: 20,
        outcome: Outcome::Well,
    };
    vec![work; records]
}

#[test]
fn waiting_jobs_take_their_time_once_per_round_of_workers() {
    for (records, workers, rounds) in [
        (10, 1, 10),
        (10, 2, 5),
        (10, 5, 2),
        (10, 10, 1),
        (10, 16, 1),
        (9, 4, 3),
    ] {
        let took = paused(async {
            let batches = Batches::new(&settings(), workers);
            let done = run(
                &batches,
                Kind::Standard,
                &waiting(records),
                Duration::from_secs(30),
            )
            .await;
            assert_eq!(done.answer.unwrap(), r#"{"batchItemFailures":[]}"#);
            done.ended - done.began
        });
        // tokio's clock has milliseconds, and rounds up.
        let expected = Duration::from_millis(20 * rounds);
        assert!(
            took >= expected && took < expected + Duration::from_millis(2 * rounds),
            "{workers}: {took:?}"
        );
    }
}

#[test]
fn a_strict_queue_hears_of_a_failure_as_an_error() {
    let mut work = waiting(3);
    work[1].outcome = Outcome::Throws;
    let settings = Settings {
        partial_batch: PartialBatch::Off,
        ..settings()
    };
    paused(async {
        let batches = Batches::new(&settings, 2);
        let done = run(&batches, Kind::Standard, &work, Duration::from_secs(30)).await;
        let error = done.answer.unwrap_err().to_string();
        assert!(
            error.contains("1 of 3 records have not been done"),
            "{error}"
        );
        assert!(error.contains(&id(1)), "{error}");
        let done = run(
            &batches,
            Kind::Standard,
            &waiting(3),
            Duration::from_secs(30),
        )
        .await;
        assert_eq!(done.answer.unwrap(), r#"{"batchItemFailures":[]}"#);
    });
}

#[test]
fn ten_thousand_records_are_one_batch() {
    let work: Vec<Work> = (0..10_000)
        .map(|number| Work {
            group: number % 50,
            takes: 1,
            outcome: if number % 50 == 7 {
                Outcome::Throws
            } else {
                Outcome::Well
            },
        })
        .collect();
    paused(async {
        for kind in [Kind::Standard, Kind::Fifo] {
            let batches = Batches::new(&settings(), 8);
            let time = Duration::from_secs(600);
            let done = run(&batches, kind, &work, time).await;
            check(kind, &work, 8, false, time, &done);
        }
    });
}

#[test]
fn events_that_are_one_piece_of_work_are_no_batch() {
    for event in [
        "",
        "{}",
        "[]",
        "null",
        r#"{"Records":[]}"#,
        r#"{"Records":"no"}"#,
        r#"{"Records":[{"EventSource":"aws:sns","Sns":{"Message":"hi"}}]}"#,
        r#"{"Records":[{"eventSource":"aws:s3","s3":{}}]}"#,
        r#"{"Records":[{"eventSource":"aws:sqs","messageId":""}]}"#,
        r#"{"Records":[{"eventSource":"aws:sqs"}]}"#,
        r#"{"Records":[{"eventSource":"aws:sqs","messageId":"a"},{"eventSource":"aws:s3"}]}"#,
        r#"{"records":{"t-0":[{"offset":1}]}}"#,
        r#"{"eventSource":"aws:kafka","records":{}}"#,
        r#"{"eventSource":"aws:kafka","records":{"t-0":[]}}"#,
        // A tumbling window hands its state from call to call.
        r#"{"Records":[{"eventSource":"aws:kinesis","kinesis":{"partitionKey":"a","sequenceNumber":"1"}}],"window":{},"state":{}}"#,
    ] {
        assert!(read(&event.into()).is_none(), "{event}");
    }
}

#[test]
fn a_record_brings_its_trace() {
    let event = r#"{"Records":[{"messageId":"a","eventSource":"aws:sqs","attributes":{"AWSTraceHeader":"Root=1-2-3"}}]}"#;
    let batch = read(&event.into()).unwrap();
    let record = batch.record(0, std::time::Instant::now());
    assert_eq!(record.trace.as_deref(), Some("Root=1-2-3"));
    assert_eq!(record.id, "a");
    assert_eq!(record.event, event);
}
