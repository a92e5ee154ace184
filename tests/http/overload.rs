//! Tests far more clients than workers, and clients that retry immediately.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::Surus;
use crate::wire::{Wire, site};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// One worker that responds once the file exists.
fn gated(dir: &Path, settings: &[(&str, &str)]) -> Surus {
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
    Surus::spawn(dir, &[], &env).unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
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
