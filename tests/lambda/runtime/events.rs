//! Tests of events that are not HTTP.

use serde_json::{Value, json};

use super::api::{Api, Call, Event};
use super::function::{Dir, Function, get, request};

/// A minimal library like the Composer package's.
const LIBRARY: &str = r#"<?php
$handle = function () {
    $handler = require $_SERVER['SURUS_HANDLER'] ?? getenv('SURUS_HANDLER');
    try {
        echo json_encode($handler(json_decode(file_get_contents('php://input'), true)));
    } catch (Throwable $error) {
        http_response_code(500);
        header('Lambda-Runtime-Function-Error-Type: Function.Error');
        echo json_encode([
            'errorType' => $error::class,
            'errorMessage' => $error->getMessage(),
            'stackTrace' => ['#0 /a.php(1): f()'],
        ]);
    }
};
function_exists('surus_serve') ? surus_serve($handle) : $handle();"#;

const HANDLER: &str = "<?php return function (array $event) {
    return match ($event['do'] ?? 'echo') {
        'echo' => [
            'event' => $event,
            'context' => json_decode($_SERVER['LAMBDA_INVOCATION_CONTEXT'])->awsRequestId,
            'request' => $_SERVER['REQUEST_METHOD'] . ' ' . $_SERVER['REQUEST_URI'],
            'type' => $_SERVER['CONTENT_TYPE'],
        ],
        'throw' => throw new DomainException('no such order'),
        'nothing' => null,
        'die' => posix_kill(posix_getpid(), 9),
        'big' => str_repeat('x', 7 << 20),
    };
};";

fn said(call: &Call) -> (String, Value) {
    let end = call.path.rsplit('/').next().unwrap();
    (end.to_string(), call.json())
}

#[test]
fn event_reaches_the_handler_and_its_result_is_returned() {
    for engine in ["rewind", "classic", "worker", "fork"] {
        let library = match engine {
            "classic" => LIBRARY.replace("function_exists('surus_serve')", "false"),
            _ => LIBRARY.to_string(),
        };
        let files = [("library.php", &library[..]), ("src/handler.php", HANDLER)];
        let env = [
            ("_HANDLER", "src/handler.php"),
            ("SURUS_LAMBDA_SCRIPT", "library.php"),
            ("SURUS_ENGINE_NAME", engine),
        ];
        let function = Function::start(&files, &env);
        let event = json!({
            "source": "aws.events",
            "detail-type": "Scheduled Event",
            "detail": {"a": [1, 2]},
        });
        let (end, answer) = said(&function.ask(Event::new("h-1", &event)));
        let expected = json!({
            "event": event,
            "context": "h-1",
            "request": "POST /events",
            "type": "application/json",
        });
        assert_eq!((end.as_str(), answer), ("response", expected), "{engine}");

        let failed = function.ask(Event::new("h-2", &json!({"do": "throw"})));
        let kind = failed.header("Lambda-Runtime-Function-Error-Type");
        assert_eq!(kind, Some("Function.Error"));
        let expected = json!({
            "errorType": "DomainException",
            "errorMessage": "no such order",
            "stackTrace": ["#0 /a.php(1): f()"],
        });
        assert_eq!(said(&failed), ("error".into(), expected));

        let (end, answer) = said(&function.ask(Event::new("h-3", &json!({"do": "nothing"}))));
        assert_eq!((end.as_str(), answer), ("response", Value::Null));

        let (end, answer) = said(&function.ask(Event::new("h-4", &json!({"do": "die"}))));
        assert_eq!(
            (end.as_str(), &answer["errorType"]),
            ("error", &json!("Runtime.ExitError"))
        );

        let (end, answer) = said(&function.ask(Event::new("h-5", &json!({"do": "big"}))));
        assert_eq!(
            (end.as_str(), &answer["errorType"]),
            ("error", &json!("Function.ResponseSizeTooLarge"))
        );

        // Without an application, an HTTP event is an event like any other.
        let http = get("/");
        let (end, answer) = said(&function.ask(Event::new("h-6", &http)));
        assert_eq!((end.as_str(), &answer["event"]), ("response", &http));
    }
}

