//! Tests that learned pages warm up only boots of the files for which a comparison has proven them.

use std::path::Path;
use std::process::Command;

use super::client::{Client, PROXY};
use super::learned::{LATER, LEARNED, status, visit};
use super::site::Site;
use crate::common::Surus;

/// The front page tells whether a warm-up by `/page` has declared a function, which nothing
/// restores, and which changes no answer of `/page` itself.
const APP: &str = "<?php
surus_save_boot();
surus_serve(static function () {
    if (isset($_SERVER['SURUS_WARMUP'])) {
        register_shutdown_function(static fn () => surus_restore_boot());
    }
    if ('/page' === $_SERVER['REQUEST_URI']) {
        require_once __DIR__.'/page.php';
    }
    echo match ($_SERVER['REQUEST_URI']) {
        '/' => function_exists('declared') ? 'warm' : 'cold',
        '/version' => 'version 1',
        default => 'page',
    };
});";

fn site() -> Site {
    Site::new()
        .write("index.php", APP)
        .write("page.php", "<?php // Declares nothing.")
}

/// No request leads to a check of files.
fn serve(site: &Site, state: &Path) -> Surus {
    let unchecked = "opcache.validate_timestamps=0";
    let learn = [
        ("STATE_DIRECTORY", state.to_str().unwrap()),
        ("SURUS_ENGINE_WARMUP", "learn"),
        ("SURUS_ENV_APP_RUNTIME", r"Surus\Symfony\Runtime"),
        PROXY,
    ];
    let args = ["--engine", "rewind", "--workers", "1", "-d", unchecked];
    site.serve_with(&args, &learn)
}

fn get(surus: &Surus, path: &str) -> String {
    Client::new(&surus.url).get(path).ok().text()
}

/// Kills the master processes of the server.
fn kill_masters(surus: &Surus) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", surus.pid())).unwrap();
    let mut killed = 0;
    for task in tasks.flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in children.split_whitespace() {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            if name.is_ok_and(|name| name.trim_end() == "surus master") {
                let kill = Command::new("kill").args(["-s", "KILL", pid]).status();
                killed += u32::from(kill.unwrap().success());
            }
        }
    }
    assert!(killed > 0, "{}", surus.log());
}

#[test]
fn learning_boots_no_deploy_that_waits_for_a_reload() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path());
    let site = site.replace("index.php", "version 1", "version 2");
    visit(&surus, &["/page"], 210);
    surus.wait_for_log(|log| log.contains(LATER));
    assert_eq!(get(&surus, "/version"), "version 1");
    let shown = status(&site);
    assert!(!shown.contains("warmed up by"), "{shown}");
    let mut reload = Command::new(env!("CARGO_BIN_EXE_surus"));
    let output = reload.arg("reload").arg(site.www()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    surus.wait_for_log(|log| log.contains(LEARNED));
    assert_eq!(get(&surus, "/version"), "version 2");
    let shown = status(&site);
    let used = "\nwarmed up by http://localhost/page\n";
    assert!(shown.contains(used), "{shown}");
}

#[test]
fn learned_pages_are_compared_again_after_php_has_restarted() {
    let site = site();
    let state = tempfile::tempdir().unwrap();
    let surus = serve(&site, state.path());
    let restarts = |count: usize| {
        surus.wait_for_log(|log| log.matches("PHP restarted").count() == count);
    };
    visit(&surus, &["/page"], 210);
    surus.wait_for_log(|log| log.contains(LEARNED));

    kill_masters(&surus);
    restarts(1);
    surus.wait_for_log(|log| log.matches(LEARNED).count() == 2);
    let shown = status(&site);
    let used = "\nwarmed up by http://localhost/page\n";
    assert!(shown.contains(used), "{shown}");

    let site = site.write("page.php", "<?php function declared() {}");
    kill_masters(&surus);
    restarts(2);
    assert_eq!(get(&surus, "/"), "cold", "{}", surus.log());
    surus.wait_for_log(|log| log.contains("is left out of the warm-up"));
    assert_eq!(get(&surus, "/"), "cold", "{}", surus.log());
    let shown = status(&site);
    let left_out = "\nnot warmed up by http://localhost/page: ";
    assert!(shown.contains(left_out), "{shown}");
}
