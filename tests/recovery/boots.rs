//! Tests failures of a boot and their messages.

use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::booted::{BOOT, try_booted};
use crate::common::Surus;
use crate::site::{Site, app, is_root};

/// The log of a boot that must fail, as soon as it does.
fn refusal(engine: &str, boot: &str, env: &[(&str, &str)]) -> String {
    match try_booted(engine, boot, &["--workers", "1"], env) {
        Ok(site) => panic!("it has started:\n{}", site.surus.log()),
        Err(log) => log,
    }
}

#[test]
fn failed_boot_reports_the_reason() {
    for (boot, words) in [
        ("echo 'nothing';", "has ended without serving anything"),
        (
            "no_such_function();",
            "Call to undefined function no_such_function()",
        ),
        (
            "throw new LogicException('these words');",
            "Uncaught LogicException: these words",
        ),
        ("exit(1);", "has ended without serving anything"),
        (
            "posix_kill(posix_getpid(), 11); sleep(1);",
            "PHP did not start",
        ),
        // As the kernel does without free memory.
        (
            "posix_kill(posix_getpid(), 9); sleep(1);",
            "PHP did not start",
        ),
        (
            "ini_set('memory_limit', '8M'); str_repeat('x', 64 << 20);",
            "Allowed memory size",
        ),
        (
            "while (true) {}",
            "PHP was not ready within 2 seconds (engine.boot_timeout)",
        ),
        ("surus_serve('no_such_function');", "no_such_function"),
    ] {
        for engine in ["rewind", "standby"] {
            let limit = [("SURUS_ENGINE_BOOT_TIMEOUT", "2s")];
            let limit = &limit[..usize::from(words.contains("boot_timeout"))];
            let log = refusal(engine, boot, limit);
            let words = match engine {
                "standby" if words == "PHP did not start" => "a worker exited during start-up",
                _ => words,
            };
            assert!(log.contains(words), "{engine}: {boot}\n{log}");
            // After an exception, the missing surus_serve() is not reported.
            let is_fatal = boot.contains("no_such_function") || boot.contains("throw");
            assert!(!is_fatal || !log.contains("calls surus_serve"), "{log}");
        }
    }
}

#[test]
fn failed_warm_up_stops_the_boot() {
    for (path, words) in [
        (
            "/throw.php",
            "the warm-up /throw.php was answered with an error",
        ),
        (
            "/limit.php",
            "the warm-up /limit.php ended in a fatal error",
        ),
        ("/exit.php", "has ended without serving"),
        ("/segfault.php", "PHP did not start"),
        ("/kill.php", "PHP did not start"),
        ("/loop.php", "PHP was not ready within 2 seconds"),
    ] {
        let dir = app();
        for (name, code) in [
            ("throw.php", "throw new Exception;"),
            ("exit.php", "exit;"),
            ("kill.php", "posix_kill(posix_getpid(), 9); sleep(1);"),
        ] {
            std::fs::write(dir.path().join(name), format!("<?php {code}")).unwrap();
        }
        let script = dir.path().join("boot.php");
        std::fs::write(&script, format!("<?php {BOOT}")).unwrap();
        let limit = if path == "/loop.php" { "2s" } else { "25s" };
        let surus = Surus::spawn(
            dir.path(),
            &["--workers", "1"],
            &[
                ("SURUS_ENGINE_NAME", "rewind"),
                ("SURUS_ENGINE_SCRIPT", script.to_str().unwrap()),
                ("SURUS_ENGINE_WARMUP", path),
                ("SURUS_ENGINE_BOOT_TIMEOUT", limit),
            ],
        );
        match surus {
            // A handler that calls exit() has responded.
            Ok(_) if path == "/exit.php" => {}
            Ok(surus) => panic!("{path}: it has started:\n{}", surus.log()),
            Err(log) => assert!(log.contains(words), "{path}\n{log}"),
        }
    }
}

