//! Jobs for a handler: done, failed, delayed, in groups, buried.

use std::process::Command;

use serde_json::json;

use super::super::operate::{address, said, surus};
use super::super::plain::Plain;
use super::super::work::{Work, with_longer_times};
use super::{Site, base, counts, counts_at, dead, queue};

#[test]
fn jobs_run_once_and_are_deleted() {
    let Some(site) = Site::new("") else { return };
    for number in 0..25 {
        site.push(number, "");
    }
    let work = site.start(&["--workers", "3"]);
    work.wait_until(|| site.is_empty());
    // Jobs that arrive while Surus waits.
    for number in 25..30 {
        site.push(number, "context");
    }
    work.wait_until(|| site.is_empty());
    for number in 0..30 {
        let done = site.count(&format!("done {number}"));
        assert_eq!(done, 1, "{number}: {:?}", site.plain.notes());
    }
    assert!(dead(&site.queue).is_empty());
}

#[test]
fn failing_job_is_tried_again_and_buried_with_its_reason() {
    let Some(site) = Site::new("tries = 2\nbackoff = '1s'\n") else {
        return;
    };
    site.queue.call(
        "SendMessage",
        json!({
            "QueueUrl": site.queue.url(),
            "MessageBody": r#"{ "n":1,"do":"throw" }"#,
            "MessageAttributes": {"tenant": {"DataType": "String", "StringValue": "a"}},
        }),
    );
    site.push(2, "throw once");
    let work = site.start(&["--workers", "2"]);
    work.wait_until(|| site.is_empty());
    assert_eq!(site.count("begins 1"), 2);
    assert_eq!((site.count("begins 2"), site.count("done 2")), (2, 1));
    let letters = dead(&site.queue);
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0]["Body"], r#"{ "n":1,"do":"throw" }"#);
    let attribute = |name: &str| letters[0]["MessageAttributes"][name]["StringValue"].clone();
    assert_eq!(attribute("tenant"), "a", "the sender's are kept");
    let why = attribute("surus-reason").to_string();
    assert!(
        why.contains("try 2 of 2 failed") && why.contains("as told"),
        "{why}"
    );
    assert!(!work.log().contains("hidden"), "{}", work.log());
}

#[test]
fn job_that_crashes_exits_or_never_ends_harms_no_other() {
    with_longer_times(only_a_job_that_never_ends_times_out);
}

/// Whether it began and is the only job that reached the timeout.
fn only_a_job_that_never_ends_times_out(timeout: &str) -> bool {
    let Some(site) = Site::new(&format!("tries = 1\ntimeout = '{timeout}'\n")) else {
        return true;
    };
    for (number, what) in ["kill", "exit", "memory", "hang", "throw"]
        .into_iter()
        .enumerate()
    {
        site.push(number, what);
        site.push(10 + number, "");
    }
    let work = site.start(&["--workers", "2"]);
    work.wait_until(|| site.is_empty());
    if work.timeouts() > 1 || site.count("begins 3") == 0 {
        return false;
    }
    for number in 0..5 {
        assert_eq!(site.count(&format!("begins {number}")), 1);
        assert_eq!(site.count(&format!("done {}", 10 + number)), 1);
    }
    let bodies = site.queue.take_dead();
    assert_eq!(bodies.len(), 5, "{bodies:?}");
    true
}

#[test]
fn job_that_kills_its_workers_is_buried() {
    let settings = "tries = 0\nbackoff = '1s'\n[work]\nmax_losses = 2\n";
    let Some(site) = Site::new(settings) else {
        return;
    };
    site.push(1, "kill");
    let work = site.start(&["--workers", "2"]);
    work.wait_until(|| site.is_empty());
    assert_eq!(site.count("begins 1"), 2);
    let letters = dead(&site.queue);
    let why = letters[0]["MessageAttributes"]["surus-reason"].to_string();
    assert!(why.contains("it crashed 2 workers"), "{why}");
}

#[test]
fn job_longer_than_the_limit_becomes_a_dead_letter_with_all_its_bytes() {
    let made = Site::new("[work]\nmax_payload = '1K'\n");
    let Some(site) = made else { return };
    let long = json!({ "n": 1, "more": "x".repeat(2000) }).to_string();
    site.push_json(&long, 0);
    site.push(2, "");
    let work = site.start(&["--workers", "1"]);
    work.wait_until(|| site.is_empty());
    assert_eq!((site.count("begins 1"), site.count("done 2")), (0, 1));
    let letters = dead(&site.queue);
    assert_eq!(letters.len(), 1, "{}", work.log());
    assert_eq!(letters[0]["Body"], long);
    let why = letters[0]["MessageAttributes"]["surus-reason"].to_string();
    assert!(why.contains("work.max_payload"), "{why}");
}

