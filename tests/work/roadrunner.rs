//! Jobs for workers of RoadRunner: what they get, and each of their answers.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::database::{Kind, in_each_database};
use super::operate::{metrics, said};
use super::plain::Plain;
use super::redis::{DEFAULT, Redis};
use super::work::Work;

/// Does what the job says, as a worker of RoadRunner's mode `jobs`.
const WORKER: &str = r#"<?php
namespace Surus\Tests\RoadRunner;
require __DIR__.'/frames.php';
$worker = new Worker();
while ($task = $worker->next()) {
    $job = json_decode($task['body'], true);
    $n = $job['n'] ?? 'none';
    $note = function (string $what) use ($n): void {
        file_put_contents(getenv('NOTES'), "$what $n\n", FILE_APPEND | LOCK_EX);
    };
    $answer = function (string $json, int $stream = 0) use ($worker): void {
        $worker->write(pack_frame($json, 0, [0], $stream));
    };
    $say = function (int $type, array $data = []) use ($answer): void {
        $answer(json_encode(['type' => $type, 'data' => $data]));
    };
    $note('begins');
    switch ($job['do'] ?? '') {
        case 'context':
            $note(getenv('RR_MODE').' '.json_encode($task));
            $say(0);
            break;
        case 'kill':
            posix_kill(getmypid(), SIGKILL);
        case 'hang':
            sleep(600);
        case 'error':
            $worker->error('as told');
            break;
        case 'stream':
            $answer('{"type":0}', STREAM);
            $answer('');
            break;
        case 'answer':
            $answer($job['answer']);
            break;
        case 'count down':
            // As in the documentation of RoadRunner.
            $left = (int) $task['headers']['left'][0] - 1;
            if ($left > 0) {
                $note("left $left of {$task['id']}");
                $say($job['type'], [
                    'message' => 'not yet', 'requeue' => true, 'delay_seconds' => $job['delay'],
                    'headers' => ['left' => [(string) $left]] + $task['headers'],
                ]);
                break;
            }
            // Fall through.
        default:
            echo 'noise';
            $note('done');
            $say(2);
    }
}
"#;

const FRAMES: &str = include_str!("../php/roadrunner/frames.php");

/// The same site, whose handler is a worker.
pub fn with_worker(plain: Plain) -> Plain {
    let Plain { site, table, notes } = plain;
    let site = site.write("jobs.php", WORKER).write("frames.php", FRAMES);
    Plain { site, table, notes }
}

fn in_sqlite(settings: &str) -> Plain {
    let settings = format!("format = 'roadrunner'\n{settings}");
    with_worker(Plain::new(Kind::Sqlite, &settings))
}

fn push(plain: &Plain, job: Value) {
    plain.table.push("default", &job.to_string());
}

/// A message that names its job.
fn message(headers: Value, payload: Value) -> Value {
    json!({"id": "the-id", "job": "App\\Job", "headers": headers, "payload": payload.to_string()})
}

/// The context that a worker has noted for a job.
fn context(plain: &Plain, number: &str) -> Value {
    let notes = plain.notes();
    let noted = notes.iter().find_map(|note| {
        let note = note.strip_prefix("jobs ")?;
        note.strip_suffix(number)
    });
    serde_json::from_str(noted.unwrap_or_else(|| panic!("{notes:?}"))).unwrap()
}

#[test]
fn worker_gets_the_context_and_the_body_of_each_job() {
    let plain = in_sqlite("pipeline = 'mails'\ntimeout = '90s'\n");
    let body = json!({"n": 1, "do": "context"});
    push(&plain, message(json!({"trace": ["a", "b"]}), body.clone()));
    push(&plain, json!({"n": 2, "do": "context"}));
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.table.is_empty());
    let seen = context(&plain, "1");
    let expected = json!({
        "body": body.to_string(), "id": "the-id", "job": "App\\Job",
        "headers": {"trace": ["a", "b"]}, "driver": "unknown", "queue": "default",
        "pipeline": "mails", "timeout": 90,
    });
    assert_eq!(seen, expected);
    let seen = context(&plain, "2");
    assert_eq!(seen["job"], "deduced_by_rr");
    assert_eq!(seen["id"], "2");
    let metrics = metrics(&work);
    assert!(
        metrics.contains(r#"class="App\\Job""#),
        "jobs are counted by their names: {metrics}"
    );
}

