//! Tests of streamed responses.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::api::{Call, Event};
use super::function::{Function, get};

const STREAM: &[(&str, &str)] = &[
    ("SURUS_LAMBDA_MODE", "stream"),
    ("SURUS_PHP_OUTPUT_BUFFERING", "0"),
];

/// The prelude and the body.
fn parts(call: &Call) -> (Value, &[u8]) {
    assert!(call.path.ends_with("/response"), "{}", call.path);
    assert_eq!(
        call.header("Lambda-Runtime-Function-Response-Mode"),
        Some("streaming")
    );
    let content_type = call.header("Content-Type");
    assert_eq!(
        content_type,
        Some("application/vnd.awslambda.http-integration-response")
    );
    assert!(call.trailers.is_some(), "in chunks");
    let at = call
        .body
        .windows(8)
        .position(|bytes| bytes == [0; 8])
        .unwrap();
    (
        serde_json::from_slice(&call.body[..at]).unwrap(),
        &call.body[at + 8..],
    )
}

#[test]
fn streamed_response_follows_its_prelude() {
    let code = "<?php
        http_response_code(201);
        setcookie('a', '1');
        setcookie('b', '2');
        header('X-One: 1');
        echo \"piece 0\\n\";
        flush();
        while (!file_exists(__DIR__.'/gate')) {
            usleep(2000);
            clearstatcache();
        }
        echo \"piece 1\\n\";";
    let function = Function::start(&[("index.php", code), ("a.txt", "a file")], STREAM);
    function.api.send(Event::new("s-1", &get("/")));
    // PHP continues once the first piece has arrived.
    function.api.until_seen("piece 0");
    function.dir.write("gate", "");
    let answer = function.api.answer("s-1");
    let (prelude, body) = parts(&answer);
    assert_eq!(prelude["statusCode"], 201);
    assert_eq!(prelude["headers"]["x-one"], "1");
    assert_eq!(prelude["cookies"].as_array().unwrap().len(), 2);
    assert_eq!(body, b"piece 0\npiece 1\n");
    assert_eq!(answer.trailers, Some(Vec::new()));
    assert_eq!(parts(&function.get("s-2", "/a.txt")).1, b"a file");
}

#[test]
fn streamed_response_carries_any_bytes_above_the_buffered_limit() {
    let code =
        "<?php $piece = random_bytes(1 << 20); header('X-Hash: '.md5(str_repeat($piece, 10)));
        for ($i = 0; $i < 10; $i++) { echo $piece; }";
    let function = Function::start(
        &[
            ("index.php", code),
            (
                "hash.php",
                "<?php echo md5(file_get_contents('php://input'));",
            ),
        ],
        STREAM,
    );
    let answer = function.get("b-1", "/");
    // After the first NUL bytes, since the body may contain more.
    let (prelude, body) = parts(&answer);
    assert_eq!(body.len(), 10 << 20);
    std::fs::write(function.dir.path("body"), body).unwrap();
    let sum = std::process::Command::new("md5sum")
        .arg(function.dir.path("body"))
        .output()
        .unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert!(
        sum.starts_with(prelude["headers"]["x-hash"].as_str().unwrap()),
        "{sum}"
    );
}

#[test]
fn php_waits_for_a_slow_caller() {
    let code = "<?php $piece = str_repeat('x', 1 << 20);
        for ($i = 0; $i < 64; $i++) {
            echo $piece;
            flush();
            file_put_contents(__DIR__.'/count', $i);
        }";
    let function = Function::start(&[("index.php", code)], STREAM);
    function.api.read_no_more_than(Some(1));
    function.api.send(Event::new("p-1", &get("/")));
    let mut written = function.dir.read("count");
    let mut still = 0;
    while still < 20 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        // PHP may also stand still because it has no CPU.
        let sleeps = function.sleeps();
        let now = function.dir.read("count");
        still = match now == written {
            true => still + i32::from(sleeps),
            false => 0,
        };
        written = now;
    }
    assert!(written.parse::<u32>().unwrap() < 60, "{written}");
    function.api.read_no_more_than(None);
    assert_eq!(parts(&function.api.answer("p-1")).1.len(), 64 << 20);
}