#[test]
fn job_that_fails_without_a_dead_letter_queue_stays_hidden() {
    let Some(site) = Site::of("tries = 1\n", false, |queue| queue.dead_url()) else {
        return;
    };
    let url = site.queue.dead_url();
    let body = r#"{"n": 1, "do": "throw"}"#;
    let asked = json!({ "QueueUrl": url, "MessageBody": body });
    site.queue.call("SendMessage", asked);
    let work = site.start(&["--workers", "1"]);
    work.wait_for_log(|log| log.contains("the failed job stays in it"));
    work.wait_until(|| counts_at(&site.queue, &url) == [0, 1]);
    let asked = surus(&site.plain.site, &address(&work), &["work", "failed"]);
    let error = String::from_utf8_lossy(&asked.stderr);
    assert!(error.contains("give it a RedrivePolicy"), "{error}");
}

#[test]
fn dead_letters_are_listed_retried_and_forgotten() {
    for is_fifo in [false, true] {
        let made = Site::of("tries = 1\n", is_fifo, base);
        let Some(site) = made else { return };
        for number in [1, 2] {
            site.push_json(
                &json!({ "n": number, "do": "throw once" }).to_string(),
                number,
            );
        }
        let work = site.start(&["--workers", "1"]);
        work.wait_until(|| site.is_empty());
        let run = |args: &[&str]| said(&site.plain.site, &work, args);
        let list = run(&["work", "failed"]);
        assert_eq!(list.matches("try 1 of 1 failed").count(), 2, "{list}");
        let id = list.split_whitespace().next().unwrap();
        let id_is = |verb: &str| format!("{verb} {id}\n");
        assert_eq!(run(&["work", "forget", "--id", id]), id_is("forgot"));
        let list = run(&["work", "failed"]);
        assert_eq!(list.matches("try 1 of 1 failed").count(), 1, "{list}");
        assert!(run(&["work", "retry", "--all"]).starts_with("retried "));
        work.wait_until(|| site.count("done 1") + site.count("done 2") == 1);
        assert_eq!(run(&["work", "failed"]), "no job has failed\n");
        work.wait_until(|| site.is_empty());
    }
}

#[test]
fn group_of_a_fifo_queue_runs_in_order_even_if_a_job_fails() {
    with_longer_times(other_groups_do_not_wait);
}

/// Whether the jobs of another group end before a job runs again that has failed.
fn other_groups_do_not_wait(backoff: &str) -> bool {
    let Some(site) = Site::fifo(&format!("backoff = '{backoff}'\n")) else {
        return true;
    };
    let jobs = (0..9).map(|number| {
        let what = if number == 0 { "throw once" } else { "" };
        (json!({ "n": number, "do": what }).to_string(), number % 3)
    });
    site.queue.send(&jobs.collect::<Vec<_>>());
    let work = site.start(&["--workers", "4"]);
    work.wait_until(|| site.is_empty());
    let notes = site.plain.notes();
    for group in 0..3 {
        let done = notes
            .iter()
            .filter_map(|note| note.strip_prefix("done ")?.parse::<usize>().ok());
        let done: Vec<_> = done.filter(|number| number % 3 == group).collect();
        assert_eq!(done, [group, group + 3, group + 6], "{notes:?}");
    }
    let at = |note: &str| notes.iter().position(|it| it == note);
    at("done 7") < at("done 0")
}

#[test]
fn delayed_and_reserved_messages_are_left_alone_until_they_are_due() {
    let Some(site) = Site::new("") else { return };
    site.push(1, "");
    let asked = json!({ "QueueUrl": site.queue.url(), "VisibilityTimeout": 6 });
    let other = site.queue.call("ReceiveMessage", asked);
    assert_eq!(other["Messages"].as_array().unwrap().len(), 1);
    site.push(2, "");
    let work = site.start(&["--workers", "1"]);
    work.wait_until(|| site.count("done 2") == 1);
    // If the start has not taken longer than the reservation.
    if counts(&site.queue) == [0, 1] {
        let status = said(&site.plain.site, &work, &["work", "status"]);
        assert!(status.contains(&site.name), "{status}");
    }
    work.wait_until(|| site.is_empty());
    assert_eq!(site.count("done 1"), 1);
}

