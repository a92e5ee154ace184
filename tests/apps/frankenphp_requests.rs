//! Tests what FrankenPHP promises beyond the loop: superglobals, early hints and static files
//! (<https://frankenphp.dev/docs/worker/#superglobals-behavior>).

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::json;

use super::client::Client;
use super::site::{BOOTING, Site};

/// A loop with `do` and `while`, as most worker scripts have.
const LOOP: &str = r#"<?php
ignore_user_abort(true);
$own = $_SERVER;
$requests = 0;
do {
    $goes_on = frankenphp_handle_request(function () use ($own, &$requests): void {
        $requests++;
        switch ($_GET['do'] ?? '') {
            case 'server':
                header('Content-Type: application/json');
                echo json_encode($_SERVER);
                return;
            case 'own':
                $is_request = isset($own['HTTP_X_NAME']);
                echo json_encode([$is_request, $own['FRANKENPHP_WORKER'], $own['NAME']]);
                return;
            case 'hint':
                header('Link: </style.css>; rel=preload; as=style');
                headers_send(103);
                header_remove('Link');
                header('X-Name: answer');
                echo 'hinted';
                return;
            case 'headers':
                header('X-Space: a');
                header('X-None:b');
                header('no header at all');
                http_response_code(201);
                echo json_encode(headers_list());
                return;
            case 'finish':
                echo 'sent';
                frankenphp_finish_request();
                echo 'not sent';
                error_log('after finish');
                return;
            case 'nest':
                frankenphp_handle_request(fn () => 0);
            case 'ini':
                echo ini_get('precision'), ' ', ini_set('precision', '3');
                return;
            case 'global':
                echo json_encode([$GLOBALS['left'] ?? null, $left ?? null]);
                $GLOBALS['left'] = 1;
                return;
            case 'count':
                echo $requests;
                return;
        }
        $is_sent = fn ($name) => str_starts_with($name, 'HTTP_X')
            || str_starts_with($name, 'PHP_AUTH');
        $sent = array_filter($_SERVER, $is_sent, ARRAY_FILTER_USE_KEY);
        $body = file_get_contents('php://input');
        echo json_encode([$_GET, $_POST, $_COOKIE, $_FILES, $sent, $body]);
    });
    error_log('behind '.($_GET['name'] ?? 'none'));
} while ($goes_on);
error_log('the loop has ended');
"#;

fn site() -> Site {
    Site::new()
        .write("index.php", LOOP)
        .write("style.css", "body {}")
        .write("notes/index.html", "<h1>Notes</h1>")
        .write(
            "other.php",
            "<?php echo 'other ', isset($_SERVER['HTTP_X_NAME']);",
        )
}

#[test]
fn superglobals_hold_the_request_and_nothing_of_the_one_before() {
    let site = site();
    let env = [("SURUS_ENV_NAME", "of the worker")];
    for engine in BOOTING {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &env);
        let visitor = Client::new(&surus.url);
        let full = [
            ("x-name", "value"),
            ("cookie", "a=b"),
            ("authorization", "Basic aGFubm86YWxwcw=="),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        let first = visitor.post_as("/?name=first", &full, b"c=d".to_vec()).ok();
        let server =
            json!({ "HTTP_X_NAME": "value", "PHP_AUTH_USER": "hanno", "PHP_AUTH_PW": "alps" });
        assert_eq!(
            first.json(),
            json!([{ "name": "first" }, { "c": "d" }, { "a": "b" }, [], server, "c=d"]),
            "{engine}"
        );
        let second = Client::new(&surus.url).get("/").ok();
        assert_eq!(second.json(), json!([[], [], [], [], [], ""]), "{engine}");
        let own = visitor.get_as("/?do=own", &[("x-name", "value")]).ok();
        assert_eq!(own.json(), json!([false, "1", "of the worker"]), "{engine}");
        // On `standby` the script's end is the request's, so the loop is left.
        surus.wait_for_log(|log| log.contains("behind first") && log.contains("behind none"));
        // `worker` keeps what a request has set, as docs/reference/engines.md lists.
        let keeps = engine == "worker";
        assert_eq!(visitor.get("/?do=ini").ok().text(), "14 14", "{engine}");
        let set = if keeps { "3 3" } else { "14 14" };
        assert_eq!(visitor.get("/?do=ini").ok().text(), set, "{engine}");
        let left = visitor.get("/?do=global").ok().json();
        assert_eq!(left, json!([null, null]), "{engine}");
        let kept = if engine == "worker" {
            json!(1)
        } else {
            json!(null)
        };
        let left = visitor.get("/?do=global").ok().json();
        assert_eq!(left, json!([kept, null]), "{engine}");
    }
}

