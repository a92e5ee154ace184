//! Tests a script that stops, kills or disconnects other processes.

use std::time::Duration;

use crate::booted::{BOOT, boot_in};
use crate::shared_memory::{
    ENGINES, SOON, TOOLS, answers_within, counted, post_counted, ready, repairs, site,
};
use crate::site::{app, kill, lives, until};

#[test]
fn request_socket_shut_down_by_a_script_is_replaced() {
    for engine in ENGINES {
        for how in 0..3 {
            let code = format!("libc()->shutdown(4, {how}); usleep(100000); echo 'done';");
            let site = site(engine, &[("lie.php", &code)], &[]);
            let other = site.begun("/nap.php?ms=1000");
            let lie = site.begin("/lie.php");
            std::thread::sleep(Duration::from_millis(30));
            for (number, answer) in post_counted(&site, 0..24, 20_000) {
                assert_eq!(
                    (answer.status, answer.body),
                    (200, number.to_string()),
                    "{engine} {how}: {}",
                    site.surus.log()
                );
                assert_eq!(counted(&site, number), 1, "{engine} {how}");
            }
            answers_within(&site, SOON, engine);
            assert_eq!(lie.join().unwrap().unwrap().body, "done", "{engine} {how}");
            assert_eq!(
                other.join().unwrap().unwrap().body,
                "rested",
                "{engine} {how}"
            );
            if how != 1 {
                // Only a socket that workers cannot read from is replaced; they do not write to it.
                until("it is counted", || repairs(&site, "request_socket") == 1);
            }
            until("it is ready", || ready(&site));
        }
    }
}

#[test]
fn master_process_stopped_by_a_script_is_replaced() {
    for engine in ENGINES {
        let site = site(
            engine,
            &[(
                "lie.php",
                "libc()->kill(libc()->getppid(), 19); echo 'done';",
            )],
            &[],
        );
        let master = site.master();
        assert_eq!(site.get("/lie.php").body, "done", "{engine}");
        // Each needs another fork: on `fork`, workers exit with their request.
        for _ in 0..12 {
            assert_eq!(site.get("/hello.php").body, "hello", "{engine}");
        }
        until(
            &format!("another has taken its place: {engine} {}", site.surus.log()),
            || !lives(master) && !site.workers().is_empty(),
        );
        assert_eq!(repairs(&site, "master_stopped"), 1, "{engine}");
        assert!(site.surus.log().contains("master process was stopped"));
        answers_within(&site, SOON, engine);
        assert!(ready(&site));
    }
}

/// Without a check, requests would wait for engine.boot_timeout.
#[test]
fn booting_master_process_that_is_stopped_is_resumed_or_replaced() {
    for engine in ["fork", "rewind"] {
        let dir = app();
        let hold = dir.path().join("hold");
        let boot = format!(
            "while (file_exists('{}')) {{ clearstatcache(); usleep(1000); }} {BOOT}",
            hold.display()
        );
        let env = [("SURUS_ENGINE_BOOT_TIMEOUT", "600s")];
        let site = boot_in(dir, engine, &boot, &["--workers", "1"], &env).unwrap();
        std::fs::write(&hold, "").unwrap();
        let master = site.master();
        kill(master, "KILL");
        let mut booting = 0;
        until("another one boots", || {
            booting = site.master();
            booting != master
        });
        // Surus may resume it before this test can see that it has stopped.
        let stop = || {
            let mut kill = std::process::Command::new("kill");
            kill.args(["-STOP", &booting.to_string()]).status().unwrap();
        };
        stop();
        until("it is resumed", || {
            site.surus.log().contains("while it booted; resumed")
        });
        until("it is killed", || {
            stop();
            !lives(booting)
        });
        std::fs::remove_file(&hold).unwrap();
        assert_eq!(site.get("/hello.php").body, "hello", "{engine}");
    }
}

/// `worker` boots in its workers. Without a check, requests would wait for engine.boot_timeout.
#[test]
fn booting_worker_that_is_stopped_is_resumed_or_replaced() {
    let dir = app();
    let hold = dir.path().join("hold");
    let boot = format!(
        "while (file_exists('{}')) {{ clearstatcache(); usleep(1000); }} {BOOT}",
        hold.display()
    );
    let env = [("SURUS_ENGINE_BOOT_TIMEOUT", "600s")];
    let site = boot_in(dir, "worker", &boot, &["--workers", "1"], &env).unwrap();
    let child = |master: u32| -> u32 {
        let path = format!("/proc/{master}/task/{master}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let first = children.split_whitespace().next();
        first.and_then(|pid| pid.parse().ok()).unwrap_or(0)
    };
    let stop = |pid: u32| {
        let mut kill = std::process::Command::new("kill");
        kill.args(["-STOP", &pid.to_string()]).status().unwrap();
    };
    // The successor of a worker, which no other one replaces while a request waits.
    let (master, worker) = (site.master(), site.workers()[0]);
    std::fs::write(&hold, "").unwrap();
    kill(worker, "KILL");
    let mut booting = 0;
    until("another worker boots", || {
        booting = child(master);
        booting != 0 && booting != worker
    });
    stop(booting);
    let waiting = site.begin("/hello.php");
    until("it is killed", || !lives(booting));
    std::fs::remove_file(&hold).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap().body, "hello");
    // The worker of another generation.
    std::fs::write(&hold, "").unwrap();
    kill(master, "KILL");
    until("another one boots", || {
        let other = site.master();
        booting = if other == master { 0 } else { child(other) };
        booting != 0
    });
    stop(booting);
    until("it is resumed", || {
        site.surus.log().contains("while PHP booted; resumed")
    });
    until("it is killed", || {
        stop(booting);
        !lives(booting)
    });
    std::fs::remove_file(&hold).unwrap();
    assert_eq!(site.get("/hello.php").body, "hello");
}

