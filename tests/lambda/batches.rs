//! Tests of batches with real PHP workers that crash, hang and throw.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use surus::engine::Engine;
use surus::engines::{self, Boot, CATALOGUE};
use surus::event::{Body, Event, Failure, Origin, Script};
use surus::fronts::lambda::Settings;
use surus::fronts::lambda::batch::{Batches, Record, read};
use surus::observe::metrics::Metrics;
use surus::units::Time;

const ENGINES: [&str; 3] = ["classic", "worker", "rewind"];

/// Does what the message's body says, and notes when it begins and when it is done.
const HANDLER: &str = r#"<?php
return static function (array $event): void {
    [$record] = $event['Records'];
    $notes = getenv('NOTES');
    $note = static function (string $what) use ($notes, $record): void {
        file_put_contents($notes, "$what $record[messageId]\n", FILE_APPEND);
    };
    $begun = static fn (): int => substr_count(file_get_contents($notes), 'begins');
    $note('begins');
    switch ($record['body']) {
        case 'kill':
            posix_kill(getmypid(), SIGKILL);
        case 'hang':
            sleep(600);
        case 'throw':
            throw new RuntimeException('as told');
        case 'meet':
            // Until four run at the same time, which never happens if they run one after another.
            for ($i = 0; $i < 3000 && $begun() < 4; ++$i) {
                usleep(10000);
            }
            $i < 3000 || throw new RuntimeException('nobody came');
    }
    $note('has done');
};
"#;

/// An engine for events.
struct Workers {
    pool: Arc<dyn Engine>,
    script: Script,
    dir: tempfile::TempDir,
}

static NEXT_EVENT: AtomicU64 = AtomicU64::new(1);

impl Workers {
    async fn boot(engine: &str, count: usize) -> Workers {
        let dir = tempfile::tempdir().unwrap();
        open_to_all(dir.path(), 0o777);
        crate::common::tree::copy_library(&dir.path().join("surus"));
        std::fs::write(dir.path().join("handler.php"), HANDLER).unwrap();
        let entry = CATALOGUE.iter().find(|entry| entry.name == engine).unwrap();
        let settings = engines::Settings {
            workers: Some(count),
            spare_workers: 0,
            queue_timeout: Time::seconds(600),
            queue_interval: Time::seconds(600),
            surus_php: std::env::var_os("SURUS_ENGINE_SURUS_PHP").map(Into::into),
            ..engines::Settings::default()
        };
        let script = dir.path().join("surus/lambda/events.php");
        let root: Arc<str> = dir.path().to_str().unwrap().into();
        let found = (script.clone(), root.to_string());
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
        let env = BTreeMap::from([
            ("SURUS_HANDLER".into(), path("handler.php")),
            ("NOTES".into(), path("notes")),
        ]);
        let pool = engines::boot(
            entry.name,
            entry,
            &settings,
            Arc::new(move || {
                Ok(Boot {
                    script: found.0.clone(),
                    document_root: found.1.clone(),
                    project: None,
                    code: None,
                    leaves_others: false,
                    warmup: Vec::new(),
                    left_to_others: Vec::new(),
                })
            }),
            vec![("log_errors".into(), "1".into())],
            env,
            Arc::new(Metrics::default()),
        )
        .await
        .expect("the engine boots");
        let script = Script {
            root,
            filename: script.into(),
            name: "/events".into(),
            path_info: "".into(),
            query: None,
            rewritten: None,
        };
        Workers { pool, script, dir }
    }

    /// Runs one record as the front end does.
    async fn handle(&self, record: Record) -> Result<Bytes, Failure> {
        let request = http::Request::builder()
            .method("POST")
            .uri("/events")
            .header("content-type", "application/json")
            .body(Body::Memory(record.event))
            .unwrap();
        let event = Event {
            id: NEXT_EVENT.fetch_add(1, Ordering::Relaxed),
            request,
            script: self.script.clone(),
            origin: Origin {
                client: Some(SocketAddr::from(([127, 0, 0, 1], 50000)).into()),
                server: None,
                https: false,
            },
            variables: Vec::new(),
            deadline: record.deadline,
            idle_timeout: None,
            spool: None,
            completion_token: None,
            early_hints: None,
        };
        let (head, body) = self.pool.handle(Box::new(event)).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        match head.status.as_u16() {
            200 => Ok(body),
            _ => {
                let error: Value = serde_json::from_slice(&body).unwrap();
                Err(Failure::Thrown(error["errorMessage"].to_string()))
            }
        }
    }

    /// Runs a batch of messages and returns which of them are delivered again.
    async fn run(
        &self,
        batches: &Batches,
        messages: &[(&str, Option<&str>)],
        timeout: Duration,
    ) -> BTreeSet<String> {
        let records = messages.iter().enumerate().map(|(number, (body, group))| {
            let suffix = if group.is_some() { ".fifo" } else { "" };
            json!({
                "messageId": number.to_string(),
                "body": body,
                "eventSource": "aws:sqs",
                "eventSourceARN": format!("arn:aws:sqs:r:1:q{suffix}"),
                "attributes": { "MessageGroupId": group },
            })
        });
        let event = json!({ "Records": records.collect::<Vec<_>>() }).to_string();
        let batch = read(&event.into()).unwrap();
        let deadline = Instant::now() + timeout;
        let answer = batches
            .run(&batch, 0, deadline, |record| self.handle(record))
            .await
            .unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let failures = answer["batchItemFailures"].as_array().unwrap().iter();
        failures
            .map(|failure| failure["itemIdentifier"].as_str().unwrap().to_string())
            .collect()
    }

