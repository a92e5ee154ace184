//! Tests of HTTP events with a real PHP.

use serde_json::{Value, json};

use super::api::Event;
use super::function::{Dir, Function, request};
use crate::common::Surus;

const INDEX: &str = "<?php
    header('X-From: index');
    setcookie('a', '1');
    setcookie('b', '2');
    echo json_encode([
        $_SERVER['REQUEST_METHOD'],
        $_SERVER['REQUEST_URI'],
        $_GET,
        $_POST,
        file_get_contents('php://input'),
    ]);";

#[test]
fn http_event_gets_the_response_of_serve() {
    let files = [
        ("public/index.php", INDEX),
        ("public/style.css", "body { color: red }"),
        ("public/dir/index.html", "<p>dir"),
        (
            "public/sub/page.php",
            "<?php echo 'page', $_SERVER['PATH_INFO'] ?? '';",
        ),
        (
            "public/status.php",
            "<?php http_response_code(418); header('X-Sendfile-Type: x'); echo 'teapot';",
        ),
        (
            "surus.toml",
            "[[route]]\nprefix = \"/denied\"\ndeny = true\n",
        ),
    ];
    let function = Function::start(&files, &[]);
    let dir = Dir::new(&files);
    let surus = Surus::serve(&dir.path(""), &[]);
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .build()
        .new_agent();
    for (number, (method, url, body)) in [
        ("GET", "/", ""),
        ("GET", "/any/path?a=1&a=2&b[]=%20x&c", ""),
        ("POST", "/form", "a=1&b=2"),
        ("GET", "/style.css", ""),
        ("HEAD", "/style.css", ""),
        ("GET", "/dir", ""),
        ("GET", "/dir/", ""),
        ("GET", "/sub/page.php/in/fo", ""),
        ("GET", "/status.php", ""),
        ("GET", "/denied/x", ""),
        ("GET", "/.env", ""),
        ("GET", "/a%2e%2e/x", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let headers = if body.is_empty() {
            &[][..]
        } else {
            &[form][..]
        };
        let id = format!("r-{number}");
        let event = request(method, url, body, headers);
        let ours = function.ask(Event::new(&id, &event)).json();

        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{url}", surus.url));
        let mut theirs = match body {
            "" => agent.run(request.body(()).unwrap()),
            body => agent.run(
                request
                    .header(form.0, form.1)
                    .body(body.to_string())
                    .unwrap(),
            ),
        }
        .unwrap();
        let what = format!("{method} {url}: {ours}");
        assert_eq!(ours["statusCode"], theirs.status().as_u16(), "{what}");
        let text = theirs.body_mut().read_to_string().unwrap();
        assert_eq!(ours["body"], text, "{what}");
        for name in [
            "content-type",
            "x-from",
            "location",
            "etag",
            "last-modified",
            "allow",
            "vary",
        ] {
            let theirs = theirs
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap());
            // The two servers have files of equal content but different times.
            if !["etag", "last-modified"].contains(&name) {
                assert_eq!(ours["headers"][name].as_str(), theirs, "{name} of {what}");
            } else {
                assert_eq!(ours["headers"][name].is_null(), theirs.is_none(), "{what}");
            }
        }
        let cookies = theirs.headers().get_all("set-cookie").iter();
        let theirs: Vec<_> = cookies.map(|cookie| cookie.to_str().unwrap()).collect();
        let none = Vec::new();
        let ours = ours["cookies"].as_array().unwrap_or(&none);
        assert_eq!(
            ours.iter().map(|c| c.as_str().unwrap()).collect::<Vec<_>>(),
            theirs
        );
    }
}

#[test]
fn private_and_denied_files_are_not_sent() {
    let function = Function::start(
        &[
            ("index.php", "<?php echo 'front';"),
            ("page.txt", "page"),
            ("function.zip", "zip"),
            ("composer.lock", "{}"),
            ("vendor/autoload.php", "<?php echo 'library';"),
            ("denied/.htaccess", "Require all denied\n"),
            ("denied/page.txt", "secret"),
        ],
        &[],
    );
    for (path, status) in [
        ("/page.txt", 200),
        ("/function.zip", 404),
        ("/composer.lock", 404),
        ("/vendor/autoload.php", 404),
        ("/denied/page.txt", 403),
    ] {
        let answer = function.get(&path.replace('/', "-"), path).json();
        assert_eq!(answer["statusCode"], status, "{path}: {answer}");
    }
}

