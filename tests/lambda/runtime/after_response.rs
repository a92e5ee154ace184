//! Tests of what runs after the response, and of the function's end.

use std::time::{Duration, Instant};

use super::api::{Api, Event};
use super::function::{Dir, Function, get};

#[test]
fn response_is_sent_before_php_ends_and_next_event_fetched_after() {
    let code = "<?php
        register_shutdown_function(function () {
            error_log('last words');
            fwrite(fopen('php://stderr', 'w'), \"to stderr\\n\");
        });
        echo 'answer'; fastcgi_finish_request();
        while (!file_exists(__DIR__.'/gate')) { usleep(2000); clearstatcache(); }
        file_put_contents(__DIR__.'/done', 'done');";
    let function = Function::start(&[("index.php", code)], &[]);
    assert_eq!(function.get("p-1", "/").text(), "answer");
    assert!(!function.api.is_asked(), "PHP is still busy");
    assert!(!function.dir.path("done").exists());
    function.dir.write("gate", "");
    function.api.until_waiting(1);
    assert_eq!(function.dir.read("done"), "done");
    // Log lines name the event only until it is over, so both were written before.
    function.wait_for_log("last words");
    function.wait_for_log("to stderr");
    let log = function.log();
    assert_eq!(
        log.matches("p-1\t").count(),
        2,
        "both name the event: {log}"
    );
}

#[test]
fn work_after_the_response_ends_at_the_deadline() {
    let code = "<?php
        echo 'answer';
        fastcgi_finish_request();
        while (isset($_GET['stay'])) {}";
    let function = Function::start(&[("index.php", code)], &[]);
    let stay = |id: &str| Event::new(id, &get("/?stay"));
    let answer = function.ask_in_time(stay, |call| call.path.ends_with("/response"));
    assert_eq!(answer.text(), "answer");
    assert_eq!(function.get("o-2", "/").text(), "answer");
    function.wait_for_log("Stopped at its deadline");
    assert!(
        function
            .api
            .calls()
            .iter()
            .all(|call| !call.path.ends_with("/error") || call.is_timeout())
    );
}

#[test]
fn log_is_complete_at_the_end_of_an_event() {
    let code = "<?php for ($i = 0; $i < 2000; $i++) { fwrite(STDERR ?? fopen('php://stderr', 'w'), \
        \"line $i\\n\"); } echo 'x';";
    let code = code.replace(
        "STDERR ?? fopen('php://stderr', 'w')",
        "$e ??= fopen('php://stderr', 'w')",
    );
    let function = Function::start(&[("index.php", &code)], &[]);
    for number in 0..3 {
        let id = format!("l-{number}");
        function.get(&id, "/");
        function.api.until_waiting(1);
        // Lambda freezes the process like this; what it has not written by then would be missing.
        function.signal("STOP");
        // The test reads the log in a thread of its own.
        function.wait_for_log(&format!("{id}\tINFO\tline 1999"));
        assert_eq!(
            function
                .log()
                .matches(&format!("{id}\tINFO\tline "))
                .count(),
            2000
        );
        function.signal("CONT");
    }
}

#[test]
fn lambda_log_level_filters_the_applications_records() {
    let code = r#"<?php
        foreach (['error', 'ERROR', 'critical'] as $level) {
            error_log(json_encode(['level' => $level, 'message' => "$level is kept"]));
        }
        foreach (['info', 'warning', 'DEBUG'] as $level) {
            error_log(json_encode(['level' => $level, 'message' => "$level is left out"]));
        }
        $alert = ['level_name' => 'ALERT', 'level' => 550, 'message' => 'a stream is kept'];
        file_put_contents('php://stderr', json_encode($alert) . "\n");
        error_log('nothing said is left out');
        echo 'x';
        if (isset($_GET['late'])) {
            sleep(20);
        }"#;
    let env = [
        ("AWS_LAMBDA_LOG_FORMAT", "JSON"),
        ("AWS_LAMBDA_LOG_LEVEL", "ERROR"),
    ];
    let function = Function::start(&[("index.php", code)], &env);
    function.get("l-1", "/");
    function.api.until_waiting(1);
    function.wait_for_log("a stream is kept");
    let log = function.log();
    for word in ["error", "ERROR", "critical"] {
        assert!(log.contains(&format!("{word} is kept")), "{log}");
    }
    assert!(!log.contains("left out"), "{log}");
    // If PHP does not run between deadline and end, on a busy machine, the log has no such line.
    let late = |id: &str| Event::new(id, &get("/?late=1"));
    function.ask_in_time(late, |_| function.soon_logs("Stopped at its deadline", 0));
}

#[test]
fn log_is_json_if_lambda_requests_it() {
    let code = r#"<?php
        error_log("one\ntwo");
        error_log('{"level":"WARN","message":"structured"}');
        echo 'x';"#;
    let env = [
        ("AWS_LAMBDA_LOG_FORMAT", "JSON"),
        ("AWS_LAMBDA_LOG_LEVEL", "DEBUG"),
    ];
    let function = Function::start(&[("index.php", code)], &env);
    function.get("j-1", "/");
    function.api.until_waiting(1);
    function.wait_for_log("structured");
    let mut of_event = Vec::new();
    for line in function.log().lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(
            line["timestamp"].is_string() && line["level"].is_string(),
            "{line}"
        );
        if line["requestId"] == "j-1" {
            of_event.push((line["level"].clone(), line["message"].clone()));
        }
    }
    assert!(
        of_event.contains(&("INFO".into(), "one\ntwo".into())),
        "{of_event:?}"
    );
    assert!(
        of_event.contains(&("WARN".into(), "structured".into())),
        "{of_event:?}"
    );
}

