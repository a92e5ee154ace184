//! Tests `surus serve --watch`: changed files boot the application again, and pages are told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::user::User;
use crate::{project, says, surus};

const BOOT: &str = "<?php
    $said = require __DIR__.'/said.php';
    surus_serve(function () use ($said) {
        header('Content-Type: text/html');
        echo '<p>', $said, getenv('SAID'), '</p>';
    });";

fn get(address: &str, headers: &str) -> String {
    get_from(address, "a.test", headers)
}

fn get_from(address: &str, host: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

const BROWSER: &str = "Sec-Fetch-Dest: document\r\nAccept-Encoding: gzip, br\r\n";

/// The events that a page hears.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(address: &str) -> Events {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
            .write_all(b"GET /-/watch HTTP/1.1\r\nHost: a.test\r\n\r\n")
            .unwrap();
        let mut events = Events(BufReader::new(stream));
        assert!(events.line().unwrap().starts_with("HTTP/1.1 200"));
        events
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let length = self.0.read_line(&mut line).unwrap();
        (length > 0).then_some(line)
    }

    /// The version, and whether the boot has failed. None at the end.
    fn next(&mut self) -> Option<(String, bool)> {
        let mut has_failed = false;
        loop {
            let line = self.line()?;
            has_failed |= line.trim() == "event: failed";
            if let Some(version) = line.strip_prefix("data: ") {
                return Some((version.trim().to_string(), has_failed));
            }
        }
    }
}

#[test]
fn changed_file_boots_the_application_and_reloads_pages() {
    let user = User::new(project(&[
        ("boot.php", BOOT),
        ("said.php", "<?php return 'one';"),
    ]));
    let script = user.project.path().join("boot.php");
    let script = script.to_str().unwrap();
    let mut surus = user.watch(&["--engine", "rewind", "--workers", "1", "--script", script]);
    let page = get(&surus.address, BROWSER);
    says(&page, &["<p>one</p>", "<script src=\"/-/watch.js\""]);
    let lower = page.to_lowercase();
    assert!(!lower.contains("content-encoding"), "{page}");
    let other = get(&surus.address, "Accept: */*\r\n");
    assert!(
        other.contains("<p>one</p>") && !other.contains("watch.js"),
        "{other}"
    );
    let mut events = Events::open(&surus.address);
    let (first, _) = events.next().unwrap();
    says(&page, &[&format!("data-version=\"{first}\"")]);

    user.put("said.php", "<?php return 'two';");
    let (second, has_failed) = events.next().unwrap();
    assert!(first != second && !has_failed);
    says(&get(&surus.address, BROWSER), &["<p>two</p>", &second]);

    user.put("said.php", "<?php return 'three;");
    assert_eq!(events.next().unwrap(), (second.clone(), true));
    says(&get(&surus.address, BROWSER), &["<p>two</p>"]);
    user.put("said.php", "<?php return 'three';");
    let (third, has_failed) = events.next().unwrap();
    assert!(third != second && !has_failed);
    says(&get(&surus.address, BROWSER), &["<p>three</p>"]);

    let boots = |log: &str| log.matches("the application boots again").count();
    let before = boots(&surus.log());
    user.put("style.css", "p {}");
    assert_ne!(events.next().unwrap().0, third);
    assert_eq!(boots(&surus.log()), before);

    user.put("surus.toml", "[http]\nno_such_setting = 1\n");
    surus.wait_for_log(|log| log.contains("the changed configuration is not used"));
    // It can be read, and Surus cannot start with it.
    user.put("surus.toml", "[site]\nroot = 'none'\n");
    surus.wait_for_log(|log| log.matches("the changed configuration is not used").count() == 2);
    surus.wait_for_log(|log| log.contains("`root` is the document root"));
    says(&get(&surus.address, BROWSER), &["<p>three</p>"]);
    user.put("surus.toml", "[env]\nSAID = '!'\n");
    assert_eq!(events.next(), None);
    surus.wait_for_log(|log| log.matches("listening on").count() == 2);
    let log = surus.log();
    let address = log.rsplit("listening on http://").next().unwrap();
    let address = address.lines().next().unwrap().trim().to_string();
    let page = get(&address, BROWSER);
    says(&page, &["<p>three!</p>"]);
    assert!(!page.contains(&format!("\"{third}\"")), "{page}");
    surus.signal("TERM");
    assert!(surus.wait().success(), "{}", surus.log());
}

