//! Tests limits and timeouts of single sites.

use std::path::Path;
use std::thread;

use super::{body, get, get_until, project, start};
use crate::common::Surus;
use crate::wire::Wire;

/// Answers once there is a file with the name of the host.
const WAITS: &str = "<?php
    $gate = __DIR__.'/'.$_SERVER['HTTP_HOST'];
    error_log('begun '.$_SERVER['HTTP_HOST']);
    while (!file_exists($gate)) { usleep(1000); clearstatcache(); }
    echo 'answered';";

fn open(dir: &Path, host: &str) {
    std::fs::write(dir.join(host), "").unwrap();
}

/// Sends a request that keeps the only worker of a site busy. Surus refuses it if no worker takes
/// it within the site's `queue_timeout`, so it is sent again until its script begins.
fn occupy(server: &Surus, host: &str) -> Wire {
    let begun = format!("begun {host}");
    for _ in 0..100 {
        let mut wire = Wire::connect(server);
        wire.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        server.wait_for_log(|log| wire.can_read() || log.contains(&begun));
        if server.log().contains(&begun) {
            return wire;
        }
        assert_eq!(wire.answer().unwrap().status, 503, "{host}");
    }
    panic!("no request begins: {}", server.log());
}

#[test]
fn time_limits_and_queue_are_those_of_the_site() {
    let dir = project(&[
        ("index.php", WAITS),
        (
            "surus.toml",
            "engine.name = 'classic'\nengine.queue_timeout = '10m'\nengine.max_queue = 10\n\
             http.request_timeout = '10m'\n\
             [[site]]\nhost = 'patient'\n\
             [[site]]\nhost = 'hasty'\nhttp.request_timeout = '200ms'\n\
             [[site]]\nhost = 'full'\nengine.max_queue = 0\n\
             [[site]]\nhost = 'short'\nengine.queue_timeout = '1s'\n",
        ),
    ]);
    let server = start(dir.path());
    let mut patient = occupy(&server, "patient");
    // A site that boots for longer than its limit answers 503.
    assert_eq!(get_until(&server, "hasty", 504).status, 504);
    let mut held = [occupy(&server, "full"), occupy(&server, "short")];
    for host in ["full", "short"] {
        assert_eq!(get(&server, host, "/").status, 503, "{host}");
    }
    thread::scope(|scope| {
        let queued = scope.spawn(|| get(&server, "patient", "/"));
        open(dir.path(), "patient");
        assert_eq!(body(&patient.answer().unwrap()), "answered");
        assert_eq!(body(&queued.join().unwrap()), "answered");
    });
    for (host, wire) in ["full", "short"].into_iter().zip(&mut held) {
        open(dir.path(), host);
        assert_eq!(wire.answer().unwrap().status, 200);
    }
}

#[test]
fn limits_of_request_bodies_are_those_of_the_site() {
    let dir = project(&[
        ("index.php", "<?php echo file_get_contents('php://input');"),
        (
            "surus.toml",
            "engine.name = 'classic'\nhttp.body_timeout = '10m'\n\
             [[site]]\nhost = 'small'\nhttp.max_body_size = 3\n\
             [[site]]\nhost = 'hasty'\nhttp.body_timeout = '200ms'\n\
             [[site]]\nhost = 'patient'\n",
        ),
    ]);
    let server = start(dir.path());
    let begin = |host: &str| {
        let mut wire = Wire::connect(&server);
        wire.send(format!(
            "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\n\r\nab"
        ));
        wire
    };
    let mut patient = begin("patient");
    assert_eq!(begin("small").answer().unwrap().status, 413);
    assert_eq!(begin("hasty").answer().unwrap().status, 408);
    patient.send("cd");
    assert_eq!(body(&patient.answer().unwrap()), "abcd");
}

#[test]
fn buffer_of_responses_is_that_of_the_site() {
    let script = "<?php
        ignore_user_abort(true);
        register_shutdown_function(fn () => error_log('sent '.$_SERVER['HTTP_HOST']));
        for ($i = 0; $i < 1024; $i++) { echo str_repeat('x', 65536); flush(); }";
    let dir = project(&[
        ("index.php", script),
        (
            "surus.toml",
            "engine.name = 'classic'\nhttp.send_timeout = '10m'\nhttp.request_timeout = '10m'\n\
             [[site]]\nhost = 'none'\nhttp.max_response_buffer = 0\n\
             [[site]]\nhost = 'all'\n",
        ),
    ]);
    let server = start(dir.path());
    let ask = |host: &str| {
        let mut wire = Wire::connect(&server);
        wire.send(format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ));
        wire
    };
    // Neither client takes its response. PHP waits for one of them.
    let mut none = ask("none");
    let mut all = ask("all");
    server.wait_for_log(|log| log.contains("sent all"));
    assert!(!server.log().contains("sent none"), "{}", server.log());
    for wire in [&mut none, &mut all] {
        assert!(wire.rest().len() > 64 << 20);
    }
    server.wait_for_log(|log| log.contains("sent none"));
}
