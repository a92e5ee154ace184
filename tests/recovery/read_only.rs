//! Tests the start and requests on read-only file systems, as in a container with a read-only root.

use std::process::Command;

use crate::booted::BOOT;
use crate::common::Surus;
use crate::site::{ask, is_root, request};

/// Not below /tmp, which the tests replace.
const PLACE: &str = "/var/tmp";

/// An application whose directory nothing can write to.
fn app() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir_in(PLACE).unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), mode).unwrap();
    for (name, code) in [
        ("hello.php", "echo 'hello';"),
        (
            "count.php",
            "echo strlen(file_get_contents('php://input'));",
        ),
        ("boot.php", BOOT),
    ] {
        std::fs::write(dir.path().join(name), format!("<?php {code}")).unwrap();
    }
    dir
}

/// Starts a server in a mount namespace where everything is read-only but these directories, which
/// are empty. The error is what it has printed.
fn start_by_default(
    app: &tempfile::TempDir,
    writable: &[&str],
    args: &[&str],
    env: &[(&str, &str)],
) -> Result<Surus, String> {
    let script = r#"
        mount --make-rprivate / || exit 99
        for dir in $WRITABLE; do mount -t tmpfs -o mode=1777 tmpfs "$dir" || exit 99; done
        mount -o remount,bind,ro / || exit 99
        exec "$@""#;
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
        env!("CARGO_BIN_EXE_surus"),
    ]);
    command.env("WRITABLE", writable.join(" "));
    let args = [&["--workers", "1"], args].concat();
    Surus::spawn_by(command, app.path(), &args, env)
}

/// Likewise, with the admin listener on TCP.
fn start(
    app: &tempfile::TempDir,
    writable: &[&str],
    args: &[&str],
    env: &[(&str, &str)],
) -> Result<Surus, String> {
    let admin = [("SURUS_ADMIN_LISTEN", "127.0.0.1:0")];
    start_by_default(app, writable, args, &[&admin, env].concat())
}

/// Whether a mount namespace is possible. Without root, the tests print a note and pass.
fn may_mount() -> bool {
    let tried = Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount --make-rprivate /"])
        .status();
    let may = is_root() && tried.is_ok_and(|status| status.success());
    if !may {
        eprintln!("skipped: a mount namespace needs root");
    }
    may
}

/// Status and body of the response to a body of this length.
fn post(surus: &Surus, len: usize) -> (u16, String) {
    let request = request("POST", "/count.php", &"x".repeat(len));
    let answer = ask(&surus.address, request.as_bytes()).unwrap();
    (answer.status, answer.body)
}

fn serves(surus: &Surus) {
    let answer = ask(&surus.address, request("GET", "/hello.php", "").as_bytes()).unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, "hello"));
    assert_eq!(post(surus, 1000), (200, "1000".into()));
}

const LARGE: usize = 200_000;

#[test]
fn read_only_root_with_a_writable_tmp_serves() {
    if !may_mount() {
        return;
    }
    let app = app();
    let script = app.path().join("boot.php");
    let boots = [("SURUS_ENGINE_SCRIPT", script.to_str().unwrap())];
    for (engine, env) in [("classic", &[][..]), ("worker", &boots), ("rewind", &boots)] {
        let surus = start(&app, &["/tmp"], &["--engine", engine], env);
        let surus = surus.unwrap_or_else(|log| panic!("{engine}: {log}"));
        serves(&surus);
        assert_eq!(post(&surus, LARGE), (200, LARGE.to_string()), "{engine}");
    }
}

#[test]
fn unwritable_tmp_is_explained_and_settings_replace_it() {
    if !may_mount() {
        return;
    }
    let app = app();
    let log = start(&app, &["/run"], &[], &[]).err().unwrap();
    for words in ["opcache.lockfile_path", "must be writable"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    let lock = ("SURUS_PHP_OPCACHE__LOCKFILE_PATH", "/run");
    let surus = start(&app, &["/run"], &[], &[lock]).unwrap_or_else(|log| panic!("{log}"));
    serves(&surus);
    let log = surus.log();
    for words in ["bodies above 64 KiB are rejected", "http.temp_dir"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    let (status, _) = post(&surus, LARGE);
    assert!([500, 503, 507].contains(&status), "{status}");
    serves(&surus);
    drop(surus);
    let temporary = [
        lock,
        ("SURUS_HTTP_TEMP_DIR", "/run"),
        ("SURUS_PHP_SYS_TEMP_DIR", "/run"),
    ];
    let surus = start(&app, &["/run"], &[], &temporary).unwrap_or_else(|log| panic!("{log}"));
    serves(&surus);
    assert_eq!(post(&surus, LARGE), (200, LARGE.to_string()));
}

#[test]
fn read_only_directory_stops_the_start_and_is_named() {
    if !may_mount() {
        return;
    }
    let app = app();
    for (setting, variable, value) in [
        ("http.temp_dir", "SURUS_HTTP_TEMP_DIR", PLACE),
        (
            "admin.listen",
            "SURUS_ADMIN_LISTEN",
            "unix:/var/tmp/surus-test.sock",
        ),
        (
            "admin.listen",
            "SURUS_ADMIN_LISTEN",
            "unix:/var/tmp/surus-test/admin.sock",
        ),
    ] {
        let log = start(&app, &["/tmp", "/run"], &[], &[(variable, value)]);
        let log = log.err().unwrap_or_else(|| panic!("{value} is read-only"));
        for words in [setting, "Read-only file system", "/var/tmp"] {
            assert!(log.contains(words), "{words}: {log}");
        }
    }
}

#[test]
fn authority_that_cannot_be_stored_is_reported_by_name() {
    if !may_mount() {
        return;
    }
    let app = app();
    let env = [
        ("SURUS_ACME_DIRECTORY", "/var/tmp/surus-test-authority"),
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
    ];
    let log = match start(&app, &["/tmp", "/run"], &["--https"], &env) {
        Err(log) => log,
        Ok(surus) => {
            surus.wait_for_log(|log| log.contains("acme.directory"));
            surus.log()
        }
    };
    for words in ["acme.directory", "Read-only file system", "/var/tmp/surus"] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

/// The default place of root's admin socket is in /run.
#[test]
fn read_only_run_names_the_setting_of_the_admin_listener() {
    if !may_mount() {
        return;
    }
    let app = app();
    let log = start_by_default(&app, &["/tmp"], &[], &[]).err().unwrap();
    for words in ["/run/surus", "admin.listen", "Read-only file system"] {
        assert!(log.contains(words), "{words}: {log}");
    }
}
