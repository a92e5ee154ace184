//! Events of AWS Lambda that are not HTTP: from `POST /events` to a handler in PHP and back, on
//! engines that boot a script and on `classic`.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::site::{BOOTING, Site, example, installed};
use crate::common::php::{cli, is_since};
use crate::common::{Surus, tree};

const CONTEXT: &str = r#"{
    "awsRequestId": "6f0e",
    "deadlineMs": 4102444800000,
    "invokedFunctionArn": "arn:aws:lambda:f",
    "traceId": "Root=1",
    "clientContext": {"custom": {"a": "b"}},
    "identity": null,
    "tenantId": "blue"
}"#;

/// Adds the script for such events, and the index that runs it on `classic`.
pub fn with_events(site: Site) -> Site {
    tree::copy_library(&site.www().join("surus"));
    site.write(
        "index.php",
        "<?php require __DIR__.'/surus/lambda/events.php';",
    )
}

/// Serves the site on an engine.
pub fn serve(site: &Site, engine: &str, handler: &str, env: &[(&str, &str)]) -> Surus {
    let script = site.www().join("surus/lambda/events.php");
    let handler = site.www().join(handler);
    let handler = ("SURUS_ENV_SURUS_HANDLER", handler.to_str().unwrap());
    let context = ("SURUS_ENV_LAMBDA_INVOCATION_CONTEXT", CONTEXT);
    let mut args = vec!["--engine", engine, "--workers", "1"];
    if engine != "classic" {
        args.extend(["--script", script.to_str().unwrap()]);
    }
    site.serve_with(&args, &[&[handler, context], env].concat())
}

/// `classic`, and the engines that boot a script.
pub fn engines() -> impl Iterator<Item = &'static str> {
    std::iter::once("classic").chain(BOOTING)
}

#[track_caller]
pub fn invoke(surus: &Surus, event: &Value) -> Answer {
    let json = [("content-type", "application/json")];
    Client::new(&surus.url).post_as("/events", &json, event.to_string().into_bytes())
}

/// The error type and the error object that Lambda would get.
#[track_caller]
fn error(surus: &Surus, event: &Value) -> (String, Value) {
    let answer = invoke(surus, event).status(500);
    let name = answer
        .header("lambda-runtime-function-error-type")
        .to_string();
    let body = answer.json();
    assert!(body["stackTrace"].is_array(), "{body}");
    (name, body)
}

const HANDLER: &str = r#"<?php
namespace App {
    if (!class_exists(NoSuchOrder::class)) {
        final class NoSuchOrder extends \Exception {}
    }
}
namespace {
    echo "loads\n";
    // As frameworks do after a fatal error.
    register_shutdown_function(static function () {
        if (E_ERROR === (error_get_last()['type'] ?? 0)) {
            echo '<p>the page of a framework';
            fastcgi_finish_request();
        }
    });
    $clean = static function () {
        while (ob_get_level()) {
            ob_end_clean();
        }
    };
    return function (mixed $event, Surus\Lambda\Context $context) use ($clean): mixed {
        echo 'never part', " of the answer\n<", $event['text'] ?? '';
        return match ($event['do'] ?? null) {
            'context' => get_object_vars($context),
            'throw' => throw new App\NoSuchOrder('no order 7'),
            'exit' => exit(3),
            'fatal' => str_repeat('x', 1 << 40),
            'binary' => "\xff",
            'buffers' => [ob_start(), print('left open'), 'done'][2],
            'clean' => [$clean(), print('spoilt'), 1][2],
            'finish' => fastcgi_finish_request(),
            'flush' => [flush(), print("flushed\n"), flush(), ob_flush(), ob_clean(), 1][5],
            default => $event,
        };
    };
}
"#;

