//! Tests that connections and errors of database extensions end with their request on `worker`.
//!
//! Needs `scripts/install test extensions`.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::booted::boot_in;
use crate::common::{extension_files, php};
use crate::site::{Site, app, descriptors, is_root, kill, until};

/// A server of PostgreSQL on a Unix socket in its directory. Drop ends it.
struct Postgres {
    server: Child,
    dir: tempfile::TempDir,
}

impl Postgres {
    fn start() -> Postgres {
        let dir = tempfile::TempDir::with_prefix("surus-postgres-").unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let place = dir.path().to_str().unwrap();
        let data = format!("{place}/data");
        let made = command(&dir, "initdb")
            .args([
                "-D",
                &data,
                "-A",
                "trust",
                "-U",
                "postgres",
                "--no-sync",
                "--locale=C",
            ])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{error}");
        let server = command(&dir, "postgres")
            .args(["-D", &data, "-c", "listen_addresses=", "-c", "fsync=off"])
            .args(["-k", place])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It listens before it takes queries.
        let state = dir.path().join("data/postmaster.pid");
        let postgres = Postgres { server, dir };
        until("PostgreSQL takes queries", || {
            std::fs::read_to_string(&state).is_ok_and(|state| state.contains("ready"))
        });
        postgres
    }

    /// What pg_connect() takes, as a text of PHP.
    fn link(&self, name: &str) -> String {
        let place = self.dir.path().display();
        format!("'host={place} user=postgres dbname=postgres application_name={name}'")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its processes end before it does.
        kill(self.server.id(), "QUIT");
        let _ = self.server.wait();
    }
}

/// A program of PostgreSQL, which refuses to run as root.
fn command(dir: &tempfile::TempDir, program: &str) -> Command {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL; scripts/install extensions")
        .map(|version| version.unwrap().path())
        .collect();
    found.sort();
    let program = found.pop().unwrap().join("bin").join(program);
    let mut command = match is_root() {
        true => Command::new("setpriv"),
        false => Command::new(&program),
    };
    if is_root() {
        command.args(["--reuid", "postgres", "--clear-groups", "--"]);
        command.arg(&program);
    }
    command
        .current_dir(dir.path())
        .env("TMPDIR", dir.path())
        .stdin(Stdio::null());
    command
}

