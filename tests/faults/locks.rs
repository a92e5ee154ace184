//! Locks that a request takes on what the boot has opened, and leaves without releasing them.

use crate::booted::{BOOT, try_booted};
use crate::site::Site;

fn write(site: &Site, files: &[(&str, &str)]) {
    for (name, code) in files {
        std::fs::write(site.dir.path().join(name), format!("<?php {code}")).unwrap();
    }
}

/// Others find the database as they would behind a process that has ended: free, and without what was not committed.
#[test]
fn a_transaction_that_a_request_leaves_on_the_boots_connection_is_over_with_it() {
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
        let site = try_booted(engine, &boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{engine}: {log}"));
        write(
            &site,
            &[
                (
                    "leave.php",
                    "ini_set('display_errors', 0); $db = $GLOBALS['db'];
                    $db->exec('begin immediate; insert into t values (1)'); no_such_function();",
                ),
                // More than SQLite keeps in memory, so that it is in the files.
                (
                    "spill.php",
                    "ini_set('display_errors', 0); $db = $GLOBALS['db'];
                    $db->exec('pragma cache_size = 2; begin immediate');
                    for ($i = 0; $i < 100; $i++) { $db->exec('insert into t values (zeroblob(10000))'); }
                    no_such_function();",
                ),
                (
                    "insert.php",
                    "$GLOBALS['db']->exec('insert into t values (2)'); echo 'inserted';",
                ),
            ],
        );
        let other = Site::start(&["--workers", "1"], &[]);
        let database = site.dir.path().join("writable/db");
        let probe = format!(
            "$db = new PDO('sqlite:{}', null, null, [PDO::ATTR_TIMEOUT => 0]); $db->exec('begin immediate');
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