#[test]
fn boot_sleeps_as_long_as_it_asks() {
    let boot = "$left = sleep(3); surus_serve(function () use ($left) { echo $left; });";
    for engine in ["rewind", "fork"] {
        let site = try_booted(engine, boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{log}"));
        assert_eq!(site.get("/").body, "0", "{engine}");
    }
}

#[test]
fn kept_boot_time_is_reported() {
    let boot = "define('NOW', $_SERVER['REQUEST_TIME']);
        class Clock { public static $now, $other = 5; private static $began; static function set() {
            static $since; $since = self::$now = $_SERVER['REQUEST_TIME'];
            self::$began = $_SERVER['REQUEST_TIME_FLOAT']; } }
        class Child extends Clock {}
        function began() { static $at; return $at ??= $_SERVER['REQUEST_TIME_FLOAT']; }
        function fine() { static $at = 3; return $at; }
        Child::set(); began(); fine(); const OTHER = 7;
        surus_serve(function () { echo $_SERVER['REQUEST_TIME'] - NOW >= 0 ? 'later' : 'before'; \
        });";
    for engine in ["rewind", "fork", "standby", "worker"] {
        let site = try_booted(engine, boot, &["--workers", "2"], &[])
            .unwrap_or_else(|log| panic!("{log}"));
        assert_eq!(site.get("/").body, "later", "{engine}");
        for kept in [
            "the constant NOW keeps",
            "the static property Clock::$now keeps",
            "the static property Clock::$began keeps",
            "the static variable set(): $since keeps",
            "the static variable began(): $at keeps",
        ] {
            site.surus.wait_for_log(|log| log.contains(kept));
        }
        let log = site.surus.log();
        assert_eq!(
            log.matches("the time of the boot").count(),
            5,
            "{engine}\n{log}"
        );
    }
}

#[test]
fn boot_time_within_arrays_objects_and_texts_is_reported() {
    let boot = "$time = $_SERVER['REQUEST_TIME'];
        $config = ['server' => $_SERVER, 'a' => ['began' => $time]];
        class Kept { static $one; static $text = 'since 1'; public $next; private $at;
            function __construct($time) { $this->at = (object) ['text' => \"v=$time\"]; } }
        Kept::$one = new Kept($time); Kept::$one->next = Kept::$one;
        $late = $time + 1000; $long = \"1$time\"; unset($time);
        define('TIMES', [7, $_SERVER['REQUEST_TIME_FLOAT']]);
        $handler = function () { echo 'fine'; };
        surus_serve($handler);";
    for engine in ["rewind", "worker"] {
        let site = try_booted(engine, boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{log}"));
        assert_eq!(site.get("/").body, "fine", "{engine}");
        for kept in [
            "the constant TIMES[1] keeps",
            "the variable $config['a']['began'] keeps",
            "the static property Kept::$one->at->text keeps",
        ] {
            site.surus.wait_for_log(|log| log.contains(kept));
        }
        let log = site.surus.log();
        let count = log.matches("the time of the boot").count();
        assert_eq!(count, 3, "{engine}\n{log}");
    }
}

#[test]
fn unshareable_descriptor_of_the_boot_is_rejected_by_name() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("peer");
    let _listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(
        place.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap().to_string();
    let connect = |peer: &str| {
        format!(
            "$s = stream_socket_client('{peer}') or exit; surus_serve(fn () => print \
                fwrite($GLOBALS['s'], 'x'));"
        )
    };
    let unix = format!("unix:{}", path.display());
    for (boot, peer) in [
        (connect(&format!("unix://{}", path.display())), &unix),
        (connect(&format!("tcp://{address}")), &address),
    ] {
        for engine in ["rewind", "fork"] {
            let log = refusal(engine, &boot, &[]);
            assert!(
                log.contains(&format!("a connection to {peer} open"))
                    && log.contains("engine.shared_sockets"),
                "{log}"
            );
            let shared = format!("[\"{peer}\"]");
            let site = try_booted(
                engine,
                &boot,
                &["--workers", "1"],
                &[("SURUS_ENGINE_SHARED_SOCKETS", &shared)],
            )
            .unwrap_or_else(|log| panic!("{log}"));
            for _ in 0..3 {
                assert_eq!(site.get("/hello.php").body, "1");
            }
        }
    }
    let lazily = format!(
        "surus_serve(function () {{ static $s; $s ??= stream_socket_client('tcp://{address}'); \
            echo 'x'; }});"
    );
    let log = refusal(
        "rewind",
        &lazily,
        &[("SURUS_ENGINE_WARMUP", "/hello.php,/pid.php")],
    );
    assert!(
        log.contains(&format!(
            "after the warm-up /hello.php: the boot leaves a connection to {address} open"
        )),
        "{log}"
    );
    let boot = "$p = proc_open(['sleep', '20'], [], $pipes); surus_serve(fn () => print 'x');";
    let log = refusal("rewind", boot, &[]);
    assert!(log.contains("leaves a child process running"), "{log}");
    let boot = "$c = FFI::cdef('int pthread_create(unsigned long *thread, void *attributes, void \
        *start, void *argument);
            void *dlsym(void *handle, const char *name);', 'libc.so.6');
        $thread = FFI::cdef()->new('unsigned long');
        $c->pthread_create(FFI::addr($thread), null, $c->dlsym(null, 'pause'), null) === 0 or exit;
        surus_serve(fn () => print 'x');";
    for engine in ["rewind", "fork"] {
        let log = refusal(engine, boot, &[("SURUS_PHP_FFI__ENABLE", "true")]);
        assert!(log.contains("leaves a thread running"), "{log}");
    }
}

#[test]
fn pipe_left_open_by_the_boot_is_rejected_by_name() {
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    let made = Command::new("mkfifo")
        .args(["-m", "666"])
        .arg(&fifo)
        .status();
    assert!(made.unwrap().success());
    std::fs::set_permissions(
        place.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let fifo = fifo.display();
    let pipe = "$c = FFI::cdef('int pipe(int *ends); int close(int fd);', 'libc.so.6'); $ends = \
        $c->new('int[2]'); $c->pipe($ends) === 0 or exit;";
    let serve = "surus_serve(fn () => print 'served');";
    for (boot, left) in [
        (
            "$p = popen('true', 'w');".to_string(),
            "a pipe open (descriptor ",
        ),
        (
            "$p = popen('true', 'w');".to_string(),
            "opened by popen() or proc_open(), Resource id #",
        ),
        (
            "$p = proc_open(['true'], [1 => ['pipe', 'w']], $pipes);".to_string(),
            "opened by popen() or proc_open(), Resource id #",
        ),
        (
            format!("{pipe} $c->close($ends[1]);"),
            "opened by a library, not by PHP",
        ),
        (format!("$f = fopen('{fifo}', 'r+');"), "the FIFO /"),
    ] {
        for engine in ["rewind", "fork"] {
            let log = refusal(
                engine,
                &format!("{boot} {serve}"),
                &[("SURUS_PHP_FFI__ENABLE", "true")],
            );
            assert!(
                log.contains(left) && log.contains("close it before the boot ends"),
                "{engine}: {boot}\n{log}"
            );
        }
    }
    // If each worker boots, none shares it.
    let own = format!("$f = fopen('{fifo}', 'r+'); {serve}");
    let shared = format!("[\"fifo:{fifo}\"]");
    let may = [("SURUS_ENGINE_SHARED_SOCKETS", shared.as_str())];
    let ffi = [("SURUS_PHP_FFI__ENABLE", "true")];
    for (engine, boot, env) in [
        ("standby", own.clone(), &[][..]),
        ("worker", own.clone(), &[]),
        ("rewind", own.clone(), &may),
        ("fork", own, &may),
        // Output to it is logged, from any process.
        (
            "rewind",
            format!("$f = fopen('php://stderr', 'w'); {serve}"),
            &[],
        ),
        // The other end is closed.
        ("rewind", format!("{pipe} {serve}"), &ffi),
        ("fork", format!("{pipe} {serve}"), &ffi),
    ] {
        let site = try_booted(engine, &boot, &["--workers", "1"], env)
            .unwrap_or_else(|log| panic!("{engine}: {boot}\n{log}"));
        assert_eq!(site.get("/hello.php").body, "served", "{engine}: {boot}");
    }
}

#[test]
fn descriptor_without_a_file_is_rejected_or_private_to_each_worker() {
    let c = "$c = FFI::cdef('int eventfd(unsigned, int); int epoll_create1(int); int \
        inotify_init1(int); int timerfd_create(int, int);
        long read(int, unsigned long *, unsigned long); long write(int, unsigned long *, unsigned \
        long);', 'libc.so.6');";
    let ffi = [("SURUS_PHP_FFI__ENABLE", "true")];
    for (opened, left) in [
        ("$c->epoll_create1(0)", "an epoll instance open"),
        ("$c->inotify_init1(0)", "an inotify instance open"),
        ("$c->timerfd_create(0, 0)", "a timer (timerfd) open"),
    ] {
        for engine in ["rewind", "fork"] {
            let boot = format!("{c} $fd = {opened}; surus_serve(fn () => print 'x');");
            let log = refusal(engine, &boot, &ffi);
            assert!(log.contains(left), "{engine}: {opened}\n{log}");
        }
    }
    // Data of one request reaches neither the next one nor another worker.
    for (flags, first) in [(0, 5), (1, 1)] {
        let boot = format!(
            "{c} $fd = $c->eventfd(5, {flags}); $n = $c->new('unsigned long');
            surus_serve(function () use ($c, $fd, $n) {{
                $c->read($fd, FFI::addr($n), 8); echo $n->cdata, ' ', getmypid();
                $n->cdata = 7; $c->write($fd, FFI::addr($n), 8);
            }});"
        );
        for engine in ["rewind", "fork"] {
            let site = try_booted(engine, &boot, &["--workers", "2"], &ffi)
                .unwrap_or_else(|log| panic!("{engine}\n{log}"));
            let mut pids = std::collections::BTreeSet::new();
            for _ in 0..10 {
                let answer = site.get("/hello.php").body;
                let (count, pid) = answer.split_once(' ').unwrap();
                assert_eq!(count, first.to_string(), "{engine}, {flags}");
                pids.insert(pid.to_string());
            }
            let expected = if engine == "fork" { 10 } else { 2 };
            assert!(pids.len() <= expected, "{engine}: {pids:?}");
        }
    }
}

#[test]
fn file_that_workers_cannot_reopen_is_rejected_by_name() {
    let boot = "$file = fopen($path = __DIR__ . '/writable/file', 'w+'); chmod($path, 0400);
        surus_serve(fn () => print 'x');";
    for engine in ["rewind", "fork"] {
        let log = refusal(engine, boot, &[]);
        for words in [
            "/writable/file open (descriptor ",
            "Permission denied",
            "let the user that PHP runs as read and write it",
        ] {
            assert!(log.contains(words), "{engine}: {log}");
        }
    }
}

#[test]
fn boot_that_leaves_no_descriptors_is_rejected() {
    for left in [0, 20] {
        let boot = format!(
            "posix_setrlimit(POSIX_RLIMIT_NOFILE, 128, 128);
            while ($file = @fopen(__FILE__, 'r')) {{ $files[] = $file; }}
            $files = array_slice($files, 0, count($files) - {left});
            surus_serve(fn () => print 'x');"
        );
        for engine in ["rewind", "fork"] {
            let log = refusal(engine, &boot, &[]);
            for words in [
                "a process may have 128 (RLIMIT_NOFILE)",
                "LimitNOFILE",
                "ulimit -n",
            ] {
                assert!(log.contains(words), "{engine}, {left}: {log}");
            }
        }
    }
}

#[test]
fn boot_that_cannot_fork_reports_it() {
    if !is_root() {
        return;
    }
    let boot = "posix_setrlimit(POSIX_RLIMIT_NPROC, 1, 1); surus_serve(fn () => print 'x');";
    for engine in ["rewind", "fork"] {
        let log = refusal(engine, boot, &[]);
        assert!(log.contains("cannot fork"), "{log}");
    }
}

#[test]
fn serving_in_a_fiber_forks_for_each_request() {
    let boot = "(new Fiber(function () { static $n = 0; surus_serve(function () use (&$n) { echo \
        ++$n, getmypid(); }); }))->start();";
    let site =
        try_booted("rewind", boot, &["--workers", "1"], &[]).unwrap_or_else(|log| panic!("{log}"));
    let (first, second) = (site.get("/hello.php").body, site.get("/hello.php").body);
    assert!(
        first.starts_with('1') && second.starts_with('1') && first != second,
        "{first} {second}"
    );
    site.surus
        .wait_for_log(|log| log.contains("inside of a Fiber"));
}

#[test]
fn surus_serve_twice_in_a_handler_or_on_classic_is_an_error_with_advice() {
    let dir = app();
    std::fs::write(
        dir.path().join("index.php"),
        "<?php try { surus_serve(fn () => 1); } catch (Error $e) { echo $e->getMessage(); }",
    )
    .unwrap();
    let surus = Surus::spawn(
        dir.path(),
        &["--workers", "1"],
        &[("SURUS_ENGINE_NAME", "classic")],
    )
    .unwrap();
    let site = Site { surus, dir };
    assert!(
        site.get("/index.php")
            .body
            .contains("rewind, worker, standby or fork (engine.name)")
    );

    let nested = "surus_serve(function () { try { surus_serve(fn () => 1); } catch (Error $e) { \
        echo $e->getMessage(); } });";
    let site = try_booted("rewind", nested, &["--workers", "1"], &[])
        .unwrap_or_else(|log| panic!("{log}"));
    for _ in 0..3 {
        assert!(
            site.get("/hello.php")
                .body
                .contains("cannot be called by a handler")
        );
    }
}
