//! Tests an unmodified worker loop as FrankenPHP documents it
//! (<https://frankenphp.dev/docs/worker/>).

use super::client::{Client, Upload};
use super::site::{BOOTING, Site};

const LOOP: &str = r#"<?php
ignore_user_abort(true);
final class App {
    private int $requests = 0;
    public int $terminated = 0;
    public function handle(
        array $get,
        array $post,
        array $cookie,
        array $files,
        array $server,
    ): string {
        $seen = ++$this->requests;
        switch ($get['do'] ?? '') {
            case 'exit':
                echo 'before';
                exit;
            case 'throw':
                throw new RuntimeException('thrown');
            case 'fatal':
                no_such_function();
            case 'buffer':
                ob_start();
                return 'in a buffer';
            case 'finish':
                echo 'first';
                fastcgi_finish_request();
                return 'second';
            case 'session':
                session_start();
                return 'visit '.($_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1);
            case 'headers':
                header('X-Loop: yes', true, 418);
                setcookie('a', 'b');
                return '';
        }
        $sizes = array_map(fn (array $file): int => $file['size'], $files);
        $body = strlen(file_get_contents('php://input'));
        $method = $server['REQUEST_METHOD'];
        $done = $this->terminated;
        return json_encode([$method, $get, $post, $cookie, $sizes, $body, $seen, $done]);
    }
}
$app = new App;
$handler = static function () use ($app): void {
    echo $app->handle($_GET, $_POST, $_COOKIE, $_FILES, $_SERVER);
};
$max = (int) ($_SERVER['MAX_REQUESTS'] ?? 0);
for ($n = 0; !$max || $n < $max; ++$n) {
    $keep = \frankenphp_handle_request($handler);
    $app->terminated++;
    gc_collect_cycles();
    if (!$keep) break;
}
"#;

fn site() -> Site {
    Site::new().write("index.php", LOOP)
}

#[test]
fn frankenphp_loop_runs_on_every_booted_engine() {
    let site = site();
    for engine in BOOTING {
        let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
        let visitor = Client::new(&surus.url);
        let seen = |answer: &super::client::Answer| {
            let json = answer.json();
            (json[6].as_u64().unwrap(), json[7].as_u64().unwrap())
        };

        let first = visitor.get("/?a=b").ok();
        assert_eq!(seen(&first), (1, 0), "{engine}");
        assert_eq!(first.json()[1]["a"], "b");
        let second = visitor.post("/?c=d", &[("e", "f & g")]).ok();
        let json = second.json();
        assert_eq!((&json[0], &json[2]["e"]), (&"POST".into(), &"f & g".into()));
        assert_eq!(
            json[1]["a"],
            serde_json::Value::Null,
            "{engine}: of the request before"
        );
        // The loop keeps state only if the engine does.
        let kept = if engine == "worker" { (2, 1) } else { (1, 0) };
        assert_eq!(seen(&second), kept, "{engine}");
        let file = Upload {
            field: "file",
            name: "a.txt",
            mime: "text/plain",
            bytes: b"1234567",
        };
        let uploaded = visitor.upload("/", &[("e", "h")], &file).ok().json();
        assert_eq!(
            (&uploaded[2]["e"], &uploaded[4]["file"]),
            (&"h".into(), &7.into())
        );

        for _ in 0..2 {
            assert_eq!(visitor.get("/?do=exit").ok().text(), "before", "{engine}");
            visitor.get("/?do=throw").status(500);
            visitor.get("/?do=fatal").status(500);
            assert_eq!(visitor.get("/?do=buffer").ok().text(), "in a buffer");
            assert_eq!(visitor.get("/?do=finish").ok().text(), "first");
            let answer = visitor.get("/?do=headers").status(418);
            assert_eq!(answer.header("x-loop"), "yes");
            visitor.get("/").ok();
        }
        let guest = Client::new(&surus.url);
        assert_eq!(guest.get("/?do=session").ok().text(), "visit 1", "{engine}");
        assert_eq!(guest.get("/?do=session").ok().text(), "visit 2", "{engine}");
        assert_eq!(
            Client::new(&surus.url).get("/?do=session").ok().text(),
            "visit 1"
        );
        surus.wait_for_log(|log| log.contains("thrown") && log.contains("no_such_function"));
    }
}

#[test]
fn loop_that_ends_after_some_requests_is_restarted() {
    let site = site();
    let max = ("SURUS_ENV_MAX_REQUESTS", "3");
    for engine in BOOTING {
        let surus = site.serve_with(&["--engine", engine, "--workers", "2"], &[max]);
        let visitor = Client::new(&surus.url);
        for _ in 0..20 {
            let seen = visitor.get("/").ok().json()[6].as_u64().unwrap();
            assert!(
                seen <= if engine == "worker" { 3 } else { 1 },
                "{engine}: {seen}"
            );
        }
        if engine == "worker" {
            surus.wait_for_log(|log| log.contains("reason=\"script_returned\""));
        }
    }
}

