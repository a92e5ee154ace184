//! Jobs for a handler: done, failed, delayed, in groups.

use std::path::PathBuf;

use serde_json::json;

use super::database::{Kind, in_each_database};
use super::shares::assert_small_queue_does_not_wait;
use super::site::Site;
use super::table::{Table, now};
use super::work::{Work, notes, with_longer_times};
use crate::common::tree;

/// Does what the job says, and notes when it begins and when it is done.
const HANDLER: &str = r#"<?php
return static function (array $job, Surus\Lambda\Context $context): void {
    $note = static function (string $what) use ($job): void {
        file_put_contents(getenv('NOTES'), "$what $job[n]\n", FILE_APPEND | LOCK_EX);
    };
    $note('begins');
    switch ($job['do'] ?? '') {
        case 'kill':
            posix_kill(getmypid(), SIGKILL);
        case 'kill surus':
            $stat = file_get_contents('/proc/' . posix_getppid() . '/stat');
            posix_kill((int) explode(' ', substr($stat, strrpos($stat, ')')))[2], SIGKILL);
        case 'kill victim':
            $file = getenv('NOTES') . '.victim';
            for ($waited = 0; $waited < 300; ++$waited) {
                $victim = (int) @file_get_contents($file);
                if ($victim && file_exists("/proc/$victim")) {
                    posix_kill($victim, SIGKILL);
                    break;
                }
                usleep(10000);
            }
            posix_kill(getmypid(), SIGKILL);
        case 'victim':
            file_put_contents(getenv('NOTES') . '.victim', getmypid());
            usleep($job['ms'] * 1000);
            unlink(getenv('NOTES') . '.victim');
            break;
        case 'hang':
            while (true) {
                sleep(600);
            }
        case 'throw':
            throw new RuntimeException('as told');
        case 'throw once':
            if (1 === substr_count(file_get_contents(getenv('NOTES')), "begins $job[n]\n")) {
                throw new RuntimeException('as told');
            }
            break;
        case 'exit':
            exit(3);
        case 'memory':
            str_repeat('x', 1 << 40);
        case 'sleep':
            usleep($job['ms'] * 1000);
            break;
        case 'wait':
            while (!file_exists(getenv('NOTES') . '.go')) {
                usleep(5000);
                clearstatcache();
            }
            break;
        case 'context':
            $context->remainingMs() > 50000 || throw new RuntimeException('no deadline');
            $note("id $context->awsRequestId of");
            break;
        case 'late':
            register_shutdown_function(static function () use ($note): void {
                usleep(300000);
                $note('shut down');
            });
    }
    $note('done');
};
"#;

/// A site with a handler, a table of jobs, and notes.
pub struct Plain {
    pub site: Site,
    pub table: Table,
    pub notes: PathBuf,
}

impl Plain {
    /// `settings` are those of the queue `default`, then further tables. `{source}` in them is its
    /// source.
    pub fn new(kind: Kind, settings: &str) -> Plain {
        Plain::with(settings, |site| Table::create(kind, &site.tmp()))
    }

    /// The same with tables that are there.
    pub fn with(settings: &str, table: impl FnOnce(&Site) -> Table) -> Plain {
        let site = Site::new();
        let table = table(&site);
        let source = table.source.clone();
        Plain::at(site, table, &source, settings)
    }

    /// The same with another broker.
    pub fn from(source: &str, settings: &str) -> Plain {
        let site = Site::new();
        let table = Table::create(Kind::Sqlite, &site.tmp());
        Plain::at(site, table, source, settings)
    }

    fn at(site: Site, table: Table, source: &str, settings: &str) -> Plain {
        let settings = settings.replace("{source}", source);
        let config = format!(
            "[lambda]\nscript = 'surus/lambda/events.php'\n[[queue]]\nhandler = 'jobs.php'\n\
             source = '{source}'\n{settings}"
        );
        let site = site.write("jobs.php", HANDLER).write("surus.toml", &config);
        tree::copy_library(&site.www().join("surus"));
        let notes = site.tmp().join("notes");
        Plain { site, table, notes }
    }

    pub fn start(&self, args: &[&str]) -> Work {
        self.start_with(args, &[])
    }

    pub fn start_with(&self, args: &[&str], env: &[(&str, &str)]) -> Work {
        let notes = ("SURUS_ENV_NOTES", self.notes.to_str().unwrap());
        Work::start(&self.site, args, &[&[notes], env].concat())
    }

    /// Queues a job that does something.
    pub fn push(&self, number: usize, what: &str) -> i64 {
        let job = json!({ "n": number, "do": what, "ms": 1500 });
        self.table.push("default", &job.to_string())
    }