#[test]
fn event_is_answered_by_its_handler_on_every_engine() {
    let site = with_events(Site::new()).write("handler.php", HANDLER);
    for engine in engines() {
        let surus = serve(&site, engine, "handler.php", &[]);
        // Twice, because the first event must leave nothing behind.
        for _ in 0..2 {
            for event in [
                json!({ "a": [1, 1.0, 0.1, "é/\u{1f418}", null, true] }),
                json!("text"),
                json!(7),
                Value::Null,
                json!([]),
                json!({ "large": "x".repeat(300_000) }),
            ] {
                let answer = invoke(&surus, &event).ok();
                assert_eq!(answer.header("content-type"), "application/json");
                assert_eq!(answer.json(), event, "{engine}");
            }
            assert_eq!(
                invoke(&surus, &json!({ "f": 1.0, "path": "a/ä" })).text(),
                r#"{"f":1.0,"path":"a/ä"}"#
            );
            assert_eq!(
                invoke(&surus, &json!({ "do": "buffers" })).ok().text(),
                r#""done""#
            );
            let mut all_spoil = vec!["clean", "finish"];
            // Since PHP 8.4 flush() sends the headers, and the result comes too late.
            match is_since(Some("8.4")) {
                true => all_spoil.push("flush"),
                false => assert_eq!(invoke(&surus, &json!({ "do": "flush" })).ok().text(), "1"),
            }
            for spoils in all_spoil {
                let spoilt = invoke(&surus, &json!({ "do": spoils })).status(500);
                let name = spoilt.header("lambda-runtime-function-error-type");
                assert_eq!(name, "Function.OutputSent", "{engine} {spoils}");
            }
            let mut context: Value = serde_json::from_str(CONTEXT).unwrap();
            // Surus's own field: how long the machine was frozen.
            context["thawed"] = Value::Null;
            assert_eq!(
                invoke(&surus, &json!({ "do": "context" })).ok().json(),
                context
            );

            let (name, body) = error(&surus, &json!({ "do": "throw" }));
            assert_eq!(name, "Function.NoSuchOrder");
            assert_eq!(body["errorType"], "App\\NoSuchOrder");
            assert_eq!(body["errorMessage"], "no order 7");
            assert!(
                body["stackTrace"][0]
                    .as_str()
                    .unwrap()
                    .contains("handler.php:"),
                "{body}"
            );
            let (name, body) = error(&surus, &json!({ "do": "exit" }));
            assert_eq!(
                (name.as_str(), &body["errorType"]),
                ("Function.Exit", &json!("Exit"))
            );
            let (name, body) = error(&surus, &json!({ "do": "fatal" }));
            assert_eq!(name, "Function.FatalError");
            assert!(
                body["errorMessage"]
                    .as_str()
                    .unwrap()
                    .contains("Allowed memory size"),
                "{body}"
            );
            let (name, body) = error(&surus, &json!({ "do": "binary" }));
            assert_eq!(name, "Function.UnexpectedValueException");
            assert!(
                body["errorMessage"]
                    .as_str()
                    .unwrap()
                    .contains("result of the handler (string) as JSON"),
                "{body}"
            );
        }
        invoke(&surus, &json!({ "text": "the last line" })).ok();
        surus.wait_for_log(|log| {
            let printed = [
                "loads",
                "never part of the answer",
                "<the last line",
                "left open",
                "App\\NoSuchOrder: no order 7",
            ];
            printed.iter().all(|line| log.contains(line))
        });
    }
}

#[test]
fn missing_handler_is_named_with_its_path() {
    let site = with_events(Site::new()).write("nothing.php", "<?php");
    for (handler, says) in [
        ("missing.php", "does not exist"),
        ("nothing.php", "returned nothing"),
    ] {
        let classic = serve(&site, "classic", handler, &[]);
        let (_, body) = error(&classic, &json!({}));
        let message = body["errorMessage"].as_str().unwrap();
        assert!(
            message.contains(handler) && message.contains(says),
            "{message}"
        );
    }
    let script = site.www().join("surus/lambda/events.php");
    let args = ["--engine", "worker", "--script", script.to_str().unwrap()];
    let handler = site.www().join("missing.php");
    let env = [("SURUS_ENV_SURUS_HANDLER", handler.to_str().unwrap())];
    let Err(log) = Surus::spawn(&site.www(), &args, &env) else {
        panic!("started without its handler");
    };
    assert!(log.contains("missing.php does not exist"), "{log}");
}

#[test]
fn classes_of_the_application_above_the_handler_are_loaded() {
    let site = with_events(Site::new())
        .write(
            "app/vendor/autoload.php",
            "<?php
            spl_autoload_register(static function ($class) {
                'App\\Greeter' === $class && require __DIR__.'/../Greeter.php';
            });",
        )
        .write(
            "app/Greeter.php",
            r#"<?php
            namespace App;
            final class Greeter {
                public function handle(mixed $event, $context): string {
                    return "Hello, $event!";
                }
            }"#,
        )
        .write("app/handlers/greet.php", "<?php return new App\\Greeter();");
    for engine in ["classic", "worker", "rewind"] {
        let surus = serve(&site, engine, "app/handlers/greet.php", &[]);
        assert_eq!(invoke(&surus, &json!("Gisgo")).ok().json(), "Hello, Gisgo!");
    }
}

