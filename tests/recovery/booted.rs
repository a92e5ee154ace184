//! Tests failures of booted applications on `rewind`, and on `fork` where it behaves alike.

use std::process::Command;
use std::time::Duration;

use crate::common::Surus;
use crate::memory_group::MemoryGroup;
use crate::processes::kill_the_master;
use crate::site::{PATIENT, Site, app, is_root, kill, until};

/// Each request runs the file that it names.
pub const BOOT: &str = "surus_serve(function () {
    chdir(dirname($_SERVER['SCRIPT_FILENAME']));
    (static fn () => require $_SERVER['SCRIPT_FILENAME'])();
});";

/// A site whose workers boot `boot`, the code after `<?php`.
pub fn try_booted(
    engine: &str,
    boot: &str,
    args: &[&str],
    env: &[(&str, &str)],
) -> Result<Site, String> {
    boot_in(app(), engine, boot, args, env)
}

/// The same, in an existing directory.
pub fn boot_in(
    dir: tempfile::TempDir,
    engine: &str,
    boot: &str,
    args: &[&str],
    env: &[(&str, &str)],
) -> Result<Site, String> {
    let script = dir.path().join("boot.php");
    std::fs::write(&script, format!("<?php {boot}")).unwrap();
    let own = [
        ("SURUS_ENGINE_NAME", engine),
        ("SURUS_ENGINE_SCRIPT", script.to_str().unwrap()),
        ("SURUS_ENGINE_BOOT_TIMEOUT", "25s"),
    ];
    let settings = [&PATIENT, &own[..], env].concat();
    let surus = Surus::spawn(dir.path(), args, &settings)?;
    Ok(Site { surus, dir })
}

fn booted(args: &[&str], env: &[(&str, &str)]) -> Site {
    let mut settings = vec![("SURUS_ENGINE_VERIFY_RESTORE", "true")];
    settings.extend_from_slice(env);
    try_booted("rewind", BOOT, args, &settings)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

#[test]
fn each_failure_has_its_status_and_the_next_request_starts_from_the_boot() {
    let limits = [
        ("SURUS_HTTP_REQUEST_TIMEOUT", "5s"),
        // A process that is interrupted late on a busy machine goes on, too.
        ("SURUS_ENGINE_KILL_TIMEOUT", "1m"),
    ];
    let site = booted(&["--workers", "1"], &limits);
    let files = [
        ("exit.php", "echo 'bye'; exit(3);"),
        (
            "fatal.php",
            "ini_set('display_errors', 0); no_such_function();",
        ),
        (
            "throw.php",
            "ini_set('display_errors', 0); throw new Exception('x');",
        ),
        (
            "shutdown.php",
            "ini_set('memory_limit', '8M');
            register_shutdown_function(function () { echo 'told'; });
            str_repeat('x', 64 << 20);",
        ),
        (
            "deep.php",
            "function f($n) { return $n ? f($n - 1) + 1 : 0; } echo f(100000);",
        ),
    ];
    for (name, code) in files {
        std::fs::write(site.dir.path().join(name), format!("<?php {code}")).unwrap();
    }
    let pid = site.get_in_time("/pid.php").body;
    for (path, status, same_process) in [
        ("/exit.php", 200, true),
        ("/fatal.php", 500, true),
        ("/throw.php", 500, true),
        ("/limit.php", 500, true),
        ("/deep.php", 200, true),
        ("/loop.php", 504, true),
        ("/sleep.php", 504, true),
        ("/segfault.php", 502, false),
    ] {
        let answer = if status == 504 {
            site.get(path)
        } else {
            site.get_in_time(path)
        };
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(site.get_in_time("/hello.php").body, "hello", "after {path}");
        assert_eq!(
            site.get_in_time("/pid.php").body == pid,
            same_process,
            "after {path}\n{}",
            site.surus.log()
        );
    }
    let told = site.get_in_time("/shutdown.php");
    assert_eq!((told.status, told.body.as_str()), (500, "told"));
    assert!(
        !site.surus.log().contains("differs"),
        "{}",
        site.surus.log()
    );
}

#[test]
fn out_of_memory_costs_one_request() {
    let site = booted(&["--workers", "1"], &[]);
    let worker = site.workers()[0];
    let limited = Command::new("prlimit")
        .args(["--pid", &worker.to_string(), "--as=900000000"])
        .status();
    if !limited.is_ok_and(|status| status.success()) {
        eprintln!("skipped: prlimit is not there");
        return;
    }
    let answer = site.get("/eat.php");
    assert!(matches!(answer.status, 500 | 502), "{answer:?}");
    for _ in 0..20 {
        assert_eq!(site.get("/hello.php").body, "hello");
    }
}

#[test]
fn oom_killer_costs_one_request() {
    let Some(group) = MemoryGroup::with_limit("booted", 64 << 20) else {
        eprintln!("skipped: no control group for memory can be made here");
        return;
    };
    let site = booted(&["--workers", "1"], &[]);
    assert_eq!(site.get("/hello.php").body, "hello");
    let worker = site.workers()[0];
    group.take(worker);
    let answer = site.get("/eat.php");
    assert_eq!(answer.status, 502, "{answer:?}");
    for _ in 0..20 {
        assert_eq!(site.get("/hello.php").body, "hello");
    }
    assert!(!site.workers().contains(&worker));
    site.surus
        .wait_for_log(|log| log.contains("for lack of memory"));
}

/// Kills like the kernel's OOM killer, at any moment, also during a restore.
#[test]
fn killing_workers_at_random_costs_at_most_their_requests() {
    let site = booted(
        &["--workers", "3"],
        &[("SURUS_ENGINE_VERIFY_RESTORE", "false")],
    );
    let load = site.load(6, "/hello.php");
    let mut killed = 0;
    let mut random = 1u64;
    while killed < 100 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_micros(20_000 + (random >> 48)));
        let workers = site.workers();
        if let Some(pid) = workers.get(random as usize % workers.len().max(1)) {
            kill(*pid, "KILL");
            killed += 1;
        }
    }
    let answers = load.stop();
    let failed = answers
        .iter()
        .filter(|status| **status == Some(502))
        .count();
    let other = answers
        .iter()
        .filter(|status| !matches!(status, Some(200 | 502)))
        .count();
    assert!(
        failed <= killed,
        "{failed} of {} answers failed, {killed} workers were killed",
        answers.len()
    );
    assert_eq!(other, 0, "{answers:?}");
    assert_eq!(site.get("/hello.php").body, "hello");
}

#[test]
fn killing_the_master_process_costs_no_request() {
    kill_the_master(&booted(&["--workers", "2"], &[]));
}

#[test]
fn failed_fork_is_retried() {
    if !is_root() {
        return;
    }
    let site = booted(&["--workers", "1"], &[("SURUS_ENGINE_QUEUE_TIMEOUT", "1s")]);
    let limit = |processes: &str| {
        let pid = site.master().to_string();
        let limited = Command::new("prlimit")
            .args(["--pid", &pid, processes])
            .status();
        limited.is_ok_and(|status| status.success())
    };
    if !limit("--nproc=1:unlimited") {
        eprintln!("skipped: prlimit is not there");
        return;
    }
    kill(site.workers()[0], "KILL");
    site.surus
        .wait_for_log(|log| log.contains("cannot fork another worker"));
    assert_eq!(site.get("/hello.php").status, 503);
    assert!(limit("--nproc=unlimited:unlimited"));
    until("there is a worker again", || {
        site.get("/hello.php").status == 200
    });
    let said = site
        .surus
        .log()
        .matches("cannot fork another worker")
        .count();
    assert!(said < 10, "said {said} times");
}