    /// Lets the jobs go on that wait, or lets later ones wait.
    pub fn go(&self, may_go: bool) {
        let file = self.notes.with_extension("go");
        match may_go {
            true => std::fs::write(file, "").unwrap(),
            false => std::fs::remove_file(file).unwrap(),
        }
    }

    pub fn notes(&self) -> Vec<String> {
        notes(&self.notes)
    }

    pub fn count(&self, note: &str) -> usize {
        self.notes().iter().filter(|it| *it == note).count()
    }
}

in_each_database! {
    jobs_run_once_and_are_deleted
    failing_job_is_tried_again_and_buried_with_its_reason
    job_that_crashes_exits_or_never_ends_harms_no_other
    job_that_kills_its_workers_is_buried
    job_longer_than_the_limit_is_buried_with_all_its_bytes
    job_is_not_done_before_its_shutdown_functions
    group_runs_in_order_even_if_a_job_fails
    other_group_does_not_wait_for_jobs_that_wait_for_theirs
    delayed_job_and_expired_reservation_run_when_they_are_due
    small_queue_does_not_wait_for_a_large_one
}

fn jobs_run_once_and_are_deleted(kind: Kind) {
    let plain = Plain::new(kind, "");
    for number in 0..20 {
        plain.push(number, "");
    }
    let id = plain.push(20, "context");
    let work = plain.start(&["--workers", "3"]);
    work.wait_until(|| plain.table.is_empty());
    // Jobs that arrive while the worker waits.
    for number in 21..30 {
        plain.push(number, "");
    }
    work.wait_until(|| plain.table.is_empty());
    for number in 0..30 {
        assert_eq!(
            plain.count(&format!("done {number}")),
            1,
            "{:?}",
            plain.notes()
        );
    }
    assert_eq!(plain.count(&format!("id {id} of 20")), 1);
    assert!(plain.table.failed().is_empty());
}

fn failing_job_is_tried_again_and_buried_with_its_reason(kind: Kind) {
    let plain = Plain::new(kind, "tries = 2\nbackoff = '1s'\n");
    plain.push(1, "throw");
    plain.push(2, "throw once");
    let work = plain.start(&["--workers", "2"]);
    work.wait_until(|| plain.table.is_empty());
    assert_eq!(plain.count("begins 1"), 2);
    assert_eq!((plain.count("begins 2"), plain.count("done 2")), (2, 1));
    let failed = plain.table.failed();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let (queue, payload, exception) = &failed[0];
    assert_eq!(queue, "default");
    assert!(payload.contains(r#""n":1"#), "{payload}");
    assert!(
        exception.contains("try 2 of 2 failed") && exception.contains("as told"),
        "{exception}"
    );
}

fn job_that_crashes_exits_or_never_ends_harms_no_other(kind: Kind) {
    with_longer_times(|timeout| only_a_job_that_never_ends_times_out(kind, timeout));
}

/// Whether it began and is the only job that reached the timeout.
fn only_a_job_that_never_ends_times_out(kind: Kind, timeout: &str) -> bool {
    let plain = Plain::new(kind, &format!("tries = 1\ntimeout = '{timeout}'\n"));
    for (number, what) in ["kill", "exit", "memory", "hang", "throw"]
        .into_iter()
        .enumerate()
    {
        plain.push(number, what);
        plain.push(10 + number, "");
    }
    let work = plain.start(&["--workers", "2"]);
    work.wait_until(|| plain.table.is_empty());
    if work.timeouts() > 1 || plain.count("begins 3") == 0 {
        return false;
    }
    for number in 0..5 {
        assert_eq!(plain.count(&format!("begins {number}")), 1);
        assert_eq!(plain.count(&format!("done {}", 10 + number)), 1);
    }
    let failed = plain.table.failed();
    let reasons: Vec<_> = failed
        .iter()
        .map(|(_, _, reason)| reason.as_str())
        .collect();
    for reason in [
        "the PHP process exited",
        "exit()",
        "Allowed memory size",
        &format!("no response before the deadline: its time limit is {timeout}"),
        "as told",
    ] {
        assert!(
            reasons.iter().any(|it| it.contains(reason)),
            "{reason}: {reasons:?}"
        );
    }
    true
}

fn job_that_kills_its_workers_is_buried(kind: Kind) {
    let plain = Plain::new(kind, "tries = 0\nbackoff = '1s'\n[work]\nmax_losses = 2\n");
    plain.push(1, "kill");
    let work = plain.start(&["--workers", "2"]);
    work.wait_until(|| plain.table.is_empty());
    assert_eq!(plain.count("begins 1"), 2);
    let failed = plain.table.failed();
    assert!(failed[0].2.contains("it crashed 2 workers"), "{failed:?}");
}

fn job_longer_than_the_limit_is_buried_with_all_its_bytes(kind: Kind) {
    let plain = Plain::new(kind, "[work]\nmax_payload = '1K'\n");
    let long = json!({"n": 1, "do": "", "more": "x".repeat(2000)}).to_string();
    plain.table.push("default", &long);
    plain.push(2, "");
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.table.is_empty());
    assert_eq!((plain.count("begins 1"), plain.count("done 2")), (0, 1));
    let failed = plain.table.failed();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let (_, payload, exception) = &failed[0];
    assert_eq!(*payload, long);
    assert!(exception.contains("work.max_payload"), "{exception}");
}

fn job_is_not_done_before_its_shutdown_functions(kind: Kind) {
    let plain = Plain::new(kind, "");
    plain.push(1, "late");
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.count("done 1") == 1);
    work.wait_until(|| {
        let is_empty = plain.table.is_empty();
        assert!(
            !is_empty || plain.count("shut down 1") == 1,
            "{:?}",
            plain.notes()
        );
        is_empty
    });
}