#[test]
fn application_and_handler_share_a_function() {
    let files = [
        (
            "public/index.php",
            "<?php echo 'application ', $_SERVER['SURUS_ENGINE'] ?? getenv('SURUS_ENGINE');",
        ),
        ("library.php", LIBRARY),
        ("handler.php", HANDLER),
        (
            "surus.toml",
            "[lambda]\nhandler = \"handler.php\"\nscript = \"library.php\"\n",
        ),
    ];
    let function = Function::start(&files, &[]);
    assert_eq!(function.get("b-1", "/").text(), "application classic");
    let answer = function
        .ask(Event::new("b-2", &json!({"Records": []})))
        .json();
    assert_eq!(answer["event"], json!({"Records": []}));
    assert_eq!(function.get("b-3", "/").text(), "application classic");
}

#[test]
fn event_without_a_handler_reaches_the_application() {
    let index =
        "<?php if ($_SERVER['REQUEST_URI'] !== '/events') { http_response_code(404); exit; }
        $event = json_decode(file_get_contents('php://input'), true);
        if (isset($event['bad'])) { http_response_code(422); exit('cannot be done'); }
        echo json_encode(['seen' => $event]);";
    let function = Function::start(&[("index.php", index)], &[("_HANDLER", "index.php")]);
    let answer = function.ask(Event::new("w-1", &json!({"a": 1})));
    assert_eq!(
        said(&answer),
        ("response".into(), json!({"seen": {"a": 1}}))
    );
    let (end, answer) = said(&function.ask(Event::new("w-2", &json!({"bad": 1}))));
    assert_eq!(
        (end.as_str(), &answer["errorType"]),
        ("error", &json!("Function.Error"))
    );
    let message = answer["errorMessage"].as_str().unwrap();
    assert!(
        message.contains("422") && message.contains("cannot be done"),
        "{message}"
    );
}

#[test]
fn forged_event_over_http_is_rejected_unless_configured() {
    let index = "<?php echo '\"done\"';";
    for (setting, expected) in [("false", 403), ("true", 200)] {
        let environment = [
            ("_HANDLER", "index.php"),
            ("SURUS_LAMBDA_EVENTS_OVER_HTTP", setting),
        ];
        let function = Function::start(&[("index.php", index)], &environment);
        let forged = request("POST", "//events", "{\"Records\": []}", &[]);
        let answer = function.ask(Event::new("f-1", &forged)).json();
        assert_eq!(answer["statusCode"], expected, "{answer}");
        let event = function.ask(Event::new("f-2", &json!({"Records": []})));
        assert_eq!(said(&event), ("response".into(), json!("done")));
    }
}

#[test]
fn application_without_an_events_route_gets_a_helpful_error() {
    let index = "<?php http_response_code(404);";
    let function = Function::start(
        &[("index.php", index), ("bootstrap", "#!/bin/sh")],
        &[("_HANDLER", "bootstrap")],
    );
    let (end, answer) = said(&function.ask(Event::new("u-1", &json!({"a": 1}))));
    assert_eq!(
        (end.as_str(), &answer["errorType"]),
        ("error", &json!("Runtime.HandlerNotFound"))
    );
    let message = answer["errorMessage"].as_str().unwrap();
    assert!(message.contains("lambda.handler"), "{message}");
}

#[test]
fn composer_package_passes_events_to_the_handler() {
    let handler = "<?php return function (array $event, Surus\\Lambda\\Context $context) {
        if ($event['fail'] ?? false) {
            throw new DomainException('no such order');
        }
        return [$event, $context->awsRequestId];
    };";
    for engine in ["rewind", "classic"] {
        let dir = Dir::new(&[("handler.php", handler)]);
        dir.install_package();
        let env = [("_HANDLER", "handler.php"), ("SURUS_ENGINE_NAME", engine)];
        let function = Function::begin(Api::start(), dir, &env);
        let answer = function.ask(Event::new("p-1", &json!({"a": 1})));
        assert_eq!(
            said(&answer),
            ("response".into(), json!([{"a": 1}, "p-1"])),
            "{engine}"
        );
        let failed = function.ask(Event::new("p-2", &json!({"fail": true})));
        let kind = failed.header("Lambda-Runtime-Function-Error-Type");
        assert_eq!(kind, Some("Function.DomainException"));
        let cause = failed.header("Lambda-Runtime-Function-XRay-Error-Cause");
        let cause: Value = serde_json::from_str(cause.unwrap()).unwrap();
        let first = &cause["exceptions"][0]["stack"][0];
        assert!(
            first["path"].as_str().unwrap().ends_with("/handler.php"),
            "{cause}"
        );
        assert_eq!(first["line"], 3, "{cause}");
    }
}

