//! Tests scripts that misbehave.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::site::{Site, is_root, until};

#[test]
fn each_failure_has_its_status_and_the_next_request_is_served() {
    let site = Site::start(&["--workers", "1"], &[("SURUS_HTTP_REQUEST_TIMEOUT", "5s")]);
    for (path, status) in [
        ("/segfault.php", 502),
        ("/loop.php", 504),
        ("/sleep.php", 504),
        ("/limit.php", 500),
    ] {
        let answer = if status == 504 {
            site.get(path)
        } else {
            site.get_in_time(path)
        };
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(site.get_in_time("/hello.php").body, "hello", "after {path}");
    }
    site.surus.wait_for_log(|log| {
        log.contains("Allowed memory size") && log.contains("Stopped at its deadline")
    });
}

#[test]
fn out_of_memory_costs_one_request() {
    let site = Site::start(&["--workers", "1"], &[]);
    let worker = site.workers()[0];
    let limited = Command::new("prlimit")
        .args(["--pid", &worker.to_string(), "--as=700000000"])
        .status();
    if !limited.is_ok_and(|status| status.success()) {
        eprintln!("skipped: prlimit is not there");
        return;
    }
    let answer = site.get("/eat.php");
    assert!(matches!(answer.status, 500 | 502), "{answer:?}");
    assert_eq!(site.get("/hello.php").body, "hello");
}

#[test]
fn script_that_php_cannot_read_gets_403() {
    if !is_root() {
        return;
    }
    let site = Site::start(&["--workers", "1"], &[]);
    let file = site.dir.path().join("secret.php");
    std::fs::write(&file, "<?php echo 'secret';").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let answer = site.get("/secret.php");
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(site.get("/hello.php").body, "hello");
}

#[test]
fn php_output_is_logged_line_by_line() {
    let site = Site::start(
        &["--workers", "1", "-d", "log_errors=1"],
        &[
            ("SURUS_LOG_MAX_MESSAGE", "2M"),
            // So long a line is written in parts, and another stream could write between them.
            ("SURUS_ACCESS_LOG_FORMAT", "off"),
        ],
    );
    assert_eq!(site.get("/log.php").body, "logged");
    let whole = format!("<{}>", "l".repeat(1 << 20));
    site.surus.wait_for_log(|log| {
        log.lines().any(|line| line.contains(&whole))
            && log.contains("to stderr")
            && log.contains("to stdout")
    });
}

#[test]
fn crash_is_logged() {
    let site = Site::start(&["--workers", "1"], &[]);
    assert_eq!(site.get("/segfault.php").status, 502);
    site.surus.wait_for_log(|log| log.contains("SIGSEGV"));
    until("there is another", || site.workers().len() == 1);
}
