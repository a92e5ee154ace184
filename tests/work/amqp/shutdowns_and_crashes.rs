//! Shutdowns and crashes of `surus work`, its workers, the server and the network: nothing is lost,
//! and nothing is acknowledged that has not finished.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::time::Duration;

use super::super::kills::{self, Event};
use super::super::proxy::Proxy;
use super::{Broker, Kind, Message, Site, broker};

/// Three jobs run, three are reserved and three wait at the server.
#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn sigterm_finishes_the_running_jobs_and_returns_the_others_where_the_queue_allows() {
    for (kind, order) in [
        (Kind::Classic, [3, 4, 5, 6, 7, 8]),
        (Kind::Limited, [3, 4, 5, 6, 7, 8]),
        // Without a delivery limit, RabbitMQ puts what is returned at the end.
        (Kind::Quorum, [6, 7, 8, 3, 4, 5]),
    ] {
        let site = Site::with(kind, "", Broker::port);
        for number in 0..9 {
            site.push(number, if number < 3 { "wait" } else { "" });
        }
        let mut work = site.plain.start(&["--workers", "3"]);
        let noted = |what: &str| {
            let notes = site.plain.notes();
            notes.iter().filter(|it| it.starts_with(what)).count()
        };
        work.wait_until(|| noted("begins") == 3 && site.ready() == 3);
        work.signal("TERM");
        work.wait_for_log(|log| log.contains("shutting down"));
        // Returned while the first still run.
        work.wait_until(|| site.ready() == 6);
        site.plain.go(true);
        assert!(work.wait().success(), "{}", work.log());
        assert_eq!(noted("done"), 3);
        let left: Vec<_> = site.left().iter().map(Message::number).collect();
        assert_eq!(left, order, "{kind:?}");
    }
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn job_that_outlasts_the_grace_period_is_released_at_once_and_its_try_counts() {
    let site = Site::new("timeout = '60s'\n[work]\nshutdown_timeout = '1s'\n");
    site.push(0, "hang");
    let mut work = site.start();
    work.wait_until(|| site.count("begins 0") == 1);
    work.signal("TERM");
    assert!(work.wait().success(), "{}", work.log());
    let left = site.left();
    assert_eq!(left.len(), 1, "{}", work.log());
    assert_eq!(left[0].header("surus-attempts").as_deref(), Some("1"));
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn job_whose_channel_was_closed_is_not_acknowledged_and_runs_again() {
    let proxy = OnceCell::new();
    let site = Site::with(Kind::Classic, "", |broker| {
        proxy.get_or_init(|| Proxy::to(broker.port())).port
    });
    let proxy = proxy.into_inner().unwrap();
    let work = site.start();
    for round in 0..2 {
        let (first, second) = (10 * round, 10 * round + 1);
        site.push(first, "wait");
        work.wait_until(|| site.count(&format!("begins {first}")) == 1);
        proxy.cut();
        // It arrives while Surus cannot see it.
        site.push(second, "");
        work.wait_until(|| site.ready() == 2);
        site.plain.go(true);
        work.wait_until(|| site.count(&format!("done {first}")) == 1);
        work.wait_for_log(|log| log.matches("the broker failed").count() > round);
        assert_eq!(site.ready(), 2, "both are still there");
        proxy.mend();
        work.wait_until(|| site.count(&format!("done {second}")) == 1);
        work.wait_until(|| site.count(&format!("done {first}")) == 2);
        site.plain.go(false);
    }
    let log = work.log();
    assert!(log.contains("the broker answers again"), "{log}");
    assert!(!log.contains("io_loop"), "lapin's own lines: {log}");
    work.end();
    assert!(site.left().is_empty());
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn jobs_that_have_not_begun_run_once_after_a_cut_connection() {
    let proxy = OnceCell::new();
    // Leases are looked at each second.
    let site = Site::with(Kind::Classic, "lease = '3s'\n", |broker| {
        proxy.get_or_init(|| Proxy::to(broker.port())).port
    });
    let proxy = proxy.into_inner().unwrap();
    // One runs, one waits in Surus, and the others at the server.
    site.push(0, "wait");
    for number in 1..4 {
        site.push(number, "");
    }
    let work = site.start();
    work.wait_until(|| site.count("begins 0") == 1 && site.ready() == 2);
    proxy.cut();
    work.wait_until(|| site.ready() == 4);
    let lost = "the reservation of a job is lost; its broker delivers it again";
    work.wait_for_log(|log| log.matches(lost).count() == 2);
    proxy.mend();
    site.plain.go(true);
    work.wait_until(|| site.count("done 3") == 1 && site.count("done 0") == 2);
    work.end();
    for number in 1..4 {
        assert_eq!(site.count(&format!("begins {number}")), 1, "{number}");
    }
    assert!(site.left().is_empty());
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn job_of_a_server_without_memory_stays_until_it_takes_messages_again() {
    let _alone = broker::alone();
    let site = Site::unguarded(Kind::Classic, "tries = 2\nbackoff = '1s'\n", Broker::port);
    site.push(0, "wait");
    site.push(1, "throw once");
    let work = site.start();
    work.wait_until(|| site.count("begins 0") == 1);
    site.broker
        .tell("vm_memory_monitor:set_vm_memory_high_watermark(0.0000001).");
    work.wait_until(|| {
        site.broker
            .log()
            .contains("memory resource limit alarm set on node")
    });
    site.plain.go(true);
    // The job has failed and must be sent again, which the server does not allow.
    work.wait_for_log(|log| log.contains("the server takes no messages at present"));
    assert_eq!((site.count("done 0"), site.count("begins 1")), (1, 1));
    site.broker
        .tell("vm_memory_monitor:set_vm_memory_high_watermark(0.9).");
    work.wait_until(|| site.count("done 1") == 1);
    assert_eq!(site.count("begins 1"), 2, "it was not sent twice");
    work.end();
    assert!(site.left().is_empty());
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn killed_server_has_all_jobs_again_that_have_not_been_acknowledged() {
    let _alone = broker::alone();
    for kind in [Kind::Classic, Kind::Limited] {
        let site = Site::unguarded(kind, "", Broker::port);
        site.push(0, "wait");
        let work = site.plain.start(&["--workers", "2"]);
        work.wait_until(|| site.count("begins 0") == 1);
        site.push(1, "");
        work.wait_until(|| site.count("done 1") == 1);
        site.broker.kill();
        work.wait_for_log(|log| log.contains("the broker failed"));
        site.broker.revive();
        site.push(2, "");
        // It was not acknowledged, so the server delivers it again while its first run lasts.
        work.wait_until(|| site.count("begins 0") == 2);
        site.plain.go(true);
        work.wait_until(|| site.count("done 0") == 2 && site.count("done 2") == 1);
        work.end();
        // The acknowledgement of job 1 may have been lost with the connection.
        assert!((1..=2).contains(&site.count("done 1")), "{kind:?}");
        assert_eq!(site.count("done 2"), 1, "{kind:?}");
        assert!(site.left().is_empty(), "{kind:?}");
    }
}

/// `make test-work` has more jobs.
#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn killed_processes_lose_no_job_in_rabbitmq() {
    no_job_is_lost(Kind::Classic);
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn killed_processes_lose_no_job_in_a_quorum_queue() {
    no_job_is_lost(Kind::Quorum);
}

fn no_job_is_lost(kind: Kind) {
    let settings = "tries = 0\nbackoff = '1s'\n[work]\nmax_losses = 100\n";
    let proxy = OnceCell::new();
    let site = Site::with(kind, settings, |broker| {
        proxy.get_or_init(|| Proxy::to(broker.port())).port
    });
    let proxy = proxy.into_inner().unwrap();
    let jobs = kills::jobs(150);
    for number in 0..jobs {
        let job = format!(r#"{{"n": {number}, "do": "sleep", "ms": {}}}"#, number % 10);
        site.broker.push(&site.queue, &job);
    }
    let args = ["--workers", "3"];
    let work = site.plain.start(&args);
    let work = kills::at_random(work, jobs / 12, |event| match event {
        Event::Killed => Some(site.plain.start(&args)),
        Event::Outage => {
            proxy.cut();
            std::thread::sleep(Duration::from_millis(20));
            proxy.mend();
            None
        }
    });
    let missing = || {
        let notes: BTreeSet<_> = site.plain.notes().into_iter().collect();
        let missing = (0..jobs).filter(|number| !notes.contains(&format!("done {number}")));
        missing.count()
    };
    work.wait_until_none(missing);
    assert!(site.buried().is_empty());
}
