//! Tests of a function's start: in time, late, from a snapshot, for concurrent events, and after a
//! freeze.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::api::{Api, Event};
use super::function::{Dir, Function, get};

/// Boots once the file `gate` exists.
const GATED: &str =
    "<?php while (!file_exists(__DIR__.'/gate')) { usleep(2000); clearstatcache(); }
    if (file_get_contents(__DIR__.'/gate') === 'bad') { throw new Exception('cannot boot'); }
    surus_serve(function () { echo 'booted'; });";

#[test]
fn failed_start_reports_phps_message() {
    let cases: [(&[(&str, &str)], &str); 3] = [
        (
            &[(
                "index.php",
                "<?php throw new Exception('no database'); surus_serve(fn () => 1);",
            )],
            "no database",
        ),
        (
            &[
                ("index.php", "<?php"),
                ("surus.toml", "[lambda]\nnonsense = 1\n"),
            ],
            "nonsense",
        ),
        (
            &[
                ("index.php", "<?php"),
                ("surus.toml", "[lambda]\nhandler = \"missing.php\"\n"),
            ],
            "missing.php",
        ),
    ];
    for (files, expected) in cases {
        let mut function = Function::begin(Api::start(), Dir::new(files), &[]);
        let call = function.api.take("/runtime/init/error");
        assert_eq!(
            call.header("Lambda-Runtime-Function-Error-Type"),
            Some("Runtime.InitError")
        );
        let message = call.json()["errorMessage"].as_str().unwrap().to_string();
        assert!(message.contains(expected), "{message}");
        assert!(!function.end().success());
        function.wait_for_log(expected);
        assert!(!function.api.is_asked());
    }
}

#[test]
fn long_start_continues_after_the_first_event_is_fetched() {
    let late = [("SURUS_LAMBDA_INIT_TIMEOUT", "1ms")];
    let function = Function::begin(Api::start(), Dir::new(&[("index.php", GATED)]), &late);
    // It asks before it has booted.
    function.api.until_waiting(1);
    function.api.send(Event::new("l-1", &get("/")));
    function.api.wait_taken();
    function.dir.write("gate", "good");
    assert_eq!(function.api.answer("l-1").text(), "booted");
    assert_eq!(function.get("l-2", "/").text(), "booted");
    // The extension registered before.
    let paths: Vec<_> = function
        .api
        .calls()
        .into_iter()
        .map(|call| call.path)
        .collect();
    let at = |end: &str| paths.iter().position(|path| path.ends_with(end)).unwrap();
    assert!(
        at("/extension/register") < at("/invocation/next"),
        "{paths:?}"
    );
}

#[test]
fn managed_instance_answers_an_event_that_waited_for_the_start() {
    let env = [
        ("SURUS_LAMBDA_INIT_TIMEOUT", "200ms"),
        ("AWS_LAMBDA_MAX_CONCURRENCY", "2"),
    ];
    let function = Function::begin(Api::start(), Dir::new(&[("index.php", GATED)]), &env);
    function.api.until_waiting(1);
    function.api.send(Event::new("s-1", &get("/")));
    function.api.wait_taken();
    function.dir.write("gate", "good");
    assert_eq!(function.api.answer("s-1").text(), "booted");
    function.api.until_waiting(2);
}

#[test]
fn event_times_out_during_a_long_start() {
    let late = [("SURUS_LAMBDA_INIT_TIMEOUT", "100ms")];
    let function = Function::begin(Api::start(), Dir::new(&[("index.php", GATED)]), &late);
    let early = Event::new("e-1", &get("/")).within(Duration::from_millis(1500));
    let answer = function.ask(early);
    assert_eq!(
        answer.header("Lambda-Runtime-Function-Error-Type"),
        Some("Function.Timeout")
    );
    function.dir.write("gate", "good");
    assert_eq!(function.get("e-2", "/").text(), "booted");
}

#[test]
fn failed_long_start_is_the_first_events_error() {
    let late = [("SURUS_LAMBDA_INIT_TIMEOUT", "200ms")];
    let mut function = Function::begin(Api::start(), Dir::new(&[("index.php", GATED)]), &late);
    function.api.until_waiting(1);
    function.dir.write("gate", "bad");
    let answer = function.ask(Event::new("l-1", &get("/")));
    assert!(answer.path.ends_with("/error"));
    let message = answer.json()["errorMessage"].as_str().unwrap().to_string();
    assert!(message.contains("cannot boot"), "{message}");
    assert!(!function.end().success());
}