/// A worker of `worker`, with `boot` before a handler that requires the requested file.
fn worker(boot: &str, files: &[(&str, &str)]) -> Site {
    let dir = app();
    for (name, code) in files {
        std::fs::write(dir.path().join(name), format!("<?php {code}")).unwrap();
    }
    let boot = format!(
        "{boot} surus_serve(function () {{ require __DIR__ . $_SERVER['SCRIPT_NAME']; }});"
    );
    let extensions = extension_files(dir.path(), "pgsql imap");
    let env = [("PHP_INI_SCAN_DIR", extensions.as_str())];
    boot_in(dir, "worker", &boot, &["--workers", "1"], &env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

fn ask(site: &Site, path: &str) -> String {
    let answer = site.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", site.surus.log());
    answer.body
}

#[test]
fn connection_of_pg_connect_is_closed_at_the_end_of_the_request() {
    let postgres = Postgres::start();
    let link = postgres.link("request");
    let leave = format!(
        "$link = pg_connect({link}); pg_query($link, 'begin');
         pg_query($link, 'set search_path = secret');
         pg_query($link, 'select pg_advisory_lock(1)');
         echo pg_get_pid($link);"
    );
    // The server frees the lock soon after the connection is closed.
    let see = format!(
        "$link = pg_connect({link}); $status = pg_transaction_status($link);
         $path = pg_fetch_result(pg_query($link, 'show search_path'), 0);
         pg_query($link, \"set lock_timeout = '20s'\");
         $locks = (bool) @pg_query($link, 'select pg_advisory_lock(1)');
         echo json_encode([$status === PGSQL_TRANSACTION_IDLE, str_contains($path, 'public'),
            $locks, pg_get_pid($link)]);"
    );
    let files = [
        ("pid.php", "echo getmypid();"),
        ("leave.php", &leave),
        ("see.php", &see),
    ];
    let site = worker("", &files);
    let pid = ask(&site, "/pid.php").parse().unwrap();
    let before = descriptors(pid);
    for _ in 0..3 {
        let backend = ask(&site, "/leave.php");
        assert_eq!(descriptors(pid), before);
        let seen = ask(&site, "/see.php");
        assert!(seen.starts_with("[true,true,true,"), "{seen}");
        assert!(!seen.ends_with(&format!(",{backend}]")), "{seen}");
    }
    assert_eq!(ask(&site, "/pid.php"), pid.to_string());
}

#[test]
fn transaction_of_pg_pconnect_is_rolled_back_at_the_end_of_the_request() {
    let postgres = Postgres::start();
    let link = postgres.link("request");
    let leave =
        format!("$link = pg_pconnect({link}); pg_query($link, 'begin'); echo pg_get_pid($link);");
    let see = format!(
        "$link = pg_pconnect({link});
         echo json_encode([pg_transaction_status($link), pg_get_pid($link)]);"
    );
    let site = worker("", &[("leave.php", &leave), ("see.php", &see)]);
    for _ in 0..3 {
        let backend = ask(&site, "/leave.php");
        assert_eq!(ask(&site, "/see.php"), format!("[0,{backend}]"));
    }
}

#[test]
fn connection_of_the_boot_stays_the_default_of_requests() {
    let postgres = Postgres::start();
    let (boot, request) = (postgres.link("boot"), postgres.link("request"));
    let see = "echo pg_fetch_result(@pg_query('show application_name'), 0);";
    let other = format!("pg_connect({request}); {see}");
    let close = format!("{see} @pg_close();");
    let files = [
        ("see.php", see),
        ("other.php", &other),
        ("close.php", &close),
    ];
    let site = worker(&format!("pg_connect({boot});"), &files);
    for _ in 0..3 {
        assert_eq!(ask(&site, "/see.php"), "boot");
        assert_eq!(ask(&site, "/other.php"), "request");
        assert_eq!(ask(&site, "/close.php"), "boot");
    }
}

#[test]
fn errors_of_connections_end_with_the_request() {
    // Nothing listens on port 1.
    let results = [
        (
            "mysqli",
            "mysqli_report(MYSQLI_REPORT_OFF); @mysqli_connect('127.0.0.1', 'a', 'b', '', 1);",
            "[mysqli_connect_errno(), mysqli_connect_error()]",
            "[0,null]",
        ),
        (
            "imap",
            "@imap_open('{127.0.0.1:1/imap/notls}INBOX', 'a', 'b');",
            "imap_last_error()",
            "false",
        ),
    ];
    for (extension, leave, see, fresh) in results {
        if php::lacks(extension) {
            continue;
        }
        let leave = format!("{leave} echo json_encode({see});");
        let see = format!("echo json_encode({see});");
        let site = worker("", &[("leave.php", &leave), ("see.php", &see)]);
        for _ in 0..2 {
            assert_eq!(ask(&site, "/see.php"), fresh, "{extension}");
            assert_ne!(ask(&site, "/leave.php"), fresh, "{extension}");
        }
        assert_eq!(ask(&site, "/see.php"), fresh, "{extension}");
    }
}

#[test]
fn mode_of_mysqli_report_stays_after_its_request() {
    let mode = "echo (new mysqli_driver)->report_mode;";
    let files = [
        ("see.php", mode),
        ("set.php", "mysqli_report(MYSQLI_REPORT_OFF);"),
    ];
    let site = worker("", &files);
    assert_eq!(ask(&site, "/see.php"), "3");
    ask(&site, "/set.php");
    assert_eq!(ask(&site, "/see.php"), "0");
}