#[test]
fn small_queue_does_not_wait_for_a_large_one() {
    let Some((small, queue)) = queue("", false) else {
        return;
    };
    let settings =
        format!("[[queue]]\nname = '{small}'\nhandler = 'jobs.php'\nsource = '{{source}}'\n");
    let Some(site) = Site::new(&settings) else {
        return;
    };
    let messages: Vec<_> = (0..3000)
        .map(|number| {
            (
                json!({ "n": number, "do": "sleep", "ms": 20 }).to_string(),
                0,
            )
        })
        .collect();
    site.queue.send(&messages);
    let work = site.start(&["--workers", "2"]);
    work.wait_until(|| site.count("done 1") == 1);
    queue.send(&[(json!({ "n": 9999 }).to_string(), 0)]);
    let before = site.plain.notes().len();
    work.wait_until(|| site.count("done 9999") == 1);
    let notes = site.plain.notes();
    let since = notes[before..].iter().take_while(|it| *it != "done 9999");
    // Both workers end 100 of them in a second.
    let large = since.filter(|it| it.starts_with("done ")).count();
    assert!(large <= 100, "{large} jobs of the large queue ended");
}

#[test]
fn paused_queue_is_left_to_others() {
    let Some(site) = Site::new("") else { return };
    let work = site.start(&["--workers", "1"]);
    said(&site.plain.site, &work, &["work", "pause"]);
    work.wait_for_log(|log| log.contains("paused"));
    // The jobs of its last poll go back, too.
    site.push(1, "");
    let mut other = site.start(&["--workers", "1"]);
    other.wait_until(|| site.is_empty());
    assert_eq!(site.count("done 1"), 1);
    // The broker would hand the next job to its last request.
    other.signal("TERM");
    assert!(other.wait().success(), "{}", other.log());
    said(&site.plain.site, &work, &["work", "resume"]);
    site.push(3, "");
    work.wait_until(|| site.count("done 3") == 1);
}

#[test]
fn job_that_goes_back_unrun_loses_no_try() {
    let Some(site) = Site::new("tries = 2\nbackoff = '1s'\n") else {
        return;
    };
    let work = site.start(&["--workers", "1"]);
    site.push(0, "wait");
    work.wait_until(|| site.count("begins 0") == 1);
    site.push(1, "throw once");
    work.wait_until(|| counts(&site.queue) == [0, 2]);
    said(&site.plain.site, &work, &["work", "pause"]);
    work.wait_until(|| counts(&site.queue) == [1, 1]);
    site.plain.go(true);
    said(&site.plain.site, &work, &["work", "resume"]);
    work.wait_until(|| site.is_empty());
    assert_eq!((site.count("begins 1"), site.count("done 1")), (2, 1));
}

#[test]
fn region_and_keys_of_a_profile_are_used_without_an_url() {
    let Some(site) = Site::of("", false, |_| "sqs:".into()) else {
        return;
    };
    let aws = site.plain.site.tmp().join("credentials");
    let text =
        "[jobs]\naws_access_key_id = k\naws_secret_access_key = hidden\nregion = eu-west-1\n";
    std::fs::write(&aws, text).unwrap();
    Command::new("chmod").arg("644").arg(&aws).status().unwrap();
    let endpoint = format!("http://{}", site.queue.address());
    let env = [
        ("AWS_SHARED_CREDENTIALS_FILE", aws.to_str().unwrap()),
        ("AWS_PROFILE", "jobs"),
        ("AWS_ENDPOINT_URL", &endpoint),
    ];
    let work = site.start_with(&["--workers", "1"], &env);
    site.push(1, "");
    work.wait_until(|| site.is_empty());
    assert_eq!(site.count("done 1"), 1);
    assert!(!work.log().contains("hidden"), "{}", work.log());
}

#[test]
fn queue_that_cannot_be_used_stops_the_start_with_the_remedy() {
    let Some((_, queue)) = queue("", false) else {
        return;
    };
    let keys = [
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "hidden"),
    ];
    for (source, env, error) in [
        (base(&queue), &keys[..], "check its name, the region"),
        (
            "http://127.0.0.1:1/0".into(),
            &keys,
            "cannot reach http://127.0.0.1:1",
        ),
        (
            base(&queue),
            &[("AWS_EC2_METADATA_DISABLED", "true")],
            "no AWS credentials",
        ),
    ] {
        let plain = Plain::from(&source, "name = 'missing'\n");
        let home = ("HOME", "/nonexistent");
        let env = [&[home], env].concat();
        let mut work = Work::spawn(&plain.site, &["--workers", "1"], &env);
        assert_eq!(work.wait().code(), Some(1), "{source}");
        work.wait_for_log(|log| log.contains(error));
        assert!(!work.log().contains("hidden"), "{}", work.log());
    }
}