#[test]
fn queue_records_run_concurrently_and_a_crashing_one_is_retried() {
    let handler = "<?php return function (array $event) {
        [$record] = $event['Records'];
        touch(__DIR__.'/began-'.$record['messageId']);
        while (count(glob(__DIR__.'/began-*')) < 4) { usleep(2000); clearstatcache(); }
        if ($record['body'] === 'kill') { posix_kill(posix_getpid(), 9); }
        error_log('done '.$record['messageId'].' of '.$_SERVER['_X_AMZN_TRACE_ID']);
    };";
    let dir = Dir::new(&[("handler.php", handler)]);
    dir.install_package();
    let env = [
        ("_HANDLER", "handler.php"),
        ("SURUS_LAMBDA_BATCH", "record"),
        ("SURUS_ENGINE_WORKERS", "4"),
    ];
    let function = Function::begin(Api::start(), dir, &env);
    let records = ["fine", "kill", "fine", "fine"].iter().enumerate();
    let records = records.map(|(number, body)| {
        json!({
            "messageId": format!("m-{number}"),
            "body": body,
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:r:1:q",
            "attributes": {"AWSTraceHeader": format!("Root=m-{number}")},
        })
    });
    let event = json!({"Records": records.collect::<Vec<_>>()});
    let answer = function.ask(Event::new("b-1", &event));
    let expected = json!({"batchItemFailures": [{"itemIdentifier": "m-1"}]});
    assert_eq!(said(&answer), ("response".into(), expected));
    for number in [0, 2, 3] {
        function.wait_for_log(&format!("b-1\tINFO\tdone m-{number} of Root=m-{number}"));
    }
}

#[test]
fn unreported_failures_fail_the_event() {
    let handler = "<?php return fn (array $event) => ['batchItemFailures' => $event['failed']];";
    for (partial, end) in [("on", "response"), ("off", "error")] {
        let dir = Dir::new(&[("handler.php", handler)]);
        dir.install_package();
        let env = [
            ("_HANDLER", "handler.php"),
            ("SURUS_LAMBDA_REPORT_BATCH_ITEM_FAILURES", partial),
        ];
        let function = Function::begin(Api::start(), dir, &env);
        let failed = json!({"failed": [{"itemIdentifier": "m-1"}]});
        assert_eq!(said(&function.ask(Event::new("o-1", &failed))).0, end);
        let none = json!({"failed": []});
        assert_eq!(said(&function.ask(Event::new("o-2", &none))).0, "response");
    }
}

#[test]
fn record_gets_its_own_deadline() {
    const QUARTER: std::time::Duration = std::time::Duration::from_secs(900);
    let handler = "<?php return function (array $event, Surus\\Lambda\\Context $context) {
        $left = $context->remainingMs();
        // The clocks are read one after the other, with milliseconds.
        $is_own = $left > 0 && $left <= 300000 + 1000;
        $is_own === isset($event['Records']) || throw new RuntimeException(\"$left ms are left\");
    };";
    let dir = Dir::new(&[("handler.php", handler)]);
    dir.install_package();
    let env = [
        ("_HANDLER", "handler.php"),
        ("SURUS_LAMBDA_BATCH", "record"),
        ("SURUS_LAMBDA_RECORD_TIMEOUT", "300s"),
    ];
    let function = Function::begin(Api::start(), dir, &env);
    let record = json!({"messageId": "m-1", "body": "", "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:r:1:q", "attributes": {}});
    let answer = function.ask(Event::new("d-1", &json!({"Records": [record]})).within(QUARTER));
    let expected = json!({"batchItemFailures": []});
    assert_eq!(said(&answer), ("response".into(), expected));
    let answer = function.ask(Event::new("d-2", &json!({})).within(QUARTER));
    assert_eq!(said(&answer), ("response".into(), Value::Null));
}

