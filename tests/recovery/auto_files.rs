//! Tests `auto_prepend_file` and `auto_append_file` of booted applications, which firewalls use.

use std::path::Path;

use crate::booted::{boot_in, try_booted};
use crate::site::{Site, app};

const HANDLER: &str = "surus_serve(function () {
    if (isset($_GET['exit'])) exit('exit ');
    if (isset($_GET['throw'])) throw new Exception('of the handler');
    if (isset($_GET['fatal'])) no_such_function();
    echo 'page ', $GLOBALS['from_prepended'] ?? 'alone', ' ';
    $GLOBALS['from_handler'] = 'sees the page';
});";

const LOOP: &str = "while (frankenphp_handle_request(function () {
    if (isset($_GET['exit'])) exit('exit ');
    if (isset($_GET['throw'])) throw new Exception('of the handler');
    if (isset($_GET['fatal'])) no_such_function();
    echo 'page ', $GLOBALS['from_prepended'] ?? 'alone', ' ';
    $GLOBALS['from_handler'] = 'sees the page';
})) {}";

const CHECKPOINT: &str = "function deep() { surus_checkpoint(); }
    $from_boot = 1;
    deep();
    if (isset($_GET['exit'])) exit('exit ');
    if (isset($_GET['throw'])) throw new Exception('of the handler');
    if (isset($_GET['fatal'])) no_such_function();
    echo 'page ', $from_prepended ?? 'alone', ' ';
    $from_handler = 'sees the page';";

const BEFORE: &str =
    "if (isset($_GET['attack'])) { http_response_code(403); echo 'blocked'; exit; }
    if (isset($_GET['thrown_before'])) throw new Exception('of the firewall');
    if (isset($_GET['fatal_before'])) no_such_function();
    if (isset($_GET['serves'])) surus_serve(fn () => 1);
    $from_prepended = \"sees {$_SERVER['REQUEST_METHOD']}\";
    echo isset($this) ? 'in an object ' : 'before ';";

const AFTER: &str = "echo 'after ', $from_handler;";

/// Like Wordfence: its declarations and includes work once per process.
const DECLARING: &str = "define('FIREWALL_LOG', '/nowhere');
    const FIREWALL = 1;
    class Firewall { static function blocks(): bool { return isset($_GET['attack']); } }
    function firewall() { if (Firewall::blocks()) { http_response_code(403); echo 'blocked'; exit; \
    } }
    include_once __DIR__.'/rules.php';
    firewall();
    $from_prepended = RULES;
    echo 'before ';";

/// A boot with `before` and `after` around its requests.
fn guarded(engine: &str, boot: &str, before: &str, after: &str, how: How) -> Result<Site, String> {
    let dir = app();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("before.php"), format!("<?php {before}")).unwrap();
    std::fs::write(path("after.php"), format!("<?php {after}")).unwrap();
    std::fs::write(
        path("rules.php"),
        "<?php if (defined('RULES')) return; define('RULES', 'sees rules');",
    )
    .unwrap();
    let (before, after) = (path("before.php"), path("after.php"));
    let mut env = vec![("SURUS_PHP_DISPLAY_ERRORS", "0")];
    match how {
        How::Ini => {
            env.push(("SURUS_PHP_AUTO_PREPEND_FILE", before.as_str()));
            env.push(("SURUS_PHP_AUTO_APPEND_FILE", after.as_str()));
        }
        How::UserIni => std::fs::write(
            path(".user.ini"),
            "auto_prepend_file = before.php\nauto_append_file = after.php\n",
        )
        .unwrap(),
    }
    let env = [
        env,
        vec![
            ("SURUS_ENGINE_VERIFY_RESTORE", "true"),
            // The next worker finds the files in OPcache, however new they are.
            ("SURUS_PHP_OPCACHE__FILE_UPDATE_PROTECTION", "0"),
        ],
    ]
    .concat();
    boot_in(dir, engine, boot, &["--workers", "1"], &env)
}

#[derive(Clone, Copy)]
enum How {
    Ini,
    UserIni,
}