#[test]
fn each_answer_settles_its_job() {
    let plain = in_sqlite("");
    let answers = [
        ("acknowledged", r#"{"type":2}"#),
        ("completed", r#"{"type":0,"data":[]}"#),
        ("empty", ""),
        (
            "failed",
            r#"{"type":1,"data":{"message":"failed as told","requeue":false}}"#,
        ),
        (
            "refused",
            r#"{"type":3,"data":{"message":"refused as told","requeue":false}}"#,
        ),
    ];
    for (name, answer) in answers {
        push(&plain, json!({"n": name, "do": "answer", "answer": answer}));
    }
    let work = plain.start(&["--workers", "2"]);
    work.wait_until(|| plain.table.is_empty());
    for (name, _) in answers {
        assert_eq!(plain.count(&format!("begins {name}")), 1);
    }
    let mut reasons: Vec<_> = plain.table.failed().into_iter().map(|it| it.2).collect();
    reasons.sort();
    assert_eq!(reasons, ["failed as told", "refused as told"]);
    let failed = said(&plain.site, &work, &["work", "failed"]);
    assert!(failed.contains("refused as told"), "{failed}");
}

in_each_database! {
    requeued_job_runs_again_after_its_delay_with_the_changed_headers
}

fn requeued_job_runs_again_after_its_delay_with_the_changed_headers(kind: Kind) {
    let plain = with_worker(Plain::new(kind, "format = 'roadrunner'\n"));
    for (number, kind) in [(1, 1), (4, 4)] {
        let job = json!({"n": number, "do": "count down", "type": kind, "delay": 1});
        push(
            &plain,
            message(json!({"left": ["5"], "kept": ["yes"]}), job),
        );
    }
    let work = plain.start(&["--workers", "2"]);
    work.wait_until(|| plain.table.is_empty());
    for number in [1, 4] {
        // More often than `tries`, which is for failures.
        assert_eq!(plain.count(&format!("begins {number}")), 5);
        assert_eq!(plain.count(&format!("done {number}")), 1);
        for left in 1..5 {
            let note = format!("left {left} of the-id {number}");
            assert_eq!(plain.count(&note), 1, "{:?}", plain.notes());
        }
    }
    assert!(plain.table.failed().is_empty());
}

#[test]
fn job_that_fails_without_an_answer_is_tried_again_and_harms_no_other() {
    let plain = in_sqlite("tries = 2\nbackoff = '1s'\ntimeout = '2s'\n");
    let failing = ["kill", "hang", "error", "stream"];
    for what in failing {
        push(&plain, json!({"n": what, "do": what}));
        push(&plain, json!({"n": format!("after {what}")}));
    }
    for (name, answer) in [("broken", "{"), ("unknown", r#"{"type":9}"#)] {
        push(&plain, json!({"n": name, "do": "answer", "answer": answer}));
    }
    let work = plain.start(&["--workers", "2"]);
    work.wait_until(|| plain.table.is_empty());
    for what in failing {
        assert_eq!(plain.count(&format!("begins {what}")), 2, "{what}");
        assert_eq!(plain.count(&format!("done after {what}")), 1, "{what}");
    }
    let failed = plain.table.failed();
    assert_eq!(failed.len(), 6, "{failed:?}");
    for reason in [
        "the PHP process exited",
        "no response before the deadline",
        "as told",
        "the answer to a job must be one frame",
        "cannot parse the worker's answer to a job",
        "has the type 9",
    ] {
        assert!(
            failed.iter().any(|it| it.2.contains(reason)),
            "{reason}: {failed:?}"
        );
    }
}

#[test]
fn job_that_kills_its_workers_is_buried() {
    let plain = in_sqlite("tries = 0\nbackoff = '1s'\n[work]\nmax_losses = 2\n");
    push(&plain, message(json!({}), json!({"n": 1, "do": "kill"})));
    // Without an id of its own, it is known by its row.
    push(&plain, json!({"n": 2, "do": "kill"}));
    let work = plain.start(&["--workers", "2"]);
    work.wait_until(|| plain.table.is_empty());
    let failed = plain.table.failed();
    assert_eq!(failed.len(), 2, "{failed:?}");
    for (_, _, why) in failed {
        assert!(why.contains("it crashed 2 workers"), "{why}");
    }
}

#[test]
fn requeued_job_in_redis_keeps_the_changed_headers() {
    let redis = Redis::start();
    let plain = with_worker(Plain::from(&redis.url(), "format = 'roadrunner'\n"));
    let job = json!({"n": 1, "do": "count down", "type": 4, "delay": 0});
    let job = message(json!({"left": ["3"]}), job).to_string();
    let _: i64 = redis::cmd("RPUSH")
        .arg(DEFAULT)
        .arg(job)
        .query(&mut redis.connect())
        .unwrap();
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.count("done 1") == 1);
    work.wait_until(|| redis.is_empty(DEFAULT));
    assert_eq!(plain.count("begins 1"), 3);
    assert!(redis.buried(DEFAULT).is_empty());
}

#[test]
fn project_of_roadrunner_runs_its_own_worker() {
    let plain = in_sqlite("");
    plain.site.stored();
    let yaml = "server:\n  command: php consumer.php\njobs:\n  consume: [mails]\n  \
                pipelines:\n    mails:\n      driver: memory\n";
    let source = &plain.table.source;
    let config = format!("[[queue]]\nformat = 'roadrunner'\nsource = '{source}'\n");
    // Root runs no program that a file of PHP's user names.
    let project = tempfile::tempdir().unwrap();
    set_permissions(project.path(), Permissions::from_mode(0o755)).unwrap();
    for (name, text) in [
        (".rr.yaml", yaml),
        ("surus.toml", &config),
        ("consumer.php", WORKER),
        ("frames.php", FRAMES),
    ] {
        std::fs::write(project.path().join(name), text).unwrap();
    }
    push(&plain, json!({"n": 1}));
    let args = ["--workers", "1", "--engine", "roadrunner"];
    let notes = ("SURUS_ENV_NOTES", plain.notes.to_str().unwrap());
    let work = Work::spawn_in(project.path(), &args, &[notes]);
    work.wait_until(|| plain.count("done 1") == 1);
    work.wait_for_log(|log| log.contains("jobs.pipelines.mails (driver memory)"));
}

#[test]
fn mistake_in_the_configuration_stops_the_start() {
    let format = "[[queue]]\nname = 'a'\nformat = 'roadrunner'\n";
    for (settings, error) in [
        ("handler = 'jobs.php'\n", "queue.source"),
        ("source = 'sqlite:a.sqlite'\n", "queue.handler"),
        ("source = 'sqlite:a.sqlite'\nhandler = 'no.php'\n", "no.php"),
        (
            "source = 'sqlite:a.sqlite'\nhandler = 'jobs.php'\ngroup = 'a'\n",
            "queue.group",
        ),
    ] {
        let plain = with_worker(Plain::new(Kind::Sqlite, &format!("{format}{settings}")));
        let mut work = Work::spawn(&plain.site, &["--workers", "1"], &[]);
        assert_eq!(work.wait().code(), Some(1), "{settings}");
        work.wait_for_log(|log| log.contains(error));
    }
    let plain = Plain::new(Kind::Sqlite, "pipeline = 'a'\n");
    let mut work = Work::spawn(&plain.site, &["--workers", "1"], &[]);
    assert_eq!(work.wait().code(), Some(1));
    work.wait_for_log(|log| log.contains("queue.pipeline"));
}
