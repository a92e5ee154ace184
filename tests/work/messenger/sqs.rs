//! Messages in the queues of the SQS transport, in ElasticMQ. Without it the tests print why they
//! test nothing.

use serde_json::json;

use super::super::database::Kind;
use super::super::elasticmq::Queue;
use super::super::sqs::{dead, queue};
use super::super::work::with_longer_times;
use super::Messenger;

struct Sqs {
    messenger: Messenger,
    queue: Queue,
}

impl Sqs {
    fn new(version: &str, options: &str, is_fifo: bool) -> Option<Sqs> {
        let (name, queue) = queue("-messages", is_fifo)?;
        let dsn = format!(
            "sqs://key:hidden@{}/{name}?sslmode=disable&{options}",
            queue.address()
        );
        let messenger = Messenger::new(Kind::Sqlite, version, &dsn);
        Some(Sqs { messenger, queue })
    }

    fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }
}

#[test]
fn messages_of_an_unconfigured_application_run_as_messenger_decides() {
    for (version, engine) in [("messenger7", "rewind"), ("messenger5", "worker")] {
        let Some(sqs) = Sqs::new(version, "", false) else {
            return;
        };
        let messenger = &sqs.messenger;
        messenger.send(&["well", "throw", "final", "later delayed"]);
        // One that Messenger could not decode.
        sqs.queue.send(&[("no envelope".into(), 0)]);
        let work = messenger.start(&["--workers", "1", "--engine", engine], &[]);
        work.wait_until(|| sqs.is_empty());
        let ended = ["delayed is done", "well is done", "throw, ", "final, "];
        let runs = ended.map(|note| messenger.count(note));
        assert_eq!(runs, [1, 1, 2, 1], "{version} {engine}: {}", work.log());
        assert_eq!(messenger.rows("failed"), 2, "{}", work.log());
        let letters = dead(&sqs.queue);
        assert_eq!(letters.len(), 1, "{}", work.log());
        assert_eq!(letters[0]["Body"], "no envelope");
        // A message that arrives while Surus waits.
        messenger.send(&["again"]);
        work.wait_until(|| sqs.is_empty());
        assert_eq!(messenger.count("again is done"), 1);
        assert!(!work.log().contains("hidden"), "{}", work.log());
    }
}

#[test]
fn message_longer_than_the_limit_becomes_a_dead_letter_with_all_its_bytes() {
    let Some(sqs) = Sqs::new("messenger7", "", false) else {
        return;
    };
    let messenger = &sqs.messenger;
    messenger.configure("[work]\nmax_payload = '1K'\n");
    let more = "x".repeat(2000);
    messenger.send(&[&format!("long {more}"), "well"]);
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| sqs.is_empty());
    let runs = ["well is done", "long "].map(|note| messenger.count(note));
    assert_eq!(runs, [1, 0], "{}", work.log());
    let letters = dead(&sqs.queue);
    assert_eq!(letters.len(), 1, "{}", work.log());
    assert!(letters[0]["Body"].as_str().unwrap().contains(&more));
    let why = letters[0]["MessageAttributes"]["surus-reason"].to_string();
    assert!(why.contains("work.max_payload"), "{why}");
}

#[test]
fn message_that_ends_its_process_is_sent_again_and_fails_as_messenger_decides() {
    with_longer_times(only_a_message_that_never_ends_times_out);
}

/// Whether a message that never ends began twice, and no other reached the timeout.
fn only_a_message_that_never_ends_times_out(timeout: &str) -> bool {
    let Some(sqs) = Sqs::new("messenger7", "visibility_timeout=30", false) else {
        return true;
    };
    let messenger = &sqs.messenger;
    messenger.configure_timeout(timeout);
    messenger.send(&["exit", "kill", "hang", "well"]);
    let work = messenger.start(&["--workers", "2"], &[]);
    // The counts of the queue are approximate.
    let is_over = || messenger.rows("failed") == 3 && sqs.is_empty();
    work.wait_until(|| is_over() || work.timeouts() > 2);
    if work.timeouts() > 2 || messenger.count("hang, ") < 2 {
        return false;
    }
    let ended = ["exit, ", "kill, ", "hang, ", "well is done"];
    let runs = ended.map(|note| messenger.count(note));
    assert_eq!(runs, [2, 2, 2, 1], "{}", work.log());
    assert_eq!(messenger.rows("failed"), 3, "{}", work.log());
    true
}

#[test]
fn headers_reach_the_serializer_from_attributes() {
    let Some(mut sqs) = Sqs::new("messenger7", "", false) else {
        return;
    };
    let serializer = ("SERIALIZER".into(), "App\\Headers".into());
    sqs.messenger.env.push(serializer);
    sqs.messenger.send(&["well"]);
    let work = sqs.messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| sqs.is_empty());
    assert_eq!(sqs.messenger.count("well by headers is done"), 1);
}

#[test]
fn messages_of_a_fifo_queue_run_in_order() {
    let Some(sqs) = Sqs::new("messenger7", "", true) else {
        return;
    };
    let names: Vec<_> = (0..12).map(|number| format!("m{number}m")).collect();
    let sent: Vec<_> = names.iter().map(String::as_str).collect();
    sqs.messenger.send(&sent);
    let work = sqs.messenger.start(&["--workers", "3"], &[]);
    work.wait_until(|| sqs.is_empty());
    let notes = names
        .iter()
        .flat_map(|name| [format!("{name}, 0 before"), format!("{name} is done")]);
    let notes: Vec<_> = notes.collect();
    assert_eq!(sqs.messenger.notes(), notes);
}

#[test]
fn rejected_message_is_delivered_again_if_the_transport_does_not_delete_it() {
    let options = "delete_on_rejection=false&retry_delay=1";
    let Some(sqs) = Sqs::new("messenger7", options, false) else {
        return;
    };
    sqs.messenger.send(&["final"]);
    let work = sqs.messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| sqs.messenger.count("final, ") >= 2);
    drop(work);
    assert_eq!(sqs.queue.len(), 1);
}

#[test]
fn queue_that_is_missing_is_created_where_messenger_would() {
    let Some(sqs) = Sqs::new("messenger7", "queue_name=ignored", false) else {
        return;
    };
    let mut messenger = sqs.messenger;
    let new = format!("new-{}", std::process::id());
    let dsn = format!(
        "sqs://key:hidden@{}/{new}?sslmode=disable",
        sqs.queue.address()
    );
    messenger.env.push(("MESSENGER_TRANSPORT_DSN".into(), dsn));
    let work = messenger.start(&["--workers", "1"], &[]);
    messenger.send(&["well"]);
    work.wait_until(|| messenger.count("well is done") == 1);
    let found = sqs.queue.call("GetQueueUrl", json!({ "QueueName": new }));
    assert!(found["QueueUrl"].is_string(), "{found}");
}

#[test]
fn transport_whose_keys_assume_a_role_fails_the_start() {
    let Some(sqs) = Sqs::new("messenger7", "", false) else {
        return;
    };
    let role = ("SURUS_ENV_AWS_ROLE_ARN", "arn:aws:iam::1:role/jobs");
    let mut work = sqs.messenger.spawn(&[], &[role]);
    assert!(!work.wait().success());
    work.wait_for_log(|log| log.contains("async (SQS with a role that keys assume)"));
}
