//! Tests far more clients than workers, and clients that retry immediately.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::Surus;
use crate::wire::{Wire, site, text};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// One worker that responds once the file exists.
fn gated(dir: &Path, settings: &[(&str, &str)]) -> Surus {
    gated_at(dir, &[], settings)
}

/// The same, with more arguments.
fn gated_at(dir: &Path, args: &[&str], settings: &[(&str, &str)]) -> Surus {
    let gate = dir.join("gate");
    let script = format!(
        "<?php
        error_log('begun');
        while (!file_exists('{}')) {{
            usleep(1000);
            clearstatcache();
        }}
        echo 'ok';",
        gate.display()
    );
    std::fs::write(dir.join("index.php"), script).unwrap();
    let mut env = vec![
        ("SURUS_ENGINE_WORKERS", "1"),
        ("SURUS_HTTP_REQUEST_TIMEOUT", "10m"),
        ("SURUS_ENGINE_QUEUE_TIMEOUT", "10m"),
        ("SURUS_ENGINE_QUEUE_INTERVAL", "10m"),
    ];
    env.extend(settings);
    Surus::spawn(dir, args, &env).unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

fn open(dir: &Path) {
    std::fs::write(dir.join("gate"), "").unwrap();
}

#[test]
fn thousands_of_concurrent_requests_are_answered() {
    let dir = site();
    let surus = gated(dir.path(), &[]);
    let mut clients: Vec<Wire> = (0..2000)
        .map(|_| {
            let mut wire = Wire::connect(&surus);
            wire.send(GET);
            wire
        })
        .collect();
    // A rejected request is answered while the gate is closed.
    std::thread::sleep(Duration::from_millis(500));
    open(dir.path());
    for wire in &mut clients {
        assert_eq!(wire.answer().unwrap().status, 200);
    }
}

#[test]
fn connection_of_a_rejected_request_is_not_read_before_retry_after() {
    let dir = site();
    let surus = gated(dir.path(), &[("SURUS_ENGINE_MAX_QUEUE", "0")]);
    let mut busy = Wire::connect(&surus);
    busy.send(GET);
    surus.wait_for_log(|log| log.contains("begun"));
    let mut refused = Wire::connect(&surus);
    let before = Instant::now();
    let answer = refused.ask(GET).unwrap();
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1"))
    );
    open(dir.path());
    assert_eq!(busy.answer().unwrap().status, 200);
    // Another connection is not delayed; this one is.
    assert_eq!(Wire::connect(&surus).ask(GET).unwrap().status, 200);
    assert_eq!(refused.ask(GET).unwrap().status, 200);
    assert!(before.elapsed() >= Duration::from_secs(1));
    let again = Instant::now();
    assert_eq!(refused.ask(GET).unwrap().status, 200);
    println!("the next one took {:?}", again.elapsed());
}

