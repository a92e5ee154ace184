//! Tests what a worker that continues (`worker`, `classic`) holds after its requests.

use std::path::Path;
use std::process::Command;

use crate::booted::{BOOT, boot_in};
use crate::common::php::all_extensions;
use crate::common::{Surus, spool};
use crate::request_bodies::files;
use crate::site::{Answer, Site, app, ask, descriptors};

/// What a request does, and its body.
const KINDS: &[(&str, &str)] = &[
    ("nothing", "echo count($_POST);"),
    ("input", "echo strlen(file_get_contents('php://input'));"),
    (
        "input_kept",
        "$GLOBALS['kept'] = fopen('php://input', 'r'); fread($GLOBALS['kept'], 10);",
    ),
    (
        "exit",
        "$GLOBALS['h'] = fopen('php://input', 'r'); exit(1);",
    ),
    ("throw", "throw new Exception('thrown');"),
    (
        "callback",
        "echo 'x'; flush(); header_register_callback(function () { header('X: y'); });",
    ),
    (
        "handlers",
        "set_error_handler(fn () => false); set_exception_handler(fn () => null);",
    ),
    (
        "rewrite",
        "output_add_rewrite_var('a', 'b'); echo '<a href=\"x\">';",
    ),
    (
        "libxml",
        "libxml_use_internal_errors(true); (new DOMDocument)->loadXML('<left');",
    ),
    (
        "session",
        "session_id('held'); session_start(); $_SESSION['n'] = 1;",
    ),
    (
        "temp",
        "fwrite(fopen('php://temp', 'w+'), str_repeat('x', 3 << 20));",
    ),
    (
        "temp_file",
        "$GLOBALS['t'] = tmpfile(); fwrite($GLOBALS['t'], 'x'); echo count($_FILES);",
    ),
    ("finish", "echo 'x'; fastcgi_finish_request(); echo 'y';"),
    (
        "body_closed",
        "foreach (get_resources('stream') as $s) is_resource($s) && @fclose($s);",
    ),
    (
        "wrapper",
        "if (!class_exists('W', false)) { class W { public $context; } } \
            stream_wrapper_unregister('data'); stream_wrapper_register('data', 'W');
         stream_wrapper_restore('data');",
    ),
    (
        "wrapper_open",
        "if (!class_exists('O', false)) { class O { public $context; function stream_open() { \
            return true; } function stream_eof() { return true; } function stream_close() {} } }
         stream_wrapper_unregister('data'); stream_wrapper_register('data', 'O'); $GLOBALS['o'] = \
         fopen('data:,', 'r');",
    ),
    (
        "wrapper_new",
        "if (!class_exists('N', false)) { class N { public $context; } } \
            stream_wrapper_register('new', 'N') && stream_wrapper_unregister('new');",
    ),
    (
        "ticks",
        "register_tick_function(function () { static $n; }); \
            register_shutdown_function('register_tick_function', fn () => 1);",
    ),
    (
        "phar",
        "$f = __DIR__ . '/writable/' . getmypid() . '.tar'; (new PharData($f))->addFromString('a', \
            'a');
         file_get_contents(\"phar://$f/a\"); fopen(\"phar://$f/a\", 'r'); unlink($f);",
    ),
    ("directory", "opendir(__DIR__); readdir();"),
    (
        "directory_object",
        "$GLOBALS['d'] = dir(__DIR__); opendir(__DIR__); unset($GLOBALS['d']);",
    ),
    ("date", "date_create('no date'); json_decode('{'); mb_ereg_search_init('a', 'a');"),
    ("error", "@trigger_error(str_repeat('x', random_int(1, 1000))); strtok('a b', ' ');"),
];

const PROBE: &str = "gc_collect_cycles(); echo json_encode([
    getmypid(), memory_get_usage(), count(get_resources())]);";

struct Body {
    method: &'static str,
    content_type: &'static str,
    len: usize,
}

