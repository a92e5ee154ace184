//! Tests locks that a request takes on files of the boot and does not release.

use crate::booted::{BOOT, try_booted};
use crate::common::php::all_extensions;
use crate::site::{Site, until};

fn write(site: &Site, files: &[(&str, &str)]) {
    for (name, code) in files {
        std::fs::write(site.dir.path().join(name), format!("<?php {code}")).unwrap();
    }
}

/// The database is as after a process that has exited: unlocked, and without uncommitted changes.
#[test]
fn open_transaction_on_a_boot_connection_ends_with_its_request() {
    for (engine, journal) in [
        ("rewind", "wal"),
        ("rewind", "delete"),
        ("fork", "wal"),
        ("fork", "delete"),
    ] {
        let boot = format!(
            "$db = new PDO('sqlite:' . __DIR__ . '/writable/db');
            $db->exec('pragma journal_mode = {journal}; create table t (a)');
            {BOOT}"
        );
        let site = try_booted(engine, &boot, &["--workers", "1"], &[all_extensions()])
            .unwrap_or_else(|log| panic!("{engine}: {log}"));
        write(
            &site,
            &[
                (
                    "leave.php",
                    "ini_set('display_errors', 0); $db = $GLOBALS['db'];
                    $db->exec('begin immediate; insert into t values (1)'); no_such_function();",
                ),
                // More than SQLite keeps in memory, so that it is written to the files.
                (
                    "spill.php",
                    "ini_set('display_errors', 0); $db = $GLOBALS['db'];
                    $db->exec('pragma cache_size = 2; begin immediate');
                    for ($i = 0; $i < 100; $i++) {
                        $db->exec('insert into t values (zeroblob(10000))');
                    }
                    no_such_function();",
                ),
                (
                    "insert.php",
                    "$GLOBALS['db']->exec('insert into t values (2)'); echo 'inserted';",
                ),
            ],
        );
        let other = Site::start(&["--workers", "1"], &[all_extensions()]);
        let database = site.dir.path().join("writable/db");
        let probe = format!(
            "$db = new PDO('sqlite:{}', null, null, [PDO::ATTR_TIMEOUT => 0]);
            $db->exec('begin immediate');
            echo $db->query('select count(*) from t')->fetchColumn();",
            database.display()
        );
        write(&other, &[("probe.php", &probe)]);
        for rows in 0..3 {
            for left in ["/leave.php", "/spill.php"] {
                assert_eq!(site.get(left).status, 500, "{engine}, {journal}: {left}");
                let answer = other.get("/probe.php");
                assert_eq!(
                    answer.body,
                    rows.to_string(),
                    "{engine}, {journal}: after {left}: {answer:?}"
                );
            }
            assert_eq!(
                site.get("/insert.php").body,
                "inserted",
                "{engine}, {journal}\n{}",
                site.surus.log()
            );
        }
        let log = site.surus.log();
        assert!(!log.contains("replaced"), "{engine}, {journal}\n{log}");
    }
}

/// Each worker has its own open file: its lock excludes the others.
#[test]
fn lock_on_an_appended_file_of_the_boot_belongs_to_one_worker() {
    for engine in ["rewind", "fork"] {
        let boot = format!("$log = fopen(__DIR__ . '/writable/log', 'a'); {BOOT}");
        let site = try_booted(engine, &boot, &["--workers", "2"], &[])
            .unwrap_or_else(|log| panic!("{engine}: {log}"));
        write(
            &site,
            &[
                (
                    "hold.php",
                    "flock($GLOBALS['log'], LOCK_EX); touch('writable/held');
                    while (!file_exists('writable/enough')) {
                        usleep(1000);
                        clearstatcache();
                    }
                    echo 'held';",
                ),
                (
                    "try.php",
                    "echo flock($GLOBALS['log'], LOCK_EX | LOCK_NB) ? 'free' : 'locked';",
                ),
            ],
        );
        let holder = site.begin("/hold.php");
        until("it is held", || {
            site.dir.path().join("writable/held").exists()
        });
        assert_eq!(site.get("/try.php").body, "locked", "{engine}");
        std::fs::write(site.dir.path().join("writable/enough"), "").unwrap();
        assert_eq!(holder.join().unwrap().unwrap().body, "held", "{engine}");
        for _ in 0..3 {
            assert_eq!(site.get("/try.php").body, "free", "{engine}");
        }
    }
}
