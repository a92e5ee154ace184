//! Opens pages of Surus itself in a browser: the dashboard, and one that `--watch` loads again.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use super::browser::Browser;
use super::client::Client;
use super::site::Site;
use crate::common::Surus;
use crate::common::certificates::Authority;
use crate::common::ports::free_address;
use crate::common::user::User;

/// Elements that reach over the edge of the window. Tables may scroll.
const TOO_WIDE: &str = "
    const all = [document.documentElement, ...document.querySelectorAll('body, body *')];
    const over = all.filter(it => it.getBoundingClientRect().right > WIDTH + 1
        && !it.parentElement?.closest('.scroll'));
    if (document.documentElement.scrollWidth > WIDTH) over.push(document.documentElement);
    return over.slice(0, 5).map(it => `${it.tagName} ${it.id}`);";

/// Serves one page of an application. The text is the address of the admin listener.
fn hello(workers: &str) -> (Site, Surus, String) {
    let site = Site::new().write("index.php", "<?php echo 'hello';");
    let admin = free_address();
    let env = [
        ("SURUS_ADMIN_LISTEN", admin.as_str()),
        ("SURUS_ENGINE_WORKERS", workers),
    ];
    let surus = site.serve(&env);
    (site, surus, admin)
}

fn dashboard(admin: &str) -> Browser {
    let browser = Browser::open();
    browser.go(&format!("http://{admin}/-/dashboard"));
    browser
}

#[test]
fn dashboard_shows_live_workers_and_fits_on_a_phone() {
    let (_site, surus, admin) = hello("2");
    let browser = dashboard(&admin);
    browser.sees("#state", "live");
    Client::new(&surus.url).get("/?a=%3Cb%3E").ok();
    for width in [1280, 400] {
        browser.emulate(width, "light");
        browser.sees("#workers tbody tr", "idle");
        browser.sees("#slowest td.wide", "GET /?a=%3Cb%3E");
        browser.sees("#certificates", "none is served");
        browser.sees("#state", "live");
        let wide = browser.script(&TOO_WIDE.replace("WIDTH", &width.to_string()));
        assert_eq!(wide, json!([]), "{width} px: wider than the window");
        browser.picture(&format!("dashboard-{width}"));
    }
    let errors = browser.errors();
    assert!(errors.is_empty(), "errors in the browser: {errors:#?}");
}

#[test]
fn dashboard_shows_why_the_server_rejects_it_until_another_one_closes() {
    let (_site, _surus, admin) = hello("1");
    let reader = || {
        let mut stream = TcpStream::connect(&admin).unwrap();
        write!(stream, "GET /-/events HTTP/1.1\r\nHost: {admin}\r\n\r\n").unwrap();
        let mut status = [0; 15];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200 OK");
        stream
    };
    let readers: Vec<_> = (0..16).map(|_| reader()).collect();
    let browser = dashboard(&admin);
    browser.sees("#state", "16 dashboards are open already; close one");
    drop(readers);
    browser.sees("#state", "live");
    let errors = browser.errors();
    let is_expected = |error: &String| error.contains("503");
    assert!(errors.iter().all(is_expected), "{errors:#?}");
}

/// Shows snapshots of one worker with a slow request, and returns the parts that the page keeps. No
/// event of the server comes in between.
const UPDATES: &str = r"
    const snapshot = (served, ms) => ({
        version: '', time: 0, connections: 0, requests_per_second: 1, latency: null,
        pools: [{ engine: 'classic', php: '', generation: 1, queued: 0, memory: 0,
            states: { busy: 1, idle: 56 },
            workers: [{ pid: 7, state: 'busy', for_ms: ms, served, memory: 0,
                request: 'GET /\u202ea', backtrace: 'at a.php:3 '.repeat(500) }] }],
        outcomes: [], exits: [], buffers: [], certificates: [], domains: [], sites: [],
        slowest: [] });
    const find = css => document.querySelector(`#workers ${css}`);
    const scrolled = () => find('pre').scrollLeft + find('').scrollLeft;
    const age = () => find('tbody td:nth-child(3)').textContent;
    getSelection().removeAllRanges();
    show(snapshot(1, 1000));
    const seen = { rows: find('summary').textContent,
        more: document.querySelector('#unlisted').textContent };
    find('details').open = true;
    find('pre').scrollLeft = 50;
    find('').scrollLeft = 50;
    const [table, before] = [find('table'), scrolled()];
    show(snapshot(1, 1000));
    seen.same = [find('table') === table, before > 0];
    show(snapshot(1, 2000));
    seen.older = [age(), find('details').open, scrolled() === before];
    getSelection().selectAllChildren(find('pre'));
    show(snapshot(1, 3000));
    seen.selected = [age(), getSelection().toString().startsWith('at a.php:3')];
    getSelection().removeAllRanges();
    show(snapshot(2, 4000));
    seen.next = [age(), find('details').open];
    return seen;";