const BODIES: &[Body] = &[
    Body {
        method: "GET",
        content_type: "text/plain",
        len: 0,
    },
    Body {
        method: "POST",
        content_type: "application/x-www-form-urlencoded",
        len: 20,
    },
    Body {
        method: "POST",
        content_type: "application/x-www-form-urlencoded",
        len: 30_000,
    },
    Body {
        method: "POST",
        content_type: "application/json",
        len: 100_000,
    },
    Body {
        method: "PUT",
        content_type: "application/json",
        len: 30_000,
    },
    Body {
        method: "POST",
        content_type: "multipart/form-data; boundary=b",
        len: 100,
    },
];

fn body(body: &Body) -> String {
    let filled = "x".repeat(body.len);
    match body.content_type.starts_with("multipart") {
        true => format!(
            "--b\r\nContent-Disposition: form-data; name=\"f\"; \
                filename=\"f\"\r\n\r\n{filled}\r\n--b--\r\n"
        ),
        false => format!("a={filled}"),
    }
}

fn send(site: &Site, path: &str, with: &Body) -> Answer {
    let body = body(with);
    let text = format!(
        "{} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: \
            {}\r\nContent-Length: {}\r\n\r\n{body}",
        with.method,
        with.content_type,
        body.len()
    );
    ask(&site.surus.address, text.as_bytes()).expect("an answer")
}

#[derive(Debug)]
struct Held {
    pid: u32,
    /// Bytes that PHP's allocator holds.
    memory: u64,
    resources: u64,
    descriptors: usize,
    /// Files in the directory for temporary ones.
    files: Vec<String>,
}

fn held(site: &Site, temporary: &Path) -> Held {
    let answer = site.get("/probe.php").body;
    let numbers: Vec<u64> = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}"));
    let pid = numbers[0] as u32;
    Held {
        pid,
        memory: numbers[1],
        resources: numbers[2],
        descriptors: descriptors(pid),
        files: files(temporary),
    }
}

fn started(engine: &str, env: &[(&str, &str)]) -> Site {
    let dir = app();
    std::fs::write(dir.path().join("probe.php"), format!("<?php {PROBE}")).unwrap();
    for (name, code) in KINDS {
        let file = dir.path().join(format!("{name}.php"));
        std::fs::write(file, format!("<?php {code}")).unwrap();
    }
    // OPcache does not cache files younger than two seconds (opcache.file_update_protection). Code
    // that PHP compiles again for each request stays in its memory until the worker exits.
    let old = Command::new("find")
        .arg(dir.path())
        .args(["-exec", "touch", "-d", "1 hour ago", "{}", "+"])
        .status();
    assert!(old.unwrap().success());
    match engine {
        "classic" => {
            let surus = Surus::spawn(dir.path(), &["--workers", "1"], env).unwrap();
            Site { surus, dir }
        }
        _ => boot_in(dir, engine, BOOT, &["--workers", "1"], env).unwrap(),
    }
}

#[test]
fn worker_does_not_grow_with_the_number_of_requests() {
    let requests = std::env::var("HELD_REQUESTS").map_or(600, |n| n.parse().unwrap());
    let rounds = usize::div_ceil(requests, KINDS.len() * BODIES.len());
    for engine in ["worker", "classic"] {
        let temporary = spool();
        let place = temporary.path().to_str().unwrap();
        let env = [
            ("SURUS_HTTP_TEMP_DIR", place),
            ("SURUS_PHP_SYS_TEMP_DIR", place),
            ("SURUS_PHP_UPLOAD_TMP_DIR", place),
            all_extensions(),
        ];
        let site = started(engine, &env);
        let ask_all = |times: usize| {
            for _ in 0..times {
                for (name, _) in KINDS {
                    for body in BODIES {
                        let answer = send(&site, &format!("/{name}.php"), body);
                        let is_fine = answer.status == 200 || *name == "throw";
                        assert!(is_fine, "{engine} {name}: {answer:?}");
                    }
                }
            }
        };
        // Fills PHP's caches and the handlers that it keeps.
        ask_all(4);
        held(&site, temporary.path());
        let before = held(&site, temporary.path());
        let mut after = held(&site, temporary.path());
        let mut memory = vec![after.memory];
        for _ in 0..rounds {
            ask_all(1);
            after = held(&site, temporary.path());
            memory.push(after.memory);
        }
        println!("{engine}: {before:?} and then {after:?}, {memory:?}");
        let growth = format!("{engine}: {before:?} became {after:?}, {memory:?}");
        assert_eq!(before.pid, after.pid, "another worker, {growth}");
        assert_eq!(before.resources, after.resources, "{growth}");
        assert_eq!(before.descriptors, after.descriptors, "{growth}");
        assert!(after.memory < before.memory + 4096, "{growth}");
        // Tables of PHP grow now and then, a leak of any kind of request in every round.
        let grown = memory.windows(2).filter(|two| two[1] > two[0]).count();
        assert!(grown <= rounds / 4, "{growth}");
        assert_eq!(after.files, [""; 0], "{growth}");
    }
}

