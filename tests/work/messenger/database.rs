//! Messages in the table of the Doctrine transport.

use std::collections::BTreeSet;

use super::super::database::{Kind, Server, in_each_database};
use super::super::kills::{self, Event};
use super::super::operate::{address, metrics, said, surus};
use super::super::work::{signal, with_longer_times};
use super::Messenger;

const DSN: &str = "doctrine://default";

in_each_database! {
    messages_of_an_unconfigured_application_run_as_messenger_decides
    message_that_ends_its_process_is_sent_again_and_fails_as_messenger_decides
    message_longer_than_the_limit_is_kept_unread_until_the_limit_is_raised
    messages_run_if_the_kernel_queries_the_database_while_it_boots
}

fn messages_of_an_unconfigured_application_run_as_messenger_decides(kind: Kind) {
    let all = match kind {
        Kind::Sqlite => &[("messenger7", "rewind"), ("messenger5", "worker")][..],
        _ => &[("messenger7", "rewind")],
    };
    for (version, engine) in all {
        let messenger = Messenger::new(kind, version, DSN);
        messenger.send(&["well", "throw", "final", "later delayed"]);
        let broken = "insert into messenger_messages \
                      (body, headers, queue_name, created_at, available_at) \
                      select 'no envelope', headers, queue_name, created_at, created_at \
                      from messenger_messages where body like '%well%'";
        messenger.client.run(broken);
        let work = messenger.start(&["--workers", "1", "--engine", engine], &[]);
        work.wait_until(|| messenger.rows("default") == 0);
        let mut noted = messenger.notes();
        for note in &mut noted {
            let others = note.split(", ").nth(1).map(str::to_string);
            let is_clean = others.is_none_or(|others| others == "0 before");
            assert!(is_clean || *engine == "worker", "{note}");
            *note = note.split(", ").next().unwrap().to_string();
        }
        noted.sort();
        let runs = [
            "delayed",
            "delayed is done",
            "final",
            "throw",
            "throw",
            "well",
            "well is done",
        ];
        assert_eq!(noted, runs, "{version} {engine}: {}", work.log());
        assert_eq!(messenger.rows("failed"), 2, "{}", work.log());
        let shown = messenger.console(&["messenger:failed:show", "--no-interaction"]);
        for why in ["thrown by the handler", "final for the handler"] {
            assert!(shown.contains(why), "{shown}");
        }
        // Messenger would have deleted what it cannot decode.
        assert_eq!(messenger.rows("default__failed"), 1, "{}", work.log());
        let json = said(&messenger.site, &work, &["work", "failed", "--json"]);
        let failed: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        let id = |why: &str| {
            let mut found = failed.iter().filter(|it| it.to_string().contains(why));
            let one = found.next().unwrap_or_else(|| panic!("{why}: {json}"));
            one["id"].as_str().unwrap().to_string()
        };
        let forgotten = id("final for the handler");
        said(
            &messenger.site,
            &work,
            &["work", "forget", "--id", &forgotten],
        );
        assert_eq!(messenger.rows("failed"), 1);
        // Messenger itself goes on with the messages that Surus has left.
        let thrown = id("thrown by the handler");
        let thrown = thrown.strip_prefix("failed/").unwrap();
        let retry = ["messenger:failed:retry", thrown, "--force", "-q"];
        messenger.console(&retry);
        assert_eq!(messenger.count("throw, "), 3);
        said(
            &messenger.site,
            &work,
            &[
                "work",
                "retry",
                "--id",
                &id("MessageDecodingFailedException"),
            ],
        );
        work.wait_until(|| messenger.rows("default__failed") == 1);
    }
}

fn message_that_ends_its_process_is_sent_again_and_fails_as_messenger_decides(kind: Kind) {
    with_longer_times(|timeout| only_a_message_that_never_ends_times_out(kind, timeout));
}

/// Whether a message that never ends began twice, and no other reached the timeout.
fn only_a_message_that_never_ends_times_out(kind: Kind, timeout: &str) -> bool {
    let messenger = Messenger::new(kind, "messenger7", DSN);
    messenger.configure_timeout(timeout);
    messenger.send(&["exit", "kill", "hang", "well"]);
    let work = messenger.start(&["--workers", "2"], &[]);
    work.wait_until(|| messenger.rows("default") == 0);
    if work.timeouts() > 2 || messenger.count("hang, ") < 2 {
        return false;
    }
    for what in ["exit", "kill", "hang"] {
        let runs = messenger.count(&format!("{what}, "));
        assert_eq!(runs, 2, "{what}: {:?} {}", messenger.notes(), work.log());
    }
    assert_eq!(messenger.rows("failed"), 3, "{}", work.log());
    assert_eq!(messenger.count("well is done"), 1);
    true
}

