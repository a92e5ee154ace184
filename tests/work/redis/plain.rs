//! Jobs for a handler: done, failed, delayed, wrong.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redis::Commands;
use serde_json::json;

use super::super::operate::said;
use super::super::plain::Plain;
use super::super::shares::{assert_small_queue_does_not_wait, large_job};
use super::super::table::now;
use super::super::work::Work;
use super::{DEFAULT, Redis, Site};

#[test]
fn jobs_run_once_and_are_deleted_also_equal_ones() {
    let site = Site::new("");
    for number in 0..20 {
        site.push(number, "");
    }
    site.push(3, "");
    let work = site.plain.start(&["--workers", "3"]);
    work.wait_until(|| site.is_empty());
    // Jobs that arrive while Surus waits.
    for number in 20..30 {
        site.push(number, "context");
    }
    work.wait_until(|| site.is_empty());
    for number in 0..30 {
        let runs = 1 + usize::from(number == 3);
        let done = site.plain.count(&format!("done {number}"));
        assert_eq!(done, runs, "{number}: {:?}", site.plain.notes());
    }
    assert!(site.redis.buried(DEFAULT).is_empty());
    let keys: Vec<String> = site.redis.ask("KEYS *");
    assert!(keys.is_empty(), "nothing is left: {keys:?}");
}

#[test]
fn failing_job_is_tried_again_and_buried_with_its_reason() {
    let site = Site::new("tries = 2\nbackoff = '1s'\n");
    // Lua's JSON would not keep this.
    let odd = r#"{ "n":1,"do":"throw", "empty":[], "large":12345678901234567890, "a":"a:b" }"#;
    site.push_json(odd);
    site.push(2, "throw once");
    let work = site.plain.start(&["--workers", "2"]);
    work.wait_until(|| site.is_empty());
    let count = |note| site.plain.count(note);
    assert_eq!(count("begins 1"), 2);
    assert_eq!((count("begins 2"), count("done 2")), (2, 1));
    let buried = site.redis.buried(DEFAULT);
    assert_eq!(buried.len(), 1, "{buried:?}");
    let job = &buried[0].1;
    assert_eq!(
        (&job["queue"], &job["payload"]),
        (&json!("default"), &json!(odd))
    );
    let why = job["exception"].as_str().unwrap();
    assert!(
        why.contains("try 2 of 2 failed") && why.contains("as told"),
        "{why}"
    );
}

#[test]
fn buried_job_that_is_not_utf8_keeps_its_bytes_when_it_is_retried() {
    let site = Site::new("tries = 1\n");
    let odd = b"{\"n\": \xff\xfe}\0";
    let _: i64 = site.redis.connect().rpush(DEFAULT, &odd[..]).unwrap();
    let work = site.plain.start(&["--workers", "1"]);
    let buried = || site.redis.buried(DEFAULT);
    work.wait_until(|| buried().len() == 1);
    let (id, job) = buried().remove(0);
    let bytes = STANDARD.decode(job["payload_base64"].as_str().unwrap());
    assert_eq!(
        (bytes.unwrap(), &job["payload"]),
        (odd.to_vec(), &json!(""))
    );
    said(&site.plain.site, &work, &["work", "retry", "--id", &id]);
    work.wait_for_log(|log| log.matches("job failed for good").count() == 2);
    work.wait_until(|| buried().len() == 1 && site.is_empty());
    let (_, again) = buried().remove(0);
    assert_eq!(again["payload_base64"], job["payload_base64"]);
}

#[test]
fn job_longer_than_the_limit_is_kept_unread() {
    let site = Site::new("[work]\nmax_payload = '1K'\n");
    let long = json!({"n": 1, "more": "x".repeat(2000)}).to_string();
    site.push_json(&long);
    site.push(2, "");
    let work = site.plain.start(&["--workers", "1"]);
    work.wait_until(|| site.is_empty());
    let count = |note| site.plain.count(note);
    assert_eq!((count("begins 1"), count("done 2")), (0, 1));
    let kept: Vec<String> = site.redis.ask("LRANGE queues:default:too-long 0 -1");
    assert_eq!(kept, [long]);
}

