//! Tests that a boot does not do once what a front controller does before each request.

use super::client::Client;
use super::laravel_visitors::{self, unmodified};
use super::one_word::{SLIM_INDEX, slim, warnings};
use super::site::Site;
use crate::common::Surus;

const BOOTED: &str = "script=\"surus://boot/slim.php\"";

/// A Slim application whose front controller begins with this code.
fn slim_that_begins_with(code: &str) -> Site {
    let index = SLIM_INDEX
        .replace("require", "require_once")
        .replace("$booted", &format!("{code} $booted"))
        .replace(" echo ' end';", "");
    slim().write("public/index.php", &index)
}

#[track_caller]
fn is_served_by_classic(surus: &Surus, because: &str) {
    let log = surus.log();
    assert_eq!(warnings(&log).len(), 1, "{log}");
    assert!(log.contains(because), "{because}\n{log}");
}

type Beginning = (&'static str, &'static str, fn(&Client));

/// Code of a front controller, what the boot finds, and a test of the answer.
const BEGINNINGS: [Beginning; 3] = [
    (
        "session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; \
         header(\"X-N: $_SESSION[n]\");",
        "has started a session before",
        |client| {
            for number in ["1", "2"] {
                assert_eq!(client.get("/?q=a").ok().header("x-n"), number);
            }
        },
    ),
    (
        "header('X-Frame-Options: DENY');",
        "has set the header X-Frame-Options before",
        |client| {
            let answer = client.get("/?q=a").ok();
            assert_eq!(answer.header("x-frame-options"), "DENY");
        },
    ),
    (
        "ob_start(fn ($text) => strtoupper($text));",
        "has opened an output buffer (ob_start) before",
        |client| assert_eq!(client.get("/?q=a").ok().text(), "A 1 PUBLIC"),
    ),
];

#[test]
fn slim_that_begins_its_response_before_the_request_is_served_by_classic() {
    for (code, found, test) in BEGINNINGS {
        let site = slim_that_begins_with(code);
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        test(&Client::new(&surus.url));
        is_served_by_classic(&surus, found);
    }
}

#[test]
fn slim_whose_included_file_begins_the_response_is_served_by_classic() {
    for (code, found, test) in BEGINNINGS {
        let site = slim_that_begins_with("require __DIR__.'/begin.php';")
            .write("public/begin.php", &format!("<?php {code}"));
        for engine in ["rewind", "fork", "standby", "worker"] {
            let surus = site.serve_with(&["--engine", engine, "--workers", "1"], &[]);
            test(&Client::new(&surus.url));
            is_served_by_classic(&surus, found);
        }
    }
}

/// The boot has no client and cannot find this, but the text of the front controller shows it.
#[test]
fn slim_that_decides_by_the_client_before_the_request_is_served_by_classic() {
    for (code, shown) in [
        (
            "define('PAGE', $_GET['q'] ?? 'none'); header_remove('X');",
            "uses `$_GET` before",
        ),
        (
            "define('LOCAL', $_SERVER['REMOTE_ADDR'] === '::1');",
            "uses `$_SERVER['REMOTE_ADDR']` before",
        ),
    ] {
        let site = slim_that_begins_with(code);
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        Client::new(&surus.url).get("/?q=a").shows("a 1 public");
        is_served_by_classic(&surus, shown);
    }
}

/// Buffers and sessions that PHP's settings open are those of each request.
#[test]
fn slim_is_booted_with_settings_and_code_that_begin_no_response() {
    let code = "if (PHP_SAPI == 'cli-server') { return is_file($_SERVER['REQUEST_URI']); } \
        if (!is_file(__FILE__)) { header('Location: '.$_SERVER['REQUEST_URI']); exit; } \
        require __DIR__.'/begin.php';";
    let begin = "<?php header_remove('X-Powered-By'); ob_start(); echo 'no'; ob_end_clean(); \
        ini_set('session.gc_maxlifetime', '99'); function late() { session_start(); }";
    let site = slim_that_begins_with(code).write("public/begin.php", begin);
    for setting in [
        "output_buffering=4096",
        "session.auto_start=1",
        "expose_php=1",
    ] {
        let args = ["--engine", "rewind", "--workers", "1", "-d", setting];
        let begins = site.serve_with(&args, &[]);
        begins.wait_for_log(|log| log.contains(BOOTED));
        let said = Client::new(&begins.url).get("/?q=a").ok().text();
        assert_eq!(said, "a 1 public", "{setting}\n{}", begins.log());
        assert!(warnings(&begins.log()).is_empty(), "{}", begins.log());
    }
}

#[test]
fn header_in_the_boot_of_a_script_of_its_own_is_named_once() {
    let script = "<?php header('X-Secret: value'); \
        surus_serve(function () { echo 'own ', count(headers_list()); });";
    let site = Site::new().write("index.php", script);
    for engine in ["rewind", "fork", "standby", "worker"] {
        let surus = site.serve_with(&["--engine", engine, "--workers", "3"], &[]);
        let named =
            "index.php, or a file that it includes, has set the header X-Secret in the boot";
        surus.wait_for_log(|log| log.contains(named));
        for _ in 0..4 {
            assert!(
                Client::new(&surus.url)
                    .get("/")
                    .ok()
                    .text()
                    .starts_with("own")
            );
        }
        let log = surus.log();
        assert_eq!(log.matches(named).count(), 1, "{engine}\n{log}");
    }
}

#[test]
fn laravel_that_begins_a_session_of_php_before_the_request_is_served_by_classic() {
    let route = "<?php Illuminate\\Support\\Facades\\Route::get('/begun', fn () => \
        [session_status() === PHP_SESSION_ACTIVE]);";
    let autoload = "require __DIR__.'/../vendor/autoload.php';";
    for code in ["session_start();", "require __DIR__.'/begin.php';"] {
        let front = laravel_visitors::FRONT.replace(autoload, &format!("{code}\n{autoload}"));
        let site = unmodified("laravel10")
            .write("public/index.php", &front)
            .write("public/begin.php", "<?php session_start();")
            .write("routes/api.php", route);
        let surus = site.serve_with(&["--engine", "rewind", "--workers", "1"], &[]);
        Client::new(&surus.url).get("/api/begun").shows("[true]");
        is_served_by_classic(&surus, "has started a session before");
    }
}
