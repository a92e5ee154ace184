//! The end of `surus work`, of its workers, and of its broker: nothing is lost, and nothing is
//! acknowledged that has not finished.

use std::collections::BTreeSet;

use super::database::{Kind, Server, in_each_database};
use super::kills::{self, Event};
use super::plain::Plain;
use super::table::Table;
use super::work::{descendants, signal};

in_each_database! {
    sigterm_finishes_the_running_job_and_returns_the_others
    job_that_outlasts_the_grace_period_is_released_at_once
    lease_is_extended_while_a_job_runs
    killed_processes_lose_no_job
}

fn sigterm_finishes_the_running_job_and_returns_the_others(kind: Kind) {
    ends_in_order(kind, "TERM");
}

#[test]
fn sigquit_and_sigint_finish_the_running_job_and_return_the_others() {
    ends_in_order(Kind::Sqlite, "QUIT");
    ends_in_order(Kind::Sqlite, "INT");
}

fn ends_in_order(kind: Kind, name: &str) {
    let plain = Plain::new(kind, "");
    for number in 0..6 {
        plain.push(number, "wait");
    }
    let mut work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.count("begins 0") == 1);
    work.signal(name);
    work.wait_for_log(|log| log.contains("running jobs finish"));
    plain.go(true);
    assert!(work.wait().success(), "{}", work.log());
    assert_eq!(plain.count("done 0"), 1);
    let rows = plain.table.rows();
    assert_eq!(rows.len(), 5, "{rows:?}");
    for row in rows {
        assert!(
            !row.is_reserved && row.attempts == 0,
            "as if never taken: {row:?}"
        );
    }
}

fn job_that_outlasts_the_grace_period_is_released_at_once(kind: Kind) {
    let plain = Plain::new(kind, "timeout = '60s'\n[work]\nshutdown_timeout = '1s'\n");
    plain.push(0, "hang");
    let mut work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.count("begins 0") == 1);
    work.signal("TERM");
    assert!(work.wait().success(), "{}", work.log());
    let rows = plain.table.rows();
    assert!(!rows[0].is_reserved && rows[0].attempts == 1, "{rows:?}");
}

fn lease_is_extended_while_a_job_runs(kind: Kind) {
    // Long enough to be extended in time on a busy machine.
    let plain = Plain::new(kind, "lease = '10s'\n");
    plain
        .table
        .push("default", r#"{"n": 0, "do": "sleep", "ms": 15000}"#);
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.count("begins 0") == 1);
    // Another process with the same queue would take an expired reservation.
    let other = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.table.is_empty());
    assert_eq!(plain.count("begins 0"), 1);
    drop(other);
}

#[test]
fn job_is_not_buried_for_kills_after_a_request_to_stop() {
    let settings = "lease = '3s'\ntries = 0\n[work]\nmax_losses = 1\n";
    let plain = Plain::new(Kind::Sqlite, settings);
    plain.push(0, "wait");
    for round in 1..=2 {
        let mut work = plain.start(&["--workers", "1"]);
        work.wait_until(|| plain.count("begins 0") == round);
        // As an orchestrator does that waits for less than work.shutdown_timeout.
        work.signal("TERM");
        work.wait_for_log(|log| log.contains("running jobs finish"));
        work.signal("KILL");
        work.wait();
    }
    let work = plain.start(&["--workers", "1"]);
    work.wait_until(|| plain.count("begins 0") == 3);
    plain.go(true);
    work.wait_until(|| plain.table.is_empty());
    assert_eq!(plain.count("done 0"), 1, "{:?}", plain.table.failed());
}

/// A job that kills the worker of another one twice, as one does that uses up all memory.
#[test]
fn innocent_job_does_not_run_a_third_time_with_the_one_that_kills_its_worker() {
    let plain = Plain::new(Kind::Sqlite, "tries = 0\nbackoff = '1s'\n");
    plain.push(0, "victim");
    plain.push(1, "kill victim");
    let work = plain.start(&["--workers", "2"]);
    work.wait_until(|| plain.table.is_empty());
    assert_eq!((plain.count("done 0"), plain.count("begins 1")), (1, 3));
    let failed = plain.table.failed();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let (_, payload, why) = &failed[0];
    assert!(
        payload.contains("kill victim") && why.contains("it crashed 3 workers"),
        "{failed:?}"
    );
}