fn group_runs_in_order_even_if_a_job_fails(kind: Kind) {
    with_longer_times(|backoff| other_groups_do_not_wait(kind, backoff));
}

/// Whether the jobs of another group end before a job runs again that has failed.
fn other_groups_do_not_wait(kind: Kind, backoff: &str) -> bool {
    let settings = format!("group = 'customer'\nbackoff = '{backoff}'\n");
    let plain = Plain::new(kind, &settings);
    for number in 0..9 {
        let what = if number == 0 { "throw once" } else { "" };
        let job = json!({ "n": number, "do": what, "customer": number % 3 });
        plain.table.push("default", &job.to_string());
    }
    let work = plain.start(&["--workers", "4"]);
    work.wait_until(|| plain.table.is_empty());
    let notes = plain.notes();
    for customer in 0..3 {
        let done = notes
            .iter()
            .filter_map(|note| note.strip_prefix("done ")?.parse::<usize>().ok());
        let done: Vec<_> = done.filter(|number| number % 3 == customer).collect();
        assert_eq!(done, [customer, customer + 3, customer + 6], "{notes:?}");
    }
    let at = |note: &str| notes.iter().position(|it| it == note);
    at("done 7") < at("done 0")
}

fn other_group_does_not_wait_for_jobs_that_wait_for_theirs(kind: Kind) {
    let plain = Plain::new(kind, "group = 'customer'\nbackoff = '1h'\n");
    let push = |number: usize, what: &str, customer: &str| {
        let job = json!({ "n": number, "do": what, "customer": customer });
        plain.table.push("default", &job.to_string());
    };
    // One runs, and one waits for its next try.
    push(0, "wait", "a");
    push(1, "throw once", "b");
    for number in 2..12 {
        push(number, "", if number % 2 == 0 { "a" } else { "b" });
    }
    push(12, "", "c");
    let work = plain.start(&["--workers", "4"]);
    work.wait_until(|| plain.count("done 12") == 1);
    for number in 2..12 {
        assert_eq!(plain.count(&format!("begins {number}")), 0);
    }
    plain.go(true);
    work.wait_until(|| plain.count("done 10") == 1);
}

fn delayed_job_and_expired_reservation_run_when_they_are_due(kind: Kind) {
    let plain = Plain::new(kind, "lease = '3s'\n");
    let due = now() + 2;
    plain.table.push_at("default", r#"{"n": 1}"#, due);
    plain.push(2, "");
    plain.push(3, "");
    // Another worker has crashed with one, and works on the other.
    plain.table.run(&format!(
        "update jobs set reserved_at = {}, attempts = 1 where id = 2; \
         update jobs set reserved_at = {}, attempts = 1 where id = 3;",
        now() - 60,
        now() + 60
    ));
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.count("done 2") == 1 && plain.count("done 1") == 1);
    assert!(now() >= due, "not before it is due");
    assert_eq!(plain.count("begins 3"), 0, "reserved by another worker");
}

fn small_queue_does_not_wait_for_a_large_one(kind: Kind) {
    let plain = Plain::new(
        kind,
        "name = 'large'\n[[queue]]\nname = 'small'\nhandler = 'jobs.php'\n\
         source = '{source}'\n",
    );
    let numbers = match kind {
        Kind::Sqlite => {
            "(with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000) \
             select i from n)"
        }
        Kind::MySql => "(select seq as i from seq_1_to_100000)",
        Kind::Postgres => "(select generate_series(1, 100000) as i)",
    };
    plain.table.run(&format!(
        "insert into jobs (queue, payload, attempts, available_at, created_at) \
         select 'large', '{{\"n\": ' || i || ', \"do\": \"sleep\", \"ms\": 1000}}', 0, 0, 0 \
         from {numbers} n"
    ));
    assert_small_queue_does_not_wait(&plain, |job| {
        plain.table.push("small", job);
    });
}