#[test]
fn worker_that_runs_out_of_descriptors_is_replaced() {
    // A request may leave as many as stay free, an eighth.
    for left in [3, 12] {
        let dir = app();
        let code = format!(
            "<?php for ($i = 0; $i < {left}; $i++) $GLOBALS['left'][] = fopen(__FILE__, 'r') ?: \
                throw new Exception('full');
                echo getmypid();"
        );
        std::fs::write(dir.path().join("leave.php"), code).unwrap();
        let boot = format!("posix_setrlimit(POSIX_RLIMIT_NOFILE, 128, 128); {BOOT}");
        let site = boot_in(dir, "worker", &boot, &["--workers", "1"], &[]).unwrap();
        let mut pids = std::collections::BTreeSet::new();
        for _ in 0..150 {
            let answer = site.get("/leave.php");
            assert_eq!(answer.status, 200, "{left}: {}", site.surus.log());
            pids.insert(answer.body);
        }
        assert!(pids.len() > 3, "{left}: {pids:?}");
        site.surus.wait_for_log(|log| {
            log.contains("nearly all of the 128 that a process may have")
                && log.contains("no_descriptors")
        });
        let log = site.surus.log();
        assert!(log.contains("worker replaced (logged once"), "{log}");
        assert!(!log.contains("worker crashed"), "{log}");
    }
}

/// A worker of `worker`, with `boot` before a handler that requires the requested file.
pub fn worker(boot: &str, files: &[(&str, &str)]) -> Site {
    let dir = app();
    for (name, code) in files {
        std::fs::write(dir.path().join(name), format!("<?php {code}")).unwrap();
    }
    let boot = format!(
        "{boot} surus_serve(function () {{ require __DIR__ . $_SERVER['SCRIPT_NAME']; }});"
    );
    boot_in(
        dir,
        "worker",
        &boot,
        &["--workers", "1"],
        &[all_extensions()],
    )
    .unwrap()
}

#[test]
fn cycles_of_a_request_are_destroyed_at_its_end() {
    let kinds = [
        ("file.php", "$a->left = fopen(__FILE__, 'r');"),
        (
            "lock.php",
            "$a->left = fopen(__FILE__, 'r'); if (!flock($a->left, LOCK_EX | LOCK_NB)) \
                exit('locked');",
        ),
        ("object.php", "$a->left = new SplFileObject(__FILE__);"),
        (
            "destructor.php",
            "$a->left = new class { function __destruct() { echo 'destroyed'; } };",
        ),
    ];
    let code = |kind: &str| format!("$a = new stdClass; $a->self = $a; {kind} unset($a);");
    let kinds = kinds.map(|(name, kind)| (name, code(kind)));
    let mut files: Vec<(&str, &str)> = kinds.iter().map(|(n, c)| (*n, c.as_str())).collect();
    files.push(("pid.php", "echo getmypid();"));
    let site = worker("gc_enable();", &files);
    let pid = site.get("/pid.php").body;
    let before = descriptors(pid.parse().unwrap());
    for _ in 0..3 {
        for (name, expected) in [
            ("/file.php", ""),
            ("/lock.php", ""),
            ("/object.php", ""),
            ("/destructor.php", "destroyed"),
        ] {
            assert_eq!(site.get(name).body, expected, "{name}");
            assert_eq!(descriptors(pid.parse().unwrap()), before, "{name}");
        }
    }
    assert_eq!(site.get("/pid.php").body, pid);
}