#[test]
fn provisioned_start_has_no_init_timeout() {
    let env = [
        ("SURUS_LAMBDA_INIT_TIMEOUT", "100ms"),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "provisioned-concurrency"),
    ];
    let function = Function::begin(Api::start(), Dir::new(&[("index.php", GATED)]), &env);
    function.api.take("/extension/register");
    std::thread::sleep(Duration::from_millis(400));
    assert!(!function.api.is_asked());
    function.dir.write("gate", "good");
    assert_eq!(function.get("p-1", "/").text(), "booted");
}

#[test]
fn managed_instance_runs_events_concurrently() {
    // Each waits for the others.
    let code = "<?php touch(__DIR__.'/began-'.$_GET['n']);
        while (count(glob(__DIR__.'/began-*')) < 4) { usleep(2000); clearstatcache(); }
        error_log('said by '.$_GET['n']);
        echo json_decode($_SERVER['LAMBDA_INVOCATION_CONTEXT'])->awsRequestId, ' ';
        echo $_SERVER['_X_AMZN_TRACE_ID'];";
    let env = [
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "lambda-managed-instances"),
        ("AWS_LAMBDA_MAX_CONCURRENCY", "4"),
    ];
    let function = Function::start(&[("index.php", code)], &env);
    function.api.until_waiting(4);
    for n in 0..4 {
        function
            .api
            .send(Event::new(&format!("m-{n}"), &get(&format!("/?n={n}"))));
    }
    for n in 0..4 {
        let answer = function.api.answer(&format!("m-{n}")).text();
        assert_eq!(answer, format!("m-{n} Root=1-m-{n}"));
    }
    function.api.until_waiting(4);
    for n in 0..4 {
        let text = format!("said by {n}");
        function.wait_for_log(&text);
        let log = function.log();
        let line = log.lines().find(|line| line.contains(&text)).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["requestId"], format!("m-{n}"));
    }
}

#[test]
fn worker_crash_fails_only_its_concurrent_event() {
    let code = "<?php touch(__DIR__.'/began-'.$_GET['n']);
        while (count(glob(__DIR__.'/began-*')) < 2) { usleep(2000); clearstatcache(); }
        if ($_GET['n'] === '0') { posix_kill(posix_getpid(), 9); }
        while (!file_exists(__DIR__.'/gate')) { usleep(2000); clearstatcache(); } echo 'fine';";
    let env = [("AWS_LAMBDA_MAX_CONCURRENCY", "2")];
    let function = Function::start(&[("index.php", code)], &env);
    for n in 0..2 {
        function
            .api
            .send(Event::new(&format!("d-{n}"), &get(&format!("/?n={n}"))));
    }
    assert!(function.api.answer("d-0").path.ends_with("/error"));
    function.dir.write("gate", "");
    assert_eq!(function.api.answer("d-1").text(), "fine");
}

#[test]
fn timeout_of_a_concurrent_event_kills_only_its_worker() {
    let code = "<?php file_put_contents(__DIR__.'/pid-'.$_GET['n'], getmypid());
        if ($_GET['n'] === '0') {
            register_shutdown_function(function () {
                while (true) {}
            });
            while (true) {}
        }
        while ($_GET['n'] === '1' && !file_exists(__DIR__.'/gate')) {
            usleep(2000);
            clearstatcache();
        }
        echo getmypid();";
    let env = [
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "lambda-managed-instances"),
        ("AWS_LAMBDA_MAX_CONCURRENCY", "2"),
        ("SURUS_ENGINE_NAME", "classic"),
    ];
    let mut function = Function::start(&[("index.php", code)], &env);
    function.api.until_waiting(2);
    function.api.send(Event::new("o-1", &get("/?n=1")));
    let goes_on = function.dir.read("pid-1");
    let event = |id: &str| Event::new(id, &get("/?n=0"));
    let begun = function.dir.path("pid-0");
    let late = function.ask_in_time(event, |_| begun.exists());
    let hangs = function.dir.read("pid-0");
    assert!(late.path.ends_with("/error"), "{}", late.path);
    assert_eq!(
        late.header("Lambda-Runtime-Function-Error-Type"),
        Some("Function.Timeout")
    );
    // Its slot is free again, and the concurrent event was not disturbed.
    let next = function.get("o-2", "/?n=2").text();
    assert!(next != hangs && next != goes_on, "{next}");
    assert!(
        !std::path::Path::new(&format!("/proc/{hangs}/exe")).exists(),
        "{hangs} still runs"
    );
    function.dir.write("gate", "");
    assert_eq!(function.api.answer("o-1").text(), goes_on);
    function.signal("TERM");
    assert!(function.end().success());
}