#[test]
fn event_metadata_reaches_php_for_its_event_only() {
    let code = "<?php echo json_encode([
        'context' => json_decode($_SERVER['LAMBDA_INVOCATION_CONTEXT']),
        'request' => json_decode($_SERVER['LAMBDA_REQUEST_CONTEXT'])->domainName,
        'trace' => $_SERVER['_X_AMZN_TRACE_ID'] ?? null,
        'thawed' => $_SERVER['SURUS_THAWED'] ?? null,
        'client' => $_SERVER['REMOTE_ADDR'],
        'https' => $_SERVER['HTTPS'] ?? null,
        'host' => $_SERVER['HTTP_HOST'],
        'env' => getenv('STAGE'),
    ]);";
    let function = Function::start(&[("index.php", code)], &[("STAGE", "test")]);
    let full = Event::new("a-1", &request("GET", "/", "", &[]))
        .with("Lambda-Runtime-Client-Context", r#"{"custom":{"k":"v"}}"#)
        .with(
            "Lambda-Runtime-Cognito-Identity",
            r#"{"cognitoIdentityId":"i"}"#,
        )
        .with("Lambda-Runtime-Aws-Tenant-Id", "tenant")
        .with("Lambda-Runtime-Deadline-Ms", "4102444800000");
    let said: Value = serde_json::from_str(&function.ask(full).text()).unwrap();
    assert_eq!(
        said,
        json!({
            "context": {
                "awsRequestId": "a-1",
                "deadlineMs": 4102444800000u64,
                "invokedFunctionArn": "arn:aws:lambda:eu-central-1:1:function:f",
                "traceId": "Root=1-a-1",
                "clientContext": {"custom": {"k": "v"}},
                "identity": {"cognitoIdentityId": "i"},
                "tenantId": "tenant",
            },
            "request": "f.lambda-url.eu-central-1.on.aws",
            "trace": "Root=1-a-1",
            "thawed": null,
            "client": "192.0.2.7",
            "https": "on",
            "host": "f.lambda-url.eu-central-1.on.aws",
            "env": "test",
        })
    );
    // Some environments send empty headers.
    let bare = Event::new("a-2", &request("GET", "/", "", &[]))
        .with("Lambda-Runtime-Trace-Id", "")
        .with("Lambda-Runtime-Client-Context", "")
        .with("Lambda-Runtime-Cognito-Identity", "")
        .with("Lambda-Runtime-Aws-Tenant-Id", "");
    let said: Value = serde_json::from_str(&function.ask(bare).text()).unwrap();
    assert_eq!(said["trace"], Value::Null);
    let context = said["context"].as_object().unwrap();
    assert_eq!(context.len(), 4, "{context:?}");
}

#[test]
fn bodies_of_any_size_arrive_complete() {
    let code =
        "<?php $in = file_get_contents('php://input'); echo strlen($in), ' ', md5($in), ' ', $in;";
    let function = Function::start(&[("index.php", code)], &[]);
    for (number, size) in [0, 1, 70_000, 1_000_000, 3_000_000].into_iter().enumerate() {
        let body = "x".repeat(size);
        let event = request("POST", "/", &body, &[("content-type", "text/plain")]);
        let answer = function
            .ask(Event::new(&format!("b-{number}"), &event))
            .text();
        assert!(answer.starts_with(&format!("{size} ")), "{}", &answer[..50]);
        assert!(answer.ends_with(&body));
    }
}

#[test]
fn every_engine_serves_a_function() {
    let serve = "switch ($_GET['do'] ?? '') {
        case 'die':
            posix_kill(posix_getpid(), 9);
        case 'stay':
            echo 'answer';
            if (function_exists('fastcgi_finish_request')) {
                fastcgi_finish_request();
            }
            $engine = $_SERVER['SURUS_ENGINE'] ?? getenv('SURUS_ENGINE');
            file_put_contents(__DIR__.'/stayed', $engine);
            break;
        default:
            echo json_decode($_SERVER['LAMBDA_INVOCATION_CONTEXT'])->awsRequestId, ' ';
            echo getenv('STAGE'), ' ', getenv('_X_AMZN_TRACE_ID');
    }";
    let entries = surus::engines::CATALOGUE.iter();
    for entry in entries.filter(|entry| entry.runs_scripts()) {
        let index = match entry.boots_script() {
            true => format!("<?php surus_serve(function () {{ {serve} }});"),
            false => format!("<?php {serve}"),
        };
        let env = [("SURUS_ENGINE_NAME", entry.name), ("STAGE", "test")];
        let function = Function::start(&[("index.php", &index)], &env);
        for id in ["e-1", "e-2"] {
            let expected = format!("{id} test Root=1-{id}");
            assert_eq!(function.get(id, "/").text(), expected, "{}", entry.name);
        }
        assert_eq!(function.get("e-3", "/?do=stay").text(), "answer");
        function.api.until_waiting(1);
        let stayed = std::fs::read_to_string(function.dir.path("stayed"));
        assert_eq!(stayed.unwrap(), entry.name);
        assert!(function.get("e-4", "/?do=die").path.ends_with("/error"));
        assert_eq!(function.get("e-5", "/").text(), "e-5 test Root=1-e-5");
    }
}

