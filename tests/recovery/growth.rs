//! Tests that pools which grow with the load keep within the memory of their control group.

use std::time::Duration;

use crate::common::Surus;
use crate::memory_group::MemoryGroup;
use crate::site::{PATIENT, Site, app};

/// Waits, then holds memory for a while.
const HOLD: &str = "<?php ini_set('memory_limit', -1); usleep((int) $_GET['late'] * 1000);
$held = str_repeat('x', (int) $_GET['mib'] << 20); usleep(1000 * (int) $_GET['ms']); echo 'held';";

/// A server with a growing pool in the group.
fn start(group: &MemoryGroup, most: &str) -> Site {
    let dir = app();
    std::fs::write(dir.path().join("hold.php"), HOLD).unwrap();
    let settings = [
        ("SURUS_ENGINE_NAME", "classic"),
        ("SURUS_ENGINE_MIN_WORKERS", "1"),
        ("SURUS_ENGINE_MAX_WORKERS", most),
        ("SURUS_HTTP_REQUEST_TIMEOUT", "5m"),
    ];
    let settings = [&PATIENT, &settings[..]].concat();
    let surus = Surus::spawn_by(group.surus(), dir.path(), &[], &settings);
    let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    Site { surus, dir }
}

/// The statuses of requests that are sent at once, and the most workers meanwhile: a pool at rest
/// soon has fewer.
fn hold(site: &Site, count: usize, query: &str) -> (Vec<u16>, usize) {
    let path = format!("/hold.php?{query}");
    let all: Vec<_> = (0..count).map(|_| site.begin(&path)).collect();
    let mut most = 0;
    while !all.iter().all(|it| it.is_finished()) {
        most = most.max(site.workers().len());
        std::thread::sleep(Duration::from_millis(20));
    }
    let answers = all.into_iter().map(|it| it.join().unwrap().unwrap());
    (answers.map(|answer| answer.status).collect(), most)
}

#[test]
fn growing_pool_keeps_within_memory() {
    let Some(group) = MemoryGroup::with_limit("growth", 800 << 20) else {
        eprintln!("skipped: no control group for memory can be made here");
        return;
    };
    let site = start(&group, "24");
    let (statuses, workers) = hold(&site, 40, "late=0&mib=100&ms=1000");
    let log = site.surus.log();
    assert_eq!(statuses, [200; 40], "{log}");
    assert_eq!(group.oom_kills(), 0, "{log}");
    assert!(log.contains("memory is short for more workers"), "{log}");
    assert!((3..=7).contains(&workers), "{workers} workers\n{log}");
}

#[test]
fn pool_whose_workers_the_kernel_kills_becomes_smaller() {
    let Some(group) = MemoryGroup::with_limit("kills", 700 << 20) else {
        eprintln!("skipped: no control group for memory can be made here");
        return;
    };
    let site = start(&group, "24");
    // Their memory cannot be foreseen.
    let (statuses, _) = hold(&site, 12, "late=1500&mib=250&ms=4000");
    assert!(statuses.contains(&502), "{statuses:?}");
    assert!(group.oom_kills() > 0);
    site.surus
        .wait_for_log(|log| log.contains("killed a worker for lack of memory"));
    assert_eq!(site.get("/hello.php").status, 200);
}