/// Installed like Laravel Octane: a stub that enables the worker, and the worker in the package. It
/// has the steps of Octane's own: settings, variables, an application that the first request boots,
/// a number of requests, and an end.
#[test]
fn worker_behind_a_stub_is_found_and_runs_as_worker() {
    let worker = r#"<?php
if ((! ($_SERVER['FRANKENPHP_WORKER'] ?? false))
    || ! function_exists('frankenphp_handle_request')) {
    echo 'FrankenPHP must be in worker mode to use this script.';

    exit(1);
}
ignore_user_abort(true);
ini_set('display_errors', 'stderr');
$_ENV['APP_RUNNING_IN_CONSOLE'] = false;
$basePath = $_SERVER['APP_BASE_PATH'] ?? $_ENV['APP_BASE_PATH'] ?? null;
if (! is_string($basePath)) {
    error_log('Cannot find application base path.', 4);

    exit(11);
}
$worker = null;
$requestCount = 0;
$maxRequests = $_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'];
$limit = $_ENV['REQUEST_MAX_EXECUTION_TIME'] ?? $_SERVER['REQUEST_MAX_EXECUTION_TIME'] ?? null;
if (PHP_OS_FAMILY === 'Linux' && ! is_null($limit)) {
    set_time_limit((int) $limit);
}
try {
    $handleRequest = static function () use (&$worker) {
        try {
            $worker ??= new class { public int $handled = 0; };
            header('X-Name:  value');
            if (isset($_GET['finish'])) {
                echo 'first';
                frankenphp_finish_request();
                echo 'second';
                return;
            }
            if (isset($_GET['throw'])) {
                throw new Exception('thrown');
            }
            echo json_encode([
                ++$worker->handled,
                $_SERVER['FRANKENPHP_WORKER'],
                apache_response_headers() === frankenphp_response_headers(),
                apache_response_headers()['X-Name'],
                frankenphp_request_headers()['X-Asked'] ?? null,
            ]);
        } catch (Throwable $e) {
            http_response_code(500);
            echo 'Internal Server Error';
        }
    };
    while ($requestCount < $maxRequests && frankenphp_handle_request($handleRequest)) {
        $requestCount++;
    }
} finally {
    error_log('the worker has handled '.($worker?->handled ?? 'nothing'));
}
"#;
    let stub = "<?php\n\n// Set the paths.\n\
        $_SERVER['APP_BASE_PATH'] = $_ENV['APP_BASE_PATH'] ?? __DIR__;\n\
        $_SERVER['APP_PUBLIC_PATH'] = $_ENV['APP_PUBLIC_PATH'] ?? __DIR__;\n\n\
        require __DIR__.'/vendor/octane/bin/worker.php';\n";
    let site = Site::new()
        .write("index.php", stub)
        .write("vendor/octane/bin/worker.php", worker);
    // The engine that is chosen for it comes first.
    let chosen: [&[&str]; 5] = [
        &[],
        &["--engine", "worker"],
        &["--engine", "standby"],
        &["--engine", "fork"],
        &["--engine", "rewind"],
    ];
    for engine in chosen {
        let env = [
            ("SURUS_ENV_MAX_REQUESTS", "5"),
            ("SURUS_ENV_REQUEST_MAX_EXECUTION_TIME", "30"),
        ];
        let surus = site.serve_with(&[&["--workers", "1"], engine].concat(), &env);
        let visitor = Client::new(&surus.url);
        for round in 1..=3 {
            let answer = visitor.get("/any/path").ok().json();
            let handled = if engine.contains(&"worker") { round } else { 1 };
            let expected = serde_json::json!([handled, "1", true, "value", null]);
            assert_eq!(answer, expected, "{engine:?}");
        }
        assert_eq!(visitor.get("/?finish").ok().text(), "first", "{engine:?}");
        visitor
            .get("/?throw")
            .status(500)
            .says("Internal Server Error");
        if engine.contains(&"worker") {
            surus.wait_for_log(|log| log.contains("the worker has handled 3"));
        }
    }
}

#[test]
fn classic_is_not_announced_as_a_worker() {
    let code = "<?php echo json_encode(isset($_SERVER['FRANKENPHP_WORKER']));";
    let site = Site::new().write("index.php", code);
    let surus = site.serve(&[]);
    assert_eq!(Client::new(&surus.url).get("/").ok().text(), "false");
}