#[test]
fn job_that_comes_while_php_cannot_start_keeps_its_tries() {
    let settings = "tries = 2\nbackoff = '1s'\ntimeout = '2s'\n";
    let plain = Plain::new(Kind::Sqlite, settings);
    let work = plain.start(&["--workers", "1", "--engine", "fork"]);
    plain.push(0, "");
    work.wait_until(|| plain.table.is_empty());
    let handler = plain.site.www().join("jobs.php");
    let code = std::fs::read_to_string(&handler).unwrap();
    std::fs::write(&handler, "<?php this does not boot").unwrap();
    // The first is the master process of the workers.
    signal(descendants(work.pid())[0], "KILL");
    // Its first run fails, so it would be buried if a return had cost it a try.
    plain.push(1, "throw once");
    // Surus has tried several times.
    work.wait_for_log(|log| log.matches("cannot restart PHP").count() >= 4);
    std::fs::write(&handler, code).unwrap();
    work.wait_until(|| plain.count("done 1") == 1 && plain.table.is_empty());
    assert!(plain.table.failed().is_empty(), "{}", work.log());
}

#[test]
fn locked_database_is_waited_for() {
    let plain = Plain::new(Kind::Sqlite, "");
    let work = plain.start(&["--workers", "1"]);
    plain.push(0, "wait");
    work.wait_until(|| plain.count("begins 0") == 1);
    plain.table.run("begin exclusive");
    plain.go(true);
    // Longer than the job runs, and than Surus waits for a lock.
    work.wait_for_log(|log| log.contains("cannot settle a job"));
    plain.table.run("commit");
    plain.push(1, "");
    work.wait_until(|| plain.table.is_empty());
    assert_eq!((plain.count("begins 0"), plain.count("done 1")), (1, 1));
}

#[test]
fn reload_runs_later_jobs_with_the_new_code() {
    for name in ["HUP", "USR2"] {
        let plain = Plain::new(Kind::Sqlite, "");
        let work = plain.start(&["--workers", "1"]);
        plain.push(0, "sleep");
        work.wait_until(|| plain.count("begins 0") == 1);
        let handler = plain.site.www().join("jobs.php");
        let code = std::fs::read_to_string(&handler).unwrap();
        std::fs::write(&handler, code.replace("'done'", "'newly done'")).unwrap();
        work.signal(name);
        work.wait_for_log(|log| log.contains("reloaded"));
        plain.push(1, "");
        work.wait_until(|| plain.table.is_empty());
        let done = (plain.count("done 0"), plain.count("newly done 1"));
        assert_eq!(done, (1, 1), "{name}");
    }
}

#[test]
fn usr1_reopens_the_log_and_disturbs_no_job() {
    let plain = Plain::new(Kind::Sqlite, "");
    let work = plain.start(&["--workers", "1"]);
    plain.push(0, "sleep");
    work.wait_until(|| plain.count("begins 0") == 1);
    work.signal("USR1");
    work.wait_for_log(|log| log.contains("logs reopened"));
    work.wait_until(|| plain.table.is_empty());
    assert_eq!((plain.count("begins 0"), plain.count("done 0")), (1, 1));
}

/// `make test-work` has more jobs.
fn killed_processes_lose_no_job(kind: Kind) {
    let settings = "lease = '3s'\ntries = 0\nbackoff = '1s'\n[work]\nmax_losses = 100\n";
    // Its own, because it is killed, too.
    let mut server = (kind != Kind::Sqlite).then(|| Server::start(kind));
    let mut plain = match &server {
        Some(server) => Plain::with(settings, |_| Table::on(server)),
        None => Plain::new(kind, settings),
    };
    let jobs = kills::jobs(300);
    for number in 0..jobs {
        let job = format!(r#"{{"n": {number}, "do": "sleep", "ms": {}}}"#, number % 10);
        plain.table.push("default", &job);
    }
    let args = ["--workers", "3"];
    let work = plain.start(&args);
    let work = kills::at_random(work, jobs / 12, |event| match event {
        Event::Killed => Some(plain.start(&args)),
        Event::Outage => {
            if let Some(server) = &mut server {
                server.kill();
                server.revive();
                plain.table.connect_again();
            }
            None
        }
    });
    work.wait_until_none(|| plain.table.rows().len());
    let notes: BTreeSet<_> = plain.notes().into_iter().collect();
    for number in 0..jobs {
        assert!(
            notes.contains(&format!("done {number}")),
            "{number} was lost"
        );
    }
    assert!(
        plain.table.failed().is_empty(),
        "{:?}",
        plain.table.failed()
    );
}