fn asserts(site: &Site, what: &str, path: &str, status: u16, body: &str) {
    let answer = site.get(path);
    let got = (answer.status, answer.body.as_str());
    assert_eq!(got, (status, body), "{what} {path}\n{}", site.surus.log());
}

#[test]
fn auto_files_of_booted_script_run_for_every_request() {
    let boots = [
        ("serve", HANDLER),
        ("loop", LOOP),
        ("checkpoint", CHECKPOINT),
    ];
    for engine in ["rewind", "fork", "standby", "worker"] {
        for (kind, boot) in boots {
            if engine == "worker" && kind == "checkpoint" {
                continue;
            }
            let how = if kind == "serve" {
                How::Ini
            } else {
                How::UserIni
            };
            let site = guarded(engine, boot, BEFORE, AFTER, how)
                .unwrap_or_else(|log| panic!("{engine} {kind}\n{log}"));
            let what = format!("{engine} {kind}");
            for _ in 0..3 {
                let page = "before page sees GET after sees the page";
                asserts(&site, &what, "/", 200, page);
                asserts(&site, &what, "/?attack", 403, "blocked");
                asserts(&site, &what, "/?exit", 200, "before exit ");
                asserts(&site, &what, "/?throw", 500, "before ");
                asserts(&site, &what, "/?fatal", 500, "before ");
                asserts(&site, &what, "/?thrown_before", 500, "");
                asserts(&site, &what, "/?fatal_before", 500, "");
                asserts(&site, &what, "/?serves", 500, "");
            }
            site.surus.wait_for_log(|log| {
                log.contains("of the firewall") && log.contains("cannot be called by a handler")
            });
        }
    }
}

#[test]
fn prepended_file_with_declarations_runs_for_every_request_on_isolating_engines() {
    for engine in ["rewind", "fork", "standby"] {
        for (kind, boot) in [("serve", HANDLER), ("checkpoint", CHECKPOINT)] {
            let site = guarded(engine, boot, DECLARING, AFTER, How::UserIni)
                .unwrap_or_else(|log| panic!("{engine} {kind}\n{log}"));
            let what = format!("{engine} {kind}");
            for _ in 0..3 {
                let page = "before page sees rules after sees the page";
                asserts(&site, &what, "/", 200, page);
                asserts(&site, &what, "/?attack", 403, "blocked");
            }
            let log = site.surus.log();
            assert!(!log.contains("Warning"), "{what}\n{log}");
        }
    }
}

#[test]
fn guard_variable_does_not_skip_the_prepended_file_of_the_next_request() {
    let guarded_twice = "if (isset($checked) || isset($GLOBALS['seen'])) return;
        $checked = 1; $GLOBALS['seen'] = new stdClass; $from_prepended = 'sees ' . count($_GET);
        if (isset($_GET['attack'])) { http_response_code(403); echo 'blocked'; exit; }
        echo 'before ';";
    // A boot with a variable of the same name.
    let own = format!("if (false) $checked = 2; {HANDLER}");
    for engine in ["worker", "rewind", "fork", "standby"] {
        for boot in [HANDLER, LOOP, &own] {
            let site = guarded(engine, boot, guarded_twice, AFTER, How::Ini)
                .unwrap_or_else(|log| panic!("{engine}\n{log}"));
            for _ in 0..3 {
                let page = "before page sees 1 after sees the page";
                asserts(&site, engine, "/?a", 200, page);
                asserts(&site, engine, "/?attack", 403, "blocked");
                asserts(&site, engine, "/?attack", 403, "blocked");
            }
        }
    }
}

/// A class of the boot, and a prepended file that makes objects of it.
const GUARD: &str = "class Guard {
        function __construct(public $name, public $other = null) {}
        function __destruct() {
            echo $this->name, ' ', $this->other->name ?? 'alone', ob_get_level(), ', ';
            if ($this->name === ($_GET['throws'] ?? '')) throw new Exception('of a destructor');
            if ($this->name === ($_GET['exits'] ?? '')) exit('exit, ');
            if ($this->name === ($_GET['fails'] ?? '')) no_such_function();
        }
    }";
