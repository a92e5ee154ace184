//! Tests that an idle server uses no CPU time.

use std::time::Duration;

use crate::booted::try_booted;
use crate::site::Site;

/// How often the threads of a process blocked or were preempted.
fn switches(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
        let counts = counts.filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok());
        counts.sum::<u64>()
    };
    tasks.flatten().map(|task| of_task(task.path())).sum()
}

fn rests(site: &Site, what: &str) {
    for _ in 0..20 {
        assert_eq!(site.get("/hello.php").body, "hello");
    }
    // Threads that had work poll for a while.
    std::thread::sleep(Duration::from_secs(4));
    let processes = [site.surus.front(), site.template()];
    let before = processes.map(switches);
    std::thread::sleep(Duration::from_secs(4));
    let after = processes.map(switches);
    let woken: Vec<_> = before.iter().zip(&after).map(|(a, b)| b - a).collect();
    // A tick of 50 ms would be 80.
    assert!(woken.iter().all(|count| *count < 20), "{what}: {woken:?}");
    assert_eq!(site.get("/hello.php").body, "hello", "{what}");
}

#[test]
fn idle_server_wakes_no_thread() {
    let site = Site::start(&["--workers", "64"], &[]);
    rests(&site, "classic");
    let site = try_booted("rewind", crate::booted::BOOT, &["--workers", "16"], &[]).unwrap();
    rests(&site, "rewind");
}
