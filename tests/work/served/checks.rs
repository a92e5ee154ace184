//! Tests what `surus check` says about the queues of a server, and what one log file does to two.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use super::super::database::Kind;
use super::super::plain::Plain;
use super::super::site::{ids_of, is_root};
use super::super::work::Work;
use super::{By, SERVE, spawn_with};

/// Status and output of `surus check`.
fn check(plain: &Plain) -> (bool, String) {
    plain.site.stored();
    let output = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("check")
        .arg(plain.site.www())
        .args(["--listen", "127.0.0.1:0"])
        .env("SURUS_ADMIN_LISTEN", "127.0.0.1:0")
        .env("SURUS_WORK_ADMIN_LISTEN", "127.0.0.1:0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

#[test]
fn check_boots_the_queues_and_names_what_would_stop_them() {
    let plain = Plain::new(Kind::Sqlite, SERVE);
    let (is_fine, text) = check(&plain);
    assert!(
        is_fine && text.contains("✓ queues           default: /"),
        "{text}"
    );
    let handler = plain.site.www().join("jobs.php");
    std::fs::write(&handler, "<?php throw new Exception('no database');").unwrap();
    let (is_fine, text) = check(&plain);
    let note = "! the queues (default) cannot boot";
    assert!(
        is_fine && text.contains(note) && text.contains("no database"),
        "{text}"
    );
    std::fs::remove_file(&handler).unwrap();
    let (is_fine, text) = check(&plain);
    let stop = format!("✗ work.serve: cannot read {} (handler)", handler.display());
    assert!(!is_fine && text.contains(&stop), "{text}");
}

#[test]
fn queues_that_are_not_served_are_not_checked() {
    let plain = Plain::new(Kind::Sqlite, "");
    std::fs::remove_file(plain.site.www().join("jobs.php")).unwrap();
    let (is_fine, text) = check(&plain);
    let is_checked = ["✓ queues", "! the queues", "✗ the queues"];
    let is_checked = is_checked.iter().any(|it| text.contains(it));
    assert!(is_fine && !is_checked, "{text}");
}

#[test]
fn log_file_of_another_user_stops_the_start_with_the_remedy() {
    if !is_root() {
        return;
    }
    let logs = tempfile::tempdir().unwrap();
    std::fs::set_permissions(logs.path(), Permissions::from_mode(0o755)).unwrap();
    let log = logs.path().join("surus.log");
    std::fs::write(&log, "").unwrap();
    let words = format!("cannot open the file {} (log.file)", log.display());
    let plain = Plain::new(Kind::Sqlite, "");
    // A surus.toml that PHP's user may write cannot name it for root.
    let setting = [("SURUS_LOG_FILE", log.to_str().unwrap())];
    let mut work = Work::spawn(&plain.site, &[], &setting);
    assert!(!work.wait().success());
    work.wait_for_log(|log| log.contains(&words) && log.contains("SURUS_LOG_FILE"));
    let (user, group) = ids_of("www-data");
    chown(&log, Some(user), Some(group)).unwrap();
    let said = spawn_with(&plain, By::Root, &setting).err().unwrap();
    assert!(
        said.contains(&words) && said.contains("SURUS_LOG_FILE"),
        "{said}"
    );
}
