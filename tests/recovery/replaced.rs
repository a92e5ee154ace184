//! Tests workers that cannot be rewound.

use crate::booted::{BOOT, try_booted};
use crate::common::preload::Preload;
use crate::site::{metrics, until};

/// Reasons are counted, reported once each, and every request has its response.
#[test]
fn unrestorable_worker_is_replaced_counted_and_reported_once() {
    let place = tempfile::tempdir().unwrap();
    let admin = place.path().join("admin.sock");
    let listen = format!("unix:{}", admin.display());
    let boot = format!("$file = fopen(__FILE__, 'r'); {BOOT}");
    let site = try_booted(
        "rewind",
        &boot,
        &["--workers", "1", "-d", "ffi.enable=1"],
        &[
            ("SURUS_ADMIN_LISTEN", &listen),
            ("SURUS_ENGINE_VERIFY_RESTORE", "true"),
        ],
    )
    .unwrap_or_else(|log| panic!("{log}"));
    for (name, code, reason) in [
        (
            "signal.php",
            "pcntl_signal(SIGUSR1, fn () => 1);",
            "replaced_signals",
        ),
        (
            "child.php",
            "proc_open(['sleep', '1'], [], $p); exec('sleep 1 >/dev/null 2>&1 &');",
            "",
        ),
        (
            "fork.php",
            "if (pcntl_fork() === 0) { posix_kill(getmypid(), 9); } pcntl_wait($s);",
            "replaced_process",
        ),
        (
            "nice.php",
            "$nice = proc_nice(...); if (!$nice(1)) { echo 'not '; }",
            "replaced_limits",
        ),
        ("session.php", "posix_setpgid(0, 0);", "replaced_identity"),
        (
            "ffi.php",
            "FFI::cdef('int getpid(void);')->getpid();",
            "replaced_native",
        ),
        (
            "close.php",
            "fclose($GLOBALS['file']);",
            "replaced_descriptor",
        ),
        (
            "swap.php",
            "fclose($GLOBALS['file']); openlog('x', 0, LOG_USER); fopen('/dev/null', 'r');",
            "replaced_descriptor",
        ),
    ] {
        std::fs::write(
            site.dir.path().join(name),
            format!("<?php {code} echo 'done';"),
        )
        .unwrap();
        for _ in 0..3 {
            let answer = site.get(&format!("/{name}"));
            assert_eq!(
                answer.body,
                "done",
                "{name}: {answer:?}\n{}",
                site.surus.log()
            );
            assert_eq!(site.get("/hello.php").body, "hello");
        }
        if !reason.is_empty() {
            site.surus
                .wait_for_log(|log| log.contains(&format!("reason=\"{reason}\"")));
            let log = site.surus.log();
            assert_eq!(
                log.matches(&format!("reason=\"{reason}\"")).count(),
                1,
                "{log}"
            );
            until("it is counted", || {
                metrics(&admin).contains(&format!("reason=\"{reason}\""))
            });
        }
    }
    let log = site.surus.log();
    let said = log
        .matches("replaced instead of rewound: signals: ")
        .count();
    assert_eq!(said, 1, "{log}");
    assert!(!log.contains("differs"), "{log}");
}

#[test]
fn thread_of_a_request_replaces_its_worker_and_names_profilers() {
    let profiler = Preload::compile("recovery/profiler.c");
    let env = [("LD_PRELOAD", profiler.path())];
    let site =
        try_booted("rewind", BOOT, &["--workers", "1"], &env).unwrap_or_else(|log| panic!("{log}"));
    let code = "<?php echo json_encode(getservbyname('profiled', 'tcp')), ' ', getmypid();";
    std::fs::write(site.dir.path().join("profiled.php"), code).unwrap();
    let mut pids = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let answer = site.get("/profiled.php").body;
        assert!(answer.starts_with("false "), "{answer}");
        pids.insert(answer);
        assert_eq!(site.get("/hello.php").body, "hello");
    }
    assert_eq!(pids.len(), 3, "{pids:?}");
    site.surus.wait_for_log(|log| {
        log.contains("reason=\"replaced_thread\"") && log.contains("a profiler or tracer belongs")
    });
    assert_eq!(site.surus.log().matches("replaced_thread").count(), 1);
}
