//! Tests processes that scripts fork, in the boot and in every way of serving.

use crate::booted::try_booted;
use crate::site::{Site, lives, until};

const OURS: [&str; 5] = ["classic", "worker", "standby", "fork", "rewind"];
const BOOTED: [&str; 4] = ["worker", "standby", "fork", "rewind"];

fn site(engine: &str, boot: &str) -> Site {
    try_booted(engine, boot, &["--workers", "2"], &[])
        .unwrap_or_else(|log| panic!("{engine}: surus did not start:\n{log}"))
}

/// Sends requests for long enough that a child that takes requests would have taken one.
fn every_answer_is(site: &Site, engine: &str, body: &str) {
    let asked: Vec<_> = (0..30).map(|_| site.begin("/")).collect();
    for answer in asked {
        let answer = answer.join().unwrap().expect("an answer");
        assert_eq!((answer.status, &*answer.body), (200, body), "{engine}");
    }
}

#[test]
fn child_forked_by_the_boot_serves_no_request() {
    for engine in BOOTED {
        let boot = "if (pcntl_fork() === 0) { surus_serve(fn () => print 'CHILD'); exit; }
            pcntl_wait($how); error_log('it ended with ' . pcntl_wexitstatus($how)); \
            surus_serve(fn () => print 'PARENT');";
        let site = site(engine, boot);
        every_answer_is(&site, engine, "PARENT");
        site.surus.wait_for_log(|log| {
            log.contains("it ended with 255")
                && log.contains("cannot be called by a process that the script has forked")
        });
    }
}

#[test]
fn child_forked_by_a_warm_up_serves_no_request() {
    for engine in ["worker", "fork", "rewind"] {
        let boot = "surus_serve(function () { $child = pcntl_fork(); if ($child === 0) return; \
            pcntl_waitpid($child, $how); echo 'PARENT'; });";
        let site = try_booted(
            engine,
            boot,
            &["--workers", "2"],
            &[("SURUS_ENGINE_WARMUP", "[\"/\"]")],
        );
        let site = site.unwrap_or_else(|log| panic!("{engine}: surus did not start:\n{log}"));
        every_answer_is(&site, engine, "PARENT");
    }
}

#[test]
fn children_forked_in_loops_and_script_rests_serve_no_request() {
    let fork = "if (pcntl_fork() === 0) { echo 'CHILD'; flush();";
    let loops = format!(
        "while (frankenphp_handle_request(function () {{ {fork} return; }} usleep(10000); echo \
            'PARENT'; }})) {{ pcntl_fork(); }}"
    );
    let returns = format!(
        "surus_serve(function () {{ {fork} return; }} usleep(10000); echo 'PARENT'; }}); \
            touch('after');"
    );
    let rest = format!("surus_checkpoint(); {fork} exit; }} usleep(10000); echo 'PARENT';");
    for engine in BOOTED {
        for boot in [&loops, &returns, &rest] {
            if engine == "worker" && *boot == rest {
                continue;
            }
            let site = site(engine, boot);
            every_answer_is(&site, engine, "PARENT");
            // The code after it runs when no more requests come.
            assert!(!site.dir.path().join("after").exists(), "{engine}");
        }
    }
}

#[test]
fn surviving_child_does_not_delay_the_shutdown_and_its_output_is_logged() {
    for engine in OURS {
        let handler = "function () { $child = pcntl_fork();
            if ($child === 0) {
                for ($n = 0; $n < 6000 && !file_exists(__DIR__.'/gate'); $n++) {
                    usleep(10000);
                    clearstatcache();
                }
                echo 'LATE';
                error_log('the child has logged');
                throw new Exception('in the child');
            }
            echo $child; }";
        let mut site = match engine {
            "classic" => {
                let site = Site::start(&["--workers", "2", "--engine", engine], &[]);
                std::fs::write(
                    site.dir.path().join("index.php"),
                    format!("<?php ({handler})();"),
                )
                .unwrap();
                site
            }
            _ => site(engine, &format!("surus_serve({handler});")),
        };
        let pid = |answer: String| answer.parse::<u32>().expect("a pid");
        let gate = site.dir.path().join("gate");
        std::fs::write(&gate, "").unwrap();
        let first = pid(site.get("/").body);
        site.surus.wait_for_log(|log| {
            log.contains("the child has logged") && log.contains("in the child")
        });
        until("it has ended", || !lives(first));
        std::fs::remove_file(&gate).unwrap();
        let second = pid(site.get("/").body);
        site.surus.signal("TERM");
        assert!(site.surus.wait().success(), "{engine}");
        assert!(lives(second), "{engine}: as under php-fpm");
        std::fs::write(&gate, "").unwrap();
        until("it has ended", || !lives(second));
    }
}
