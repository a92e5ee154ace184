//! Jobs for a handler: done, failed, buried, wrong.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

use super::super::operate::said;
use super::super::plain::Plain;
use super::super::shares::{assert_small_queue_does_not_wait, assert_weights_hold, large_job};
use super::super::work::Work;
use super::{Broker, Kind, Site};

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn jobs_run_once_and_in_order_from_classic_and_quorum_queues() {
    for kind in [Kind::Classic, Kind::Quorum] {
        let site = Site::with(kind, "", Broker::port);
        for number in 0..20 {
            site.push(number, "");
        }
        let work = site.start();
        work.wait_until(|| site.count("done 19") == 1);
        // Jobs that arrive while Surus waits.
        for number in 20..30 {
            site.push(number, "");
        }
        work.wait_until(|| site.count("done 29") == 1);
        let notes = site.plain.notes();
        let done = notes.iter().filter_map(|it| it.strip_prefix("done "));
        let done: Vec<usize> = done.map(|number| number.parse().unwrap()).collect();
        assert_eq!(done, (0..30).collect::<Vec<_>>(), "{kind:?}");
        work.end();
        assert!(site.left().is_empty(), "{kind:?}: all are acknowledged");
    }
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn failing_job_is_tried_again_and_buried_with_its_reason_until_it_is_retried() {
    let site = Site::new("tries = 2\nbackoff = '1s'\n");
    let mut headers = FieldTable::default();
    headers.insert("trace".into(), AMQPValue::LongString("abc".into()));
    let properties = BasicProperties::default()
        .with_headers(headers)
        .with_message_id("the-first".into())
        // Servers refuse a message from another connection with this user.
        .with_user_id("guest".into())
        .with_expiration("600000".into());
    let odd = r#"{ "n":1,"do":"throw", "large":12345678901234567890 }"#;
    site.broker.push_with(&site.queue, odd, properties);
    site.push(2, "throw once");
    let work = site.plain.start(&["--workers", "2"]);
    let surus = |verb: &str, args: &[&str]| {
        let asked = [&["work", verb], args].concat();
        said(&site.plain.site, &work, &asked)
    };
    work.wait_until(|| surus("failed", &[]).contains("the-first"));
    work.wait_until(|| site.count("done 2") == 1);
    assert_eq!((site.count("begins 1"), site.count("begins 2")), (2, 2));
    let failed = surus("failed", &[]);
    assert!(failed.contains("try 2 of 2 failed"), "{failed}");
    let retried = surus("retry", &["--id", "the-first"]);
    assert!(retried.contains("retried the-first"), "{retried}");
    work.wait_until(|| site.count("begins 1") == 4 && surus("failed", &[]).contains("the-first"));
    let status = surus("status", &[]);
    assert!(status.contains(&site.queue), "{status}");
    work.end();
    let buried = site.buried();
    assert_eq!(buried.len(), 1);
    let job = &buried[0];
    assert_eq!(
        (&*job.body, job.header("trace").as_deref()),
        (odd, Some("abc"))
    );
    let why = job.header("surus-reason").unwrap();
    assert!(
        why.contains("try 2 of 2 failed") && why.contains("as told"),
        "{why}"
    );
    assert!(site.left().is_empty());
}

/// An operator may have declared it.
#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn queue_of_buried_jobs_stays_when_its_last_job_is_forgotten() {
    let site = Site::new("tries = 1\n");
    site.push(1, "throw");
    let work = site.start();
    let failed = format!("{}.failed", site.queue);
    work.wait_until(|| site.broker.count(&failed) == Some(1));
    said(&site.plain.site, &work, &["work", "forget", "--all"]);
    assert_eq!(site.broker.count(&failed), Some(0));
    work.end();
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn job_longer_than_the_limit_is_buried_with_all_its_bytes() {
    let site = Site::new("[work]\nmax_payload = '1K'\n");
    let long = serde_json::json!({"n": 1, "more": "x".repeat(2000)}).to_string();
    site.broker.push(&site.queue, &long);
    site.push(2, "");
    let work = site.start();
    work.wait_until(|| site.count("done 2") == 1);
    work.end();
    assert_eq!(site.count("begins 1"), 0);
    let buried = site.buried();
    assert_eq!((buried.len(), &buried[0].body), (1, &long));
    let why = buried[0].header("surus-reason").unwrap();
    assert!(why.contains("work.max_payload"), "{why}");
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn no_more_jobs_are_taken_than_twice_the_workers_can_run() {
    let site = Site::new("");
    for number in 0..10 {
        site.push(number, "wait");
    }
    let work = site.start();
    work.wait_until(|| site.count("begins 0") == 1);
    assert!(site.ready() >= 8, "{}", site.ready());
    site.plain.go(true);
    work.wait_until(|| site.count("done 9") == 1);
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn other_group_is_delivered_although_many_jobs_wait_for_theirs() {
    let site = Site::new("group = 'customer'\n");
    let push = |number: usize, what: &str, customer: &str| {
        let job = serde_json::json!({ "n": number, "do": what, "customer": customer });
        site.broker.push(&site.queue, &job.to_string());
    };
    push(0, "wait", "a");
    for number in 1..20 {
        push(number, "", "a");
    }
    push(20, "", "b");
    let work = site.plain.start(&["--workers", "2"]);
    work.wait_until(|| site.count("done 20") == 1);
    assert_eq!(site.count("begins 1"), 0);
    site.plain.go(true);
    work.wait_until(|| site.count("done 19") == 1);
    work.end();
    assert!(site.left().is_empty());
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn two_queues_share_the_workers_by_weight_while_both_have_jobs() {
    // More than run before the look.
    for (ms, jobs) in [(100, 60), (3, 1000)] {
        let light = Broker::get().create(Kind::Classic);
        let port = Broker::get().port();
        let site = Site::new(&format!(
            "weight = 3\n[[queue]]\nname = '{light}'\nweight = 1\nhandler = 'jobs.php'\n\
             source = 'amqp://guest:guest@127.0.0.1:{port}'\n"
        ));
        for number in 0..jobs {
            let job = |queue| format!(r#"{{"n": "{queue} {number}", "do": "sleep", "ms": {ms}}}"#);
            site.broker.push(&site.queue, &job("heavy"));
            site.broker.push(&light, &job("light"));
        }
        let work = site.plain.start(&["--workers", "2"]);
        assert_weights_hold(&work, &[(&site.queue, 3), (&light, 1)], jobs);
        work.end();
    }
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn small_queue_does_not_wait_for_a_large_one() {
    let small = Broker::get().create(Kind::Classic);
    let settings =
        format!("[[queue]]\nname = '{small}'\nhandler = 'jobs.php'\nsource = '{{source}}'\n");
    let site = Site::new(&settings);
    let large = (1..=100_000).map(large_job);
    site.broker.push_all(&site.queue, large);
    assert_small_queue_does_not_wait(&site.plain, |job| site.broker.push(&small, job));
    // The server stays for the other tests.
    site.broker.purge(&site.queue);
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn server_or_queue_that_cannot_be_used_stops_the_start_with_the_remedy() {
    let site = Site::new("");
    let port = site.broker.port();
    for (url, error) in [
        (
            format!("amqp://guest:guest@127.0.0.1:{port}"),
            "has no queue default; declare it",
        ),
        (
            format!("amqp://guest:hidden@127.0.0.1:{port}"),
            "check that it runs, and its address, virtual host, user and password",
        ),
        (
            "amqp://guest:hidden@127.0.0.1:1".into(),
            "cannot use the RabbitMQ server amqp 127.0.0.1:1",
        ),
        (
            "amqp://guest:hidden@127.0.0.1:x".into(),
            "queue.source is not the URL",
        ),
    ] {
        let plain = Plain::from(&url, "");
        let mut work = Work::spawn(&plain.site, &["--workers", "1"], &[]);
        assert_eq!(work.wait().code(), Some(1), "{url}");
        work.wait_for_log(|log| log.contains(error));
        assert!(!work.log().contains("hidden"), "{}", work.log());
    }
}
