//! Property tests of batches: no record is lost, no failed record is acknowledged, order is kept.
#![allow(clippy::unwrap_used)]

mod dead_letters;
mod model;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use self::model::{Batched, QueueKind, ScriptedOutcome, Work, acknowledged, event, id, run};
use super::*;

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
        deadline_margin: crate::units::Time::millis(100),
        ..Settings::default()
    }
}

fn works() -> impl Strategy<Value = Vec<Work>> {
    let outcome = prop_oneof![
        12 => Just(ScriptedOutcome::Well),
        2 => Just(ScriptedOutcome::Throws),
        1 => Just(ScriptedOutcome::NamesIt),
        2 => Just(ScriptedOutcome::Dies),
        1 => Just(ScriptedOutcome::Hangs),
    ];
    let work = (0..5_usize, 0..300_u64, outcome);
    let work = work.prop_map(|(group, takes, outcome)| Work {
        group,
        takes,
        outcome,
    });
    prop::collection::vec(work, 1..40)
}

fn kinds() -> impl Strategy<Value = QueueKind> {
    prop::sample::select(vec![
        QueueKind::Standard,
        QueueKind::Fifo,
        QueueKind::Kinesis,
        QueueKind::DynamoDb,
        QueueKind::Kafka,
    ])
}

fn check(
    kind: QueueKind,
    work: &[Work],
    workers: usize,
    strict: bool,
    time: Duration,
    done: &Batched,
) {
    let runs = &done.runs;
    let mut seen = BTreeSet::new();
    assert!(
        runs.iter().all(|run| seen.insert(run.index)),
        "no record runs twice"
    );
    assert!(runs.iter().all(|run| run.concurrent <= workers));
    assert!(done.ended <= done.began + time, "answered in time");

    let cut = done.began + time - settings().deadline_margin.0.min(time);
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
    if matches!(kind, QueueKind::Standard | QueueKind::Fifo) {
        assert_eq!(
            acknowledged, well,
            "nothing that was done is delivered again"
        );
    }
    let of = |index: usize| runs.iter().find(|run| run.index == index);
    if kind != QueueKind::Standard {
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
    if matches!(kind, QueueKind::Kinesis | QueueKind::DynamoDb)
        || (kind == QueueKind::Fifo && strict)
    {
        for failed in runs.iter().filter(|run| !run.well) {
            let later = runs.iter().filter(|run| run.index > failed.index || strict);
            let begun_after = later.filter(|run| {
                run.began > failed.ended.max(failed.began) && run.index != failed.index
            });
            let hung = work[failed.index].outcome == ScriptedOutcome::Hangs;
            assert!(
                hung || begun_after.count() == 0,
                "nothing begins that would be delivered again anyway"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn batch_loses_no_record_and_acknowledges_no_failure(
        kind in kinds(),
        work in works(),
        workers in 1..6_usize,
        strict: bool,
        own: Option<u8>,
        time in 50..3000_u64,
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
            check(kind, &work, workers, strict && kind == QueueKind::Fifo, time, &done);
        });
    }

    #[test]
    fn readable_event_splits_into_records(
        kind in kinds(),
        work in works(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
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
    fn suspect_record_runs_alone(kind in kinds(), work in works(), workers in 1..6_usize) {
        // Without a time limit, every record that may begin does.
        let mut work = work;
        work.retain(|work| work.outcome != ScriptedOutcome::Hangs);
        prop_assume!(!work.is_empty());
        let time = Duration::from_secs(3600);
        paused(async {
            let batches = Batches::new(&settings(), workers);
            let mut kills = vec![0; work.len()];
            for _ in 0..4 {
                let done = run(&batches, kind, &work, time).await;
                check(kind, &work, workers, false, time, &done);
                for run in &done.runs {
                    let alone = done.runs.iter().all(|other| {
                        other.index == run.index
                            || other.ended <= run.began
                            || run.ended <= other.began
                    });
                    let is_suspect = kills[run.index] >= 2;
                    assert!(alone || !is_suspect, "{} is alone", run.index);
                    let unordered = kind == QueueKind::Standard && is_suspect;
                    let mut later = done
                        .runs
                        .iter()
                        .filter(|later| later.began >= run.ended && later.index != run.index);
                    assert!(
                        !unordered || later.all(|later| kills[later.index] >= 2),
                        "{} is last",
                        run.index
                    );
                }
                for run in &done.runs {
                    let dies = work[run.index].outcome == ScriptedOutcome::Dies;
                    kills[run.index] += usize::from(dies);
                }
            }
        });
    }
}

fn waiting(records: usize) -> Vec<Work> {
    let work = Work {
        group: 0,
        takes: 20,
        outcome: ScriptedOutcome::Well,
    };
    vec![work; records]
}

#[test]
fn waiting_records_run_concurrently_on_all_workers() {
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
                QueueKind::Standard,
                &waiting(records),
                Duration::from_secs(30),
            )
            .await;
            assert_eq!(done.answer.unwrap(), r#"{"batchItemFailures":[]}"#);
            done.ended - done.began
        });
        // tokio's clock counts milliseconds and rounds up.
        let expected = Duration::from_millis(20 * rounds);
        assert!(
            took >= expected && took < expected + Duration::from_millis(2 * rounds),
            "{workers}: {took:?}"
        );
    }
}

#[test]
fn hanging_record_becomes_a_suspect() {
    let mut work = waiting(4);
    work[0].outcome = ScriptedOutcome::Hangs;
    paused(async {
        for record_timeout in [None, Some(crate::units::Time::seconds(7))] {
            let settings = Settings {
                record_timeout,
                ..settings()
            };
            let batches = Batches::new(&settings, 1);
            let mut ran = Vec::new();
            for _ in 0..3 {
                let done = run(
                    &batches,
                    QueueKind::Standard,
                    &work,
                    Duration::from_secs(10),
                )
                .await;
                check(
                    QueueKind::Standard,
                    &work,
                    1,
                    false,
                    Duration::from_secs(10),
                    &done,
                );
                let order = done.runs.iter().map(|run| run.index);
                ran.push(order.collect::<Vec<_>>());
            }
            // Without a limit of its own, the record takes all the time, twice.
            let first = match record_timeout {
                None => vec![0],
                Some(_) => vec![0, 1, 2, 3],
            };
            assert_eq!(ran, [first.clone(), first, vec![1, 2, 3, 0]]);
        }
    });
}

#[test]
fn failed_record_is_an_error_without_partial_batches() {
    let mut work = waiting(3);
    work[1].outcome = ScriptedOutcome::Throws;
    let settings = Settings {
        report_batch_item_failures: ReportBatchItemFailures::Off,
        ..settings()
    };
    paused(async {
        let batches = Batches::new(&settings, 2);
        let done = run(
            &batches,
            QueueKind::Standard,
            &work,
            Duration::from_secs(30),
        )
        .await;
        let error = done.answer.unwrap_err().to_string();
        assert!(
            error.contains("1 of 3 records failed or did not run"),
            "{error}"
        );
        assert!(error.contains(&id(1)), "{error}");
        let done = run(
            &batches,
            QueueKind::Standard,
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
                ScriptedOutcome::Throws
            } else {
                ScriptedOutcome::Well
            },
        })
        .collect();
    paused(async {
        for kind in [QueueKind::Standard, QueueKind::Fifo] {
            let batches = Batches::new(&settings(), 8);
            let time = Duration::from_secs(600);
            let done = run(&batches, kind, &work, time).await;
            check(kind, &work, 8, false, time, &done);
        }
    });
}

#[test]
fn event_without_separable_records_is_not_a_batch() {
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
        // A tumbling window passes its state from call to call.
        r#"{
            "Records": [{
                "eventSource": "aws:kinesis",
                "kinesis": {"partitionKey": "a", "sequenceNumber": "1"}
            }],
            "window": {},
            "state": {}
        }"#,
    ] {
        assert!(read(&event.into()).is_none(), "{event}");
    }
}

#[test]
fn record_keeps_its_trace() {
    let event = concat!(
        r#"{"Records":[{"messageId":"a","eventSource":"aws:sqs","#,
        r#""attributes":{"AWSTraceHeader":"Root=1-2-3"}}]}"#,
    );
    let batch = read(&event.into()).unwrap();
    let record = batch.record(0, std::time::Instant::now());
    assert_eq!(record.trace.as_deref(), Some("Root=1-2-3"));
    assert_eq!(record.id, "a");
    assert_eq!(record.event, event);
}