#[test]
fn one_connection_carries_all_events() {
    let function = Function::start(&[("index.php", "<?php echo 'x';")], &[]);
    let mut connections = Vec::new();
    for number in 0..5 {
        connections.push(function.get(&format!("c-{number}"), "/").connection);
    }
    connections.dedup();
    assert_eq!(connections.len(), 1, "{connections:?}");
}

#[test]
fn binary_named_bootstrap_runs_the_function() {
    use std::process::Command;
    let dir = tempfile::tempdir().unwrap();
    let bootstrap = dir.path().join("bootstrap");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_surus"), &bootstrap).unwrap();
    let output = Command::new(bootstrap)
        .env_remove("AWS_LAMBDA_RUNTIME_API")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("AWS_LAMBDA_RUNTIME_API is not set"), "{said}");
    assert!(!output.status.success());
}

/// A GET request in the format of each service.
fn from(service: &str, url: &str) -> Value {
    let host = json!({"host": "example.org"});
    match service {
        "alb" => json!({
            "requestContext": {"elb": {"targetGroupArn": "arn:x"}},
            "httpMethod": "GET",
            "path": url,
            "queryStringParameters": {},
            "headers": host,
            "body": "",
            "isBase64Encoded": false,
        }),
        "rest" => json!({
            "requestContext": {"stage": "prod", "path": url},
            "httpMethod": "GET",
            "path": url,
            "headers": host,
            "multiValueHeaders": {"host": ["example.org"]},
            "body": null,
            "isBase64Encoded": false,
        }),
        "http" => {
            let mut event = request("GET", url, "", &[]);
            event["requestContext"]["domainName"] =
                "x.execute-api.eu-central-1.amazonaws.com".into();
            event
        }
        _ => request("GET", url, "", &[]),
    }
}

#[test]
fn response_above_the_service_limit_is_an_error_with_a_remedy() {
    let code = "<?php [, $what, $n] = explode('/', $_SERVER['REQUEST_URI']);
        header_remove(); header('Content-Type: text/plain');
        $long = str_repeat('x', $n);
        $what === 'header' ? header('X-Long: ' . $long) : print($long);";
    for mode in ["buffered", "stream"] {
        let function = Function::start(&[("index.php", code)], &[("SURUS_LAMBDA_MODE", mode)]);
        let max = 1 << 20;
        // The size of the response without its body.
        let small = Event::new("o-small", &from("alb", "/body/1000000"));
        let framing = function.ask(small).body.len() - 1_000_000;
        for (number, (service, url, size, remedy)) in [
            ("url", format!("/body/{}", max + 1), None, ""),
            ("rest", format!("/body/{}", max + 1), None, ""),
            ("alb", format!("/body/{}", max - framing), None, ""),
            (
                "alb",
                format!("/body/{}", max - framing + 1),
                Some(max + 1),
                "S3",
            ),
            ("alb", "/header/11000".into(), None, ""),
            ("url", "/header/11000".into(), None, ""),
            ("rest", "/header/10000".into(), None, ""),
            ("rest", "/header/11000".into(), Some(11000), "cookies"),
            ("http", "/header/11000".into(), Some(11000), "cookies"),
        ]
        .into_iter()
        .enumerate()
        {
            // A load balancer does not stream.
            if mode == "stream" && service == "alb" {
                continue;
            }
            let call = function.ask(Event::new(&format!("o-{number}"), &from(service, &url)));
            let what = format!("{service} {url} {mode}");
            let Some(size) = size else {
                assert!(call.path.ends_with("/response"), "{what}: {}", call.path);
                continue;
            };
            assert!(call.path.ends_with("/error"), "{what}: {}", call.path);
            let kind = call.header("Lambda-Runtime-Function-Error-Type");
            assert_eq!(kind, Some("Function.ResponseSizeTooLarge"));
            let message = call.json()["errorMessage"].as_str().unwrap().to_string();
            let told = message
                .split(' ')
                .find_map(|word| word.parse::<usize>().ok());
            // PHP and the server add a few bytes of headers.
            let told = told.unwrap_or_else(|| panic!("{message}"));
            assert!((size..size + 100).contains(&told), "{what}: {message}");
            assert!(message.contains(remedy), "{message}");
        }
    }
}