/// Its results cannot be JSON, or are too long.
const RETURNS: &str = r#"<?php
return static function (array $job): mixed {
    file_put_contents(getenv('NOTES'), "done $job[n]\n", FILE_APPEND | LOCK_EX);
    $self = [];
    $self[] = &$self;
    return match ($job['do']) {
        'resource' => fopen('php://memory', 'r'),
        'not a number' => NAN,
        'binary' => "\xff",
        'recursion' => $self,
        'long' => str_repeat('x', 9 << 20),
    };
};
"#;

#[test]
fn job_is_done_whatever_its_handler_returns() {
    let plain = Plain::new(Kind::Sqlite, "");
    std::fs::write(plain.site.www().join("jobs.php"), RETURNS).unwrap();
    let results = ["resource", "not a number", "binary", "recursion", "long"];
    for (number, what) in results.into_iter().enumerate() {
        plain.push(number, what);
    }
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.table.is_empty());
    for (number, what) in results.into_iter().enumerate() {
        assert_eq!(plain.count(&format!("done {number}")), 1, "{what}");
    }
    let failed = plain.table.failed();
    assert!(failed.is_empty(), "{failed:?}");
}

/// Takes its memory in small pieces, so that no page is free at the limit.
const FILLS: &str = r"<?php
return static function (array $job): void {
    $all = new SplFixedArray(2_000_000);
    for ($at = 0; true; $at++) {
        $all[$at] = str_repeat('x', 40 + $at % 9);
    }
};
";

#[test]
fn job_that_fills_all_pages_of_its_memory_is_failed_with_the_reason_of_php() {
    for engine in ["classic", "worker", "rewind"] {
        let settings = "tries = 1\n[php]\ndisplay_errors = 1\nmemory_limit = '64M'\n";
        let plain = Plain::new(Kind::Sqlite, settings);
        std::fs::write(plain.site.www().join("jobs.php"), FILLS).unwrap();
        plain.push(1, "");
        let work = plain.start(&["--workers", "1", "--engine", engine]);
        work.wait_until(|| plain.table.is_empty());
        let failed = plain.table.failed();
        assert_eq!(failed.len(), 1, "{engine} {}", work.log());
        let reason = "FatalError: Allowed memory size";
        assert!(failed[0].2.contains(reason), "{engine} {failed:?}");
    }
}

#[test]
fn mistake_in_the_configuration_stops_the_start() {
    for (settings, error) in [
        ("[[queue]]\nname = 'a'\nformat = 'plain'\n", "queue.handler"),
        (
            "[[queue]]\nname = 'a'\nhandler = 'jobs.php'\n",
            "queue.source",
        ),
        ("[[queue]]\nname = 'a'\n", "artisan"),
        ("table = 'nothing'\n", "has no table nothing"),
        ("lease = '1s'\n", "queue.lease is 1s"),
        (
            "[[queue]]\nhandler = 'jobs.php'\nsource = 'redis://127.0.0.1'\n",
            "queue default: two of [[queue]]",
        ),
    ] {
        let plain = Plain::new(Kind::Sqlite, settings);
        let mut work = Work::spawn(&plain.site, &["--workers", "1"], &[]);
        assert_eq!(work.wait().code(), Some(1), "{settings}");
        work.wait_for_log(|log| log.contains(error));
    }
}

#[test]
fn workers_follow_the_jobs_and_no_more_jobs_are_taken_than_they_can_run() {
    let settings = "[pool.work]\nmin_workers = 1\nmax_workers = 3\n";
    let plain = Plain::new(Kind::Sqlite, settings);
    let work = plain.start(&[]);
    for number in 0..20 {
        plain.push(number, "wait");
    }
    let begun = || {
        plain
            .notes()
            .iter()
            .filter(|it| it.starts_with("begins"))
            .count()
    };
    work.wait_until(|| begun() == 3);
    let taken = |reserved: &str| {
        let sql = format!("SELECT count(*) FROM jobs WHERE reserved_at IS {reserved} NULL");
        plain.table.ask(&sql)[0][0].parse::<usize>().unwrap()
    };
    // Those that run, and the next one.
    assert!((3..=4).contains(&taken("NOT")), "{}", taken("NOT"));
    plain.go(true);
    work.wait_until(|| plain.table.is_empty());
    for number in 0..20 {
        assert_eq!(plain.count(&format!("done {number}")), 1);
    }
}