#[test]
fn server_variables_are_those_of_a_front_controller() {
    let site = site();
    for engine in BOOTING {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        let visitor = Client::new(&surus.url);
        let of = |path: &str, names: &[&str]| {
            let server = visitor.get(path).ok().json();
            let values = names.iter().map(|name| server[*name].clone());
            serde_json::Value::Array(values.collect())
        };
        let where_ = [
            "REQUEST_URI",
            "SCRIPT_NAME",
            "PHP_SELF",
            "PATH_INFO",
            "QUERY_STRING",
        ];
        assert_eq!(
            of("/a%20b/c?do=server", &where_),
            json!([
                "/a%20b/c?do=server",
                "/index.php",
                "/index.php",
                "",
                "do=server"
            ]),
            "{engine}"
        );
        assert_eq!(
            of("/index.php/a%20b?do=server&x=%20", &where_),
            json!([
                "/index.php/a%20b?do=server&x=%20",
                "/index.php",
                "/index.php/a b",
                "/a b",
                "do=server&x=%20"
            ]),
            "{engine}"
        );
        let root = site.www().canonicalize().unwrap();
        let script = root.join("index.php");
        assert_eq!(
            of(
                "/?do=server",
                &[
                    "DOCUMENT_ROOT",
                    "SCRIPT_FILENAME",
                    "REQUEST_METHOD",
                    "REQUEST_SCHEME",
                    "SERVER_PROTOCOL",
                    "REMOTE_ADDR",
                    "GATEWAY_INTERFACE",
                    "FRANKENPHP_WORKER"
                ]
            ),
            json!([
                root,
                script,
                "GET",
                "http",
                "HTTP/1.1",
                "127.0.0.1",
                "CGI/1.1",
                "1"
            ]),
            "{engine}"
        );
    }
}

#[test]
fn early_hints_reach_the_client_without_their_headers_in_the_answer() {
    let site = site();
    for engine in BOOTING {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        for _ in 0..2 {
            let mut stream = TcpStream::connect(&surus.address).unwrap();
            let request = "GET /?do=hint HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
            let hint: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            assert_eq!(
                hint,
                [
                    "HTTP/1.1 103 Early Hints",
                    "link: </style.css>; rel=preload; as=style"
                ],
                "{engine}"
            );
            let answer: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            assert_eq!(answer[0], "HTTP/1.1 200 OK", "{engine}");
            assert!(
                answer.contains(&"x-name: answer".into()),
                "{engine}: {answer:?}"
            );
            assert!(
                !answer.iter().any(|line| line.starts_with("link:")),
                "{engine}"
            );
            assert_eq!(lines.last().unwrap(), "hinted", "{engine}");
        }
    }
}

#[test]
fn headers_and_the_end_of_a_response_are_as_in_any_script() {
    let site = site();
    for engine in BOOTING {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        let visitor = Client::new(&surus.url);
        for _ in 0..2 {
            let answer = visitor.get("/?do=headers").status(201);
            assert_eq!(answer.header("x-space"), "a", "{engine}");
            assert_eq!(answer.header("x-none"), "b", "{engine}");
            assert!(
                !answer.text().contains("X-Name"),
                "{engine}: {}",
                answer.text()
            );
            assert_eq!(visitor.get("/?do=finish").ok().text(), "sent", "{engine}");
        }
        surus.wait_for_log(|log| log.matches("after finish").count() == 2);
        visitor.get("/?do=nest").status(500);
        surus.wait_for_log(|log| log.contains("cannot be called by a handler"));
        visitor.get("/?do=count").ok();
    }
}

/// FrankenPHP's `php_server` sends files itself, runs other scripts, and gives the rest to the
/// worker.
#[test]
fn files_and_index_pages_are_sent_without_the_worker() {
    let site = site();
    for engine in BOOTING {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        let visitor = Client::new(&surus.url);
        let style = visitor.get("/style.css?do=count").shows("body {}");
        assert!(style.header("content-type").starts_with("text/css"));
        visitor.get("/notes/").shows("<h1>Notes</h1>");
        visitor.get("/style.css/").ok().lacks("body {}");
        if engine == "worker" {
            assert_eq!(visitor.get("/?do=count").ok().text(), "2");
        }
    }
}

#[test]
fn loop_ends_with_false_when_surus_stops() {
    let site = site();
    let mut surus = site.serve_with(&["--engine", "worker", "--workers", "1"], &[]);
    Client::new(&surus.url).get("/?name=last").ok();
    surus.signal("TERM");
    surus.wait();
    surus.wait_for_log(|log| log.contains("behind last") && log.contains("the loop has ended"));
}

#[test]
fn handle_request_on_classic_is_an_error_that_names_the_engines() {
    let site = site();
    let surus = site.serve_with(&["--engine", "classic"], &[]);
    Client::new(&surus.url).get("/").status(500);
    surus.wait_for_log(|log| log.contains("frankenphp_handle_request() needs an engine"));
}
