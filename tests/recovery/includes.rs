//! Tests what metrics and `surus status` say of warm-ups, and of files that requests include.

use std::path::PathBuf;
use std::process::Command;

use crate::booted::{boot_in, try_booted};
use crate::site::{Site, app, metrics, until};

/// Requires two files of its own for `load`, one of them twice.
const BOOT: &str = "
    require __DIR__.'/hello.php';
    surus_serve(function () {
        if (isset($_GET['load'])) {
            require_once __DIR__.'/once.php';
            require __DIR__.'/twice.php';
            require __DIR__.'/twice.php';
            require_once __DIR__.'/hello.php';
        }
        echo 'done';
    });";

#[test]
fn files_that_requests_include_are_counted_without_those_of_the_boot() {
    for (engine, files) in [("rewind", 6), ("fork", 6), ("standby", 6), ("worker", 2)] {
        let admin = Admin::new();
        let dir = app();
        for name in ["once.php", "twice.php"] {
            std::fs::write(dir.path().join(name), "<?php").unwrap();
        }
        let site = boot_in(dir, engine, BOOT, &["--workers", "1"], &[admin.variable()])
            .unwrap_or_else(|log| panic!("{log}"));
        for path in ["/", "/?load=1", "/?load=1", "/", "/?load=1"] {
            assert_eq!(site.get(path).body, "done", "{engine}");
        }
        // The client has its response before Surus counts the request.
        let counts = [
            format!("surus_booted_requests_total{{engine=\"{engine}\"}} 5\n"),
            format!("surus_request_includes_total{{engine=\"{engine}\"}} {files}\n"),
        ];
        until("requests are counted", || {
            let metrics = admin.metrics();
            counts.iter().all(|count| metrics.contains(count))
        });
        let status = admin.status(&site);
        let average = f64::from(files) / 5.0;
        let average = format!("requests include {average:.1} files on average");
        assert!(status.contains(&average), "{engine}: {status}");
    }
}

#[test]
fn classic_counts_no_included_files() {
    let admin = Admin::new();
    let site = Site::start(&["--engine", "classic"], &[admin.variable()]);
    assert_eq!(site.get("/hello.php").body, "hello");
    let metrics = admin.metrics();
    assert!(
        !metrics.contains("surus_booted_requests_total{"),
        "{metrics}"
    );
    assert!(!admin.status(&site).contains("requests include"));
}

#[test]
fn warm_ups_of_the_configuration_are_shown_with_those_that_are_left_out() {
    let admin = Admin::new();
    // An include_once responds once.
    let boot = "surus_serve(function () {
        if (isset($_GET['changes'])) { require_once __DIR__.'/hello.php'; }
        else { echo 'page'; }
        if (isset($_SERVER['SURUS_WARMUP'])) {
            surus_report_created('3 services created ahead in 1250 ms');
        }
    });";
    let warmup = ("SURUS_ENGINE_WARMUP", "/?changes=1,/good");
    let env = [admin.variable(), warmup];
    let site =
        try_booted("rewind", boot, &["--workers", "1"], &env).unwrap_or_else(|log| panic!("{log}"));
    let status = admin.status(&site);
    for line in [
        "\nwarmed up by /good\n",
        "\nnot warmed up by /?changes=1: it changes its own next answer in the boot\n",
    ] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let metrics = admin.metrics();
    for line in [
        "surus_warm_up_pages{engine=\"rewind\",source=\"named\"} 1\n",
        "surus_warm_up_pages{engine=\"rewind\",source=\"learned\"} 0\n",
        "surus_warm_up_pages_left_out{engine=\"rewind\",reason=\"changed\"} 1\n",
        "surus_warm_up_pages_left_out{engine=\"rewind\",reason=\"temporary\"} 0\n",
        "surus_created_ahead{engine=\"rewind\",kind=\"services\"} 3\n",
        "surus_created_ahead_seconds{engine=\"rewind\"} 1.25\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

/// An admin listener of a test's own.
struct Admin {
    socket: PathBuf,
    listen: String,
    _place: tempfile::TempDir,
}

impl Admin {
    fn new() -> Admin {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("admin.sock");
        Admin {
            listen: format!("unix:{}", socket.display()),
            socket,
            _place: place,
        }
    }

    fn variable(&self) -> (&str, &str) {
        ("SURUS_ADMIN_LISTEN", &self.listen)
    }

    fn metrics(&self) -> String {
        metrics(&self.socket)
    }

    fn status(&self, site: &Site) -> String {
        let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"));
        surus.arg("status").arg(site.dir.path());
        let output = surus.envs([self.variable()]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}
