//! Tests access logs and metrics of single sites.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{admin, get, project, start, surus, with_admin};
use crate::wire::Wire;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Waits until this holds, as it does sooner or later.
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn site_has_its_own_file_and_format_which_usr1_reopens() {
    let dir = project(&[
        ("index.php", "<?php echo 'page';"),
        ("own/index.php", "<?php echo 'page';"),
        (
            "surus.toml",
            "access_log.format = 'common: %V %U %>s'\n\
             [[site]]\nhost = 'file.example'\nproject = 'own'\naccess_log.file = 'file.log'\n\
             access_log.format = 'own: %V %U'\n\
             [[site]]\nhost = 'off.example'\naccess_log.format = 'off'\n\
             [[site]]\nhost = 'format.example'\naccess_log.format = 'other: %V %U'\n\
             [[site]]\nhost = 'plain.example'\n",
        ),
    ]);
    let server = start(dir.path());
    for host in ["file", "off", "format", "plain", "unknown"] {
        get(&server, &format!("{host}.example"), "/index.php");
    }
    let log = dir.path().join("own/file.log");
    until("its line", || {
        read(&log) == "own: file.example /index.php\n"
    });
    server.wait_for_log(|log| {
        log.contains("other: format.example /index.php\n")
            && log.contains("common: plain.example /index.php 200\n")
            && log.contains("common: unknown.example /index.php 421\n")
    });
    // The log of a site is not sent.
    assert_ne!(get(&server, "file.example", "/file.log").status, 200);

    let old = dir.path().join("own/file.log.1");
    std::fs::rename(&log, &old).unwrap();
    server.signal("USR1");
    server.wait_for_log(|log| log.contains("logs reopened"));
    until("the new file has lines", || {
        get(&server, "file.example", "/again");
        read(&log).contains("/again")
    });
    get(&server, "file.example", "/last");
    until("a later line is in the new file", || {
        read(&log).contains("/last")
    });
    assert!(!read(&old).contains("/last"));
    // Another front end goes on with the same file.
    let front = server.front();
    if front != server.pid() {
        surus_sys::process::kill(front).unwrap();
        let request = "GET /next HTTP/1.1\r\nHost: file.example\r\n\r\n";
        until("its line of the next front end", || {
            Wire::connect(&server).ask(request);
            read(&log).contains("/next")
        });
    }
    let stdout = server.log();
    assert!(
        !stdout.contains("own: ") && !stdout.contains(": off.example"),
        "{stdout}"
    );
}

#[test]
fn log_that_cannot_be_opened_leaves_its_site_served() {
    let dir = project(&[
        ("index.php", "<?php echo 'page';"),
        (
            "surus.toml",
            "[[site]]\nhost = 'a.example'\nname = 'a'\naccess_log.file = 'missing/a.log'\n\
             access_log.format = 'of a: %U'\n\
             [[site]]\nhost = 'b.example'\nname = 'b'\naccess_log.file = 'b.log'\n",
        ),
    ]);
    let (is_fine, checked) = surus("check", dir.path());
    assert!(!is_fine && checked.contains("✗ site a: "), "{checked}");
    assert!(
        checked.contains("missing/a.log (access_log.file)"),
        "{checked}"
    );
    assert!(!checked.contains("✗ site b"), "{checked}");
    let server = start(dir.path());
    for host in ["a.example", "b.example"] {
        assert_eq!(get(&server, host, "/first").status, 200, "{host}");
    }
    server.wait_for_log(|log| log.contains("of a: /first\n") && log.contains("site=\"a\""));
    until("the log of b", || {
        read(&dir.path().join("b.log")).contains("/first")
    });
    std::fs::create_dir(dir.path().join("missing")).unwrap();
    server.signal("USR1");
    let log = dir.path().join("missing/a.log");
    until("the log of a", || {
        get(&server, "a.example", "/again");
        read(&log).contains("of a: /again\n")
    });
}

#[test]
fn metrics_of_requests_and_workers_have_the_site() {
    let dir = project(&[("index.php", "<?php echo 'page';")]);
    with_admin(
        &dir,
        "engine.name = 'classic'\n[[site]]\nhost = '*.a.example'\nname = 'a'\n\
         [[site]]\nhost = 'b.example'\n[[site.route]]\nprefix = '/x'\nengine = 'debug'\n\
         [site.pool.debug]\nworkers = 1\n",
    );
    let server = start(dir.path());
    for host in ["1.a.example", "2.a.example", "b.example", "unknown.example"] {
        get(&server, host, "/");
    }
    get(&server, "b.example", "/x");
    let metrics = admin(dir.path(), "metrics");
    for line in [
        "surus_requests_total{site=\"a\",engine=\"classic\",outcome=\"2xx\"} 2",
        "surus_requests_total{site=\"b.example\",engine=\"classic\",outcome=\"2xx\"} 1",
        "surus_requests_total{site=\"b.example\",engine=\"debug\",outcome=\"2xx\"} 1",
        "surus_requests_total{engine=\"static\",outcome=\"4xx\"} 1",
        "surus_request_duration_seconds_count{site=\"a\",engine=\"classic\"} 2",
        "surus_queue_duration_seconds_count{site=\"a\",engine=\"classic\"} 2",
        "surus_queue_length{site=\"a\",engine=\"classic\"} 0",
        "surus_workers{site=\"b.example\",engine=\"debug\",state=\"starting\"} 0",
        "surus_worker_exits_total{site=\"a\",engine=\"classic\",reason=\"signal\"} 0",
    ] {
        assert!(metrics.contains(&format!("{line}\n")), "{line}\n{metrics}");
    }
    // Hosts of clients are no labels.
    assert!(
        !metrics.contains("1.a.example") && !metrics.contains("unknown"),
        "{metrics}"
    );
}