fn message_longer_than_the_limit_is_kept_unread_until_the_limit_is_raised(kind: Kind) {
    let messenger = Messenger::new(kind, "messenger7", DSN);
    messenger.configure("[work]\nmax_payload = '1K'\n");
    let more = "x".repeat(2000);
    messenger.send(&["well", &format!("long {more}")]);
    // Messenger ignores these headers.
    let long_headers = format!(
        "insert into messenger_messages \
         (body, headers, queue_name, created_at, available_at) \
         select body, '[\"{more}\"]', queue_name, created_at, available_at \
         from messenger_messages where body like '%well%'"
    );
    messenger.client.run(&long_headers);
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| messenger.rows("default") == 0);
    let runs = ["well is done", "long "].map(|note| messenger.count(note));
    assert_eq!(runs, [1, 0], "{}", work.log());
    assert_eq!(messenger.rows("default__failed"), 2, "{}", work.log());
    let list = said(&messenger.site, &work, &["work", "failed"]);
    assert_eq!(list.matches("work.max_payload").count(), 2, "{list}");
    drop(work);
    let headers = "select headers from messenger_messages where body like '%well%'";
    assert_eq!(
        messenger.client.rows(headers)[0][0],
        format!("[\"{more}\"]")
    );
    messenger.configure("");
    let work = messenger.start(&["--workers", "1"], &[]);
    said(&messenger.site, &work, &["work", "retry", "--all"]);
    work.wait_until(|| messenger.rows("default") + messenger.rows("default__failed") == 0);
    let runs = ["well is done", &format!("long {more} is done")].map(|it| messenger.count(it));
    assert_eq!(runs, [2, 1], "{}", work.log());
}

fn messages_run_if_the_kernel_queries_the_database_while_it_boots(kind: Kind) {
    let messenger = Messenger::new(kind, "messenger7", DSN);
    messenger.send(&["well", "final", "well"]);
    let work = messenger.start(&["--workers", "1"], &[("SURUS_ENV_BOOTS", "select 1")]);
    work.wait_until(|| messenger.rows("default") == 0);
    assert_eq!(messenger.count("well is done"), 2, "{}", work.log());
    assert_eq!(messenger.rows("failed"), 1, "{}", work.log());
    let metrics = metrics(&work);
    assert!(!metrics.contains("replaced_descriptor"), "{metrics}");
}

/// The messages use the connection, and do not close it.
#[test]
fn messages_have_the_session_that_the_kernel_configures_while_it_boots() {
    let messenger = Messenger::new(Kind::Sqlite, "messenger7", DSN);
    messenger.send(&["well", "well"]);
    let boots = ("SURUS_ENV_BOOTS", "pragma cache_size = 100");
    let work = messenger.start(&["--workers", "1"], &[boots]);
    work.wait_until(|| messenger.rows("default") == 0);
    assert_eq!(messenger.count("well is done"), 2, "{}", work.log());
    work.wait_for_log(|log| log.contains("stays open: its cache_size is not that of"));
    let metrics = metrics(&work);
    assert!(!metrics.contains("replaced_descriptor"), "{metrics}");
}

#[test]
fn retry_that_fails_again_is_reported_with_its_reason() {
    let messenger = Messenger::new(Kind::Sqlite, "messenger7", DSN);
    messenger.send(&["throw"]);
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| messenger.rows("failed") == 1);
    let retry = ["work", "retry", "--all"];
    let output = surus(&messenger.site, &address(&work), &retry);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_told = text.starts_with("failed again failed/") && text.contains("thrown by");
    assert!(is_told, "{text}");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("1 of 1 jobs failed again"), "{error}");
    assert!(!output.status.success());
    // Messenger keeps it for another retry.
    assert_eq!(
        (messenger.count("throw, "), messenger.rows("failed")),
        (3, 1)
    );
}

#[test]
fn message_that_exhausts_its_memory_fails_with_the_reason_of_php() {
    let messenger = Messenger::new(Kind::Sqlite, "messenger7", DSN);
    messenger.send(&["memory"]);
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| messenger.rows("failed") == 1);
    let text = said(&messenger.site, &work, &["work", "failed"]);
    let reason = "FatalError: Allowed memory size";
    assert!(text.contains(reason), "{text} {}", work.log());
}

