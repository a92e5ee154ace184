//! Tests clients that disconnect, bodies that do not fit, and that many requests leave nothing
//! behind.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::Surus;
use crate::site::{
    READ_TIMEOUT, Site, Tmpfs, app, children, descriptors, is_root, metrics, request, until,
};

/// Sends `bytes`, waits, and disconnects.
fn leave(site: &Site, bytes: &[u8], wait: Duration) {
    let mut stream = TcpStream::connect(&site.surus.address).unwrap();
    stream.write_all(bytes).unwrap();
    std::thread::sleep(wait);
}

#[test]
fn client_that_disconnects_at_any_time_does_no_harm() {
    let site = Site::start(&["--workers", "1"], &[]);
    assert_eq!(site.get("/hello.php").body, "hello");
    let before = descriptors(site.surus.front());
    let moment = Duration::from_millis(100);
    // During the upload, into memory and into a file.
    leave(
        &site,
        b"POST /count.php HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\nabc",
        moment,
    );
    let mut large =
        b"POST /count.php HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    large.extend_from_slice(&vec![b'x'; 200_000]);
    leave(&site, &large, moment);
    // In the queue, and while PHP runs.
    let busy = site.begun("/nap.php?ms=400");
    for _ in 0..4 {
        leave(
            &site,
            request("GET", "/nap.php?ms=1", "").as_bytes(),
            Duration::from_millis(20),
        );
    }
    assert_eq!(busy.join().unwrap().unwrap().body, "rested");
    leave(
        &site,
        request("GET", "/nap.php?ms=300", "").as_bytes(),
        moment,
    );
    // During the response.
    let mut stream = TcpStream::connect(&site.surus.address).unwrap();
    stream
        .write_all(request("GET", "/stream.php", "").as_bytes())
        .unwrap();
    stream.read_exact(&mut [0; 10_000]).unwrap();
    drop(stream);
    // That script would take a minute.
    let began = std::time::Instant::now();
    assert_eq!(site.get("/hello.php").body, "hello");
    assert!(
        began.elapsed() < Duration::from_secs(50),
        "{:?}",
        began.elapsed()
    );
    until("no descriptor is left over", || {
        descriptors(site.surus.front()) <= before
    });
}

#[test]
fn full_disk_is_reported_and_leaves_no_file() {
    let place = tempfile::tempdir().unwrap();
    let Some(disk) = Tmpfs::mount(&place.path().join("spool"), 300 * 1024) else {
        eprintln!("skipped: no right to mount");
        return;
    };
    let spool = place.path().join("spool");
    let site = Site::start(
        &["--workers", "1"],
        &[("SURUS_HTTP_TEMP_DIR", spool.to_str().unwrap())],
    );
    assert_eq!(site.get("/hello.php").body, "hello");
    let before = descriptors(site.surus.front());
    for _ in 0..5 {
        let fits = site
            .ask(&request("POST", "/count.php", &"x".repeat(200_000)))
            .unwrap();
        assert_eq!((fits.status, fits.body.as_str()), (200, "200000"));
        let large = site
            .ask(&request("POST", "/count.php", &"x".repeat(900_000)))
            .unwrap();
        assert_eq!(large.status, 507, "{large:?}");
    }
    until("the disk is empty again", || disk.used() == 0);
    until("no descriptor is left over", || {
        descriptors(site.surus.front()) <= before
    });
    drop(site);
}

#[test]
fn clients_that_disconnect_early_are_counted() {
    let place = tempfile::tempdir().unwrap();
    let admin = place.path().join("admin.sock");
    let listen = format!("unix:{}", admin.display());
    let site = Site::start(&["--workers", "1"], &[("SURUS_ADMIN_LISTEN", &listen)]);
    let began = site.dir.path().join("writable/began");
    let mut stream = TcpStream::connect(&site.surus.address).unwrap();
    let path = format!("/gate.php?began={}", began.display());
    stream
        .write_all(request("GET", &path, "").as_bytes())
        .unwrap();
    until("it has begun", || began.exists());
    drop(stream);
    until("it is counted", || {
        metrics(&admin)
            .contains("surus_requests_total{engine=\"classic\",outcome=\"client_closed\"} 1")
    });
    site.open_gate();
}

/// A request is not lost through a failure that it has not caused, even if it cannot be repeated.
#[test]
fn body_without_a_free_descriptor_goes_to_another_worker() {
    let site = Site::start(&["--workers", "1"], &[]);
    let code = "posix_setrlimit(POSIX_RLIMIT_NOFILE, 3, 3); echo getmypid();";
    std::fs::write(site.dir.path().join("none.php"), format!("<?php {code}")).unwrap();
    // A worker checks its descriptors after its first request, and not after the second.
    site.get("/hello.php");
    let worker = site.get("/none.php").body;
    let answer = site
        .ask(&request("POST", "/count.php", &"x".repeat(200_000)))
        .unwrap();
    let log = site.surus.log();
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, "200000"),
        "{log}"
    );
    site.surus
        .wait_for_log(|log| log.contains("no descriptor is left for the body of a request"));
    assert_ne!(site.get("/pid.php").body, worker);
}