#[test]
fn sigterm_ends_the_function_and_its_workers() {
    let code = "<?php
        register_shutdown_function(function () {
            file_put_contents(__DIR__.'/ended', 'ended');
        });
        echo 'x';";
    let mut function = Function::start(&[("index.php", code)], &[]);
    let registered = function.api.take("/extension/register");
    assert_eq!(registered.json(), serde_json::json!({"events": []}));
    let asks = function.api.take("/extension/event/next");
    assert_eq!(asks.header("Lambda-Extension-Identifier"), Some("e-1"));
    function.get("t-1", "/");
    function.api.until_waiting(1);
    let called = function.api.calls().len();
    let processes = function.descendants();
    assert!(processes.len() >= 2, "{processes:?}");
    function.signal("TERM");
    assert!(function.end().success());
    assert_eq!(
        function.api.calls().len(),
        called,
        "the network may be down by then"
    );
    for pid in processes {
        let path = format!("/proc/{pid}/stat");
        for _ in 0..1000 {
            let stat = std::fs::read_to_string(&path).unwrap_or_default();
            if stat.is_empty() || stat.rsplit(')').next().unwrap().starts_with(" Z") {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let stat = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stat.is_empty() || stat.contains(") Z"),
            "left behind: {stat}"
        );
    }
}

#[test]
fn sigterm_that_the_starter_ignored_or_blocked_ends_the_function() {
    for left in ["--ignore-signal=TERM,CHLD", "--block-signal=TERM,CHLD"] {
        let mut command = std::process::Command::new("env");
        command.args([left, env!("CARGO_BIN_EXE_surus")]);
        let dir = Dir::new(&[("index.php", "<?php echo 'x';")]);
        let mut function = Function::begin_by(command, Api::start(), dir, &[]);
        function.api.until_waiting(1);
        assert_eq!(function.get("i-1", "/").text(), "x", "{left}");
        function.signal("TERM");
        assert!(function.end().success(), "{left}");
    }
}

#[test]
fn sigint_and_sigquit_end_the_function_and_other_signals_do_not() {
    for name in ["INT", "QUIT"] {
        let mut function = Function::start(&[("index.php", "<?php echo 'x';")], &[]);
        for harmless in ["HUP", "USR1", "USR2"] {
            function.signal(harmless);
            assert_eq!(function.get(harmless, "/").text(), "x", "{harmless}");
        }
        function.signal(name);
        assert!(function.end().success(), "{name}");
    }
}

#[test]
fn sigterm_does_not_wait_for_a_hanging_script() {
    let code = "<?php file_put_contents(__DIR__.'/began', 'x'); while (true) { usleep(1000); }";
    let mut function = Function::start(&[("index.php", code)], &[]);
    function.api.send(Event::new("w-1", &get("/")));
    function.dir.read("began");
    let began = Instant::now();
    function.signal("TERM");
    assert!(function.end().success());
    // Workers get 250 ms; slow machines need more time to end processes.
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    function.wait_for_log("in-flight events abandoned");
}

#[test]
fn script_within_the_shutdown_time_finishes() {
    // Lambda gives all processes half a second, which may be too short on a busy machine.
    assert!((0..20).any(|_| finishes_within_the_shutdown_time()));
}

fn finishes_within_the_shutdown_time() -> bool {
    let code = "<?php
        register_shutdown_function(function () {
            file_put_contents(__DIR__.'/ended', 'ended');
        });
        file_put_contents(__DIR__.'/began', 'x');
        while (!file_exists(__DIR__.'/gate')) { usleep(1000); clearstatcache(); } echo 'answer';";
    // Managed instances have twice the time, which helps on slow machines.
    let env = [("AWS_LAMBDA_MAX_CONCURRENCY", "2")];
    let mut function = Function::start(&[("index.php", code)], &env);
    function.api.until_waiting(2);
    function.api.send(Event::new("f-1", &get("/")));
    function.dir.read("began");
    let began = Instant::now();
    function.signal("TERM");
    function.wait_for_log("Lambda is shutting this environment down");
    function.dir.write("gate", "");
    assert!(function.end().success());
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    if function.log().contains("abandoned") {
        return false;
    }
    assert_eq!(function.dir.read("ended"), "ended");
    assert_eq!(function.api.answer("f-1").text(), "answer");
    true
}

/// Lambda waits until a registered extension asks for an event.
#[test]
fn extension_that_lambda_accepts_late_asks_for_its_event_too() {
    let api = Api::start();
    let late = std::time::Duration::from_secs(3);
    api.reply("/extension/register", 1, super::api::Reply::After(late));
    let function = Function::begin(api, Dir::new(&[("index.php", "<?php echo 'x';")]), &[]);
    assert_eq!(function.get("l-1", "/").text(), "x");
    let asks = function.api.take("/extension/event/next");
    assert_eq!(asks.header("Lambda-Extension-Identifier"), Some("e-1"));
}

#[test]
fn missing_extensions_api_does_not_stop_the_function() {
    let function = Function::start(
        &[("index.php", "<?php echo 'x';")],
        &[("SURUS_LAMBDA_EXTENSION", "false")],
    );
    assert_eq!(function.get("n-1", "/").text(), "x");
    assert!(
        function
            .api
            .calls()
            .iter()
            .all(|call| !call.path.contains("extension"))
    );

    let api = Api::start();
    api.reply("/extension/register", 1, super::api::Reply::Status(404));
    let function = Function::begin(api, Dir::new(&[("index.php", "<?php echo 'x';")]), &[]);
    assert_eq!(function.get("n-2", "/").text(), "x");
}
