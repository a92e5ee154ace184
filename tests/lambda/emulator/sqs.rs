//! The SQS event source mapping: successes are deleted, failures return, invalid configuration is
//! rejected.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use surus::emulator::Emulator;
use surus::emulator::schedule::EmulatedSchedule;
use surus::emulator::sqs::{Mapping, Poller};

use super::fake::{Fake, LONG, attached};
use super::queue::Queue;

/// A visibility timeout that no batch reaches.
const HOUR: Duration = Duration::from_secs(3600);

fn mapping(queue: &Queue) -> Mapping {
    Mapping {
        queue: queue.url(),
        batch: 10,
        window: Duration::ZERO,
        reports_failures: true,
        pollers: 1,
    }
}

async fn poll(emulator: &Emulator, mapping: Mapping) -> tokio::task::AbortHandle {
    let tell = Arc::new(|line: &str| panic!("{line}"));
    let poller = Poller::new(emulator.clone(), mapping, tell).await.unwrap();
    tokio::spawn(poller.run()).abort_handle()
}

async fn refused(emulator: &Emulator, mapping: Mapping) -> String {
    let poller = Poller::new(emulator.clone(), mapping, Arc::new(|_| {})).await;
    format!("{:#}", poller.err().unwrap())
}

async fn until(condition: impl Fn() -> bool) {
    let limit = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < limit, "the condition never became true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

type Batches = Arc<Mutex<Vec<Vec<String>>>>;

/// A function that records its batches and fails messages that begin with `bad`.
fn consume(runtime: Fake) -> Batches {
    let batches = Batches::default();
    let noted = batches.clone();
    runtime.serve(move |event| {
        let event: Value = serde_json::from_slice(&event).unwrap();
        let records = event["Records"].as_array().unwrap();
        let of = |record: &Value, key: &str| record[key].as_str().unwrap().to_string();
        let bodies = records.iter().map(|record| of(record, "body")).collect();
        noted.lock().unwrap().push(bodies);
        let failures: Vec<Value> = records
            .iter()
            .filter(|record| of(record, "body").starts_with("bad"))
            .map(|record| json!({"itemIdentifier": record["messageId"]}))
            .collect();
        Bytes::from(json!({"batchItemFailures": failures}).to_string())
    });
    batches
}

#[tokio::test]
async fn successes_are_deleted_and_failures_reach_the_dead_letter_queue() {
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    let batches = consume(runtime);
    let queue = Queue::start(false, HOUR).await;
    for body in ["one", "bad", "three"] {
        queue.send(body, None);
    }
    let poller = poll(&emulator, mapping(&queue)).await;
    // The poller receives no message before it is done with the last batch.
    until(|| {
        queue.show();
        queue.dead() == ["bad"]
    })
    .await;
    poller.abort();
    assert!(queue.left().is_empty());
    let batches = batches.lock().unwrap();
    assert_eq!(*batches, [vec!["one", "bad", "three"], vec!["bad"]]);
}

#[tokio::test]
async fn batch_without_failure_reports_succeeds_as_a_whole() {
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    consume(runtime);
    let queue = Queue::start(false, HOUR).await;
    queue.send("one", None);
    queue.send("bad", None);
    let whole = Mapping {
        reports_failures: false,
        ..mapping(&queue)
    };
    let poller = poll(&emulator, whole).await;
    until(|| queue.left().is_empty()).await;
    poller.abort();
    assert!(queue.dead().is_empty());
}

#[tokio::test]
async fn function_error_fails_the_batch() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    tokio::spawn(async move {
        loop {
            let event = runtime.next().await;
            runtime.fail(event.id(), &[], "{}").await;
        }
    });
    let queue = Queue::start(false, HOUR).await;
    queue.send("one", None);
    queue.send("two", None);
    let poller = poll(&emulator, mapping(&queue)).await;
    // The poller receives no message before it is done with the last batch.
    until(|| {
        queue.show();
        queue.dead() == ["one", "two"]
    })
    .await;
    poller.abort();
}