#[test]
fn console_runs_one_command_per_event() {
    let script = r#"#!/usr/bin/env php
<?php
echo implode(' ', array_slice($argv, 1)), "\n";
exit((int) ($argv[2] ?? 0));"#;
    let application = "<?php
        require '/usr/share/php/Symfony/Component/Console/autoload.php';
        $app = new Symfony\\Component\\Console\\Application();
        $app->register('greet')->addArgument('code')->setCode(function ($input, $output) {
            $code = $input->getArgument('code');
            $output->writeln('greet '.$code);
            return (int) $code;
        });
        return $app;";
    installed(
        "/usr/share/php/Symfony/Component/Console/autoload.php",
        "php-symfony-console",
    );
    let site = with_events(Site::new())
        .write("console", script)
        .write("app.php", application);
    for engine in ["classic", "worker", "rewind"] {
        for handler in ["console", "app.php"] {
            let surus = serve(&site, engine, handler, &[("SURUS_ENV_PHP_BINARY", &cli())]);
            for event in [json!("greet 0"), json!({ "command": "greet 0" })] {
                let answer = invoke(&surus, &event).ok().json();
                assert_eq!(
                    answer,
                    json!({ "exitCode": 0, "output": "greet 0\n" }),
                    "{engine} {handler}"
                );
            }
            let (name, body) = error(&surus, &json!("greet 4"));
            assert_eq!(name, "Function.CommandFailed");
            assert_eq!(
                (&body["exitCode"], &body["output"]),
                (&json!(4), &json!("greet 4\n"))
            );
            surus.wait_for_log(|log| log.contains("greet 4"));
        }
    }
}

#[test]
fn psr_15_handler_gets_the_event_as_a_request() {
    let handler = r#"<?php
    namespace Psr\Http\Server {
        use Psr\Http\Message\{ResponseInterface, ServerRequestInterface};
        interface RequestHandlerInterface {
            public function handle(ServerRequestInterface $request): ResponseInterface;
        }
    }
    namespace {
        use Psr\Http\Message\{ResponseInterface, ServerRequestInterface};
        require '/usr/share/php/Slim/Psr7/autoload.php';
        return new class implements Psr\Http\Server\RequestHandlerInterface {
            public function handle(ServerRequestInterface $request): ResponseInterface {
                $response = (new Slim\Psr7\Factory\ResponseFactory())->createResponse();
                $response->getBody()->write(json_encode([
                    $request->getMethod(),
                    $request->getUri()->getPath(),
                    json_decode($request->getBody()),
                ]));
                return $response;
            }
        };
    }"#;
    installed("/usr/share/php/Slim/Psr7/autoload.php", "php-slim-psr7");
    let site = with_events(Site::new()).write("handler.php", handler);
    for engine in ["classic", "worker"] {
        let surus = serve(&site, engine, "handler.php", &[]);
        let answer = invoke(&surus, &json!({ "n": 1 })).ok();
        assert_eq!(answer.json(), json!(["POST", "/events", { "n": 1 }]));
    }
}

/// `examples/queue`: one of its two messages has no name.
#[test]
fn queue_example_reports_the_failed_message() {
    let site = with_events(Site::new()).copy(&example("queue").join("handler.php"), "handler.php");
    let event = std::fs::read(example("queue").join("event.json")).unwrap();
    let event: Value = serde_json::from_slice(&event).unwrap();
    for engine in engines() {
        let surus = serve(&site, engine, "handler.php", &[]);
        let failed = &event["Records"][1]["messageId"];
        let failed = json!({ "batchItemFailures": [{ "itemIdentifier": failed }] });
        assert_eq!(invoke(&surus, &event).ok().json(), failed);
        // As if each were its own call.
        let one = |number: usize| json!({ "Records": [event["Records"][number]] });
        assert_eq!(invoke(&surus, &one(0)).ok().json(), Value::Null);
        let (name, body) = error(&surus, &one(1));
        assert_eq!(name, "Function.InvalidArgumentException");
        assert!(
            body["errorMessage"]
                .as_str()
                .unwrap()
                .ends_with("has no name")
        );
        surus.wait_for_log(|log| log.contains("Hello, Hannibal!"));
    }
}

#[test]
fn package_passes_its_own_tests() {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("php/tests/run.php");
    let output = Command::new(cli()).arg(run).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