const GUARDED: &str = "ob_start(fn ($text) => strtoupper($text));
    register_shutdown_function(function () { echo 'shutdown, '; });
    $first = new Guard('first');
    $second = new Guard('second', $first);
    $both = [$kept = new Guard('kept'), new Guard('element')];";

#[test]
fn objects_of_prepended_file_are_destroyed_when_php_destroys_them() {
    let site = guarded(
        "worker",
        &format!("{GUARD} surus_serve(function () {{ echo 'page, '; }});"),
        GUARDED,
        "",
        How::Ini,
    )
    .unwrap_or_else(|log| panic!("{log}"));
    let path = |name: &str| site.dir.path().join(name);
    std::fs::write(path("cgi.php"), format!("<?php {GUARD} {GUARDED}")).unwrap();
    std::fs::write(path("page.php"), "<?php echo 'page, ';").unwrap();
    let first = site.get("/pid.php").body;
    assert!(first.starts_with("PAGE, SHUTDOWN, SECOND"), "{first}");
    for query in [
        "",
        "throws=second",
        "throws=element",
        "exits=first",
        "exits=kept",
        "fails=second",
    ] {
        let expected = by_cgi(&path("page.php"), &path("cgi.php"), query);
        for _ in 0..2 {
            let answer = site.get(&format!("/?{query}"));
            assert_eq!((answer.status, answer.body), expected, "{query}");
        }
    }
}

/// php-cgi's response.
fn by_cgi(script: &Path, prepended: &Path, query: &str) -> (u16, String) {
    let php = std::process::Command::new("php-cgi")
        .args(["-d", "cgi.force_redirect=0", "-d", "display_errors=0", "-d"])
        .arg(format!("auto_prepend_file={}", prepended.display()))
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .env("GATEWAY_INTERFACE", "CGI/1.1")
        .env("REQUEST_METHOD", "GET")
        .env("QUERY_STRING", query)
        .env("SCRIPT_FILENAME", script)
        .output()
        .unwrap();
    let text = String::from_utf8(php.stdout).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.lines().find_map(|line| line.strip_prefix("Status: "));
    let status = status.map_or(200, |status| status[..3].parse().unwrap());
    (status, body.to_string())
}

#[test]
fn worker_rejects_auto_files_that_work_once_per_process() {
    for (code, words) in [
        ("\nfunction f() {}", "before.php declares a function, which"),
        (
            "\nif (1) {\nfunction f() {} }",
            "declares a function in line 3",
        ),
        ("class Firewall {}", "before.php declares a class, which"),
        ("const A = 1;", "declares a constant in line 1"),
        ("\n\n\\define('A', 1);", "declares a constant in line 3"),
        (
            "namespace N; define('A', 1);",
            "declares a constant in line 1",
        ),
        (
            "\n(function () {\n include_once 'rules.php'; })();",
            "includes a file or evaluates code in line 3",
        ),
        (
            "eval('function f() {}');",
            "includes a file or evaluates code in line 1",
        ),
        (
            "class_alias('ArrayObject', 'Firewall');",
            "declares a class in line 1",
        ),
        (
            "namespace N; stream_wrapper_register('waf', 'Wrapper');",
            "registers a stream wrapper in line 1",
        ),
        ("parse error", "syntax error"),
    ] {
        for opcache in ["1", "0"] {
            let Err(log) = guarded_with_opcache(code, opcache) else {
                panic!("it has started: {code}")
            };
            assert!(log.contains(words), "{code}: {words}\n{log}");
            assert!(!log.contains("without serving anything"), "{log}");
        }
    }
    let missing = [("SURUS_PHP_AUTO_APPEND_FILE", "/nowhere/after.php")];
    let Err(log) = try_booted("worker", HANDLER, &["--workers", "1"], &missing) else {
        panic!("it has started without its file")
    };
    assert!(log.contains("/nowhere/after.php"), "{log}");
}

const FIREWALL: &str =
    "if (isset($_GET['attack'])) { http_response_code(403); echo 'blocked'; exit; }";

