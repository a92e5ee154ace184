//! Tests of failures in PHP, in Lambda and between them: each costs one event.

use std::time::Duration;

use super::api::{Api, Call, Event, Reply};
use super::function::{Dir, Function, get, request};

const FILES: &[(&str, &str)] = &[
    ("hello.php", "<?php echo 'hello';"),
    (
        "segfault.php",
        "<?php posix_kill(posix_getpid(), 11); while (true) {}",
    ),
    ("exit.php", "<?php echo 'bye'; exit(3);"),
    (
        "fatal.php",
        "<?php ini_set('display_errors', 0); no_such_function();",
    ),
    (
        "loop.php",
        "<?php function endless() { while (true) {} } endless();",
    ),
    (
        "deaf.php",
        "<?php register_shutdown_function(function () { while (true) {} }); while (true) {}",
    ),
    (
        "big.php",
        "<?php header('Content-Type: text/plain'); echo str_repeat('x', (int) $_GET['n']);",
    ),
    ("pid.php", "<?php echo getmypid();"),
];

fn function() -> Function {
    Function::start(FILES, &[])
}

fn kind(call: &Call) -> &str {
    assert!(call.path.ends_with("/error"), "{}", call.path);
    call.header("Lambda-Runtime-Function-Error-Type").unwrap()
}

fn message(call: &Call) -> String {
    call.json()["errorMessage"].as_str().unwrap().to_string()
}

fn says_hello(function: &Function, id: &str) {
    assert_eq!(function.get(id, "/hello.php").text(), "hello");
}

#[test]
fn each_php_failure_has_its_error_kind() {
    let function = function();
    let died = function.get("f-1", "/segfault.php");
    assert_eq!(kind(&died), "Runtime.ExitError");
    assert!(message(&died).contains("SIGSEGV"), "{}", message(&died));
    assert_eq!(died.json()["errorType"], "Runtime.ExitError");
    let cause = died.header("Lambda-Runtime-Function-XRay-Error-Cause");
    let cause: serde_json::Value = serde_json::from_str(cause.unwrap()).unwrap();
    assert_eq!(cause["exceptions"][0]["type"], "Runtime.ExitError");
    says_hello(&function, "f-2");

    assert_eq!(function.get("f-3", "/exit.php").text(), "bye");
    says_hello(&function, "f-4");

    // As with php-fpm, an uncaught error is a response.
    assert_eq!(function.get("f-5", "/fatal.php").json()["statusCode"], 500);
    function.wait_for_log("no_such_function");
    says_hello(&function, "f-6");
}

#[test]
fn timeout_is_reported_before_lambda_ends_the_function() {
    let function = function();
    for (name, url, trace) in [
        ("loop", "/loop.php", &["#0 ", "endless()"][..]),
        ("deaf", "/deaf.php", &[]),
    ] {
        // On a busy machine PHP may not run at all between its deadline and its end.
        let reports = (0..30).any(|attempt| {
            let id = format!("{name}-{attempt}");
            let late = function.ask(Event::new(&id, &get(url)).within(Duration::from_secs(2)));
            assert_eq!(kind(&late), "Function.Timeout");
            // Lambda reports the timeout after this time, and the function asks for the next event
            // before.
            function.api.until_waiting(1);
            says_hello(&function, &format!("{id}-next"));
            let log = function.log();
            log.contains(&format!("{id}\tERROR\tStopped at its deadline"))
                && trace.iter().all(|text| log.contains(text))
        });
        assert!(reports, "{}", function.log());
    }
}

#[test]
fn worker_killed_between_events_fails_no_event() {
    let function = function();
    let pid = function.get("k-1", "/pid.php").text();
    function.api.until_waiting(1);
    let killed = std::process::Command::new("kill")
        .args(["-s", "KILL", &pid])
        .status();
    assert!(killed.unwrap().success());
    says_hello(&function, "k-2");
}

#[test]
fn response_above_the_lambda_limit_is_an_error_with_a_remedy() {
    let function = function();
    // The size of the response without its body.
    let small = function.get("t-0", "/big.php?n=500000").body.len() - 500000;
    let max = 6 * 1024 * 1024 + 100;
    let fits = function.get("t-1", &format!("/big.php?n={}", max - small));
    assert!(fits.path.ends_with("/response"));
    assert_eq!(fits.body.len(), max);
    for (id, n, size) in [("t-2", max - small + 1, max + 1), ("t-3", 3 * max, 3 * max)] {
        let large = function.get(id, &format!("/big.php?n={n}"));
        assert_eq!(kind(&large), "Function.ResponseSizeTooLarge");
        let message = message(&large);
        assert!(message.contains(&size.to_string()), "{message}");
        assert!(message.contains("S3"), "{message}");
    }
    says_hello(&function, "t-4");
}