/// A client waits for its own request, not for the garbage of earlier ones.
#[test]
fn memory_only_cycles_are_collected_between_requests() {
    let leave = "$runs = gc_status()['runs'];
        for ($i = 0; $i < 400; $i++) { $a = new stdClass; $a->self = $a; }
        echo json_encode([getmypid(), $runs, gc_status()['runs'] - $runs]);";
    let site = worker("gc_enable();", &[("leave.php", leave)]);
    let ask = || -> [u64; 3] { serde_json::from_str(&site.get("/leave.php").body).unwrap() };
    let [pid, first, _] = ask();
    for _ in 0..60 {
        let [same, _, meanwhile] = ask();
        assert_eq!((same, meanwhile), (pid, 0));
    }
    let [_, last, _] = ask();
    assert!(last > first, "61 requests have left 24,400 cycles");
}

#[test]
fn default_stream_context_is_restored_after_each_request() {
    let set = (
        "set.php",
        "stream_context_set_default(['http' => ['user_agent' => 'left', 'method' => 'PUT']]);",
    );
    let see = (
        "see.php",
        "echo json_encode(stream_context_get_options(stream_context_get_default()));",
    );
    for (boot, expected) in [
        ("", "[]"),
        (
            "stream_context_set_default(['http' => ['user_agent' => 'boot']]);",
            r#"{"http":{"user_agent":"boot"}}"#,
        ),
    ] {
        let site = worker(boot, &[set, see]);
        for _ in 0..3 {
            assert_eq!(site.get("/see.php").body, expected);
            assert_eq!(site.get("/set.php").status, 200);
        }
        assert_eq!(site.get("/see.php").body, expected);
    }
}

#[test]
fn state_of_libxml_is_restored_after_each_request() {
    let set = |value: &str| {
        format!(
            "libxml_set_external_entity_loader(fn () => 'see://{value}'); \
             libxml_use_internal_errors(true); \
             libxml_set_streams_context(stream_context_create(['see' => ['is' => '{value}']]));"
        )
    };
    let wrapper = "class See {
            public $context;
            function stream_open() {
                $GLOBALS['context'] = stream_context_get_options($this->context)['see'] ?? null;
                return false;
            }
            function url_stat() { return []; }
        }
        stream_wrapper_register('see', 'See');";
    let see = "@(new DOMDocument)->load('see://x');
        $loader = libxml_get_external_entity_loader();
        echo json_encode([$loader ? $loader('', '', []) : null, $GLOBALS['context'],
            libxml_use_internal_errors()], JSON_UNESCAPED_SLASHES);";
    for (boot, expected) in [
        (String::new(), "[null,null,false]"),
        (set("boot"), r#"["see://boot",{"is":"boot"},true]"#),
    ] {
        let boot = format!("{wrapper} {boot}");
        let site = worker(&boot, &[("set.php", &set("left")), ("see.php", see)]);
        for _ in 0..3 {
            assert_eq!(site.get("/see.php").body, expected);
            assert_eq!(site.get("/set.php").status, 200);
        }
        assert_eq!(site.get("/see.php").body, expected);
    }
}

#[test]
fn directory_umask_alarm_and_seed_are_restored_after_each_request() {
    let set = (
        "set.php",
        "chdir('/'); umask(0777); mt_srand(42); pcntl_signal(SIGALRM, SIG_IGN); pcntl_alarm(1000);",
    );
    let see = (
        "see.php",
        "echo json_encode([getcwd() === __DIR__, decoct(umask()), mt_rand() === 804318771, \
            pcntl_alarm(0)]);",
    );
    let site = worker("chdir(__DIR__); umask(027); mt_srand(42);", &[set, see]);
    for _ in 0..3 {
        assert_eq!(site.get("/see.php").body, r#"[true,"27",false,0]"#);
        assert_eq!(site.get("/set.php").status, 200);
    }
    assert_eq!(site.get("/see.php").body, r#"[true,"27",false,0]"#);
}

#[test]
fn alarm_of_the_boot_stays_pending() {
    let see = ("see.php", "$n = pcntl_alarm(1000); echo $n > 0;");
    let site = worker("pcntl_signal(SIGALRM, SIG_IGN); pcntl_alarm(1000);", &[see]);
    for _ in 0..3 {
        assert_eq!(site.get("/see.php").body, "1");
    }
}
