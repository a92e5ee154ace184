//! Tests of a PSR-15 handler: HTTP events reach it as requests, through the Composer package's
//! library.

use serde_json::{Value, json};

use super::api::{Api, Event};
use super::function::{Dir, Function, request};

/// Debian packages PSR-7 messages, but not the PSR-15 interface.
const HANDLER: &str = r#"<?php
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
            $path = $request->getUri()->getPath();
            if ('/throw' === $path) {
                throw new DomainException('no such page');
            }
            if ('/exit' === $path) {
                exit;
            }
            $server = $request->getServerParams();
            $response = (new Slim\Psr7\Factory\ResponseFactory())->createResponse(201)
                ->withHeader('Content-Type', 'application/json')
                ->withAddedHeader('Set-Cookie', 'a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT')
                ->withAddedHeader('Set-Cookie', 'b=2')
                ->withAddedHeader('Vary', 'Accept')->withAddedHeader('Vary', 'Cookie');
            echo "printed\n";
            $moved = function ($file) {
                // Only uploaded files can be moved.
                $file->moveTo($to = tempnam(sys_get_temp_dir(), 'moved'));
                try {
                    return file_get_contents($to);
                } finally {
                    unlink($to);
                }
            };
            $about = fn ($file) => [$file->getClientFilename(), $file->getSize(), $moved($file)];
            $files = array_map($about, $request->getUploadedFiles());
            $response->getBody()->write('/bytes' === $path ? "\xff\x00" : json_encode([
                $request->getMethod(),
                $path,
                $request->getQueryParams(),
                $request->getParsedBody() ?? (string) $request->getBody(),
                $request->getHeaderLine('X-Own'),
                $request->getUri()->getHost(),
                $server['SCRIPT_NAME'],
                $server['REMOTE_ADDR'],
                isset($server['LAMBDA_REQUEST_CONTEXT']),
                $files,
            ]));
            return $response;
        }
    };
}
"#;

fn function(engine: &str, files: &[(&str, &str)], env: &[(&str, &str)]) -> Function {
    assert!(
        std::path::Path::new("/usr/share/php/Slim/Psr7/autoload.php").exists(),
        "apt-get install php-slim-psr7"
    );
    let dir = Dir::new(files);
    dir.install_package();
    let own = [("_HANDLER", "handler.php"), ("SURUS_ENGINE_NAME", engine)];
    let function = Function::begin(Api::start(), dir, &[&own[..], env].concat());
    function.api.until_waiting(1);
    function
}

