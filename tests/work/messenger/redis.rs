//! Messages in the streams of the Redis transport.

use std::collections::{BTreeMap, BTreeSet};

use redis::{FromRedisValue, Value};

use super::super::database::Kind;
use super::super::kills::{self, Event};
use super::super::operate::{address, surus};
use super::super::redis::Redis;
use super::super::work::signal;
use super::Messenger;

struct Stream {
    redis: Redis,
    messenger: Messenger,
}

impl Stream {
    fn new(version: &str, options: &str) -> Stream {
        let redis = Redis::start();
        let dsn = format!("redis://127.0.0.1:{}/messages?{options}", redis.port);
        let messenger = Messenger::new(Kind::Sqlite, version, &dsn);
        Stream { redis, messenger }
    }

    fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        self.redis.ask(command)
    }

    /// The fields of the entries of a stream, with their values.
    fn entries(&self, stream: &str) -> Vec<Vec<Vec<u8>>> {
        let all: Vec<(String, Vec<Vec<u8>>)> = self.ask(&format!("XRANGE {stream} - +"));
        all.into_iter().map(|(_, fields)| fields).collect()
    }

    fn is_empty(&self) -> bool {
        let delayed: usize = self.ask("ZCARD messages__queue");
        delayed == 0 && self.entries("messages").is_empty()
    }
}

#[test]
fn messages_of_an_unconfigured_application_run_as_messenger_decides() {
    for (version, options, engine) in [
        ("messenger7", "", "rewind"),
        ("messenger5", "delete_after_ack=1", "worker"),
    ] {
        let stream = Stream::new(version, options);
        let messenger = &stream.messenger;
        messenger.send(&["well", "throw", "final", "later delayed"]);
        let work = messenger.start(&["--workers", "1", "--engine", engine], &[]);
        work.wait_until(|| stream.is_empty());
        let ended = ["delayed is done", "well is done", "throw, ", "final, "];
        let runs = ended.map(|note| messenger.count(note));
        assert_eq!(runs, [1, 1, 2, 1], "{version} {engine}: {}", work.log());
        assert_eq!(messenger.rows("failed"), 2, "{}", work.log());
        // A message that arrives while Surus waits, and one that Messenger could not decode.
        let _: String = stream.ask("XADD messages * message s:2:\"{}\";");
        messenger.send(&["again"]);
        work.wait_until(|| stream.is_empty());
        assert_eq!(messenger.count("again is done"), 1);
        let buried: BTreeMap<String, String> = stream.ask("HGETALL messages__failed");
        assert_eq!(buried.len(), 1, "{}", work.log());
    }
}

/// Messenger's own consumer does the same with the same message.
#[test]
fn delayed_message_reaches_the_stream_as_messenger_writes_it_byte_for_byte() {
    let stream = Stream::new("messenger7", "");
    let mut theirs = stream.messenger.env.clone();
    let dsn = format!(
        "redis://127.0.0.1:{}/theirs?delete_after_ack=0&delete_after_reject=0",
        stream.redis.port
    );
    theirs.push(("MESSENGER_TRANSPORT_DSN".into(), dsn));
    let messenger = &stream.messenger;
    messenger.send(&["later wait \u{e4}/\u{1f418}"]);
    messenger.run_with(&theirs, "send.php", &["later wait \u{e4}/\u{1f418}"]);
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| messenger.count("wait") == 1);
    let ours = stream.entries("messages");
    messenger.go();
    messenger.run_with(
        &theirs,
        "bin/console",
        &["messenger:consume", "async", "--limit=1", "-q"],
    );
    assert_eq!(ours, stream.entries("theirs"));
    assert_eq!(ours.len(), 1);
    let score = |key: &str| stream.ask::<usize>(&format!("ZCARD {key}__queue"));
    assert_eq!((score("messages"), score("theirs")), (0, 0));
    let groups: usize = stream.ask("EXISTS messages__failed");
    assert_eq!(groups, 0);
}

#[test]
fn message_longer_than_the_limit_is_kept_unread_in_a_stream_of_its_own() {
    let stream = Stream::new("messenger7", "redeliver_timeout=3");
    let messenger = &stream.messenger;
    messenger.configure("[work]\nmax_payload = '1K'\n");
    let more = "x".repeat(2000);
    messenger.send(&[
        &format!("long {more}"),
        &format!("later long {more}"),
        "well",
    ]);
    let many = "field 1 ".repeat(5000);
    let _: String = stream.ask(&format!("XADD messages * {}", many.trim_end()));
    // One that another process has left.
    let left = "XREADGROUP GROUP symfony other COUNT 1 STREAMS messages >";
    let _: Value = stream.ask(left);
    let before = stream.entries("messages");
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| stream.is_empty());
    let runs = ["well is done", "long "].map(|note| messenger.count(note));
    assert_eq!(runs, [1, 0], "{}", work.log());
    let kept = stream.entries("messages__too-long");
    assert_eq!(kept.len(), 3, "{}", work.log());
    for fields in &kept {
        let (reason, value) = (&fields[0], String::from_utf8_lossy(&fields[1]));
        assert_eq!(reason, b"surus-failure");
        assert!(value.contains("work.max_payload"), "{value}");
    }
    assert!(kept.iter().any(|fields| fields[2..] == before[0]));
    work.wait_for_log(|log| log.contains("messages__too-long"));
}