/// Sends requests on one connection, one after the other, until 20 have been rejected. Returns how
/// long that took.
fn reject_in_a_row(mut stream: impl Read + Write) -> Duration {
    let before = Instant::now();
    for _ in 0..20 {
        stream
            .write_all(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = text(&head);
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    }
    before.elapsed()
}

#[test]
fn connection_of_a_trusted_proxy_is_read_after_a_rejected_request() {
    let dir = site();
    for trusted in ["127.0.0.1", "unix"] {
        let socket = dir.path().join(trusted);
        let listen = format!("unix:{}", socket.display());
        let settings = [
            ("SURUS_ENGINE_MAX_QUEUE", "0"),
            ("SURUS_HTTP_TRUSTED_PROXIES", trusted),
        ];
        let surus = gated_at(dir.path(), &["--listen", &listen], &settings);
        let mut busy = Wire::connect(&surus);
        busy.send(GET);
        surus.wait_for_log(|log| log.contains("begun"));
        let took = match trusted {
            "unix" => reject_in_a_row(UnixStream::connect(&socket).unwrap()),
            _ => reject_in_a_row(TcpStream::connect(&surus.address).unwrap()),
        };
        // With a second after each, it would take 19.
        assert!(took < Duration::from_secs(15), "{trusted}: {took:?}");
        open(dir.path());
        assert_eq!(busy.answer().unwrap().status, 200);
        std::fs::remove_file(dir.path().join("gate")).unwrap();
    }
}

#[test]
fn request_that_waits_longer_than_queue_target_under_overload_is_rejected() {
    const TARGET: Duration = Duration::from_millis(100);
    const INTERVAL: Duration = Duration::from_secs(2);
    let dir = site();
    let admin = dir.path().join("admin.sock");
    let listen = format!("unix:{}", admin.display());
    let settings = [
        ("SURUS_ENGINE_QUEUE_TARGET", "100ms"),
        ("SURUS_ENGINE_QUEUE_INTERVAL", "2s"),
        ("SURUS_ADMIN_LISTEN", &*listen),
    ];
    let surus = gated(dir.path(), &settings);
    let request = || {
        let sent = Instant::now();
        let mut wire = Wire::connect(&surus);
        wire.send(GET);
        (sent, wire)
    };
    let began = Instant::now();
    // 17 are at the worker, and 17 that wait would not be overload.
    let mut waiting: Vec<(Instant, Wire)> = (0..60).map(|_| request()).collect();
    let mut rejected = 0;
    // If target and interval were exchanged, requests would be rejected only after the interval. On
    // a busy machine, a later one is rejected in time.
    let mut is_in_time = false;
    while !is_in_time {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "{rejected} requests are rejected, and none in time"
        );
        waiting.push(request());
        std::thread::sleep(TARGET * 3 / 2);
        let (answered, left): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(_, wire)| wire.can_read());
        waiting = left;
        for (sent, mut wire) in answered {
            is_in_time |= sent.elapsed() < INTERVAL;
            let answer = wire.answer().unwrap();
            let retry_after = answer.header("retry-after");
            assert_eq!((answer.status, retry_after), (503, Some("1")));
            rejected += 1;
        }
    }
    assert!(began.elapsed() >= INTERVAL, "a burst is no overload");
    let reason = "waited longer than engine.queue_target under overload";
    surus.wait_for_log(|log| log.contains(reason));
    open(dir.path());
    let mut served = 0;
    for (_, wire) in &mut waiting {
        match wire.answer().unwrap().status {
            200 => served += 1,
            status => {
                assert_eq!(status, 503);
                rejected += 1;
            }
        }
    }
    assert!(served >= 17, "{served}");
    // A late one is served as before.
    assert_eq!(Wire::connect(&surus).ask(GET).unwrap().status, 200);
    let counted = format!(
        "surus_requests_total{{engine=\"classic\",outcome=\"queue_timeout\"}} {rejected}\n"
    );
    let began = Instant::now();
    while !metrics(&admin).contains(&counted) {
        let is_early = began.elapsed() < Duration::from_secs(60);
        assert!(is_early, "{counted}{}", metrics(&admin));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn metrics(socket: &Path) -> String {
    let mut admin = UnixStream::connect(socket).unwrap();
    let ask = b"GET /-/metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    admin.write_all(ask).unwrap();
    let mut text = String::new();
    admin.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn rejected_requests_share_one_log_line() {
    let dir = site();
    let surus = gated(dir.path(), &[("SURUS_ENGINE_MAX_QUEUE", "0")]);
    let mut busy = Wire::connect(&surus);
    busy.send(GET);
    surus.wait_for_log(|log| log.contains("begun"));
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(Wire::connect(&surus).ask(GET).unwrap().status, 503);
    }
    open(dir.path());
    assert_eq!(busy.answer().unwrap().status, 200);
    let lines = surus.log().matches("request failed").count() as u64;
    // One every 10 seconds.
    assert!(lines <= 1 + began.elapsed().as_secs() / 10, "{lines}");
}
