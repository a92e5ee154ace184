//! Tests that a slow request is logged once with its backtrace, and goes on as if it were not.

use crate::booted::{BOOT, try_booted};
use crate::site::{Site, metrics, until};

/// Loops until a limit of 500 ms has long passed.
const BUSY: &str = "<?php
function crunch(float $until): int {
    for ($n = 0; microtime(true) < $until; $n++);
    return $n;
}
echo crunch(microtime(true) + 2) > 0 ? 'whole' : 'broken';
";

/// Waits in system calls that signals cut short.
const WAITS: &str = "<?php
$began = hrtime(true);
$left = sleep(2);
usleep(700000);
[$one, $other] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
$read = [$one]; $write = null; $except = null;
$ready = stream_select($read, $write, $except, 1);
$took = (hrtime(true) - $began) / 1e9;
echo json_encode([$left, $ready, $took >= 3.7]);
";

/// A name and a depth that the script chooses.
const HOSTILE: &str = "<?php
function deep(int $n, float $until): void {
    if ($n > 0) { deep($n - 1, $until); return; }
    while (microtime(true) < $until);
}
deep(5000, microtime(true) + 2);
echo 'whole';
";
const HOSTILE_NAME: &str = "a\n#0 forged.php(1)\u{1b}[2J";

fn site(engine: &str, limit: &str) -> Site {
    let dir = crate::site::app();
    let admin = format!("unix:{}", dir.path().join("admin.sock").display());
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("busy.php", BUSY);
    write("waits.php", WAITS);
    write(HOSTILE_NAME, HOSTILE);
    write(
        "hostile.php",
        "<?php require __DIR__.\"/a\\n#0 forged.php(1)\\x1b[2J\";",
    );
    let env = [
        ("SURUS_HTTP_SLOW_REQUEST", limit),
        ("SURUS_ENGINE_VERIFY_RESTORE", "true"),
        ("SURUS_ADMIN_LISTEN", &admin),
    ];
    let args = ["--workers", "1"];
    match engine {
        "classic" => {
            let env = [&crate::site::PATIENT, &env[..]].concat();
            let surus = crate::common::Surus::spawn(dir.path(), &args, &env);
            let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
            Site { surus, dir }
        }
        _ => crate::booted::boot_in(dir, engine, BOOT, &args, &env)
            .unwrap_or_else(|log| panic!("surus did not start:\n{log}")),
    }
}

const REPORTED: &str = "slow request (http.slow_request)";
const TRACED: &str = "Slow request, still running. Stack trace:";

fn count(site: &Site, what: &str) -> usize {
    site.surus.log().matches(what).count()
}

fn logged_once(site: &Site, position: &str) {
    site.surus.wait_for_log(|log| log.contains(TRACED));
    assert_eq!(count(site, REPORTED), 1, "{}", site.surus.log());
    assert_eq!(count(site, TRACED), 1, "{}", site.surus.log());
    assert!(site.surus.log().contains(position), "{}", site.surus.log());
}

#[test]
fn slow_script_is_logged_with_its_backtrace_and_answers_whole() {
    for engine in ["classic", "worker", "rewind", "fork"] {
        let site = site(engine, "500ms");
        let answer = site.get("/busy.php");
        assert!(
            answer.status == 200 && answer.body.ends_with("whole"),
            "{engine}: {answer:?}"
        );
        logged_once(&site, "busy.php(6): crunch()");
        let log = site.surus.log();
        assert!(log.contains("busy.php:3\n"), "{engine}: {log}");
        assert_eq!(site.get("/hello.php").body, "hello", "{engine}");
        let admin = site.dir.path().join("admin.sock");
        let counted = format!("surus_slow_requests_total{{engine=\"{engine}\"}} 1\n");
        until("it is counted", || metrics(&admin).contains(&counted));
    }
}

#[test]
fn slow_script_sleeps_and_waits_its_whole_time() {
    for engine in ["classic", "worker", "rewind"] {
        let site = site(engine, "500ms");
        let answer = site.get("/waits.php");
        assert_eq!(answer.body, "[0,0,true]", "{engine}: {answer:?}");
        logged_once(&site, "waits.php:3\n");
    }
}

#[test]
fn requests_below_the_limit_are_not_logged() {
    let site = site("classic", "10m");
    assert_eq!(site.get("/nap.php?ms=700").body, "rested");
    assert_eq!(site.get("/hello.php").body, "hello");
    assert_eq!(count(&site, REPORTED) + count(&site, TRACED), 0);
    let admin = site.dir.path().join("admin.sock");
    assert!(metrics(&admin).contains("surus_slow_requests_total{engine=\"classic\"} 0\n"));
}

#[test]
fn without_a_limit_surus_opens_no_memory_of_workers() {
    let has_memory = |site: &Site| {
        let front = site.surus.front();
        let open = std::fs::read_dir(format!("/proc/{front}/fd")).unwrap();
        let targets = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let mut names = targets.map(|target| target.display().to_string());
        names.any(|name| name.starts_with("/proc/") && name.ends_with("/mem"))
    };
    let with = site("classic", "10m");
    assert!(has_memory(&with));
    let without = site("classic", "0s");
    assert_eq!(without.get("/hello.php").body, "hello");
    assert!(!has_memory(&without));
}

#[test]
fn backtrace_is_bounded_and_its_names_are_escaped() {
    let site = site("classic", "500ms");
    let answer = site.get("/hostile.php");
    assert!(answer.body.ends_with("whole"), "{answer:?}");
    logged_once(&site, "a?#0 forged.php(1)?[2J");
    let log = site.surus.log();
    assert!(!log.contains('\u{1b}'), "{log:?}");
    assert!(log.contains("#64 and others, which called these"), "{log}");
}

#[test]
fn script_that_streams_for_long_is_logged_once() {
    let site = site("worker", "500ms");
    let script = "<?php for ($i = 0; $i < 40; $i++) { echo $i, ' '; flush(); usleep(50000); }";
    std::fs::write(site.dir.path().join("events.php"), script).unwrap();
    assert_eq!(site.get("/events.php").status, 200);
    logged_once(&site, "events.php:1\n");
}

#[test]
fn second_slow_request_of_a_worker_is_logged_as_well() {
    let site = try_booted(
        "rewind",
        "surus_serve(function () { usleep(1500000); echo 'done'; });",
        &["--workers", "1"],
        &[
            ("SURUS_HTTP_SLOW_REQUEST", "500ms"),
            ("SURUS_ENGINE_VERIFY_RESTORE", "true"),
        ],
    )
    .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    for _ in 0..3 {
        assert_eq!(site.get("/").body, "done");
    }
    site.surus
        .wait_for_log(|log| log.matches(TRACED).count() == 3);
    assert_eq!(count(&site, REPORTED), 3, "{}", site.surus.log());
}