#[test]
fn hanging_record_is_reported_before_the_timeout() {
    let handler = "<?php return function (array $event) {
        [$record] = $event['Records'];
        while ($record['body'] === 'hang') {}
    };";
    let dir = Dir::new(&[("handler.php", handler)]);
    dir.install_package();
    let env = [
        ("_HANDLER", "handler.php"),
        ("SURUS_LAMBDA_BATCH", "record"),
        ("SURUS_ENGINE_WORKERS", "2"),
    ];
    let function = Function::begin(Api::start(), dir, &env);
    for _ in 0..2 {
        let records = ["fine", "hang", "fine"].iter().enumerate();
        let records = records.map(|(number, body)| {
            json!({"messageId": format!("m-{number}"), "body": body, "eventSource": "aws:sqs",
                "eventSourceARN": "arn:aws:sqs:r:1:q", "attributes": {}})
        });
        let event = json!({"Records": records.collect::<Vec<_>>()});
        let expected = json!({"batchItemFailures": [{"itemIdentifier": "m-1"}]});
        let event = |id: &str| Event::new(id, &event);
        let stopped = "\tERROR\tStopped at its deadline";
        let before = function.log().matches(stopped).count();
        let answer = function.ask_in_time(event, |call| {
            function.api.until_waiting(1);
            said(call).1 == expected && function.soon_logs(stopped, before)
        });
        assert_eq!(said(&answer), ("response".into(), expected));
    }
}

/// An event with messages of a queue.
fn messages(prefix: &str, bodies: &[&str]) -> Value {
    let records = bodies.iter().enumerate().map(|(number, body)| {
        json!({"messageId": format!("{prefix}-{number}"), "body": body, "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:r:1:q", "attributes": {}})
    });
    json!({"Records": records.collect::<Vec<_>>()})
}

#[test]
fn log_line_of_a_concurrent_batch_names_event_and_record() {
    let handler = "<?php return function (array $event) {
        [$record] = $event['Records'];
        touch(__DIR__.'/began-'.$record['messageId']);
        while (count(glob(__DIR__.'/began-*')) < 4) { usleep(2000); clearstatcache(); }
        error_log('has begun '.$record['messageId']);
        match ($record['body']) {
            'kill' => posix_kill(posix_getpid(), 9),
            'throw' => throw new DomainException('no such order'),
            'fine' => null,
        };
    };";
    let dir = Dir::new(&[("handler.php", handler)]);
    dir.install_package();
    let env = [
        ("_HANDLER", "handler.php"),
        ("SURUS_LAMBDA_BATCH", "record"),
        ("SURUS_ENGINE_WORKERS", "4"),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "lambda-managed-instances"),
        ("AWS_LAMBDA_MAX_CONCURRENCY", "2"),
        ("AWS_LAMBDA_LOG_FORMAT", "JSON"),
    ];
    let function = Function::begin(Api::start(), dir, &env);
    function.api.until_waiting(2);
    for (id, prefix, bodies) in [
        ("a-1", "m", ["fine", "kill"]),
        ("a-2", "n", ["throw", "kill"]),
    ] {
        function
            .api
            .send(Event::new(id, &messages(prefix, &bodies)));
    }
    for (id, failed) in [("a-1", &["m-1"][..]), ("a-2", &["n-0", "n-1"])] {
        let failed = failed.iter().map(|id| json!({"itemIdentifier": id}));
        let expected = json!({"batchItemFailures": failed.collect::<Vec<_>>()});
        assert_eq!(
            said(&function.api.answer(id)),
            ("response".into(), expected)
        );
    }
    function.api.until_waiting(2);
    function.wait_for_log("has begun n-1");
    let log = function.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (event, record, end) in [
        ("a-1", "m-0", None),
        ("a-1", "m-1", Some("SIGKILL")),
        ("a-2", "n-0", Some("no such order")),
        ("a-2", "n-1", Some("SIGKILL")),
    ] {
        let of = |text: &str| {
            let found = lines.iter().find(|line| {
                line["record"] == record && line["message"].as_str().unwrap().contains(text)
            });
            let found = found.unwrap_or_else(|| panic!("{record} has no line {text:?}: {log}"));
            assert_eq!(found["requestId"], event, "{found}");
            found
        };
        of("has begun");
        let Some(end) = end else { continue };
        let failed = of("record failed");
        assert!(failed["error"].as_str().unwrap().contains(end), "{failed}");
        if end == "SIGKILL" {
            for line in [failed, of("worker crashed")] {
                assert!(line["exit"].as_str().unwrap().starts_with(end), "{line}");
            }
        }
    }
    for line in lines.iter().filter(|line| line["level"] != "INFO") {
        assert!(line["requestId"].is_string(), "{line}");
    }
}