#[test]
fn psr15_handler_gets_requests_and_returns_responses() {
    for engine in ["classic", "worker", "fork", "rewind"] {
        let function = function(engine, &[("handler.php", HANDLER)], &[]);
        // Twice, because the first event tells what the handler takes.
        for round in 0..2 {
            let id = |number: usize| format!("p-{round}-{number}");
            let own = [("content-type", "text/plain"), ("x-own", "mine")];
            let event = request("PUT", "/a%20path?a[]=1&a[]=2", "body", &own);
            let answer = function.ask(Event::new(&id(0), &event)).json();
            let seen = json!([
                "PUT",
                "/a%20path",
                {"a": ["1", "2"]},
                "body",
                "mine",
                "f.lambda-url.eu-central-1.on.aws",
                "/index.php",
                "192.0.2.7",
                true,
                [],
            ]);
            assert_eq!(answer["statusCode"], 201, "{engine} {answer}");
            let body: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
            assert_eq!(body, seen, "{engine}");
            assert_eq!(answer["headers"]["content-type"], "application/json");
            assert_eq!(answer["headers"]["vary"], "Accept, Cookie");
            let cookies = json!(["a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "b=2"]);
            assert_eq!(answer["cookies"], cookies);

            let form = [("content-type", "application/x-www-form-urlencoded")];
            let event = request("POST", "/form", "x=1&y[z]=%C3%A9", &form);
            let answer = function.ask(Event::new(&id(1), &event)).json();
            let body: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
            assert_eq!(body[3], json!({"x": "1", "y": {"z": "é"}}));

            let upload = [("content-type", "multipart/form-data; boundary=B")];
            let parts = "--B\r\n\
                Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\nhello\r\n\
                --B\r\nContent-Disposition: form-data; name=\"x[y]\"\r\n\r\n\u{e9}\r\n--B--\r\n";
            for (number, method) in [(2, "POST"), (5, "PUT"), (6, "PATCH")] {
                let event = request(method, "/upload", parts, &upload);
                let answer = function.ask(Event::new(&id(number), &event)).json();
                let body: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
                let seen = json!([{"x": {"y": "\u{e9}"}}, {"f": ["a.txt", 5, "hello"]}]);
                assert_eq!(json!([body[3], body[9]]), seen, "{engine} {method}");
            }
            let event = request("PATCH", "/form", "x=1&y[z]=%C3%A9", &form);
            let answer = function.ask(Event::new(&id(7), &event)).json();
            let body: Value = serde_json::from_str(answer["body"].as_str().unwrap()).unwrap();
            assert_eq!(body[3], json!({"x": "1", "y": {"z": "é"}}));

            let answer = function.ask(Event::new(&id(3), &request("GET", "/bytes", "", &[])));
            assert_eq!(answer.json()["isBase64Encoded"], true);
            assert_eq!(answer.json()["body"], "/wA=");
            let answer = function.ask(Event::new(&id(4), &request("HEAD", "/", "", &[])));
            assert_eq!(answer.json()["statusCode"], 201);
            assert_eq!(answer.json()["body"], "");
        }
        function.wait_for_log("printed");
    }
}

#[test]
fn psr15_exception_is_the_functions_error() {
    for engine in ["classic", "rewind"] {
        let function = function(engine, &[("handler.php", HANDLER)], &[]);
        for round in 0..2 {
            let event = request("GET", "/throw", "", &[]);
            let failed = function.ask(Event::new(&format!("t-{round}"), &event));
            assert!(failed.path.ends_with("/error"), "{engine}");
            assert_eq!(
                failed.header("Lambda-Runtime-Function-Error-Type"),
                Some("Function.DomainException")
            );
            assert_eq!(failed.json()["errorMessage"], "no such page");
            let event = request("GET", "/exit", "", &[]);
            let failed = function.ask(Event::new(&format!("x-{round}"), &event));
            let kind = failed.header("Lambda-Runtime-Function-Error-Type");
            assert_eq!(kind, Some("Function.Exit"), "{engine}");
        }
    }
}

#[test]
fn psr15_handler_gets_other_events_as_post_events() {
    let function = function("rewind", &[("handler.php", HANDLER)], &[]);
    let request_of = |id: &str, event: &Value| {
        let answer = function.ask(Event::new(id, event)).json();
        match answer["body"].as_str() {
            Some(body) => serde_json::from_str(body).unwrap(),
            None => answer,
        }
    };
    let event = json!({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}});
    for id in ["e-1", "e-2"] {
        let seen = request_of(id, &event);
        assert_eq!(
            (&seen[0], &seen[1], &seen[6]),
            (&json!("POST"), &json!("/events"), &json!("/events"))
        );
        // The path of an event.
        let forged = request("POST", "/index.php/events", "{}", &[]);
        let refused = function.ask(Event::new(&format!("{id}-r"), &forged)).json();
        assert_eq!(refused["statusCode"], 403, "{refused}");
    }
    // As in the HTTP front end.
    let event = request("GET", "/", "", &[("host", "a b")]);
    let refused = function.ask(Event::new("h", &event)).json();
    assert_eq!(refused["statusCode"], 400, "{refused}");
}

#[test]
fn psr15_handler_serves_snapshot_urls() {
    let note =
        "file_put_contents(__DIR__.'/hooks', $request->getMethod().' '.$path.' ', FILE_APPEND);";
    let code = HANDLER.replace("$server = ", &format!("{note} $server = "));
    let dir = Dir::new(&[("handler.php", &code)]);
    dir.install_package();
    let env = [
        ("_HANDLER", "handler.php"),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"),
        ("SURUS_LAMBDA_BEFORE_SNAPSHOT", "/warm"),
        ("SURUS_LAMBDA_AFTER_RESTORE", "/again"),
    ];
    let function = Function::begin(Api::start(), dir, &env);
    function.api.take("/runtime/restore/next");
    assert_eq!(function.dir.read("hooks"), "GET /warm ");
    function.api.restore();
    function.api.until_waiting(1);
    assert_eq!(function.dir.read("hooks"), "GET /warm GET /again ");
}

#[test]
fn plain_handler_gets_http_events_unchanged() {
    let handler = "<?php return fn (array $event) => $event;";
    let function = function("rewind", &[("handler.php", handler)], &[]);
    for id in ["o-1", "o-2"] {
        let event = request("GET", "/a?b=1", "", &[]);
        assert_eq!(function.ask(Event::new(id, &event)).json(), event);
    }
}