#[test]
fn master_process_killed_by_a_script_is_replaced() {
    // The second one is a real-time signal, which few programs know.
    for (engine, signal) in ENGINES
        .into_iter()
        .flat_map(|engine| [(engine, 9), (engine, 40)])
    {
        let code = format!("libc()->kill(libc()->getppid(), {signal}); echo 'done';");
        let site = site(engine, &[("lie.php", &code)], &[]);
        let master = site.master();
        assert_eq!(site.get("/lie.php").body, "done", "{engine} {signal}");
        for (number, answer) in post_counted(&site, 0..24, 1000) {
            assert_eq!(
                (answer.status, answer.body),
                (200, number.to_string()),
                "{engine} {signal}"
            );
            assert_eq!(counted(&site, number), 1, "{engine} {signal}");
        }
        until("another has taken its place", || {
            !lives(master) && !site.workers().is_empty()
        });
        answers_within(&site, SOON, engine);
    }
}

/// PHP takes it for the end of max_execution_time.
#[test]
fn sigprof_to_the_master_process_does_no_harm() {
    for engine in ENGINES {
        let code = "libc()->kill(libc()->getppid(), 27); echo 'done';";
        let site = site(engine, &[("lie.php", code)], &[]);
        let master = site.master();
        assert_eq!(site.get("/lie.php").body, "done", "{engine}");
        let before = site.workers();
        before.iter().for_each(|pid| kill(*pid, "KILL"));
        until("others have come", || {
            let workers = site.workers();
            workers.len() >= 4 && !workers.iter().any(|pid| before.contains(pid))
        });
        answers_within(&site, SOON, engine);
        assert_eq!(site.master(), master, "{engine}");
    }
}

/// All workers of one master process look idle and take nothing, and so do those that replace them.
#[test]
fn requests_of_workers_that_take_nothing_go_to_the_next_generation() {
    let boot = format!(
        "require_once __DIR__ . '/tools.php'; \
         if (@file_get_contents(__DIR__ . '/writable/deaf') === (string) libc()->getppid()) {{ \
         poke(own_line(), pack('V', 1)); while (true) sleep(1); }} {BOOT}"
    );
    let dir = app();
    std::fs::write(dir.path().join("tools.php"), format!("<?php {TOOLS}")).unwrap();
    let code = "require_once __DIR__ . '/tools.php'; count_me(); echo $_GET['n'];";
    std::fs::write(dir.path().join("counted.php"), format!("<?php {code}")).unwrap();
    let env = [("SURUS_PHP_FFI__ENABLE", "true")];
    let site = boot_in(dir, "worker", &boot, &["--workers", "4"], &env)
        .unwrap_or_else(|log| panic!("{log}"));
    let (master, before) = (site.master(), site.workers());
    let deaf = site.dir.path().join("writable/deaf");
    std::fs::write(deaf, master.to_string()).unwrap();
    before.iter().for_each(|pid| kill(*pid, "KILL"));
    until("others have come", || {
        let workers = site.workers();
        workers.len() >= 4 && !workers.iter().any(|pid| before.contains(pid))
    });
    for (number, answer) in post_counted(&site, 0..8, 0) {
        assert_eq!(
            (answer.status, answer.body),
            (200, number.to_string()),
            "{}",
            site.surus.log()
        );
        assert_eq!(counted(&site, number), 1);
    }
    until(
        &format!("its processes have ended: {}", site.surus.log()),
        || !lives(master),
    );
}

#[test]
fn siblings_stopped_by_a_script_keep_no_request() {
    for engine in ENGINES {
        let code = "foreach (siblings() as $pid) {
                libc()->kill((int) $pid, 19);
            }
            echo 'done';
            if (isset($_GET['self'])) {
                touch($_GET['self']);
                libc()->kill(getmypid(), 19);
            }";
        let site = site(
            engine,
            &[("lie.php", code)],
            &[("SURUS_HTTP_REQUEST_TIMEOUT", "20s")],
        );
        assert_eq!(site.get("/lie.php").body, "done", "{engine}");
        answers_within(&site, SOON, engine);
        // All of them.
        let stopped = site.dir.path().join("writable/stopped");
        let lie = site.begin(&format!("/lie.php?self={}", stopped.display()));
        until("all are stopped", || stopped.exists());
        answers_within(&site, SOON, engine);
        site.workers().iter().for_each(|pid| kill(*pid, "CONT"));
        drop(lie);
    }
}
