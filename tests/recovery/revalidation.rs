//! Tests that an application that has changed boots again by itself.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::booted::boot_in;
use crate::common::Surus;
use crate::common::releases::{Clients, MOMENT};
use crate::site::{Site, app, ask, kill, master_of, request};

const ENGINES: [&str; 4] = ["rewind", "fork", "standby", "worker"];

/// Answers with what two files have said to the boot.
const BOOT: &str = "
    $said = require __DIR__.'/said.php';
    $env = is_file(__DIR__.'/.env') ? trim(file_get_contents(__DIR__.'/.env')) : 'none';
    surus_serve(function () use ($said, $env) { echo $said, ' ', $env; });";

const LOOKS: &str = "opcache.revalidate_freq=1";
const CHANGED: &str = "the application has changed; it boots again";
const FAILED: &str = "the changed application cannot be booted";

fn booted(engine: &str, boot: &str, settings: &[&str]) -> Site {
    let dir = app();
    put(dir.path(), "said.php", "<?php return 'one';");
    release(dir.path(), "1");
    let mut args = vec!["--workers", "2"];
    for setting in [&[LOOKS], settings].concat() {
        args.extend(["-d", setting]);
    }
    boot_in(dir, engine, boot, &args, &[])
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

/// Replaces a file at once, as a deploy does.
fn put(dir: &Path, name: &str, text: &str) {
    let new = dir.join(format!("{name}.new"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, dir.join(name)).unwrap();
}

/// Asks until the answer is this one.
fn eventually(surus: &Surus, expected: &str) {
    let began = Instant::now();
    let mut last = None;
    while began.elapsed() < Duration::from_secs(90) {
        let answer = ask(&surus.address, request("GET", "/", "").as_bytes());
        if answer.as_ref().is_ok_and(|answer| answer.body == expected) {
            return;
        }
        last = Some(answer);
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("not {expected}, but {last:?}\n{}", surus.log());
}

/// Asks for some seconds, in which several looks take place, and returns the different answers.
fn answers_for(site: &Site, seconds: u64) -> Vec<String> {
    let began = Instant::now();
    let mut answers = Vec::new();
    while began.elapsed() < Duration::from_secs(seconds) {
        answers.push(site.get("/").body);
        std::thread::sleep(Duration::from_millis(50));
    }
    answers.sort();
    answers.dedup();
    answers
}

#[test]
fn changed_new_and_removed_files_are_seen_without_a_reload() {
    for engine in ENGINES {
        let site = booted(engine, BOOT, &[]);
        let dir = site.dir.path();
        assert_eq!(site.get("/").body, "one none", "{engine}");
        put(dir, "said.php", "<?php return 'two';");
        eventually(&site.surus, "two none");
        put(dir, ".env", "production");
        eventually(&site.surus, "two production");
        std::fs::remove_file(dir.join(".env")).unwrap();
        eventually(&site.surus, "two none");
        let log = site.surus.log();
        // Each process of `standby` boots for itself, and the next one may be in time.
        for name in ["said.php", ".env"].iter().filter(|_| engine != "standby") {
            let named = format!("{CHANGED} changed=\"{}\"", dir.join(name).display());
            assert!(log.contains(&named), "{engine}: {named}\n{log}");
        }
    }
}

/// As the set-up of a firewall does, which writes `.user.ini` of a running site.
#[test]
fn user_ini_that_is_new_changed_or_removed_makes_the_engine_boot_again() {
    for engine in ENGINES {
        let site = booted(engine, BOOT, &[]);
        let dir = site.dir.path();
        let user_ini = |file: &str| {
            let file = dir.join(file);
            let text = format!("auto_prepend_file = '{}'\n", file.display());
            put(dir, ".user.ini", &text);
        };
        put(dir, "block.php", "<?php exit('blocked');");
        put(dir, "other.php", "<?php exit('also blocked');");
        assert_eq!(site.get("/").body, "one none", "{engine}");
        user_ini("block.php");
        eventually(&site.surus, "blocked");
        user_ini("other.php");
        eventually(&site.surus, "also blocked");
        std::fs::remove_file(dir.join(".user.ini")).unwrap();
        eventually(&site.surus, "one none");
        let log = site.surus.log();
        let named = format!("{CHANGED} changed=\"{}\"", dir.join(".user.ini").display());
        assert!(
            engine == "standby" || log.contains(&named),
            "{engine}: {log}"
        );
    }
}

/// Requests may write what the boot has only seen, and the boot what it reads.
#[test]
fn files_that_the_boot_or_requests_write_are_no_change() {
    let boot = "
        $dir = __DIR__.'/writable';
        is_file(\"$dir/log\"); file_exists(\"$dir/log\");
        file_put_contents(\"$dir/log\", 'boot', FILE_APPEND);
        is_file(\"$dir/cache.php\");
        file_put_contents(\"$dir/cache.tmp\", '<?php return 1;');
        rename(\"$dir/cache.tmp\", \"$dir/cache.php\");
        $cached = include \"$dir/cache.php\";
        surus_serve(function () use ($dir, $cached) {
            file_put_contents(\"$dir/log\", 'request', FILE_APPEND);
            file_put_contents(\"$dir/\".uniqid(), 'new');
            echo $cached;
        });";
    for engine in ENGINES {
        let site = booted(engine, boot, &[]);
        assert_eq!(answers_for(&site, 4), ["1"], "{engine}");
        let log = site.surus.log();
        assert!(!log.contains(CHANGED), "{engine}: {log}");
    }
}

/// Another program changes a file that the boot has read.
#[test]
fn application_that_changes_during_the_first_boot_boots_again_before_it_serves() {
    let boot = "
        $file = __DIR__.'/writable/said.txt';
        is_file($file) || exec(\"printf one > '$file'\");
        $said = file_get_contents($file);
        exec(\"printf second > '$file'\");
        surus_serve(function () use ($said) { echo $said; });";
    for engine in ["rewind", "fork"] {
        let site = booted(engine, boot, &[]);
        assert_eq!(site.get("/").body, "second", "{engine}");
        let log = site.surus.log();
        let again = "the application has changed while it booted; it boots again";
        assert!(log.contains(again), "{engine}: {log}");
    }
}

#[test]
fn changed_application_that_cannot_be_booted_is_reported_once() {
    for engine in ["rewind", "worker"] {
        let site = booted(engine, BOOT, &[]);
        assert_eq!(site.get("/").body, "one none");
        put(site.dir.path(), "said.php", "<?php return 'two' 'three';");
        let began = Instant::now();
        while !site.surus.log().contains(FAILED) {
            assert_eq!(site.get("/").body, "one none", "{engine}");
            assert!(
                began.elapsed() < Duration::from_secs(90),
                "{}",
                site.surus.log()
            );
        }
        assert_eq!(answers_for(&site, 6), ["one none"], "{engine}");
        let log = site.surus.log();
        assert_eq!(log.matches(FAILED).count(), 1, "{engine}: {log}");
        assert!(log.contains("syntax error"), "{engine}: {log}");
        put(site.dir.path(), "said.php", "<?php return 'four';");
        eventually(&site.surus, "four none");
    }
}

#[test]
fn files_are_not_looked_at_without_validate_timestamps() {
    let site = booted("rewind", BOOT, &["opcache.validate_timestamps=0"]);
    put(site.dir.path(), "said.php", "<?php return 'two';");
    assert_eq!(answers_for(&site, 4), ["one none"]);
}

/// Two halves of an answer, each from a file of its own.
const HALVES: &str = "<?php
    $first = require __DIR__.'/first.php';
    $second = require __DIR__.'/second.php';
    surus_serve(function () use ($first, $second) {
        echo \"$first $second \", require __DIR__.'/third.php';
    });";

/// Replaces one file after the other, and returns how long that took.
fn release(dir: &Path, version: &str) -> Duration {
    let began = Instant::now();
    for name in ["first.php", "second.php", "third.php"] {
        put(dir, name, &format!("<?php return '{version}';"));
    }
    began.elapsed()
}

/// Asks for the page of `HALVES`.
fn clients(surus: &Surus, parts: usize) -> Clients {
    let address = surus.address.clone();
    Clients::start(parts, move || {
        let answer = ask(&address, request("GET", "/", "").as_bytes()).unwrap();
        (answer.status, answer.body)
    })
}

#[test]
fn exchanged_link_under_load_mixes_no_releases() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for version in ["1", "2", "3"] {
            let place = dir.path().join(version);
            std::fs::create_dir(&place).unwrap();
            std::fs::write(place.join("index.php"), HALVES).unwrap();
            release(&place, version);
        }
        let current = dir.path().join("current");
        symlink("1", &current).unwrap();
        let args = ["--workers", "2", "--engine", engine, "-d", LOOKS];
        let surus = Surus::serve(&current, &args);
        let clients = clients(&surus, 3);
        for version in ["2", "3", "1"] {
            let new = dir.path().join("new");
            symlink(version, &new).unwrap();
            std::fs::rename(new, &current).unwrap();
            eventually(&surus, &format!("{version} {version} {version}"));
        }
        assert_eq!(clients.stop(), Vec::<String>::new(), "{engine}");
        assert_eq!(surus.log().matches(CHANGED).count(), 3, "{}", surus.log());
    }
}

/// The master process of the old release ends, and PHP restarts without a reload.
#[test]
fn exchanged_link_before_a_restart_of_php_exchanges_static_files_too() {
    for engine in ["rewind", "worker"] {
        let dir = app();
        for version in ["1", "2"] {
            let place = dir.path().join(version);
            std::fs::create_dir(&place).unwrap();
            std::fs::write(place.join("index.php"), HALVES).unwrap();
            std::fs::write(place.join("asset.txt"), version).unwrap();
            release(&place, version);
        }
        let current = dir.path().join("current");
        symlink("1", &current).unwrap();
        let unchecked = "opcache.validate_timestamps=0";
        let args = ["--workers", "2", "--engine", engine, "-d", unchecked];
        let surus = Surus::serve(&current, &args);
        eventually(&surus, "1 1 1");
        let new = dir.path().join("new");
        symlink("2", &new).unwrap();
        std::fs::rename(new, &current).unwrap();
        kill(master_of(&surus), "KILL");
        eventually(&surus, "2 2 2");
        surus.wait_for_log(|log| log.contains(CHANGED) && log.contains("reloaded"));
        let asset = ask(&surus.address, request("GET", "/asset.txt", "").as_bytes());
        assert_eq!(asset.unwrap().body, "2", "{engine}: {}", surus.log());
    }
}

/// What requests load themselves (the third part) is of the new release at once, as under php-fpm.
#[test]
fn replaced_files_under_load_mix_no_releases_in_the_boot() {
    // A process of `standby` may boot between two files of a release.
    for engine in ["rewind", "fork", "worker"] {
        let site = booted(engine, HALVES.trim_start_matches("<?php"), &[]);
        let dir = site.dir.path();
        release(dir, "1");
        eventually(&site.surus, "1 1 1");
        let clients = clients(&site.surus, 2);
        let mut slowest = Duration::ZERO;
        for version in ["2", "3", "4"] {
            slowest = slowest.max(release(dir, version));
            eventually(&site.surus, &format!("{version} {version} {version}"));
        }
        let mixed = clients.stop();
        assert!(mixed.is_empty() || slowest > MOMENT, "{engine}: {mixed:?}");
    }
}

/// The boot waits in the middle until the test has replaced what it has read and what it will read.
/// Two workers boot at the same time, one of them across a deploy.
#[test]
fn workers_whose_boots_mix_releases_boot_again() {
    let boot = "
        $dir = __DIR__.'/writable';
        if (glob(\"$dir/wait\")) {
            if (@mkdir(\"$dir/leader\")) {
                $first = require __DIR__.'/first.php';
                touch(\"$dir/began\");
                while (!glob(\"$dir/go\")) usleep(10000);
            } else {
                while (!glob(\"$dir/replaced\")) usleep(10000);
            }
        }
        $first ??= require __DIR__.'/first.php';
        $second = require __DIR__.'/second.php';
        touch(\"$dir/booted\");
        surus_serve(function () use ($first, $second) { echo \"$first $second\"; });";
    // Without this protection OPcache has the first worker's first.php for the second worker.
    for cached in ["opcache.file_update_protection=0", "opcache.enable=0"] {
        let site = booted("worker", boot, &[cached]);
        let dir = site.dir.path();
        let writable = dir.join("writable");
        std::fs::write(writable.join("wait"), "").unwrap();
        let clients = clients(&site.surus, 2);
        let until = |name: &str| {
            let asked = Instant::now();
            while !writable.join(name).exists() {
                let log = site.surus.log();
                assert!(asked.elapsed() < Duration::from_secs(90), "{cached}: {log}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        release(dir, "2");
        until("began");
        std::fs::remove_file(writable.join("booted")).unwrap();
        release(dir, "3");
        std::fs::write(writable.join("replaced"), "").unwrap();
        until("booted");
        // The other worker's boot is complete.
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(writable.join("go"), "").unwrap();
        eventually(&site.surus, "3 3");
        clients.stop();
        assert_eq!(
            answers_for(&site, 3),
            ["3 3"],
            "{cached}: {}",
            site.surus.log()
        );
    }
}

#[test]
fn files_replaced_during_a_boot_mix_no_releases() {
    // glob(), because Surus does not look at what that finds.
    let boot = "
        $first = require __DIR__.'/first.php';
        $dir = __DIR__.'/writable';
        if (glob(\"$dir/wait\")) {
            touch(\"$dir/began\");
            while (!glob(\"$dir/go\")) usleep(10000);
        }
        $second = require __DIR__.'/second.php';
        surus_serve(function () use ($first, $second) { echo \"$first $second\"; });";
    for engine in ENGINES {
        let site = booted(engine, boot, &[]);
        let dir = site.dir.path();
        let clients = clients(&site.surus, 2);
        std::fs::write(dir.join("writable/wait"), "").unwrap();
        let mut slowest = release(dir, "2");
        let asked = Instant::now();
        while !dir.join("writable/began").exists() {
            let log = site.surus.log();
            assert!(asked.elapsed() < Duration::from_secs(90), "{engine}: {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
        slowest = slowest.max(release(dir, "3"));
        std::fs::write(dir.join("writable/go"), "").unwrap();
        eventually(&site.surus, "3 3");
        let mixed = clients.stop();
        assert!(mixed.is_empty() || slowest > MOMENT, "{engine}: {mixed:?}");
    }
}

#[test]
fn application_that_always_says_that_it_has_changed_boots_less_and_less() {
    let boot = "
        surus_serve(function () {
            surus_boot_outdated('everything', uniqid());
            echo 'served';
        });";
    for engine in ENGINES {
        let site = booted(engine, boot, &[]);
        let began = Instant::now();
        assert_eq!(answers_for(&site, 10), ["served"], "{engine}");
        let log = site.surus.log();
        // There are pauses of 2, 4 and 8 seconds between them.
        let most = (began.elapsed().as_secs() + 2).ilog2() as usize;
        let boots = log.matches(CHANGED).count();
        assert!(boots <= most, "{engine}: {boots} of {most}\n{log}");
        if boots > 0 {
            assert!(log.contains("changed=\"everything\""), "{engine}: {log}");
        }
    }
}

#[test]
fn application_that_says_that_it_has_changed_boots_again() {
    let boot = "
        $state = static fn () => trim(shell_exec('cat '.__DIR__.'/state') ?? '');
        $booted = $state();
        surus_serve(function () use ($state, $booted) {
            if ($state() !== $booted) surus_boot_outdated('the state', $state());
            echo $booted;
        });";
    for engine in ENGINES {
        let dir = app();
        put(dir.path(), "state", "one");
        let args = ["--workers", "1", "-d", LOOKS];
        let site = boot_in(dir, engine, boot, &args, &[]).unwrap();
        eventually(&site.surus, "one");
        put(site.dir.path(), "state", "two");
        eventually(&site.surus, "two");
        let log = site.surus.log();
        let said = log.matches("changed=\"the state\"").count();
        assert!(said == 1 || engine == "standby", "{engine}: {said}\n{log}");
    }
}