#[test]
fn changed_file_boots_the_site_of_its_directory_again() {
    let settings = "engine.name = 'rewind'\nengine.workers = 1\nengine.script = 'boot.php'\n\
                    [[site]]\nhost = 'shop.test'\nname = 'shop'\nproject = 'shop'\n\
                    [[site]]\ndefault = true\nname = 'blog'\nproject = 'blog'\n";
    let user = User::new(project(&[
        ("surus.toml", settings),
        ("shop/boot.php", BOOT),
        ("shop/said.php", "<?php return 'one';"),
        ("blog/boot.php", BOOT),
        ("blog/said.php", "<?php return 'old';"),
    ]));
    let mut surus = user.watch(&[]);
    surus.wait_for_log(|log| log.matches("watching files").count() == 2);
    let page = |host: &str| get_from(&surus.address, host, BROWSER);
    says(&page("shop.test"), &["<p>one</p>"]);
    says(&page("a.test"), &["<p>old</p>"]);
    let mut events = Events::open(&surus.address);
    let (first, _) = events.next().unwrap();
    user.put("shop/said.php", "<?php return 'two';");
    let (second, has_failed) = events.next().unwrap();
    assert!(first != second && !has_failed);
    says(&page("shop.test"), &["<p>two</p>"]);
    let reloaded = |log: &str, site: &str| {
        let lines = log.lines().filter(|line| line.contains("reloaded"));
        lines.filter(|line| line.contains(site)).count()
    };
    // Pages reload as soon as the new boot serves, before the log says so.
    surus.wait_for_log(|log| reloaded(log, "shop") == 1);
    let log = surus.log();
    assert_eq!(reloaded(&log, "blog"), 0, "{log}");
    user.put("blog/said.php", "<?php return 'new';");
    assert_ne!(events.next().unwrap().0, second);
    says(&page("a.test"), &["<p>new</p>"]);
    says(&page("shop.test"), &["<p>two</p>"]);
    user.put("surus.toml", &format!("env.SAID = '!'\n{settings}"));
    assert_eq!(events.next(), None);
    surus.wait_for_log(|log| log.matches("listening on").count() == 2);
    surus.signal("TERM");
    assert!(surus.wait().success(), "{}", surus.log());
}

/// As with the php.ini of Debian.
#[test]
fn fatal_error_is_shown_although_the_ini_file_hides_errors() {
    let user = User::new(project(&[
        ("index.php", "<?php\nno_such_function();\n"),
        ("php.ini", "display_errors = Off\nlog_errors = On\n"),
        ("surus.toml", "engine.workers = 1\n"),
    ]));
    let ini = user.project.path().join("php.ini");
    let env = [("SURUS_ENGINE_INI_FILE", ini.to_str().unwrap())];
    let page = |args: &[&str]| {
        let surus = user.serve(args, &env);
        let surus = surus.unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
        get_from(&surus.address, "localhost", "Accept: text/html\r\n")
    };
    let shown = page(&["--watch"]);
    says(
        &shown,
        &["HTTP/1.1 500", "no_such_function()", "index.php", "<pre"],
    );
    for args in [&[][..], &["--watch", "-d", "display_errors=0"]] {
        let hidden = page(args);
        says(&hidden, &["HTTP/1.1 500"]);
        assert!(!hidden.contains("no_such_function"), "{hidden}");
    }
}

#[test]
fn watch_is_refused_on_servers_and_names_the_remedy() {
    let project = project(&[("index.php", "")]);
    let dir = project.path().to_str().unwrap();
    let said = surus(
        &["serve", dir, "--listen", "0", "--watch"],
        &[("NOTIFY_SOCKET", "/none")],
    );
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &["--watch is for development", "surus reload"],
    );
    let said = surus(
        &["serve", dir, "--listen", "0"],
        &[("SURUS_WATCH_POLL", "often")],
    );
    says(&said.stderr, &["SURUS_WATCH_POLL", "true or false"]);
}
