//! What may go wrong where a script boots once and serves many: on `rewind`, and on `fork` where it is the same.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Surus;
use crate::processes::kill_the_template;
use crate::site::{Site, app, is_root, kill, until};

/// Each event runs the file that it names.
pub const BOOT: &str = "surus_serve(function () {
    chdir(dirname($_SERVER['SCRIPT_FILENAME']));
    (static fn () => require $_SERVER['SCRIPT_FILENAME'])();
});";

/// A site whose workers are booted by `boot`, what stands behind `<?php`.
pub fn try_booted(
    engine: &str,
    boot: &str,
    args: &[&str],
    env: &[(&str, &str)],
) -> Result<Site, String> {
    boot_in(app(), engine, boot, args, env)
}

/// The same, in a directory that is there already.
pub fn boot_in(
    dir: tempfile::TempDir,
    engine: &str,
    boot: &str,
    args: &[&str],
    env: &[(&str, &str)],
) -> Result<Site, String> {
    let script = dir.path().join("boot.php");
    std::fs::write(&script, format!("<?php {boot}")).unwrap();
    let mut settings = vec![
        ("SURUS_ENGINE_NAME", engine),
        ("SURUS_ENGINE_SCRIPT", script.to_str().unwrap()),
        ("SURUS_ENGINE_BOOT_TIMEOUT", "10s"),
    ];
    settings.extend_from_slice(env);
    let surus = Surus::spawn(dir.path(), args, &settings)?;
    Ok(Site { surus, dir })
}