/// Guards that skip all but the first request of a process. The file alone does not show that; some
/// of it can be undone without another process.
#[test]
fn request_with_a_once_per_process_effect_ends_its_worker() {
    let boot = "class Loader {
            static function load() { include_once __DIR__ . '/rules.php'; }
            static function define() { if (defined('ONCE')) return true; define('ONCE', 1); }
        }
        class Wrapper { public $context; }
        spl_autoload_register(function ($class) { eval(\"class $class {} function of_$class() {} \
        define('$class', 1);\"); });
        surus_serve(function () {
            if (isset($_GET['late'])) spl_autoload_register('strlen');
            echo getmypid();
        });";
    let autoloads = "if (count(spl_autoload_functions()) > 1 && !in_array('strlen', \
        spl_autoload_functions())) return;
        spl_autoload_register(function ($class) {}); spl_autoload_register('trim');";
    let calls = "$call = 'call_user_func';";
    for (guard, keeps) in [
        ("Loader::load();", true),
        (autoloads, true),
        ("new Autoloaded; class_exists('Other');", true),
        ("if (Loader::define()) return;", false),
        (
            &format!("{calls} if (defined('F')) return; $call('define', 'F', 1);"),
            false,
        ),
        (
            &format!(
                "{calls} if (class_exists('F', false)) return; $call('class_alias', 'Loader', 'F');"
            ),
            false,
        ),
        (
            &format!(
                "{calls} if (in_array('waf', stream_get_wrappers())) return; \
                    $call('stream_wrapper_register', 'waf', 'Wrapper');"
            ),
            false,
        ),
        (
            &format!(
                "{calls} if (!$call('stream_filter_register', 'waf', 'php_user_filter')) return;"
            ),
            false,
        ),
    ] {
        let dir = app();
        let before = dir.path().join("before.php");
        let rules = dir.path().join("rules.php");
        // In the included file, or after the guard.
        let own = if guard == "Loader::load();" {
            ""
        } else {
            FIREWALL
        };
        std::fs::write(&before, format!("<?php {guard} {own}")).unwrap();
        std::fs::write(rules, format!("<?php {FIREWALL}")).unwrap();
        let env = [("SURUS_PHP_AUTO_PREPEND_FILE", before.to_str().unwrap())];
        let site = boot_in(dir, "worker", boot, &["--workers", "1"], &env)
            .unwrap_or_else(|log| panic!("{guard}\n{log}"));
        let mut pids = std::collections::BTreeSet::new();
        for _ in 0..3 {
            pids.insert(site.get("/").body);
            asserts(&site, guard, "/?attack", 403, "blocked");
            pids.insert(site.get("/?late").body);
        }
        let log = site.surus.log();
        assert_eq!(pids.len(), if keeps { 1 } else { 6 }, "{guard}\n{log}");
        assert_eq!(log.contains("takes effect once"), !keeps, "{guard}\n{log}");
    }
}

fn guarded_with_opcache(code: &str, opcache: &str) -> Result<Site, String> {
    let dir = app();
    let before = dir.path().join("before.php");
    std::fs::write(&before, format!("<?php {code}")).unwrap();
    let env = [
        ("SURUS_PHP_AUTO_PREPEND_FILE", before.to_str().unwrap()),
        ("SURUS_PHP_OPCACHE__ENABLE", opcache),
    ];
    let env = env.to_vec();
    boot_in(dir, "worker", HANDLER, &["--workers", "1"], &env)
}

#[test]
fn missing_prepended_file_fails_every_request() {
    for engine in ["rewind", "standby"] {
        let missing = [("SURUS_PHP_AUTO_PREPEND_FILE", "/nowhere/before.php")];
        let site = try_booted(engine, HANDLER, &["--workers", "1"], &missing).unwrap();
        for _ in 0..2 {
            assert_eq!(site.get("/").status, 500, "{engine}");
        }
        site.surus
            .wait_for_log(|log| log.contains("Failed opening required '/nowhere/before.php'"));
    }
}

#[test]
fn boot_and_warm_ups_run_without_auto_files() {
    for engine in ["rewind", "fork", "standby", "worker"] {
        let boot = "if (isset($from_prepended)) exit('prepended to the boot');
            $calls = 0;
            surus_serve(function () use (&$calls) {
                echo ++$calls, ' ', $GLOBALS['from_prepended'] ?? 'alone', ' ', \
                ini_get('auto_append_file'), bin2hex(random_bytes(8));
                $GLOBALS['from_handler'] = 'sees the page';
            });";
        let dir = app();
        let before = dir.path().join("before.php");
        std::fs::write(&before, "<?php $from_prepended = 'guarded';").unwrap();
        let env = [
            ("SURUS_PHP_AUTO_PREPEND_FILE", before.to_str().unwrap()),
            ("SURUS_ENGINE_WARMUP", "/"),
        ];
        let site = boot_in(dir, engine, boot, &["--workers", "1"], &env).unwrap();
        let page = site.get("/").body;
        assert!(page.starts_with("2 guarded "), "{engine}: {page}");
        assert_eq!(page.len(), "2 guarded ".len() + 16, "{engine}: {page}");
    }
}

#[test]
fn relative_auto_files_resolve_as_in_the_boot() {
    for engine in ["rewind", "fork", "standby", "worker"] {
        for name in ["guard.php", "./guard.php"] {
            let dir = app();
            let other = dir.path().join("other");
            std::fs::create_dir(&other).unwrap();
            std::fs::write(dir.path().join("guard.php"), "<?php echo 'guard ';").unwrap();
            std::fs::write(other.join("guard.php"), "<?php echo 'other ';").unwrap();
            let handler = "surus_serve(function () {
                echo 'page ';
                chdir(__DIR__ . '/other');
                set_include_path(__DIR__ . '/other');
            });";
            let files = [
                ("SURUS_PHP_AUTO_PREPEND_FILE", name),
                ("SURUS_PHP_AUTO_APPEND_FILE", name),
            ];
            let site = boot_in(dir, engine, handler, &["--workers", "1"], &files).unwrap();
            for _ in 0..3 {
                asserts(&site, engine, "/", 200, "guard page guard ");
            }
        }
    }
}