#[test]
fn delayed_job_and_expired_reservation_run_when_they_are_due() {
    let site = Site::new("lease = '3s'\n");
    let due = now() + 2;
    let mut redis = site.redis.connect();
    let add = |redis: &mut redis::Connection, end: &str, job: &str, at: i64| {
        let _: i64 = redis.zadd(format!("{DEFAULT}:{end}"), job, at).unwrap();
    };
    add(&mut redis, "delayed", r#"{"n": 1}"#, due);
    // Another worker has crashed with one, and works on the other.
    add(
        &mut redis,
        "reserved",
        r#"surus:1:ab-1:{"n": 2, "do": "context"}"#,
        now() - 1,
    );
    add(
        &mut redis,
        "reserved",
        r#"surus:1:ab-2:{"n": 3}"#,
        now() + 60,
    );
    let work = site.plain.start(&["--workers", "1"]);
    work.wait_until(|| site.plain.count("done 2") == 1 && site.plain.count("done 1") == 1);
    assert!(now() >= due, "not before it is due");
    assert_eq!(site.plain.count("id ab-1 of 2"), 1, "it keeps its id");
    assert_eq!(
        site.plain.count("begins 3"),
        0,
        "reserved by another worker"
    );
    work.wait_until(|| {
        let [waiting, delayed, reserved] = site.redis.jobs(DEFAULT);
        waiting.is_empty() && delayed.is_empty() && reserved.len() == 1
    });
}

#[test]
fn group_runs_in_order_even_if_a_job_fails() {
    let site = Site::new("group = 'customer'\nbackoff = '1s'\n");
    for number in 0..6 {
        let what = if number == 0 { "throw once" } else { "" };
        let job = json!({ "n": number, "do": what, "customer": number % 2 });
        site.push_json(&job.to_string());
    }
    let work = site.plain.start(&["--workers", "4"]);
    work.wait_until(|| site.is_empty());
    let notes = site.plain.notes();
    for customer in 0..2 {
        let done = notes
            .iter()
            .filter_map(|note| note.strip_prefix("done ")?.parse().ok());
        let done: Vec<usize> = done.filter(|number| number % 2 == customer).collect();
        assert_eq!(done, [customer, customer + 2, customer + 4], "{notes:?}");
    }
}

#[test]
fn small_queue_does_not_wait_for_a_large_one() {
    let site = Site::new(
        "name = 'large'\n[[queue]]\nname = 'small'\nhandler = 'jobs.php'\n\
         source = '{source}'\n",
    );
    let mut redis = site.redis.connect();
    let large: Vec<_> = (1..=100_000).map(large_job).collect();
    let _: i64 = redis.rpush("queues:large", large).unwrap();
    assert_small_queue_does_not_wait(&site.plain, |job| {
        let _: i64 = redis.rpush("queues:small", job).unwrap();
    });
}

#[test]
fn two_queues_share_a_server_and_a_prefix_separates_applications() {
    let site = Site::new("prefix = 'app_'\n");
    let mut redis = site.redis.connect();
    let _: i64 = redis.rpush("app_queues:default", r#"{"n": 1}"#).unwrap();
    site.push(2, "");
    let work = site.plain.start(&["--workers", "1"]);
    work.wait_until(|| site.redis.is_empty("app_queues:default"));
    assert_eq!(
        (site.plain.count("done 1"), site.plain.count("begins 2")),
        (1, 0)
    );
}

#[test]
fn server_that_cannot_be_used_stops_the_start_with_the_remedy() {
    let redis = Redis::start();
    let _: String = redis.ask("CONFIG SET requirepass secret");
    for (url, error) in [
        (
            redis.url(),
            "check that it runs, and its address and password",
        ),
        (
            "redis://127.0.0.1:1/0".into(),
            "cannot use the Redis server 127.0.0.1:1",
        ),
        (
            "redis://:hidden@127.0.0.1:x/0".into(),
            "queue.source is not the URL",
        ),
    ] {
        let plain = Plain::from(&url, "");
        let mut work = Work::spawn(&plain.site, &["--workers", "1"], &[]);
        assert_eq!(work.wait().code(), Some(1), "{url}");
        work.wait_for_log(|log| log.contains(error));
        assert!(!work.log().contains("hidden"), "{}", work.log());
    }
    let url = format!("redis://:secret@127.0.0.1:{}/0", redis.port);
    let plain = Plain::from(&url, "");
    let work = plain.start(&["--workers", "1"]);
    assert!(!work.log().contains("secret"), "{}", work.log());
}