fn booted(args: &[&str], env: &[(&str, &str)]) -> Site {
    let mut settings = vec![("SURUS_ENGINE_PARANOID", "true")];
    settings.extend_from_slice(env);
    try_booted("rewind", BOOT, args, &settings)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

/// What a boot says that has to fail, as soon as it does.
fn refusal(engine: &str, boot: &str, env: &[(&str, &str)]) -> String {
    match try_booted(engine, boot, &["--workers", "1"], env) {
        Ok(site) => panic!("it has started:\n{}", site.surus.log()),
        Err(log) => log,
    }
}

#[test]
fn each_way_to_fail_has_its_status_and_the_next_event_meets_the_boot() {
    let site = booted(&["--workers", "1"], &[("SURUS_HTTP_TIMEOUT", "700ms")]);
    let files = [
        ("exit.php", "echo 'bye'; exit(3);"),
        (
            "fatal.php",
            "ini_set('display_errors', 0); no_such_function();",
        ),
        (
            "throw.php",
            "ini_set('display_errors', 0); throw new Exception('x');",
        ),
        (
            "shutdown.php",
            "ini_set('memory_limit', '8M'); register_shutdown_function(function () { echo 'told'; }); str_repeat('x', 64 << 20);",
        ),
        (
            "deep.php",
            "function f($n) { return $n ? f($n - 1) + 1 : 0; } echo f(100000);",
        ),
    ];
    for (name, code) in files {
        std::fs::write(site.dir.path().join(name), format!("<?php {code}")).unwrap();
    }
    let pid = site.get("/pid.php").body;
    for (path, status, same_process) in [
        ("/exit.php", 200, true),
        ("/fatal.php", 500, true),
        ("/throw.php", 500, true),
        ("/limit.php", 500, true),
        ("/deep.php", 200, true),
        ("/loop.php", 504, true),
        ("/sleep.php", 504, true),
        ("/segfault.php", 502, false),
    ] {
        assert_eq!(site.get(path).status, status, "{path}");
        assert_eq!(site.get("/hello.php").body, "hello", "after {path}");
        assert_eq!(
            site.get("/pid.php").body == pid,
            same_process,
            "after {path}"
        );
    }
    let told = site.get("/shutdown.php");
    assert_eq!((told.status, told.body.as_str()), (500, "told"));
    assert!(
        !site.surus.log().contains("differs"),
        "{}",
        site.surus.log()
    );
}

#[test]
fn memory_that_is_not_there_costs_one_request() {
    let site = booted(&["--workers", "1"], &[]);
    let worker = site.workers()[0];
    let limited = Command::new("prlimit")
        .args(["--pid", &worker.to_string(), "--as=900000000"])
        .status();
    if !limited.is_ok_and(|status| status.success()) {
        eprintln!("skipped: prlimit is not there");
        return;
    }
    let answer = site.get("/eat.php");
    assert!(matches!(answer.status, 500 | 502), "{answer:?}");
    for _ in 0..20 {
        assert_eq!(site.get("/hello.php").body, "hello");
    }
}

/// A control group for memory of its own, of either version of the kernel's interface; None where it cannot be made.
struct MemoryGroup(std::path::PathBuf);

impl MemoryGroup {
    fn with_limit(bytes: u64) -> Option<MemoryGroup> {
        let name = format!("surus-test-{}", std::process::id());
        let groups = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        groups.iter().find_map(|(root, limit)| {
            let group = Path::new(root).join(&name);
            std::fs::create_dir(&group).ok()?;
            let group = MemoryGroup(group);
            std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }

    fn take(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A group can be removed a moment after its last process has gone.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn the_kernels_oom_killer_costs_one_request() {
    let Some(group) = MemoryGroup::with_limit(64 << 20) else {
        eprintln!("skipped: no control group for memory can be made here");
        return;
    };
    let site = booted(&["--workers", "1"], &[]);
    assert_eq!(site.get("/hello.php").body, "hello");
    let worker = site.workers()[0];
    group.take(worker);
    let answer = site.get("/eat.php");
    assert_eq!(answer.status, 502, "{answer:?}");
    for _ in 0..20 {
        assert_eq!(site.get("/hello.php").body, "hello");
    }
    assert!(!site.workers().contains(&worker));
    let log = site.surus.log();
    assert!(log.contains("for lack of memory"), "{log}");
}

/// As the kernel's OOM killer does, at any moment, while it is rewound too.
#[test]
fn killing_workers_at_random_moments_costs_at_most_what_they_held() {
    let site = booted(&["--workers", "3"], &[("SURUS_ENGINE_PARANOID", "false")]);
    let load = site.load(6, "/hello.php");
    let mut killed = 0;
    let mut random = 1u64;
    let until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < until {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_micros(20_000 + (random >> 48)));
        let workers = site.workers();
        if let Some(pid) = workers.get(random as usize % workers.len().max(1)) {
            kill(*pid, "KILL");
            killed += 1;
        }
    }
    let answers = load.stop();
    let failed = answers
        .iter()
        .filter(|status| **status == Some(502))
        .count();
    let other = answers
        .iter()
        .filter(|status| !matches!(status, Some(200 | 502)))
        .count();
    assert!(
        killed > 30 && answers.len() > 1000,
        "{killed} killed, {} answers",
        answers.len()
    );
    assert!(
        failed <= killed,
        "{failed} of {} answers failed, {killed} workers were killed",
        answers.len()
    );
    assert_eq!(other, 0, "{answers:?}");
    assert_eq!(site.get("/hello.php").body, "hello");
}

#[test]
fn killing_the_template_costs_nothing() {
    kill_the_template(&booted(&["--workers", "2"], &[]));
}

#[test]
fn a_fork_that_fails_is_tried_again() {
    if !is_root() {
        return;
    }
    let site = booted(&["--workers", "1"], &[("SURUS_ENGINE_QUEUE_TIMEOUT", "1s")]);
    let limit = |processes: &str| {
        let pid = site.template().to_string();
        let limited = Command::new("prlimit")
            .args(["--pid", &pid, processes])
            .status();
        limited.is_ok_and(|status| status.success())
    };
    if !limit("--nproc=1:unlimited") {
        eprintln!("skipped: prlimit is not there");
        return;
    }
    kill(site.workers()[0], "KILL");
    site.surus
        .wait_for_log(|log| log.contains("cannot fork another worker"));
    assert_eq!(site.get("/hello.php").status, 503);
    assert!(limit("--nproc=unlimited:unlimited"));
    until("there is a worker again", || {
        site.get("/hello.php").status == 200
    });
    let said = site
        .surus
        .log()
        .matches("cannot fork another worker")
        .count();
    assert!(said < 10, "said {said} times");
}

#[test]
fn a_boot_that_fails_says_why() {
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
            let log = refusal(engine, boot, &[("SURUS_ENGINE_BOOT_TIMEOUT", "2s")]);
            let words = match engine {
                "standby" if words == "PHP did not start" => {
                    "a worker ended before it could take an event"
                }
                _ => words,
            };
            assert!(log.contains(words), "{engine}: {boot}\n{log}");
        }
    }
}

#[test]
fn a_warm_up_that_fails_stops_the_boot() {
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
        ("/loop.php", "PHP was not ready within 2 seconds"),
    ] {
        let dir = app();
        for (name, code) in [("throw.php", "throw new Exception;"), ("exit.php", "exit;")] {
            std::fs::write(dir.path().join(name), format!("<?php {code}")).unwrap();
        }
        let script = dir.path().join("boot.php");
        std::fs::write(&script, format!("<?php {BOOT}")).unwrap();
        let surus = Surus::spawn(
            dir.path(),
            &["--workers", "1"],
            &[
                ("SURUS_ENGINE_NAME", "rewind"),
                ("SURUS_ENGINE_SCRIPT", script.to_str().unwrap()),
                ("SURUS_ENGINE_WARMUP", path),
                ("SURUS_ENGINE_BOOT_TIMEOUT", "2s"),
            ],
        );
        match surus {
            // A handler that calls exit() has answered.
            Ok(_) if path == "/exit.php" => {}
            Ok(surus) => panic!("{path}: it has started:\n{}", surus.log()),
            Err(log) => assert!(log.contains(words), "{path}\n{log}"),
        }
    }
}

#[test]
fn a_worker_is_ready_when_its_warm_ups_are_over() {
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        place.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let boot = format!(
        "surus_serve(function () {{ fastcgi_finish_request(); usleep(300000); touch('{}/'.getmypid()); }});",
        place.path().display()
    );
    for engine in ["worker", "standby"] {
        let warmup = [("SURUS_ENGINE_WARMUP", "/hello.php")];
        let site = try_booted(engine, &boot, &["--workers", "2"], &warmup);
        let _site = site.unwrap_or_else(|log| panic!("{log}"));
        let warm = std::fs::read_dir(place.path()).unwrap().count();
        assert!(warm >= 2, "{engine}: {warm} of 2");
        for file in std::fs::read_dir(place.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}

#[test]
fn what_a_boot_may_not_leave_open_is_refused_by_name() {
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
            "$s = stream_socket_client('{peer}') or exit; surus_serve(fn () => print fwrite($GLOBALS['s'], 'x'));"
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
    let boot = "$p = proc_open(['sleep', '20'], [], $pipes); surus_serve(fn () => print 'x');";
    let log = refusal("rewind", boot, &[]);
    assert!(log.contains("leaves a child process running"), "{log}");
    let boot = "$c = FFI::cdef('int pthread_create(unsigned long *thread, void *attributes, void *start, void *argument);
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
fn a_pipe_that_a_boot_leaves_open_is_refused_by_name() {
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
    let pipe = "$c = FFI::cdef('int pipe(int *ends); int close(int fd);', 'libc.so.6'); $ends = $c->new('int[2]'); $c->pipe($ends) === 0 or exit;";
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
                log.contains(left) && log.contains("close it before surus_serve()"),
                "{engine}: {boot}\n{log}"
            );
        }
    }
    // Where the workers boot each for itself, none shares it.
    let own = format!("$f = fopen('{fifo}', 'r+'); {serve}");
    let shared = format!("[\"fifo:{fifo}\"]");
    let may = [("SURUS_ENGINE_SHARED_SOCKETS", shared.as_str())];
    let ffi = [("SURUS_PHP_FFI__ENABLE", "true")];
    for (engine, boot, env) in [
        ("standby", own.clone(), &[][..]),
        ("worker", own.clone(), &[]),
        ("rewind", own.clone(), &may),
        ("fork", own, &may),
        // What is written there is in the log, whoever writes it.
        (
            "rewind",
            format!("$f = fopen('php://stderr', 'w'); {serve}"),
            &[],
        ),
        // Nobody is at the other end.
        ("rewind", format!("{pipe} {serve}"), &ffi),
        ("fork", format!("{pipe} {serve}"), &ffi),
    ] {
        let site = try_booted(engine, &boot, &["--workers", "1"], env)
            .unwrap_or_else(|log| panic!("{engine}: {boot}\n{log}"));
        assert_eq!(site.get("/hello.php").body, "served", "{engine}: {boot}");
    }
}

#[test]
fn a_boot_that_cannot_fork_its_workers_says_so() {
    if !is_root() {
        return;
    }
    let boot = "posix_setrlimit(POSIX_RLIMIT_NPROC, 1, 1); surus_serve(fn () => print 'x');";
    for engine in ["rewind", "fork"] {
        let log = refusal(engine, boot, &[("SURUS_ENGINE_BOOT_TIMEOUT", "2s")]);
        assert!(log.contains("cannot fork"), "{log}");
    }
}

#[test]
fn serving_in_a_fiber_is_a_fork_for_each_event() {
    let boot = "(new Fiber(function () { static $n = 0; surus_serve(function () use (&$n) { echo ++$n, getmypid(); }); }))->start();";
    let site =
        try_booted("rewind", boot, &["--workers", "1"], &[]).unwrap_or_else(|log| panic!("{log}"));
    let (first, second) = (site.get("/hello.php").body, site.get("/hello.php").body);
    assert!(
        first.starts_with('1') && second.starts_with('1') && first != second,
        "{first} {second}"
    );
    assert!(
        site.surus.log().contains("inside of a Fiber"),
        "{}",
        site.surus.log()
    );
}

#[test]
fn serving_twice_or_in_a_handler_or_on_classic_is_an_error_that_says_what_to_do() {
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

    let nested = "surus_serve(function () { try { surus_serve(fn () => 1); } catch (Error $e) { echo $e->getMessage(); } });";
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

/// php-fpm keeps them, too. Whether an expression was compiled before this event shows in how it fails: `pcre.jit` counts only when it
/// is compiled.
#[test]
fn regular_expressions_that_come_again_are_compiled_ahead() {
    const BY_THE_JIT: &str = "JIT stack limit exhausted";
    for engine in ["rewind", "fork"] {
        let boot =
            format!("set_error_handler(fn ($n, $said) => throw new Exception($said)); {BOOT}");
        let site = try_booted(
            engine,
            &boot,
            &["--workers", "2"],
            &[("SURUS_ENGINE_PARANOID", "true")],
        )
        .unwrap_or_else(|log| panic!("{log}"));
        std::fs::write(
            site.dir.path().join("match.php"),
            "<?php ini_set('pcre.jit', $_GET['jit']); preg_match('/^(foo)+$/', str_repeat('foo', 100000)); echo preg_last_error_msg();",
        )
        .unwrap();
        // Under a locale the same expression is another, and is not compiled ahead.
        std::fs::write(
            site.dir.path().join("locale.php"),
            "<?php setlocale(LC_CTYPE, 'C.UTF-8'); echo preg_match('/^here$/', 'here'); setlocale(LC_CTYPE, 'C');",
        )
        .unwrap();
        assert_eq!(
            site.get("/match.php?jit=0").body,
            "Recursion limit exhausted"
        );
        for _ in 0..3 {
            assert_eq!(site.get("/match.php?jit=1").body, BY_THE_JIT);
        }
        // Both workers, which end when they have served.
        until("the expression is compiled ahead", || {
            (0..20).all(|_| {
                assert_eq!(site.get("/hello.php").body, "hello");
                assert_eq!(site.get("/locale.php").body, "1");
                site.get("/match.php?jit=0").body == BY_THE_JIT
            })
        });
        let log = site.surus.log();
        assert!(
            !["replaced", "differs", "Warning"]
                .iter()
                .any(|word| log.contains(word)),
            "{log}"
        );
    }
}

/// Reasons are counted and said, once each, and every request has its answer.
#[test]
fn what_cannot_be_rewound_is_replaced_counted_and_said_once() {
    let place = tempfile::tempdir().unwrap();
    let admin = place.path().join("admin.sock");
    let listen = format!("unix:{}", admin.display());
    let boot = format!("$file = fopen(__FILE__, 'r'); {BOOT}");
    let site = try_booted(
        "rewind",
        &boot,
        &["--workers", "1", "-d", "ffi.enable=1"],
        &[
            ("SURUS_ADMIN_LISTEN", &listen),
            ("SURUS_ENGINE_PARANOID", "true"),
        ],
    )
    .unwrap_or_else(|log| panic!("{log}"));
    for (name, code, reason) in [
        (
            "signal.php",
            "pcntl_signal(SIGUSR1, fn () => 1);",
            "replaced_signals",
        ),
        (
            "child.php",
            "proc_open(['sleep', '1'], [], $p); exec('sleep 1 >/dev/null 2>&1 &');",
            "",
        ),
        (
            "fork.php",
            "if (pcntl_fork() === 0) { posix_kill(getmypid(), 9); } pcntl_wait($s);",
            "replaced_process",
        ),
        (
            "nice.php",
            "$nice = proc_nice(...); if (!$nice(1)) { echo 'not '; }",
            "replaced_limits",
        ),
        ("session.php", "posix_setpgid(0, 0);", "replaced_identity"),
        (
            "ffi.php",
            "FFI::cdef('int getpid(void);')->getpid();",
            "replaced_native",
        ),
        (
            "close.php",
            "fclose($GLOBALS['file']);",
            "replaced_descriptor",
        ),
        (
            "swap.php",
            "fclose($GLOBALS['file']); openlog('x', 0, LOG_USER); fopen('/dev/null', 'r');",
            "replaced_descriptor",
        ),
    ] {
        std::fs::write(
            site.dir.path().join(name),
            format!("<?php {code} echo 'done';"),
        )
        .unwrap();
        for _ in 0..3 {
            let answer = site.get(&format!("/{name}"));
            assert_eq!(
                answer.body,
                "done",
                "{name}: {answer:?}\n{}",
                site.surus.log()
            );
            assert_eq!(site.get("/hello.php").body, "hello");
        }
        if !reason.is_empty() {
            site.surus
                .wait_for_log(|log| log.contains(&format!("reason=\"{reason}\"")));
            let log = site.surus.log();
            assert_eq!(
                log.matches(&format!("reason=\"{reason}\"")).count(),
                1,
                "{log}"
            );
            until("it is counted", || {
                metrics(&admin).contains(&format!("reason=\"{reason}\""))
            });
        }
    }
    let log = site.surus.log();
    let said = log
        .matches("replaced instead of rewound: signals: ")
        .count();
    assert_eq!(said, 1, "{log}");
    assert!(!log.contains("differs"), "{log}");
}

pub fn metrics(admin: &Path) -> String {
    let output = Command::new("curl")
        .args(["-s", "--unix-socket"])
        .arg(admin)
        .arg("http://admin/metrics")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut text = String::new();
    output.stdout.as_slice().read_to_string(&mut text).unwrap();
    text
}
