//! Tests an OPcache that accepts nothing new while booted processes use it.

use crate::booted::{BOOT, boot_in};
use crate::site::{Site, app, kill, metrics, until};

const SAID: &str = "OPcache takes no new files until a reload";

/// How often the log reports it, and the metrics' count.
fn said(site: &Site) -> (usize, Option<String>) {
    let metrics = metrics(&site.dir.path().join("admin.sock"));
    let counted = metrics
        .lines()
        .find(|line| line.starts_with("surus_opcache_blocked_total{"));
    let said = site.surus.log().matches(SAID).count();
    (said, counted.map(str::to_string))
}

fn booted(engine: &str, args: &[&str]) -> Site {
    let dir = app();
    let admin = format!("unix:{}", dir.path().join("admin.sock").display());
    let args = [&["--workers", "2"], args].concat();
    boot_in(dir, engine, BOOT, &args, &[("SURUS_ADMIN_LISTEN", &admin)])
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

#[test]
fn opcache_with_file_cache_only_starts_and_serves() {
    let cache = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(cache.path(), open).unwrap();
    let directory = format!("opcache.file_cache={}", cache.path().display());
    for engine in ["rewind", "fork", "standby", "worker"] {
        let only = "opcache.file_cache_only=1";
        let args = [
            "-d",
            &directory,
            "-d",
            only,
            "-d",
            "opcache.file_update_protection=0",
        ];
        let site = booted(engine, &args);
        for _ in 0..3 {
            assert_eq!(site.get("/hello.php").body, "hello", "{engine}");
        }
        site.surus
            .wait_for_log(|log| log.contains("OPcache uses no shared memory"));
        assert!(cache.path().read_dir().unwrap().next().is_some());
    }
}

#[test]
fn master_process_without_opcache_exits_with_its_heap_intact() {
    for engine in ["rewind", "fork", "standby", "worker"] {
        // A child of the boot ends PHP's request too.
        let boot = format!(
            "if (pcntl_fork() === 0) exit(0); pcntl_wait($status);
            echo pcntl_wifexited($status) ? 'child ended' : 'child died', PHP_EOL; {BOOT}"
        );
        let args = ["--workers", "2", "-d", "opcache.enable=0"];
        let mut site = boot_in(app(), engine, &boot, &args, &[]).unwrap();
        for _ in 0..3 {
            assert_eq!(site.get("/hello.php").body, "hello", "{engine}");
        }
        site.surus.wait_for_log(|log| log.contains("child ended"));
        kill(site.surus.pid(), "TERM");
        assert!(site.surus.wait().success(), "{engine}");
        let log = site.surus.log();
        assert!(!log.contains("corrupted"), "{engine}: {log}");
    }
}

/// Their last request is the end of their PHP, too.
#[test]
fn worker_without_opcache_exits_after_its_requests_with_its_heap_intact() {
    for engine in ["classic", "worker", "rewind", "fork", "standby"] {
        let args = ["--workers", "1", "-d", "opcache.enable=0"];
        let env = [("SURUS_ENGINE_MAX_REQUESTS", "2")];
        let mut site = match engine {
            "classic" => Site::start(&args, &env),
            _ => boot_in(app(), engine, BOOT, &args, &env).unwrap(),
        };
        let pids: std::collections::BTreeSet<_> =
            (0..9).map(|_| site.get("/pid.php").body).collect();
        assert!(pids.len() >= 4, "{engine}: {pids:?}");
        kill(site.surus.pid(), "TERM");
        assert!(site.surus.wait().success(), "{engine}");
        let log = site.surus.log();
        for trouble in ["corrupted", "SIGABRT", "SIGSEGV"] {
            assert!(!log.contains(trouble), "{engine}: {log}");
        }
    }
}

#[test]
fn full_opcache_is_reported_once_per_boot() {
    for engine in ["rewind", "fork"] {
        // The smallest value; PHP rounds it up to a prime number of slots.
        let least = ["-d", "opcache.max_accelerated_files=200"];
        let fresh = ["-d", "opcache.file_update_protection=0"];
        let site = booted(engine, &[least, fresh].concat());
        let file = |number: usize| site.dir.path().join(format!("part-{number}.php"));
        for number in 0..300 {
            std::fs::write(file(number), "<?php $count++;").unwrap();
        }
        let all = "<?php
            sleep((int) ($_GET['after'] ?? 0));
            $count = 0;
            foreach (glob(__DIR__.'/part-*.php') as $file) {
                require $file;
            }
            echo $count;";
        std::fs::write(site.dir.path().join("all.php"), all).unwrap();
        assert_eq!(site.get("/hello.php").body, "hello");
        assert_eq!(said(&site), (0, None), "{engine}");
        // It fills immediately, in a request that takes longer than the interval between two
        // checks.
        for (boot, after) in [(1, 0), (2, 3)] {
            assert_eq!(site.get(&format!("/all.php?after={after}")).body, "300");
            until("the log says that it is full", || said(&site).0 == boot);
            let counted = format!(
                "surus_opcache_blocked_total{{engine=\"{engine}\",reason=\"full\"}} {boot}"
            );
            // Missing files are compiled and work.
            assert_eq!(site.get("/all.php").body, "300");
            assert_eq!(said(&site), (boot, Some(counted)));
            assert!(site.surus.log().contains("opcache.max_accelerated_files"));
            kill(site.surus.pid(), "HUP");
            until("the application boots again", || {
                site.surus.log().matches("reloaded").count() == boot
            });
        }
    }
}

#[test]
fn opcache_reset_waits_for_a_reload_and_is_reported() {
    for engine in ["rewind", "fork"] {
        let site = booted(engine, &[]);
        let reset = "<?php echo json_encode(opcache_reset());";
        std::fs::write(site.dir.path().join("reset.php"), reset).unwrap();
        assert_eq!(site.get("/reset.php").body, "true");
        until("the log says that it waits", || said(&site).0 == 1);
        let counted =
            format!("surus_opcache_blocked_total{{engine=\"{engine}\",reason=\"restart\"}} 1");
        assert_eq!(said(&site), (1, Some(counted)));
        assert!(site.surus.log().contains("`surus reload`"));
        assert_eq!(site.get("/hello.php").body, "hello");
    }
}