#[test]
fn nothing_grows_over_ten_thousand_requests() {
    let spool = crate::common::spool();
    let site = Site::start(
        &["--workers", "2"],
        &[("SURUS_HTTP_TEMP_DIR", spool.path().to_str().unwrap())],
    );
    let address = site.surus.address.clone();
    let run = |requests: usize| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let address = address.clone();
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect(&address).unwrap();
                    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
                    for n in 0..requests / 4 {
                        let body = "b".repeat(if n % 100 == thread { 100_000 } else { n % 50 });
                        let request = format!(
                            "POST /count.php HTTP/1.1\r\n\
                             Host: t\r\n\
                             Content-Length: {}\r\n\r\n{body}",
                            body.len()
                        );
                        stream.write_all(request.as_bytes()).unwrap();
                        read_one(&mut stream, &body.len().to_string());
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    };
    let count = || {
        let mut counts = vec![descriptors(site.surus.front()), descriptors(site.master())];
        counts.extend(site.workers().into_iter().map(descriptors));
        counts
    };
    run(200);
    // A worker keeps a descriptor from its first request on, and Surus may be about to close
    // connections.
    let mut before = count();
    let mut equal = 0;
    for _ in 0..200 {
        run(40);
        let now = count();
        equal = if now == before { equal + 1 } else { 0 };
        before = now;
        if equal == 5 {
            break;
        }
    }
    assert_eq!(equal, 5, "{before:?}");
    run(10_000);
    // One crash and one reload, for what they leave behind.
    site.get("/segfault.php");
    site.surus.signal("HUP");
    site.surus.wait_for_log(|log| log.contains("reloaded"));
    until("the old master process has ended", || {
        children(site.surus.pid()).len() == 1
    });
    let mut after = Vec::new();
    for _ in 0..200 {
        run(40);
        after = count();
        if after == before {
            break;
        }
    }
    assert_eq!(
        after, before,
        "descriptors of surus, the master process, and the workers"
    );
    assert_eq!(children(site.surus.pid()).len(), 1, "no zombies");
    assert_eq!(site.workers().len(), 2, "no zombies");
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
}

/// Reads one response with this body from a persistent connection.
fn read_one(stream: &mut TcpStream, expected: &str) {
    let mut text = Vec::new();
    let mut byte = [0; 4096];
    while !String::from_utf8_lossy(&text).ends_with(&format!("\r\n\r\n{expected}")) {
        let n = stream.read(&mut byte).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&byte[..n]);
    }
}

/// Everything runs as PHP's user, because only a process of the same user may change limits, or
/// root, but not in every container.
#[test]
fn emfile_is_reported_as_503_not_403() {
    let as_user = |program: &str| {
        let mut command = Command::new("setpriv");
        if is_root() {
            command.args(["--reuid=www-data", "--regid=www-data", "--clear-groups"]);
        }
        command.arg(program);
        command
    };
    let dir = app();
    let surus = as_user(env!("CARGO_BIN_EXE_surus"));
    let surus = Surus::spawn_by(surus, dir.path(), &["--workers", "1"], &[]).unwrap();
    let site = Site { surus, dir };
    std::fs::write(site.dir.path().join("style.css"), "x").unwrap();
    let mut stream = TcpStream::connect(&site.surus.address).unwrap();
    let mut get = |path: &str| {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        stream.read_exact(&mut vec![0; length]).unwrap();
        head
    };
    let limit = |soft: &str| {
        let pid = site.surus.front().to_string();
        let limited = as_user("prlimit")
            .args(["--pid", &pid])
            .arg(format!("--nofile={soft}:"))
            .status();
        assert!(limited.unwrap().success());
    };
    assert!(get("/style.css").starts_with("http/1.1 200 "));
    limit("3");
    for path in ["/style.css", "/hello.php", "/"] {
        let head = get(path);
        assert!(head.starts_with("http/1.1 503 "), "{head}");
        assert!(head.contains("\r\nretry-after: 1\r\n"), "{head}");
    }
    site.surus.wait_for_log(|log| log.contains("LimitNOFILE"));
    let other = site.begin("/hello.php");
    site.surus
        .wait_for_log(|log| log.contains("cannot accept connections"));
    limit("1000");
    assert_eq!(other.join().unwrap().unwrap().body, "hello");
    assert!(get("/style.css").starts_with("http/1.1 200 "));
}

#[test]
fn full_queue_returns_503_with_retry_after() {
    let site = Site::start(&["--workers", "1"], &[("SURUS_ENGINE_MAX_QUEUE", "1")]);
    let slow = site.begun("/gate.php");
    let (answered, answers) = mpsc::channel();
    for _ in 0..24 {
        let mut stream = TcpStream::connect(&site.surus.address).unwrap();
        let asked = request("GET", "/hello.php", "");
        stream.write_all(asked.as_bytes()).unwrap();
        let answered = answered.clone();
        std::thread::spawn(move || {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            answered.send(text.to_lowercase())
        });
    }
    let next = || answers.recv_timeout(READ_TIMEOUT).expect("an answer");
    // One waits.
    for _ in 0..23 {
        let refused = next();
        assert!(refused.starts_with("http/1.1 503 "), "{refused}");
        assert!(refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    }
    site.open_gate();
    let served = next();
    assert!(served.starts_with("http/1.1 200 "), "{served}");
    assert_eq!(slow.join().unwrap().unwrap().status, 200);
}