#[test]
fn restored_snapshot_has_new_workers() {
    let code = "<?php
        if ($_SERVER['REQUEST_URI'] !== '/') {
            file_put_contents(__DIR__.'/hooks', $_SERVER['REQUEST_URI'].' ', FILE_APPEND);
        }
        echo getmypid();";
    let env = [
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"),
        ("SURUS_LAMBDA_BEFORE_SNAPSHOT", "/warm,/up"),
        ("SURUS_LAMBDA_AFTER_RESTORE", "/again"),
        ("SURUS_ENGINE_NAME", "classic"),
    ];
    let function = Function::begin(Api::start(), Dir::new(&[("index.php", code)]), &env);
    function.api.take("/runtime/restore/next");
    assert_eq!(function.dir.read("hooks"), "/warm /up ");
    assert!(!function.api.is_asked(), "not before the snapshot");
    let before = function.descendants();
    function.api.restore();
    let pid: u32 = function.get("s-1", "/").text().parse().unwrap();
    assert!(
        !before.contains(&pid),
        "{pid} was in the snapshot: {before:?}"
    );
    assert_eq!(function.dir.read("hooks"), "/warm /up /again ");
}

#[test]
fn application_boots_once_before_the_snapshot() {
    let code = "<?php
        file_put_contents(__DIR__.'/boots', 'x', FILE_APPEND);
        surus_serve(function () {
            echo mt_rand();
        });";
    let env = [
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"),
        ("SURUS_ENGINE_NAME", "rewind"),
    ];
    let function = Function::begin(Api::start(), Dir::new(&[("index.php", code)]), &env);
    function.api.take("/runtime/restore/next");
    function.api.restore();
    let (one, two) = (
        function.get("r-1", "/").text(),
        function.get("r-2", "/").text(),
    );
    assert_ne!(
        one, two,
        "random generators are seeded again for each event"
    );
    assert_eq!(function.dir.read("boots"), "x");
}

#[test]
fn failed_snapshot_hook_is_reported_to_lambda() {
    let code = "<?php if ($_SERVER['REQUEST_URI'] === '/bad') { http_response_code(500); }";
    for (setting, path, kind) in [
        (
            "SURUS_LAMBDA_BEFORE_SNAPSHOT",
            "/runtime/init/error",
            "Runtime.BeforeCheckpointError",
        ),
        (
            "SURUS_LAMBDA_AFTER_RESTORE",
            "/runtime/restore/error",
            "Runtime.AfterRestoreError",
        ),
    ] {
        let env = [
            ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"),
            (setting, "/fine,/bad"),
        ];
        let mut function = Function::begin(Api::start(), Dir::new(&[("index.php", code)]), &env);
        function.api.restore();
        let call = function.api.take(path);
        assert_eq!(
            call.header("Lambda-Runtime-Function-Error-Type"),
            Some(kind)
        );
        let message = call.json()["errorMessage"].as_str().unwrap().to_string();
        assert!(
            message.contains("/bad") && message.contains("500"),
            "{message}"
        );
        assert!(!function.end().success());
    }
}

/// A function with a handler and no application.
fn handler(api: Api, files: &[(&str, &str)], env: &[(&str, &str)]) -> Function {
    let dir = Dir::new(files);
    dir.install_package();
    let own = [("_HANDLER", "handler.php")];
    Function::begin(api, dir, &[&own[..], env].concat())
}

#[test]
fn handler_hooks_run_around_the_snapshot() {
    let code = "<?php use Surus\\Lambda\\Hook;
        $note = fn (string $what) => function () use ($what) {
            file_put_contents(__DIR__.'/hooks', $what.' ', FILE_APPEND);
        };
        Hook::beforeSnapshot($note('opened first'));
        Hook::beforeSnapshot($note('closed first'));
        Hook::afterRestore($note('restored'));
        Hook::afterRestore($note('and warm'));
        return fn ($event) => $event;";
    for engine in ["classic", "rewind"] {
        let env = [
            ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"),
            ("SURUS_ENGINE_NAME", engine),
        ];
        let function = handler(Api::start(), &[("handler.php", code)], &env);
        function.api.take("/runtime/restore/next");
        assert_eq!(function.dir.read("hooks"), "closed first opened first ");
        function.api.restore();
        let event = serde_json::json!({"any": 1});
        assert_eq!(function.ask(Event::new("h-1", &event)).json(), event);
        let all = "closed first opened first restored and warm ";
        assert_eq!(function.dir.read("hooks"), all, "{engine}");
    }
}