#[test]
fn dashboard_keeps_the_open_backtrace_of_a_request_its_scroll_and_selection() {
    let (_site, _surus, admin) = hello("1");
    let browser = dashboard(&admin);
    browser.sees("#state", "live");
    let expected = json!({
        "rows": "GET /\\u202ea",
        "more": "and 56 more",
        "same": [true, true],
        "older": ["2.0 s", true, true],
        "selected": ["2.0 s", true],
        "next": ["4.0 s", false],
    });
    assert_eq!(browser.script(UPDATES), expected);
    let errors = browser.errors();
    assert!(errors.is_empty(), "errors in the browser: {errors:#?}");
}

#[test]
fn dashboard_names_a_site_that_is_not_served() {
    let toml = "[[site]]\nname = 'main'\ndefault = true\n\
                [[site]]\nname = 'gone'\nhost = 'gone.example'\nproject = 'gone'\n";
    let site = Site::new()
        .write("index.php", "<?php echo 'hello';")
        .write("surus.toml", toml);
    let admin = free_address();
    let env = [
        ("SURUS_ADMIN_LISTEN", admin.as_str()),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    let _surus = site.serve(&env);
    let browser = dashboard(&admin);
    browser.sees("#sites tbody", "gone.example");
    browser.emulate(400, "dark");
    browser.sees("#sites tbody", "gone.example");
    let wide = browser.script(&TOO_WIDE.replace("WIDTH", "400"));
    assert_eq!(wide, json!([]), "wider than the window");
    let errors = browser.errors();
    assert!(errors.is_empty(), "errors in the browser: {errors:#?}");
}

#[test]
fn dashboard_warns_of_a_certificate_in_the_last_part_of_its_lifetime() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("Test");
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let (mut certificates, mut keys) = (Vec::new(), Vec::new());
    for (name, age) in [("fresh", 1), ("late", 23)] {
        let host = format!("{name}.example");
        let issued = authority.issue_now(&[&host], hours(age), hours(24 - age));
        let (certificate, key) = issued.write(dir.path(), name);
        certificates.push(certificate.display().to_string());
        keys.push(key.display().to_string());
    }
    let (certificates, keys) = (certificates.join(","), keys.join(","));
    let admin = free_address();
    let env = [
        ("SURUS_ADMIN_LISTEN", admin.as_str()),
        ("SURUS_ENGINE_WORKERS", "1"),
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_TLS_CERTIFICATE", certificates.as_str()),
        ("SURUS_TLS_KEY", keys.as_str()),
    ];
    let site = Site::new().write("index.php", "<?php echo 'hello';");
    let _surus = site.serve(&env);
    let browser = dashboard(&admin);
    browser.sees("#certificates tbody", "late.example");
    let classes = browser.script(
        "return [...document.querySelectorAll('#certificates td span')].map(it => it.className);",
    );
    assert_eq!(classes, json!(["", "warn"]));
    let errors = browser.errors();
    assert!(errors.is_empty(), "errors in the browser: {errors:#?}");
}

/// A directory that a user without privileges can serve.
fn readable_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    directory
}

#[test]
fn watched_page_is_loaded_again_when_a_file_changes_and_says_if_the_boot_fails() {
    let project = readable_directory();
    let boot = "<?php
        $said = require __DIR__.'/said.php';
        surus_serve(function () use ($said) {
            header('Content-Type: text/html');
            echo '<p>', $said, '</p>';
        });";
    let script = project.path().join("boot.php");
    std::fs::write(&script, boot).unwrap();
    std::fs::write(project.path().join("said.php"), "<?php return 'one';").unwrap();
    let user = User::new(project);
    let script = script.to_str().unwrap();
    let surus = user.watch(&["--engine", "rewind", "--workers", "1", "--script", script]);
    let browser = Browser::open();
    browser.go(&surus.url);
    browser.sees("p", "one");
    user.put("said.php", "<?php return 'two';");
    browser.sees("p", "two");
    let errors = browser.errors();
    assert!(errors.is_empty(), "errors in the browser: {errors:#?}");

    user.put("said.php", "<?php return 'three;");
    let begun = Instant::now();
    let errors = loop {
        let errors = browser.errors();
        if !errors.is_empty() {
            break errors;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", surus.log());
        std::thread::sleep(Duration::from_millis(100));
    };
    let is_expected = |error: &String| error.contains("the changed application cannot be booted");
    assert!(errors.iter().all(is_expected), "{errors:#?}");
    browser.sees("p", "two");
    user.put("said.php", "<?php return 'three';");
    browser.sees("p", "three");
}

#[test]
fn page_of_an_error_is_loaded_again_when_it_is_corrected() {
    let project = readable_directory();
    std::fs::write(project.path().join("index.php"), "<p>one</p><?php echo (;").unwrap();
    let user = User::new(project);
    let surus = user.watch(&[]);
    let browser = Browser::open();
    browser.go(&surus.url);
    browser.sees("h1", "Parse error");
    user.put("index.php", "<p>two</p>");
    browser.sees("p", "two");
    assert!(!surus.log().contains("Content-Security-Policy"));
}
