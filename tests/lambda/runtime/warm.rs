//! Tests of events that only keep a function warm.

use serde_json::{Value, json};

use super::api::{Api, Call, Event};
use super::function::{Dir, Function};

/// The events of an EventBridge rule and of a Scheduler schedule without input.
fn schedules(detail: &Value) -> [Value; 2] {
    let event = |source: &str, detail: Value| {
        json!({"version": "0", "id": "53dc4d37", "detail-type": "Scheduled Event", "source": source,
            "account": "123456789012", "time": "2026-11-26T00:00:00Z", "region": "eu-central-1",
            "resources": ["arn:aws:events:eu-central-1:123456789012:rule/warm"], "detail": detail})
    };
    let text = Value::from(detail.to_string());
    [
        event("aws.events", detail.clone()),
        event("aws.scheduler", text),
    ]
}

fn answer(call: &Call) -> Value {
    assert!(
        call.path.ends_with("/response"),
        "{}: {}",
        call.path,
        call.json()
    );
    call.json()
}

/// A function with the library and this code as its handler.
fn handler(code: &str) -> Function {
    let dir = Dir::new(&[("handler.php", code)]);
    dir.install_package();
    let script = "vendor/surus/surus/lambda/events.php";
    let env = [("_HANDLER", "handler.php"), ("SURUS_LAMBDA_SCRIPT", script)];
    let function = Function::begin(Api::start(), dir, &env);
    function.api.until_waiting(1);
    function
}

#[test]
fn warmer_event_is_answered_without_php() {
    let code =
        "<?php file_put_contents(__DIR__.'/asked', 'x', FILE_APPEND); http_response_code(500);";
    let application = Function::start(&[("index.php", code)], &[]);
    let refusing = handler("<?php return fn (Surus\\Lambda\\Event\\Sqs $event) => null;");
    for function in [&application, &refusing] {
        for event in [
            json!({"warmer": true}),
            json!({"source": "serverless-plugin-warmup"}),
        ] {
            let call = function.ask(Event::new("w", &event));
            assert_eq!(answer(&call), json!({"warm": true}), "{event}");
        }
    }
    assert!(!application.dir.path("asked").exists());
    // With further fields, it is the application's event.
    for event in [
        json!({"warmer": true, "order": 7}),
        json!({"warmer": false}),
    ] {
        let call = application.ask(Event::new("o", &event));
        assert!(call.path.ends_with("/error"), "{event}");
    }
    assert!(application.dir.path("asked").exists());
}

#[test]
fn schedule_without_input_is_answered_if_no_code_accepts_it() {
    for status in [404, 405] {
        let code = format!("<?php http_response_code({status}); echo 'no such page';");
        let function = Function::start(&[("index.php", &code)], &[]);
        for event in schedules(&json!({})) {
            let call = function.ask(Event::new("s", &event));
            assert_eq!(answer(&call), json!({"warm": true}));
        }
        function.wait_for_log("a schedule without input kept the function warm");
        for event in schedules(&json!({"report": "daily"})) {
            let call = function.ask(Event::new("i", &event));
            assert_eq!(call.json()["errorType"], "Runtime.HandlerNotFound");
        }
    }
    let console = handler(
        "<?php require '/usr/share/php/Symfony/Component/Console/autoload.php';
        return new Symfony\\Component\\Console\\Application();",
    );
    for event in schedules(&json!({})) {
        assert_eq!(
            answer(&console.ask(Event::new("c", &event))),
            json!({"warm": true})
        );
    }
    console.wait_for_log("names no command");
    let call = console.ask(Event::new("d", &schedules(&json!({"a": 1}))[0]));
    assert!(call.path.ends_with("/error"));
}

#[test]
fn warmer_event_with_further_fields_is_answered_if_no_code_accepts_it() {
    let application = Function::start(
        &[(
            "index.php",
            "<?php http_response_code(404); echo 'no such page';",
        )],
        &[],
    );
    let event = json!({"warmer": true, "concurrency": 3});
    let call = application.ask(Event::new("w", &event));
    assert_eq!(answer(&call), json!({"warm": true}));
    for event in [
        json!({"warmer": "true", "concurrency": 3}),
        json!([true]),
        json!({"order": 7}),
    ] {
        let call = application.ask(Event::new("o", &event));
        assert_eq!(call.json()["errorType"], "Runtime.HandlerNotFound");
    }
    // Code that accepts it gets it.
    let callable = handler("<?php return fn (array $event) => $event['concurrency'];");
    assert_eq!(answer(&callable.ask(Event::new("c", &event))), json!(3));
}

#[test]
fn schedule_without_input_reaches_code_that_accepts_it() {
    let code = "<?php echo json_encode(json_decode(file_get_contents('php://input'))->source);";
    let application = Function::start(&[("index.php", code)], &[]);
    let callable = handler("<?php return fn (array $event) => $event['source'];");
    for function in [application, callable] {
        for event in schedules(&json!({})) {
            let call = function.ask(Event::new("s", &event));
            assert_eq!(answer(&call), event["source"]);
        }
    }
    // A failure of the code remains a failure.
    let failing = Function::start(&[("index.php", "<?php http_response_code(500);")], &[]);
    let call = failing.ask(Event::new("f", &schedules(&json!({}))[0]));
    assert!(call.path.ends_with("/error"));
}