    /// The handlers' new notes.
    fn notes(&self) -> Vec<(String, String)> {
        let path: PathBuf = self.dir.path().join("notes");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
        lines
            .map(|(what, id)| (what.to_string(), id.to_string()))
            .collect()
    }
}

fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Long enough on any machine.
const TIMEOUT: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
async fn crash_fails_only_its_record() {
    for engine in ENGINES {
        let workers = Workers::boot(engine, 3).await;
        let batches = Batches::new(&Settings::default(), 3);
        let bodies = [
            "well", "kill", "well", "throw", "well", "well", "kill", "well",
        ];
        let messages: Vec<_> = (0..40).map(|number| (bodies[number % 8], None)).collect();
        let failed: BTreeSet<_> = messages
            .iter()
            .enumerate()
            .filter(|(_, message)| message.0 != "well")
            .map(|(number, _)| number.to_string())
            .collect();
        // In the third round the killers are suspects and run last.
        for round in 0..3 {
            assert_eq!(
                workers.run(&batches, &messages, TIMEOUT).await,
                failed,
                "{engine}"
            );
            let notes = workers.notes();
            let all = |what: &str| -> Vec<usize> {
                let of_what = notes.iter().filter(|note| note.0 == what);
                of_what.map(|note| note.1.parse().unwrap()).collect()
            };
            let (began, done) = (all("begins"), all("has done"));
            assert_eq!(began.len(), 40, "{engine}: each begins once: {began:?}");
            let done: BTreeSet<_> = done.iter().map(|number| number.to_string()).collect();
            assert!(done.is_disjoint(&failed), "{engine}: {done:?}");
            assert_eq!(done.len() + failed.len(), 40, "{engine}: {done:?}");
            if round == 2 {
                let last: BTreeSet<_> = began[30..]
                    .iter()
                    .map(|number| bodies[number % 8])
                    .collect();
                assert_eq!(last, BTreeSet::from(["kill"]), "{engine}: {began:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_record_fails_alone_and_its_worker_is_replaced() {
    // The engines run at the same time, since the records only wait.
    let engines = ENGINES.map(|engine| async move {
        let workers = Workers::boot(engine, 1).await;
        let settings = Settings {
            record_timeout: Some(Time::seconds(8)),
            ..Settings::default()
        };
        let batches = Batches::new(&settings, 1);
        let messages = [("well", None), ("hang", None), ("well", None)];
        let failed = workers.run(&batches, &messages, TIMEOUT).await;
        assert_eq!(failed, BTreeSet::from(["1".into()]), "{engine}");
        assert_eq!(workers.notes().len(), 5, "{engine}");
    });
    futures_util::future::join_all(engines).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unordered_records_run_concurrently() {
    for engine in ENGINES {
        let workers = Workers::boot(engine, 4).await;
        let batches = Batches::new(&Settings::default(), 4);
        let failed = workers.run(&batches, &[("meet", None); 4], TIMEOUT).await;
        assert_eq!(failed, BTreeSet::new(), "{engine}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_run_concurrently_and_keep_their_order_despite_crashes() {
    for engine in ENGINES {
        let workers = Workers::boot(engine, 3).await;
        let batches = Batches::new(&Settings::default(), 3);
        let groups = ["a", "b", "c", "d", "e"];
        let messages: Vec<_> = (0..50)
            .map(|number| {
                let body = match number {
                    17 => "kill",
                    23 => "throw",
                    _ => "well",
                };
                (body, Some(groups[number % 5]))
            })
            .collect();
        let failed = workers.run(&batches, &messages, TIMEOUT).await;
        // Including the rest of their groups.
        let expected = (17..50).step_by(5).chain((23..50).step_by(5));
        assert_eq!(
            failed,
            expected.map(|number: usize| number.to_string()).collect(),
            "{engine}"
        );
        let notes = workers.notes();
        for group in 0..5 {
            let of_group = |number: &usize| number % 5 == group;
            let notes = notes
                .iter()
                .map(|(what, id)| (what.as_str(), id.parse().unwrap()));
            let ran: Vec<(&str, usize)> = notes.filter(|(_, number)| of_group(number)).collect();
            let end = if group == 2 {
                17
            } else if group == 3 {
                23
            } else {
                50
            };
            let mut expected: Vec<(&str, usize)> = Vec::new();
            for number in (0..end).filter(of_group) {
                expected.extend([("begins", number), ("has done", number)]);
            }
            if end < 50 {
                expected.push(("begins", end));
            }
            assert_eq!(ran, expected, "{engine}");
        }
    }
}