#[test]
fn lease_is_extended_and_abandoned_messages_are_claimed() {
    let stream = Stream::new("messenger7", "redeliver_timeout=10");
    let messenger = &stream.messenger;
    messenger.send(&["sleep"]);
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| messenger.count("sleep, ") == 1);
    // Another process would claim it after its lease.
    let other = messenger.start(&["--workers", "1"], &[]);
    other.wait_until(|| stream.is_empty());
    assert_eq!(messenger.count("sleep, "), 1);
    drop(work);
    // Killed with a message, which the other process claims.
    messenger.send(&["wait"]);
    other.wait_until(|| messenger.count("wait, ") == 1);
    signal(other.pid(), "KILL");
    drop(other);
    let third = messenger.start(&["--workers", "1"], &[]);
    third.wait_until(|| messenger.count("wait, ") == 2);
    messenger.go();
    third.wait_until(|| stream.is_empty());
}

#[test]
fn sigterm_returns_messages_that_have_not_begun_and_messenger_takes_them() {
    let stream = Stream::new("messenger7", "");
    let messenger = &stream.messenger;
    let mut work = messenger.start(&["--workers", "1"], &[]);
    messenger.send(&["wait", "second"]);
    work.wait_until(|| messenger.count("wait, ") == 1);
    // It has reserved the second message.
    work.wait_until(|| {
        let pending: (usize, Value, Value, Value) = stream.ask("XPENDING messages symfony");
        pending.0 == 2
    });
    work.signal("TERM");
    work.wait_for_log(|log| log.contains("shutting down"));
    messenger.go();
    assert!(work.wait().success(), "{}", work.log());
    assert_eq!(messenger.count("second"), 0);
    messenger.console(&["messenger:consume", "async", "--limit=1", "-q"]);
    assert_eq!(messenger.count("second is done"), 1);
    assert!(stream.is_empty());
}

/// `make test-work` has more messages.
#[test]
fn killed_processes_and_servers_lose_no_message() {
    let mut stream = Stream::new("messenger7", "redeliver_timeout=3");
    stream.messenger.retry_always();
    let messages = kills::jobs(120);
    let done = stream.messenger.send_many(messages);
    let args = ["--workers", "2"];
    let work = stream.messenger.start(&args, &[]);
    let work = kills::at_random(work, messages / 12, |event| match event {
        Event::Killed => Some(stream.messenger.start(&args, &[])),
        Event::Outage => {
            stream.redis.kill();
            stream.redis.revive();
            None
        }
    });
    work.wait_until_none(|| {
        let waiting: usize = stream.ask("XLEN messages");
        let delayed: usize = stream.ask("ZCARD messages__queue");
        waiting + delayed
    });
    let notes: BTreeSet<_> = stream.messenger.notes().into_iter().collect();
    for note in done {
        assert!(notes.contains(&note), "no {note:?}: {}", work.log());
    }
    assert_eq!(stream.messenger.rows("failed"), 0);
}

/// Those of Symfony 5 cannot count them either, and may be empty.
#[test]
fn failure_transport_that_cannot_list_its_messages_is_named() {
    for (version, engine, status, count) in [
        ("messenger7", "rewind", 1, " (1)"),
        ("messenger5", "worker", 0, ""),
    ] {
        let mut stream = Stream::new(version, "");
        let dsn = format!("redis://127.0.0.1:{}/failures", stream.redis.port);
        stream.messenger.env.push(("FAILED_DSN".into(), dsn));
        stream.messenger.send(&["final"]);
        let args = ["--workers", "1", "--engine", engine];
        let work = stream.messenger.start(&args, &[]);
        work.wait_until(|| stream.entries("failures").len() == 1);
        let site = &stream.messenger.site;
        let output = surus(site, &address(&work), &["work", "failed"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{version}: {error}");
        let named = format!(
            "the failure transport failed (RedisTransport) cannot list its messages{count};"
        );
        assert!(error.contains(&named), "{version}: {error}");
        assert!(output.stdout.is_empty());
        stream.redis.kill();
        let output = surus(site, &address(&work), &["work", "failed"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{version}: {error}");
        // An unreachable one of Symfony 5 is not asked for a number.
        let is_told = error.contains("cannot list failed jobs: failed: ");
        assert!(is_told || version == "messenger5", "{version}: {error}");
    }
}