#[test]
fn lease_is_extended_and_abandoned_messages_are_taken() {
    let dsn = "doctrine://default?redeliver_timeout=10";
    // Its times are those of PHP's time zone.
    let messenger = Messenger::new(Kind::Sqlite, "messenger5", dsn);
    messenger.send(&["sleep"]);
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| messenger.count("sleep, ") == 1);
    // Another process would take it after its lease.
    let other = messenger.start(&["--workers", "1"], &[]);
    other.wait_until(|| messenger.rows("default") == 0);
    assert_eq!(messenger.count("sleep, "), 1);
    drop(work);
    // Killed with a message, which another process takes.
    messenger.send(&["wait"]);
    other.wait_until(|| messenger.count("wait, ") == 1);
    signal(other.pid(), "KILL");
    drop(other);
    let third = messenger.start(&["--workers", "1"], &[]);
    third.wait_until(|| messenger.count("wait, ") == 2);
    messenger.go();
    third.wait_until(|| messenger.rows("default") == 0);
}

#[test]
fn sigterm_returns_messages_that_have_not_begun_and_messenger_takes_them() {
    let messenger = Messenger::new(Kind::Sqlite, "messenger7", DSN);
    let mut work = messenger.start(&["--workers", "1"], &[]);
    messenger.send(&["wait", "second"]);
    let taken = "select id from messenger_messages where delivered_at is not null";
    work.wait_until(|| messenger.client.rows(taken).len() == 2);
    work.wait_until(|| messenger.count("wait, ") == 1);
    work.signal("TERM");
    work.wait_for_log(|log| log.contains("shutting down"));
    messenger.go();
    assert!(work.wait().success(), "{}", work.log());
    assert_eq!(messenger.count("second"), 0);
    messenger.console(&["messenger:consume", "async", "--limit=1", "-q"]);
    assert_eq!(messenger.count("second is done"), 1);
    assert_eq!(messenger.rows("default"), 0);
}

#[test]
fn message_that_kills_its_workers_is_kept_where_no_transport_keeps_failures() {
    let messenger = Messenger::new(Kind::Sqlite, "messenger7", DSN);
    let kernel = "src/Kernel.php";
    let text = std::fs::read_to_string(messenger.site.www().join(kernel)).unwrap();
    let text = text
        .replace("'failure_transport' => 'failed',", "")
        .replace("'max_retries' => 1", "'max_retries' => 100");
    std::fs::write(messenger.site.www().join(kernel), text).unwrap();
    messenger.configure("[work]\nmax_losses = 2\n");
    messenger.send(&["kill"]);
    let work = messenger.start(&["--workers", "1"], &[]);
    work.wait_until(|| messenger.rows("default__failed") == 1);
    assert_eq!(messenger.count("kill, "), 2, "{}", work.log());
    let headers = messenger
        .client
        .rows("select headers from messenger_messages");
    assert!(
        headers[0][0].contains("it crashed 2 workers"),
        "{headers:?}"
    );
}

/// `make test-work` has more messages.
#[test]
fn killed_processes_and_servers_lose_no_message() {
    let mut server = Server::start(Kind::Postgres);
    let dsn = "doctrine://default?redeliver_timeout=3";
    let mut messenger = Messenger::on(&server, "messenger7", dsn);
    messenger.retry_always();
    let messages = kills::jobs(120);
    let done = messenger.send_many(messages);
    let args = ["--workers", "2"];
    let work = messenger.start(&args, &[]);
    let work = kills::at_random(work, messages / 12, |event| match event {
        Event::Killed => Some(messenger.start(&args, &[])),
        Event::Outage => {
            server.kill();
            server.revive();
            messenger.reconnect(&server);
            None
        }
    });
    work.wait_until_none(|| messenger.rows("default"));
    let notes: BTreeSet<_> = messenger.notes().into_iter().collect();
    for note in done {
        assert!(notes.contains(&note), "no {note:?}: {}", work.log());
    }
    assert_eq!(messenger.rows("failed"), 0);
}

#[test]
fn message_that_a_rate_limiter_refuses_waits_in_its_queue_without_a_try() {
    let mut messenger = Messenger::new(Kind::Sqlite, "messenger7", DSN);
    messenger.env.push(("LIMIT".into(), "1".into()));
    messenger.configure("[log]\nlevel = 'info,surus::fronts::queue=debug'\n");
    messenger.send(&["first", "second"]);
    let work = messenger.start(&["--workers", "1"], &[]);
    // The limiter says an hour, and the longest wait is a minute.
    work.wait_for_log(|log| log.contains("refuses messages") && log.contains("seconds=60"));
    let rests = || said(&messenger.site, &work, &["work", "status"]).contains("resting");
    work.wait_until(rests);
    let due = "select id from messenger_messages where delivered_at is null \
               and available_at < datetime(created_at, '+30 minutes')";
    work.wait_until(|| messenger.client.rows(due).len() == 1);
    assert_eq!(messenger.count("first is done"), 1);
    assert_eq!(messenger.count("second"), 0);
    assert_eq!(messenger.rows("failed"), 0);
    assert!(!work.log().contains("job failed"), "{}", work.log());
}