#[test]
fn failed_stream_reports_its_error_in_trailers() {
    let code = "<?php echo 'begun'; flush(); usleep(100000);
        if (isset($_GET['die'])) { posix_kill(posix_getpid(), 9); }
        if (isset($_GET['loop'])) { while (true) { echo '.'; flush(); usleep(10000); } }
        echo ' ended';";
    let function = Function::start(&[("index.php", code)], STREAM);
    for (url, kind) in [
        ("/?die", "Runtime.ExitError"),
        ("/?loop", "Function.Timeout"),
    ] {
        let event = |id: &str| Event::new(id, &get(url));
        let named = "Lambda-Runtime-Function-Error-Type";
        let answer = function.ask_in_time(event, |call| call.trailer(named) == Some(kind));
        let (_, body) = parts(&answer);
        assert!(body.starts_with(b"begun"));
        assert!(
            body[5..].iter().all(|byte| *byte == b'.'),
            "the page contains nothing of the error"
        );
        assert_eq!(
            answer.trailer("Lambda-Runtime-Function-Error-Type"),
            Some(kind)
        );
        let told = answer
            .trailer("Lambda-Runtime-Function-Error-Body")
            .unwrap();
        let told: Value = serde_json::from_slice(&STANDARD.decode(told).unwrap()).unwrap();
        assert_eq!(told["errorType"], kind);
    }
    assert_eq!(parts(&function.get("t-3", "/")).1, b"begun ended");
}

#[test]
fn stream_and_its_error_echo_the_invocation_id() {
    let code = "<?php
        if (isset($_GET['die'])) {
            posix_kill(posix_getpid(), 9);
            while (true) {}
        }
        echo 'x';";
    let function = Function::start(&[("index.php", code)], STREAM);
    for (id, url, end) in [("i-1", "/", "/response"), ("i-2", "/?die", "/error")] {
        let nonce = format!("nonce-of-{id}");
        let event = Event::new(id, &get(url));
        let answer = function.ask(event.with("Lambda-Runtime-Invocation-Id", &nonce));
        assert!(answer.path.ends_with(end), "{}", answer.path);
        assert_eq!(
            answer.header("Lambda-Runtime-Invocation-Id"),
            Some(&nonce[..])
        );
    }
    let answer = function.get("i-3", "/");
    assert_eq!(answer.header("Lambda-Runtime-Invocation-Id"), None);
    // A stream that comes too late is not fatal either.
    function
        .api
        .reply("/response", 1, super::api::Reply::Status(410));
    assert_eq!(parts(&function.get("i-4", "/")).1, b"x");
    assert_eq!(parts(&function.get("i-5", "/")).1, b"x");
}

#[test]
fn failure_before_the_first_byte_is_a_plain_error() {
    let code = "<?php posix_kill(posix_getpid(), 9); while (true) {}";
    let function = Function::start(&[("index.php", code)], STREAM);
    let answer = function.get("w-1", "/");
    assert!(answer.path.ends_with("/error"), "{}", answer.path);
}

#[test]
fn caller_that_never_reads_is_dropped_at_the_deadline() {
    let code = "<?php
        $piece = str_repeat('x', 1 << 20);
        while (isset($_GET['n'])) {
            echo $piece;
            flush();
        }
        echo 'next';";
    let function = Function::start(&[("index.php", code)], STREAM);
    function.api.read_no_more_than(Some(1));
    // On a busy machine, the response may not begin in time.
    let dropped = [2, 20, 60].iter().any(|seconds| {
        let event = Event::new(&format!("h-{seconds}"), &get("/?n"));
        let event = event.within(std::time::Duration::from_secs(*seconds));
        function.api.send(event);
        function.api.wait_taken();
        function.api.until_waiting(1);
        function.api.has_seen("statusCode")
    });
    assert!(dropped, "{}", function.log());
    function.wait_for_log("did not accept the response in time");
    function.api.read_no_more_than(None);
    assert_eq!(parts(&function.get("next", "/")).1, b"next");
}
