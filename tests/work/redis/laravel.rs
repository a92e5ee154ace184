//! Laravel's jobs in Redis without configuration: pushed by Laravel, decided by Laravel, and left
//! as it would leave them.

use std::collections::BTreeSet;

use redis::Commands;

use super::super::laravel::{Laravel, RUNS, debian, runs};
use super::super::site::framework;
use super::super::table::now;
use super::super::work::with_longer_times;
use super::Redis;

const MAILS: &str = "app_queues:mails";
const THEIRS: &str = "app_queues:theirs";

#[test]
fn jobs_of_an_unconfigured_application_run_as_laravel_decides() {
    for (libraries, engine) in [
        (debian(), "rewind"),
        (debian(), "worker"),
        (framework("laravel10"), "rewind"),
    ] {
        let redis = Redis::start();
        let laravel = Laravel::on_redis(&libraries, redis.port);
        laravel.push(&["well", "throw", "release", "fail", "redis", "later well"]);
        let mut args = vec!["--workers", "1"];
        // The default needs no option.
        if engine != "rewind" {
            args.extend(["--engine", engine]);
        }
        let work = laravel.start(&args);
        work.wait_for_log(|log| log.contains(&format!("jobs_in=\"{MAILS}\"")));
        work.wait_until(|| redis.is_empty(MAILS));
        let mut runs = [&RUNS[..], &["redis, attempt 1"]].concat();
        runs.sort();
        assert_eq!(
            laravel.runs("redis/mails"),
            runs,
            "{engine} {}: {}",
            libraries.display(),
            work.log()
        );
        let failed = laravel.table.failed();
        assert_eq!(failed.len(), 2, "recorded by Laravel: {failed:?}");
        assert!(redis.buried(MAILS).is_empty());
        let touched: i64 = redis.ask("GET app_touched");
        assert_eq!(touched, 1);
    }
}

#[test]
fn job_that_ends_its_process_is_tried_again_and_failed_by_laravel() {
    with_longer_times(a_job_that_never_ends_begins_twice);
}

/// Whether it does so before its timeout.
fn a_job_that_never_ends_begins_twice(timeout: &str) -> bool {
    let redis = Redis::start();
    let mut laravel = Laravel::on_redis(&debian(), redis.port);
    laravel.set("HANG", timeout.trim_end_matches('s'));
    laravel.push(&["exit", "kill", "hang", "well"]);
    let work = laravel.start(&["--workers", "2"]);
    work.wait_until(|| redis.is_empty(MAILS));
    let noted = laravel.notes();
    if runs(&noted, "hang") < 2 {
        return false;
    }
    for what in ["exit", "kill", "hang"] {
        assert_eq!(runs(&noted, what), 2, "{noted:?}");
    }
    assert_eq!(laravel.table.failed().len(), 3);
    assert_eq!(
        noted.iter().filter(|note| note.starts_with("well")).count(),
        1
    );
    true
}

#[test]
fn failure_that_laravel_cannot_record_is_kept_in_redis() {
    let redis = Redis::start();
    let mut laravel = Laravel::on_redis(&debian(), redis.port);
    laravel.set("FAILED_DATABASE", "missing");
    laravel.push(&["fail"]);
    let work = laravel.start(&["--workers", "1"]);
    work.wait_until(|| redis.is_empty(MAILS));
    let buried = redis.buried(MAILS);
    assert_eq!(buried.len(), 1, "{}", work.log());
    let job = buried[0].1.to_string();
    assert!(
        job.contains("the job has called fail()") && job.contains("redis"),
        "{job}"
    );
}

/// Laravel's own queue does the same with the same job.
#[test]
fn reserved_and_released_jobs_are_those_of_laravel_byte_for_byte() {
    let redis = Redis::start();
    let laravel = Laravel::on_redis(&debian(), redis.port);
    let mut connection = redis.connect();
    for (job, theirs) in [("wait", "pop"), ("back off", "release")] {
        let _: () = redis.ask("FLUSHALL");
        laravel.push(&[job]);
        let [waiting, _, _] = redis.jobs(MAILS);
        let _: i64 = connection.rpush(THEIRS, &waiting[0]).unwrap();
        let _: i64 = connection.rpush(format!("{THEIRS}:notify"), 1).unwrap();
        laravel.run("theirs.php", &[theirs]);
        let [_, delayed, reserved] = redis.jobs(THEIRS);
        assert_eq!(delayed.len() + reserved.len(), 1);
        let work = laravel.start(&["--workers", "1"]);
        work.wait_until(|| {
            let [_, our_delayed, our_reserved] = redis.jobs(MAILS);
            (&our_delayed, &our_reserved) == (&delayed, &reserved)
        });
        let mut keys = |queue: &str| {
            let keys: Vec<String> = connection.keys(format!("{queue}*")).unwrap();
            let ends = keys.iter().map(|key| key[queue.len()..].to_string());
            ends.collect::<BTreeSet<String>>()
        };
        assert_eq!(keys(MAILS), keys(THEIRS));
        let (end, after) = if theirs == "pop" {
            ("reserved", 30)
        } else {
            ("delayed", 3600)
        };
        for queue in [MAILS, THEIRS] {
            let key = format!("{queue}:{end}");
            let scored: Vec<(String, f64)> = connection.zrange_withscores(key, 0, -1).unwrap();
            let left = scored[0].1 as i64 - now();
            assert!((after - 60..=after).contains(&left), "{queue}: {left}");
        }
        laravel.go();
    }
}

#[test]
fn job_that_surus_returns_is_popped_by_laravel_as_its_first_try() {
    let redis = Redis::start();
    let laravel = Laravel::on_redis(&debian(), redis.port);
    laravel.push(&["wait", "well"]);
    let [before, _, _] = redis.jobs(MAILS);
    let mut work = laravel.start(&["--workers", "1"]);
    work.wait_until(|| !laravel.notes().is_empty());
    work.signal("TERM");
    work.wait_for_log(|log| log.contains("running jobs finish"));
    laravel.go();
    assert!(work.wait().success(), "{}", work.log());
    let [waiting, _, reserved] = redis.jobs(MAILS);
    assert_eq!((waiting, reserved), (before[1..].to_vec(), vec![]));
    let notified: usize = redis.connect().llen(format!("{MAILS}:notify")).unwrap();
    assert_eq!(notified, 1, "a queue:work that blocks is told");
}
