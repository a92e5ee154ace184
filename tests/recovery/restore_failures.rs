//! Tests failures during a restore, between two requests: neither the client that has its response
//! nor the next one may notice.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::booted::{BOOT, boot_in};
use crate::common::preload::Preload;
use crate::site::{app, ask, metrics, request, until};

/// How many workers were ended by a signal, and how many were replaced.
fn ends(admin: &Path) -> (u64, u64) {
    let text = metrics(admin);
    let of = |reason: &str| -> u64 {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("surus_worker_exits_total"));
        let counts = lines.filter(|line| line.contains(reason));
        counts
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    };
    (of("reason=\"signal\""), of("reason=\"replaced"))
}

struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn fault_during_a_restore_costs_no_request() {
    let place = tempfile::tempdir().unwrap();
    let admin = place.path().join("admin.sock");
    let listen = format!("unix:{}", admin.display());
    let dir = app();
    let fault = dir.path().join("writable/fault");
    // Functions that the restore uses, which fail if that file says so.
    let faulty = Preload::compile("recovery/faulty.c");
    let env = [
        ("SURUS_ADMIN_LISTEN", listen.as_str()),
        ("SURUS_ENGINE_VERIFY_RESTORE", "true"),
        ("LD_PRELOAD", faulty.path()),
        ("FAULTY_FILE", fault.to_str().unwrap()),
    ];
    // A worker may start while a fault waits for another.
    std::fs::write(&fault, "nowhere").unwrap();
    let site = boot_in(dir, "rewind", BOOT, &["--workers", "2"], &env)
        .unwrap_or_else(|log| panic!("{log}"));
    std::fs::remove_file(&fault).unwrap();
    std::fs::write(
        site.dir.path().join("kept.php"),
        "<?php
        static $x;
        $x[] = str_repeat('x', 100_000);
        $GLOBALS['n'] = ($GLOBALS['n'] ?? 0) + 1;
        echo $GLOBALS['n'], ' ', $_GET['t'];",
    )
    .unwrap();

    let (stop, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let ask_on = || {
        while !stop.load(Ordering::Relaxed) {
            let token = answers.fetch_add(1, Ordering::Relaxed);
            // A POST is not repeated, so none may be lost.
            let answer = ask(
                &site.surus.address,
                request("POST", &format!("/kept.php?t={token}"), "").as_bytes(),
            )
            .unwrap();
            assert_eq!((answer.status, answer.body), (200, format!("1 {token}")));
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(ask_on)).collect();
        let _stops = Stops(&stop);
        for (point, how, expected) in [
            ("fchdir", "kill", (1, 0)),
            ("fchdir", "segv", (1, 0)),
            ("fchdir", "fail", (0, 1)),
            ("pread", "fail", (0, 0)),
            ("getrusage", "kill", (1, 0)),
            ("getrusage", "fail", (0, 0)),
            ("longjmp", "kill", (1, 0)),
            ("longjmp", "segv", (1, 0)),
        ] {
            for _ in 0..3 {
                let before = ends(&admin);
                // In one write, or it is read too early.
                let written = fault.with_extension("new");
                std::fs::write(&written, format!("{point} {how}")).unwrap();
                std::fs::rename(&written, &fault).unwrap();
                until("it strikes", || {
                    !fault.exists() || clients.iter().any(|client| client.is_finished())
                });
                if expected != (0, 0) {
                    let after = (before.0 + expected.0, before.1 + expected.1);
                    until("it is counted", || {
                        ends(&admin) >= after || clients.iter().any(|client| client.is_finished())
                    });
                }
            }
        }
    });
    assert!(answers.into_inner() > 100);
    until("two workers stand", || site.workers().len() == 2);
    let log = site.surus.log();
    assert!(!log.contains("differs"), "{log}");
}