#[test]
fn boot_is_rejected_if_a_section_of_php_ini_sets_auto_files_of_some_requests_only() {
    for engine in ["rewind", "fork", "standby", "worker"] {
        for (name, of_host) in [
            ("auto_prepend_file", true),
            ("auto_append_file", true),
            ("auto_prepend_file", false),
            ("auto_append_file", false),
        ] {
            let dir = app();
            let section = match of_host {
                true => "[HOST=example.org]".to_owned(),
                false => format!("[PATH={}/admin]", dir.path().display()),
            };
            let text = format!("{section}\n{name} = /nowhere/guard.php\n");
            let log = with_ini(dir, engine, &text).err();
            let log = log.expect("the boot is refused");
            assert!(log.contains(name) && log.contains(&section), "{log}");
        }
    }
}

/// A boot with this text in php.ini.
fn with_ini(dir: tempfile::TempDir, engine: &str, text: &str) -> Result<Site, String> {
    let file = dir.path().join("php.ini");
    std::fs::write(&file, text).unwrap();
    let ini = [("SURUS_ENGINE_INI_FILE", file.to_str().unwrap())];
    let handler = "surus_serve(function () { echo 'page'; });";
    boot_in(dir, engine, handler, &["--workers", "1"], &ini)
}

#[test]
fn path_section_of_php_ini_sets_auto_files_of_its_scripts() {
    for engine in ["rewind", "fork", "standby", "worker"] {
        let dir = app();
        let path = dir.path().display();
        std::fs::write(dir.path().join("guard.php"), "<?php echo 'guard ';").unwrap();
        // The file runs for all of them, or no request is for them.
        let text = format!(
            "[PATH={path}]\nauto_prepend_file = {path}/guard.php\n\
             [PATH={path}/same/]\nauto_prepend_file = {path}/guard.php\n\
             [PATH={path}/without]\nauto_prepend_file = none\nauto_append_file =\n\
             [PATH={path}-other]\nauto_prepend_file = /nowhere/guard.php\n\
             [PATH=/elsewhere]\nauto_prepend_file = /nowhere/guard.php\n"
        );
        let site = with_ini(dir, engine, &text).unwrap_or_else(|log| panic!("{engine}\n{log}"));
        asserts(&site, engine, "/", 200, "guard page");
    }
}