#[tokio::test]
async fn fifo_groups_keep_their_order() {
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    let batches = consume(runtime);
    let queue = Queue::start(true, HOUR).await;
    for number in 0..30 {
        let group = format!("g{}", number % 3);
        queue.send(&format!("{group} {number:02}"), Some(&group));
    }
    let several = Mapping {
        batch: 4,
        pollers: 3,
        ..mapping(&queue)
    };
    let poller = poll(&emulator, several).await;
    until(|| queue.left().is_empty()).await;
    poller.abort();
    let all: Vec<String> = batches.lock().unwrap().concat();
    assert_eq!(all.len(), 30);
    for group in ["g0", "g1", "g2"] {
        let of_group: Vec<_> = all.iter().filter(|body| body.starts_with(group)).collect();
        assert!(of_group.is_sorted(), "{of_group:?}");
    }
    assert!(batches.lock().unwrap().iter().all(|batch| batch.len() <= 4));
}

#[tokio::test]
async fn batching_window_joins_several_calls() {
    let (emulator, runtime) = attached(|f| f.timeout = LONG).await;
    let batches = consume(runtime);
    let queue = Queue::start(false, HOUR).await;
    for number in 0..25 {
        queue.send(&number.to_string(), None);
    }
    let large = Mapping {
        batch: 25,
        window: LONG,
        ..mapping(&queue)
    };
    let poller = poll(&emulator, large).await;
    until(|| queue.left().is_empty()).await;
    poller.abort();
    let sizes: Vec<usize> = batches.lock().unwrap().iter().map(Vec::len).collect();
    assert_eq!(sizes, [25]);
}

#[tokio::test]
async fn invalid_mapping_is_rejected() {
    let (emulator, _runtime) = attached(|f| f.timeout = Duration::from_secs(60)).await;
    let queue = Queue::start(false, Duration::from_secs(30)).await;
    let error = refused(&emulator, mapping(&queue)).await;
    assert!(
        error.contains(
            "visibility timeout of 30 seconds is less than the function's timeout of 60 seconds"
        ),
        "{error}"
    );
    let queue = Queue::start(true, Duration::from_secs(360)).await;
    let with = |change: fn(&mut Mapping)| {
        let mut mapping = mapping(&queue);
        change(&mut mapping);
        mapping
    };
    let error = refused(&emulator, with(|m| m.batch = 11)).await;
    assert!(
        error.contains("invalid batch size 11; use 1 to 10"),
        "{error}"
    );
    let error = refused(&emulator, with(|m| m.window = Duration::from_secs(1))).await;
    assert!(
        error.contains("FIFO queues do not support a batching window"),
        "{error}"
    );
    let error = refused(
        &emulator,
        with(|m| m.queue = "https://sqs.eu-west-1.amazonaws.com/1/q".into()),
    )
    .await;
    assert!(error.contains("local queue"), "{error}");
    let error = refused(&emulator, with(|m| m.queue = "http://127.0.0.1:1/q".into())).await;
    assert!(error.contains("cannot connect to 127.0.0.1:1"), "{error}");
    let queue = Queue::start(false, Duration::from_secs(360)).await;
    let mut large = mapping(&queue);
    large.batch = 100;
    let error = refused(&emulator, large).await;
    assert!(
        error.contains("batching window of at least 1 second"),
        "{error}"
    );
}

#[tokio::test]
async fn schedule_rereads_its_file_for_each_event() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("event.json");
    std::fs::write(&file, r#"{"run":1}"#).unwrap();
    let schedule: EmulatedSchedule = format!("20ms={}", file.display()).parse().unwrap();
    tokio::spawn(schedule.run(emulator.clone(), Arc::new(|line| panic!("{line}"))));
    let event = runtime.next().await;
    assert_eq!(event.body, r#"{"run":1}"#);
    std::fs::write(&file, r#"{"run":2}"#).unwrap();
    runtime.respond(event.id(), "{}").await;
    assert_eq!(runtime.next().await.body, r#"{"run":2}"#);
}
