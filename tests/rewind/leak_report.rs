//! Tests that `surus leaks` names what a request leaves behind.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const LEAKY: &str = r#"<?php
class Seen {
    public static array $urls = [];
    private array $kept = [];
    function keep($x) {
        $this->kept[] = $x;
    }
}
function calls() {
    static $n = 0;
    return ++$n;
}
function deep($n) {
    $at = $GLOBALS['deep'];
    while (isset($at->next)) {
        $at = $at->next;
    }
    $at->value = $n;
}
foreach (range(1, 9) as $n) {
    eval("function load$n() {}");
}
$kept = new Seen;
$deep = null;
foreach (range(1, 20) as $n) {
    $deep = (object) ['next' => $deep];
}
$deep->self = $deep;
$count = function () {
    static $calls = 0;
    $calls++;
};
surus_serve(function () use ($kept, $count) {
    if ($_SERVER['REQUEST_URI'] === '/clean') {
        $local = str_repeat('x', 100000);
        echo 'clean';
        return;
    }
    if ($_SERVER['REQUEST_URI'] === '/missing') {
        http_response_code(404);
        return;
    }
    if ($_SERVER['REQUEST_URI'] === '/fatal') {
        ini_set('memory_limit', '8M');
        str_repeat('x', 1 << 30);
    }
    $kept->keep('x');
    Seen::$urls[] = 1;
    $n = calls();
    $GLOBALS["file$n"] = fopen('/etc/hostname', 'r');
    $GLOBALS['_cache'][] = $n;
    deep($n);
    $count();
    spl_autoload_register('load'.$n);
    date_default_timezone_set($n % 2 ? 'UTC' : 'Europe/Rome');
    stream_wrapper_register("left$n", 'Seen');
    pcntl_signal(40 + $n, SIG_IGN);
    ini_set('precision', (string) $n);
    putenv("LEFT=$n");
    define("SEEN_$n", true);
    echo 'leaky';
});
"#;

fn leaks(urls: &[&str]) -> (bool, String, String) {
    let options = urls.iter().flat_map(|url| ["--url", url]);
    run(LEAKY, &options.collect::<Vec<_>>())
}

fn run(script: &str, options: &[&str]) -> (bool, String, String) {
    let site = tempfile::tempdir().unwrap();
    std::fs::set_permissions(site.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(site.path().join("index.php"), script).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.arg("leaks").arg(site.path()).args(options);
    let output = command.output().unwrap();
    (
        output.status.success(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn leftover_state_is_named() {
    let (success, said, error) = leaks(&["/", "/clean"]);
    assert!(success, "{error}");
    let (leaky, clean) = said.split_once("GET /clean").unwrap();
    for line in [
        "global $kept changed inside: Seen",
        "global $file3 appeared: resource",
        "static property Seen::$urls changed: array of 3, was array of 2",
        "static variable $n of calls() changed: 3, was 2",
        "constant SEEN_3 appeared",
        "ini setting precision changed: 3, was 2",
        "environment variable LEFT changed: 3, was 2",
        "/etc/hostname",
        "global $_cache changed: array of 3, was array of 2",
        "global $deep changed inside: stdClass",
        "static variable $calls of the closure ",
        "autoloader 3 appeared: load3",
        "date_default_timezone_get() changed: UTC, was Europe/Rome",
        "stream wrapper left3 appeared",
        "ignored signals changed: ",
    ] {
        assert!(leaky.contains(line), "{line} is not in:\n{said}{error}");
    }
    assert_eq!(clean, ": 200 OK\n  leaves nothing behind\n");
}

#[test]
fn request_that_ends_its_process_is_reported() {
    let (success, said, error) = leaks(&["/fatal"]);
    assert!(success, "{error}");
    assert!(said.contains("GET /fatal: 500"), "{said}");
    assert!(
        said.contains("its process exited during the request"),
        "{said}"
    );
    assert!(error.contains("Allowed memory size"), "{error}");
}

#[test]
fn failed_response_is_not_examined() {
    let (success, said, error) = leaks(&["/missing"]);
    assert!(success, "{error}");
    let expected = "GET /missing: 404 Not Found\n  not examined: the request failed\n";
    assert_eq!(said, expected);
}

#[test]
fn engine_cannot_be_chosen() {
    let (success, _, error) = run(LEAKY, &["--engine", "classic"]);
    assert!(!success);
    assert!(error.contains("unexpected argument '--engine'"), "{error}");
}

#[test]
fn script_that_serves_nothing_is_reported_with_the_engine() {
    let (success, _, error) = run("<?php parse_url($_SERVER['REQUEST_URI']);", &[]);
    assert!(!success);
    assert!(
        error.contains("`surus leaks` boots the application on `worker`"),
        "{error}"
    );
}