#[test]
fn records_without_time_are_reported_for_their_event() {
    let handler = "<?php return function (array $event) {
        [$record] = $event['Records'];
        touch(__DIR__.'/began-'.$record['messageId']);
        while (!file_exists(__DIR__.'/gate')) { usleep(2000); clearstatcache(); }
    };";
    let dir = Dir::new(&[("handler.php", handler)]);
    dir.install_package();
    let env = [
        ("_HANDLER", "handler.php"),
        ("SURUS_LAMBDA_BATCH", "record"),
        ("SURUS_ENGINE_WORKERS", "2"),
        ("AWS_LAMBDA_MAX_CONCURRENCY", "2"),
        ("AWS_LAMBDA_LOG_FORMAT", "JSON"),
    ];
    let function = Function::begin(Api::start(), dir, &env);
    function.api.until_waiting(2);
    // One event times out while the other continues.
    let long = Event::new("t-2", &messages("n", &["wait"]));
    function
        .api
        .send(long.within(std::time::Duration::from_secs(60)));
    function.api.wait_taken();
    let short = Event::new("t-1", &messages("m", &["wait", "wait", "wait"]));
    let short = function.ask(short.within(std::time::Duration::from_secs(3)));
    assert_eq!(
        short.json()["batchItemFailures"].as_array().unwrap().len(),
        3
    );
    function.wait_for_log("sends them again");
    let log = function.log();
    let line = log.lines().find(|line| line.contains("sends them again"));
    let line: Value = serde_json::from_str(line.unwrap()).unwrap();
    assert_eq!(line["requestId"], "t-1", "{log}");
    function.dir.write("gate", "");
    let expected = json!({"batchItemFailures": []});
    assert_eq!(
        said(&function.api.answer("t-2")),
        ("response".into(), expected)
    );
}

#[test]
fn error_above_the_limit_is_shortened() {
    let handler = "<?php return function (array $event) {
        throw new DomainException('no such order '.str_repeat('x', 7 << 20));
    };";
    let dir = Dir::new(&[("handler.php", handler)]);
    dir.install_package();
    let function = Function::begin(Api::start(), dir, &[("_HANDLER", "handler.php")]);
    let failed = function.ask(Event::new("e-1", &json!({})));
    assert!(failed.path.ends_with("/error"), "{}", failed.path);
    assert!(failed.body.len() < 6 << 20, "{}", failed.body.len());
    let kind = failed.header("Lambda-Runtime-Function-Error-Type");
    assert_eq!(kind, Some("Function.DomainException"));
    let told = failed.json();
    let message = told["errorMessage"].as_str().unwrap();
    assert!(
        message.starts_with("no such order xxx"),
        "{}",
        &message[..100]
    );
    let end = &message[message.len() - 200..];
    assert!(
        end.contains("shortened") && end.contains("6291556"),
        "{end}"
    );
    assert!(!told["stackTrace"].as_array().unwrap().is_empty());
}
