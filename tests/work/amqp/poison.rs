//! Messages that lapin cannot parse, and those that do not fit in memory.

use std::fs;

use lapin::BasicProperties;

use super::super::frames::nested;
use super::super::operate::said;
use super::raw::Raw;
use super::{Broker, Kind, Site};

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn messages_that_cannot_be_parsed_are_buried_and_the_queue_goes_on() {
    for kind in [Kind::Classic, Kind::Quorum] {
        let site = Site::with(kind, "", Broker::port);
        let mut raw = Raw::connect(site.broker.port());
        site.push(0, "");
        // They differ in their properties only.
        raw.publish(&site.queue, &nested(20_000), br#"{"n": 1}"#);
        // The message's id is in Latin-1.
        raw.publish(&site.queue, &[0, 0x80, 2, 0xe4, 0xf6], br#"{"n": 2}"#);
        site.push(3, "");
        let work = site.start();
        work.wait_until(|| site.count("done 0") == 1 && site.count("done 3") == 1);
        work.wait_until(|| site.broker.count(&format!("{}.failed", site.queue)) == Some(2));
        let failed = said(&site.plain.site, &work, &["work", "failed"]);
        assert!(failed.contains("more than 32 levels deep"), "{failed}");
        // A retried one is buried again, because its properties are still bytes.
        // The line before the reason begins with the id.
        let lines: Vec<_> = failed.lines().collect();
        let reason = lines.iter().position(|line| line.contains("32 levels"));
        let id = lines[reason.unwrap() - 1].split(' ').next().unwrap();
        let retried = said(&site.plain.site, &work, &["work", "retry", "--id", id]);
        assert!(retried.contains("retried"), "{retried}");
        work.wait_for_log(|log| log.matches("job failed for good").count() == 3);
        work.wait_until(|| site.broker.count(&format!("{}.failed", site.queue)) == Some(2));
        work.end();
        assert_eq!(site.count("begins 1") + site.count("begins 2"), 0);
        assert!(site.left().is_empty(), "{kind:?}");
        let mut buried = site.buried();
        buried.sort_by_key(|it| it.number());
        let bodies: Vec<_> = buried.iter().map(|it| it.number()).collect();
        assert_eq!(bodies, [1, 2]);
        let why = buried[1].header("surus-reason").unwrap();
        assert!(why.contains("not UTF-8"), "{why}");
        let unread = buried[1].bytes("surus-unread");
        assert_eq!(unread, [0, 0x80, 2, 0xe4, 0xf6]);
    }
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn long_message_is_moved_with_all_its_bytes_and_never_in_memory() {
    let site = Site::new("[work]\nmax_payload = '1K'\n");
    let long: String = (0..).map(|n| format!("{n} ")).take(7_000_000).collect();
    let named = BasicProperties::default().with_message_id("long".into());
    let work = site.start();
    let before = peak(work.pid());
    site.broker.push_with(&site.queue, &long, named);
    site.push(1, "");
    work.wait_until(|| site.count("done 1") == 1);
    let failed = || said(&site.plain.site, &work, &["work", "failed"]);
    work.wait_until(|| failed().contains("long"));
    let retried = said(&site.plain.site, &work, &["work", "retry", "--id", "long"]);
    assert!(retried.contains("retried long"), "{retried}");
    work.wait_for_log(|log| log.matches("job failed for good").count() == 2);
    work.wait_until(|| failed().contains("long"));
    let grown = peak(work.pid()) - before;
    let long_kib = long.len() / 1024;
    assert!(grown < long_kib / 2, "{grown} KiB for {long_kib} KiB");
    work.end();
    let buried = site.buried();
    assert_eq!(buried.len(), 1);
    assert!(buried[0].body == long, "not all its bytes");
    let why = buried[0].header("surus-reason").unwrap();
    assert!(why.contains("work.max_payload"), "{why}");
    assert!(site.left().is_empty());
}

#[test]
#[ignore = "needs RabbitMQ: make test-amqp"]
fn long_message_stays_queued_while_disk_is_full() {
    let full = "[work]\nmax_payload = '1K'\n[http]\nmax_temp_size = '1M'\n";
    let site = Site::new(full);
    let long: String = (0..).map(|n| format!("{n} ")).take(500_000).collect();
    site.broker.push(&site.queue, &long);
    site.push(1, "");
    let work = site.start();
    work.wait_for_log(|log| log.contains("fits in no temporary file"));
    // The jobs behind it run.
    work.wait_until(|| site.count("done 1") == 1);
    work.end();
    assert!(site.buried().is_empty());
    assert_eq!(site.ready(), 1);
    let config = site.plain.site.www().join("surus.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("'1M'", "'1G'")).unwrap();
    let work = site.start();
    work.wait_for_log(|log| log.contains("job failed for good"));
    work.end();
    let buried = site.buried();
    assert!(
        buried.len() == 1 && buried[0].body == long,
        "not all its bytes"
    );
    assert!(site.left().is_empty());
}

/// The most memory that a process has used, in KiB.
fn peak(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse().unwrap()
}