#[test]
fn failed_handler_hook_and_unsupported_url_are_reported() {
    let throws = r"<?php
        Surus\Lambda\Hook::afterRestore(fn () => throw new DomainException('no database'));
        return fn ($e) => $e;";
    let plain = "<?php return fn ($event) => $event;";
    let cases: [(_, Option<&str>, _, &[&str]); 2] = [
        (throws, None, "/runtime/restore/error", &["no database"]),
        (
            plain,
            Some("/warm"),
            "/runtime/init/error",
            &[
                "GET /warm",
                "this function has none",
                "Hook::beforeSnapshot",
            ],
        ),
    ];
    for (code, url, path, parts) in cases {
        let mut env = vec![("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")];
        env.extend(url.map(|url| ("SURUS_LAMBDA_BEFORE_SNAPSHOT", url)));
        let mut function = handler(Api::start(), &[("handler.php", code)], &env);
        function.api.restore();
        let call = function.api.take(path);
        let message = call.json()["errorMessage"].as_str().unwrap().to_string();
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
        assert!(!function.end().success());
    }
}

/// Whether one of some events is not the first after a freeze. On a busy machine, the function may
/// stand still for as long as in a freeze.
fn is_not_frozen(mut is_thawed: impl FnMut(&str) -> bool) -> bool {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let id = || format!("u-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    (0..20).any(|_| !is_thawed(&id()))
}

/// Freezes the function for some seconds before an event.
fn thaw(function: &Function, event: Event) -> Value {
    function.api.until_waiting(1);
    function.signal("STOP");
    std::thread::sleep(Duration::from_millis(3500));
    let id = event.id.clone();
    function.api.send(event);
    function.signal("CONT");
    function.api.answer(&id).json()
}

#[test]
fn freeze_reaches_the_handlers_context_and_hook() {
    let code = "<?php $seconds = null;
        Surus\\Lambda\\Hook::onThaw(function (int $frozen) use (&$seconds) { $seconds = $frozen; });
        return function ($event, Surus\\Lambda\\Context $context) use (&$seconds) {
            return [$context->thawed, $seconds];
        };";
    let env = [("SURUS_ENGINE_NAME", "rewind")];
    let function = handler(Api::start(), &[("handler.php", code)], &env);
    let ask = |id: &str| function.ask(Event::new(id, &Value::Null)).json();
    let none = serde_json::json!([null, null]);
    assert!(is_not_frozen(|id| ask(id) != none));
    let thawed = thaw(&function, Event::new("z-2", &Value::Null));
    assert!(thawed[0].as_u64().unwrap() >= 1, "{thawed}");
    assert_eq!(thawed[0], thawed[1]);
    assert!(is_not_frozen(|id| ask(id) != none));
}

#[test]
fn first_event_after_a_freeze_gets_its_duration() {
    let code = "<?php echo $_SERVER['SURUS_THAWED'] ?? 'not frozen';";
    let function = Function::start(&[("index.php", code)], &[]);
    let is_thawed = |id: &str| function.get(id, "/").text() != "not frozen";
    assert!(is_not_frozen(is_thawed));
    function.api.until_waiting(1);
    function.signal("STOP");
    std::thread::sleep(Duration::from_millis(3500));
    function.api.send(Event::new("z-2", &get("/")));
    function.signal("CONT");
    let seconds: u64 = function.api.answer("z-2").text().parse().unwrap();
    assert!(seconds >= 1, "{seconds}");
    function.wait_for_log("resumed after a freeze");
    assert!(is_not_frozen(is_thawed));
}

#[test]
fn handler_file_is_loaded_once_by_default() {
    // Objects that a handler creates once include connections, as to a database.
    let code = "<?php file_put_contents(__DIR__.'/loads', 'x', FILE_APPEND);
        $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $server = stream_socket_server('tcp://127.0.0.1:0');
        $connection = stream_socket_client('tcp://'.stream_socket_get_name($server, false));
        $count = 0;
        return function (array $event) use (&$count, $connection) {
            fwrite($connection, 'x');
            return [++$count, $_SERVER['SURUS_ENGINE'] ?? getenv('SURUS_ENGINE')];
        };";
    let dir = Dir::new(&[("handler.php", code)]);
    dir.install_package();
    let script = "vendor/surus/surus/lambda/events.php";
    let env = [("_HANDLER", "handler.php"), ("SURUS_LAMBDA_SCRIPT", script)];
    let function = Function::begin(Api::start(), dir.clone(), &env);
    for number in 1..=3 {
        let answer = function.ask(Event::new("o", &json!({})));
        assert_eq!(answer.json(), json!([number, "worker"]));
    }
    assert_eq!(dir.read("loads"), "x");
    // An explicit setting wins.
    let env = [env[0], env[1], ("SURUS_ENGINE_NAME", "classic")];
    let function = Function::begin(Api::start(), dir, &env);
    let answer = function.ask(Event::new("c", &json!({})));
    assert_eq!(answer.json(), json!([1, "classic"]));
}