#[test]
fn status_in_error_statuses_fails_the_event() {
    let code =
        "<?php http_response_code((int) substr($_SERVER['REQUEST_URI'], 1)); echo 'no database';";
    for mode in ["buffered", "stream"] {
        let env = [
            ("SURUS_LAMBDA_ERROR_STATUSES", "500,502-504"),
            ("SURUS_LAMBDA_MODE", mode),
        ];
        let function = Function::start(&[("index.php", code)], &env);
        for (status, end) in [
            (200, "response"),
            (500, "error"),
            (501, "response"),
            (502, "error"),
            (504, "error"),
            (404, "response"),
        ] {
            let call = function.get(&format!("f-{status}"), &format!("/{status}"));
            assert!(call.path.ends_with(end), "{status} {mode}: {}", call.path);
            if end == "error" {
                let kind = call.header("Lambda-Runtime-Function-Error-Type");
                assert_eq!(kind, Some("Function.Error"));
                let message = call.json()["errorMessage"].as_str().unwrap().to_string();
                assert!(
                    message.contains(&status.to_string()) && message.contains("no database"),
                    "{message}"
                );
            }
        }
    }
}

/// A GET request of a browser as a REST API sends it.
fn rest(url: &str, accept: &str) -> Value {
    let mut event = from("rest", url);
    for (name, value) in [("accept-encoding", "gzip, br"), ("accept", accept)] {
        event["headers"][name] = value.into();
        event["multiValueHeaders"][name] = json!([value]);
    }
    event
}

#[test]
fn rest_api_gets_base64_only_where_it_decodes_it() {
    let code = "<?php
        header('Vary: Accept-Encoding');
        header('X-Coding: '.($_SERVER['HTTP_ACCEPT_ENCODING'] ?? 'none'));
        if ($_SERVER['REQUEST_URI'] === '/logo') {
            header('Content-Type: image/png');
            echo \"\\x89PNG\\0\";
            return;
        }
        echo str_repeat('Text of a page. ', 500);";
    let compressed = |answer: &Value| answer["multiValueHeaders"]["content-encoding"].is_array();
    let html = "text/html,*/*;q=0.8";
    for (types, accept, is_decoded) in [
        ("", html, false),
        ("*/*", html, true),
        ("image/png, font/woff2", html, false),
        ("image/png, Text/HTML", html, true),
        ("text/html", "", false),
    ] {
        let what = format!("{types:?} {accept:?}");
        let env = [("SURUS_LAMBDA_BINARY_MEDIA_TYPES", types)];
        let env = if types.is_empty() { &[][..] } else { &env[..] };
        let files = [
            ("index.php", code),
            ("style.css", "a { b: c }"),
            ("style.css.br", "\u{1}"),
        ];
        let function = Function::start(&files, env);
        let page = function.ask(Event::new("p", &rest("/", accept))).json();
        assert_eq!(page["isBase64Encoded"], is_decoded, "{what}: {page}");
        assert_eq!(compressed(&page), is_decoded, "{what}");
        let heard = if is_decoded { "gzip, br" } else { "none" };
        assert_eq!(
            page["multiValueHeaders"]["x-coding"],
            json!([heard]),
            "{what}"
        );
        if !is_decoded {
            assert_eq!(page["body"], "Text of a page. ".repeat(500), "{what}");
        }
        let file = function
            .ask(Event::new("f", &rest("/style.css", accept)))
            .json();
        assert_eq!(compressed(&file), is_decoded, "{what}");
        // Binary bodies are always base64; the log warns once.
        for id in ["l-1", "l-2"] {
            let logo = function.ask(Event::new(id, &rest("/logo", accept))).json();
            assert_eq!(logo["isBase64Encoded"], true);
        }
        if !is_decoded {
            function.wait_for_log("binary_media_types");
        }
        let said = function.log().matches("binary_media_types").count();
        assert_eq!(said, usize::from(!is_decoded), "{what}: {}", function.log());
    }
    // Neither streams nor other services need the setting.
    let function = Function::start(&[("index.php", code)], &[("SURUS_LAMBDA_MODE", "stream")]);
    let streamed = function.ask(Event::new("s", &rest("/", html)));
    assert!(String::from_utf8_lossy(&streamed.body).contains(r#""content-encoding":"br""#));
    let function = Function::start(&[("index.php", code)], &[]);
    let alb = function.ask(Event::new("a", &{
        let mut event = from("alb", "/");
        event["headers"]["accept-encoding"] = "br".into();
        event
    }));
    assert_eq!(alb.json()["isBase64Encoded"], true);
}

#[test]
fn invalid_binary_media_type_stops_the_start() {
    for wrong in ["png", "image/", "/png", "image/png; q=1"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_surus"))
            .args(["check", "."])
            .env("SURUS_LAMBDA_BINARY_MEDIA_TYPES", format!("['{wrong}']"))
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("`image/png` or `*/*`"), "{wrong}: {said}");
    }
}
