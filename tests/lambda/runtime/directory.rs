//! Tests that events begin in the application's directory, and that their output is logged.

use serde_json::json;

use super::api::{Api, Event};
use super::function::{Dir, Function};

const HANDLER: &str = r#"<?php
$loaded = getcwd();
return static function () use ($loaded) {
    $began = getcwd();
    chdir('/');
    fwrite(STDERR, "said to STDERR\n");
    fwrite(STDOUT, "said to STDOUT\n");
    return [$loaded, $began, stream_get_contents(STDIN)];
};
"#;

fn function(engine: &str, handler: &str) -> Function {
    let dir = Dir::new(&[("src/handler.php", handler)]);
    dir.install_package();
    let env = [
        ("_HANDLER", "src/handler.php"),
        (
            "SURUS_LAMBDA_SCRIPT",
            "vendor/surus/surus/lambda/events.php",
        ),
        ("SURUS_ENGINE_NAME", engine),
    ];
    let function = Function::begin(Api::start(), dir, &env);
    function.api.until_waiting(1);
    function
}

#[test]
fn events_begin_in_the_applications_directory_with_streams_of_their_own() {
    for engine in ["classic", "worker", "rewind", "cgi", "fpm"] {
        let function = function(engine, HANDLER);
        let root = function.dir.path("").canonicalize().unwrap();
        for id in ["d-1", "d-2"] {
            let call = function.ask(Event::new(id, &json!({})));
            assert!(call.path.ends_with("/response"), "{}", call.json());
            assert_eq!(call.json(), json!([root, root, ""]), "{engine}");
        }
        function.wait_for_log("said to STDERR");
        function.wait_for_log("said to STDOUT");
    }
}

const LEAVES: &str = r#"<?php
return static function (array $event): string {
    register_shutdown_function(static function () use ($event): void {
        echo "printed after {$event['end']}\nwithout a line break after {$event['end']}";
    });
    if ('memory' === $event['end']) {
        str_repeat('x', 1 << 40);
    }
    if ('exit' === $event['end']) {
        exit;
    }
    return 'done';
};
"#;

#[test]
fn output_of_shutdown_functions_is_no_part_of_the_answer_and_logged_unless_php_has_failed() {
    for engine in ["classic", "worker", "rewind", "cgi"] {
        let function = function(engine, LEAVES);
        for (end, kind) in [("memory", "FatalError"), ("exit", "Exit")] {
            let call = function.ask(Event::new(end, &json!({ "end": end })));
            assert_eq!(call.json()["errorType"], kind, "{engine}");
        }
        let call = function.ask(Event::new("return", &json!({"end": "return"})));
        assert_eq!(call.json(), json!("done"), "{engine}");
        for end in ["exit", "return"] {
            function.wait_for_log(&format!("printed after {end}"));
            function.wait_for_log(&format!("without a line break after {end}"));
        }
    }
}
