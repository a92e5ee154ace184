//! The end of `surus work`, of its workers, of the server and of the network: nothing is lost, and
//! nothing is acknowledged that has not finished.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::kills::{self, Event};
use super::super::plain::Plain;
use super::super::proxy::Proxy;
use super::{DEFAULT, Redis, Site};

#[test]
fn sigterm_finishes_the_running_job_and_returns_the_others_in_order() {
    let site = Site::new("");
    let mut work = site.plain.start(&["--workers", "1"]);
    // After short jobs Surus takes several at once.
    for number in 10..30 {
        site.push(number, "");
    }
    work.wait_until(|| site.is_empty());
    site.push(0, "wait");
    work.wait_until(|| site.plain.count("begins 0") == 1);
    let later: Vec<_> = (1..9)
        .map(|number| format!(r#"{{"n": {number}}}"#))
        .collect();
    for job in &later {
        site.push_json(job);
    }
    work.wait_until(|| site.redis.jobs(DEFAULT)[2].len() > 1);
    // Redis forgets the scripts that it has run, again and again, as a restarted server has.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = site.redis.connect();
            let until = Instant::now() + Duration::from_secs(60);
            while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                let flushed = redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection);
                flushed.unwrap();
            }
        });
        work.signal("TERM");
        work.wait_for_log(|log| log.contains("shutting down"));
        site.plain.go(true);
        let status = work.wait();
        is_over.store(true, Ordering::Relaxed);
        assert!(status.success(), "{}", work.log());
    });
    assert_eq!(site.plain.count("done 0"), 1);
    let jobs = site.redis.jobs(DEFAULT);
    assert_eq!(jobs, [later, vec![], vec![]], "as if never taken");
}

#[test]
fn job_that_outlasts_the_grace_period_is_released_at_once() {
    let site = Site::new("timeout = '60s'\n[work]\nshutdown_timeout = '1s'\n");
    site.push(0, "hang");
    let mut work = site.plain.start(&["--workers", "1"]);
    work.wait_until(|| site.plain.count("begins 0") == 1);
    work.signal("TERM");
    assert!(work.wait().success(), "{}", work.log());
    let [waiting, _, reserved] = site.redis.jobs(DEFAULT);
    assert_eq!((waiting.len(), reserved.len()), (1, 0));
    assert!(
        waiting[0].starts_with("surus:1:"),
        "its try counts: {waiting:?}"
    );
}

#[test]
fn lease_is_extended_while_a_job_runs() {
    // Long enough to be extended in time on a busy machine.
    let site = Site::new("lease = '10s'\n");
    site.push_json(r#"{"n": 0, "do": "sleep", "ms": 15000}"#);
    let work = site.plain.start(&["--workers", "1"]);
    work.wait_until(|| site.plain.count("begins 0") == 1);
    // Another process with the same queue would take an expired reservation.
    let other = site.plain.start(&["--workers", "1"]);
    work.wait_until(|| site.is_empty());
    assert_eq!(site.plain.count("begins 0"), 1);
    drop(other);
}

#[test]
fn killed_server_is_waited_for_and_the_running_job_settled_later() {
    // The server may be killed after it has reserved job 1 and before it has said so.
    let mut site = Site::new("lease = '3s'\n");
    let work = site.plain.start(&["--workers", "1"]);
    site.push(0, "wait");
    work.wait_until(|| site.plain.count("begins 0") == 1);
    site.push(1, "");
    site.redis.kill();
    site.plain.go(true);
    work.wait_for_log(|log| log.contains("cannot settle a job"));
    site.redis.revive();
    site.push(2, "");
    work.wait_until(|| site.is_empty());
    for number in 0..3 {
        assert_eq!(site.plain.count(&format!("begins {number}")), 1);
        assert_eq!(site.plain.count(&format!("done {number}")), 1);
    }
    assert!(
        work.log().contains("the broker answers again"),
        "{}",
        work.log()
    );
}

#[test]
fn cut_network_is_waited_for() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port);
    let plain = Plain::from(&format!("redis://127.0.0.1:{}/0", proxy.port), "");
    let site = Site { plain, redis };
    let work = site.plain.start(&["--workers", "1"]);
    for round in 0..3 {
        let (first, second) = (10 * round, 10 * round + 1);
        site.push(first, "wait");
        work.wait_until(|| site.plain.count(&format!("begins {first}")) == 1);
        proxy.cut();
        // It arrives while Surus cannot see it.
        site.push(second, "");
        site.plain.go(true);
        work.wait_until(|| site.plain.count(&format!("done {first}")) == 1);
        proxy.mend();
        work.wait_until(|| site.is_empty());
        site.plain.go(false);
        for number in [first, second] {
            assert_eq!(site.plain.count(&format!("begins {number}")), 1);
        }
    }
}

#[test]
fn server_without_memory_loses_no_job() {
    let site = Site::new("");
    for number in 0..5 {
        site.push(number, "");
    }
    let _: String = site.redis.ask("CONFIG SET maxmemory 1");
    let work = site.plain.start(&["--workers", "1"]);
    work.wait_for_log(|log| log.contains("operation=\"receive\""));
    // It refuses transactions, too.
    let waiting: usize = site.redis.ask(&format!("LLEN {DEFAULT}"));
    assert_eq!(waiting, 5, "still there");
    let _: String = site.redis.ask("CONFIG SET maxmemory 0");
    work.wait_until(|| site.is_empty());
    for number in 0..5 {
        assert_eq!(site.plain.count(&format!("done {number}")), 1);
    }
}

/// `make test-work` has more jobs.
#[test]
fn killed_processes_lose_no_job_in_redis() {
    let settings = "lease = '3s'\ntries = 0\nbackoff = '1s'\n[work]\nmax_losses = 100\n";
    let mut site = Site::new(settings);
    let jobs = kills::jobs(300);
    for number in 0..jobs {
        let job = format!(r#"{{"n": {number}, "do": "sleep", "ms": {}}}"#, number % 10);
        site.push_json(&job);
    }
    let args = ["--workers", "3"];
    let work = site.plain.start(&args);
    let work = kills::at_random(work, jobs / 12, |event| match event {
        Event::Killed => Some(site.plain.start(&args)),
        Event::Outage => {
            site.redis.kill();
            site.redis.revive();
            None
        }
    });
    work.wait_until_none(|| site.redis.jobs(DEFAULT).concat().len());
    let notes: BTreeSet<_> = site.plain.notes().into_iter().collect();
    for number in 0..jobs {
        assert!(
            notes.contains(&format!("done {number}")),
            "{number} was lost"
        );
    }
    let buried = site.redis.buried(DEFAULT);
    assert!(buried.is_empty(), "{buried:?}");
}