#[test]
fn rejected_response_does_not_end_the_runtime() {
    let function = function();
    for (number, status) in [410, 413, 403, 400, 404].into_iter().enumerate() {
        function.api.reply("/response", 1, Reply::Status(status));
        says_hello(&function, &format!("s-{number}"));
        function.api.reply("/error", 1, Reply::Status(status));
        function.get(&format!("s-{number}-e"), "/segfault.php");
    }
    says_hello(&function, "s-last");
    function.wait_for_log("Lambda has already ended the event");
}

#[test]
fn response_echoes_the_invocation_id() {
    let function = function();
    for (id, url) in [("n-1", "/hello.php"), ("n-2", "/segfault.php")] {
        let event = Event::new(id, &get(url));
        let answer = function.ask(event.with("Lambda-Runtime-Invocation-Id", "nonce-7"));
        assert_eq!(
            answer.header("Lambda-Runtime-Invocation-Id"),
            Some("nonce-7")
        );
    }
    for headers in [None, Some("")] {
        let event = Event::new("n-3", &get("/hello.php"));
        let event = headers.map_or(event.clone(), |value| {
            event.with("Lambda-Runtime-Invocation-Id", value)
        });
        let answer = function.ask(event);
        assert_eq!(answer.header("Lambda-Runtime-Invocation-Id"), None);
    }
}

#[test]
fn failed_next_request_is_retried() {
    let api = Api::start();
    for reply in [
        Reply::Cut,
        Reply::Status(403),
        Reply::Status(400),
        Reply::Cut,
        Reply::After(Duration::from_millis(300)),
    ] {
        api.reply("/invocation/next", 1, reply);
    }
    let function = Function::begin(api, Dir::new(FILES), &[]);
    says_hello(&function, "q-1");
    says_hello(&function, "q-2");
}

#[test]
fn dead_connection_fails_no_event() {
    let function = function();
    for number in 0..4 {
        // It breaks while idle, as a connection does that was frozen for long.
        function.api.reply("/response", 1, Reply::Last);
        says_hello(&function, &format!("x-{number}"));
    }
    // The runtime cannot know whether this one arrived, so it sends it again.
    function.api.reply("/response", 1, Reply::Cut);
    says_hello(&function, "x-cut");
    let again = function.api.answer("x-cut");
    assert_eq!(again.text(), "hello");
    says_hello(&function, "x-last");
}

#[test]
fn fatal_api_error_ends_the_runtime() {
    for path in ["/invocation/next", "/response", "/error"] {
        let mut function = function();
        function.api.reply(path, 1, Reply::Status(500));
        match path {
            "/error" => assert_eq!(
                kind(&function.get("e-1", "/segfault.php")),
                "Runtime.ExitError"
            ),
            _ => says_hello(&function, "e-1"),
        }
        assert!(!function.end().success());
        function.wait_for_log("cannot continue");
    }
}

#[test]
fn fatal_restore_error_ends_the_runtime() {
    let api = Api::start();
    api.reply("/restore/next", 1, Reply::Status(500));
    let env = [("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")];
    let mut function = Function::begin(api, Dir::new(FILES), &env);
    assert!(!function.end().success());
    function.wait_for_log("restore/next: 500");
    let asked = function.api.calls();
    assert!(
        asked
            .iter()
            .all(|call| !call.path.ends_with("/invocation/next")
                || call.path.ends_with("/restore/next")
                || call.path.ends_with("/event/next")),
        "no request for an event"
    );
}

#[test]
fn malformed_event_is_an_error() {
    let function = function();
    let mut broken = request("GET", "/hello.php", "", &[]);
    broken["headers"] = 7.into();
    let answer = function.ask(Event::new("m-1", &broken));
    assert_eq!(kind(&answer), "Runtime.MalformedEvent");
    assert!(message(&answer).contains("headers"), "{}", message(&answer));
    says_hello(&function, "m-2");
}
