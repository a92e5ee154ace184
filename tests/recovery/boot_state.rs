//! Tests that every request finds what the boot has left.

use crate::booted::try_booted;
use crate::site::{Site, kill, until};

/// Engines that boot a script; first those that restore or fork the state of the boot.
const BOOTS: [&str; 4] = ["rewind", "fork", "standby", "worker"];

#[test]
fn stat_cache_of_the_boot_does_not_reach_requests() {
    let look =
        "$file = __DIR__ . '/writable/file'; is_file($file) || file_put_contents($file, 'x');
        clearstatcache(); realpath(__DIR__); filesize($file);";
    let tell = "echo filesize($file), ' ', count(realpath_cache_get()) > 0 ? 'kept' : 'lost';";
    for engine in BOOTS {
        for (boot, may_worker) in [
            (
                format!("{look} surus_serve(function () use ($file) {{ {tell} }});"),
                true,
            ),
            (format!("{look} surus_checkpoint(); {tell}"), false),
        ] {
            if engine == "worker" && !may_worker {
                continue;
            }
            let site = try_booted(engine, &boot, &["--workers", "1"], &[])
                .unwrap_or_else(|log| panic!("{engine}: {boot}\n{log}"));
            for size in [2, 3] {
                std::fs::write(site.dir.path().join("writable/file"), "x".repeat(size)).unwrap();
                let answer = site.get("/hello.php").body;
                assert_eq!(answer, format!("{size} kept"), "{engine}: {boot}");
            }
        }
    }
}

/// How a boot makes a pair, what one end sends, and what the other end receives.
const SOCKETS: [&str; 3] = [
    "[$near, $far] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0); \
        stream_set_blocking($far, false);",
    "fwrite($GLOBALS['near'], 'said');",
    "echo fread($GLOBALS['far'], 9), stream_get_meta_data($GLOBALS['far'])['blocked'] ? 'blocks' : \
        '';",
];
const DATAGRAMS: [&str; 3] = [
    "socket_create_pair(AF_UNIX, SOCK_DGRAM, 0, $pair); socket_set_nonblock($pair[1]);",
    "socket_write($GLOBALS['pair'][0], 'said');",
    "echo @socket_read($GLOBALS['pair'][1], 9);",
];
const PIPES: [&str; 3] = [
    "$c = FFI::cdef('int pipe2(int *ends, int flags); long read(int, void *, unsigned long); long \
        write(int, const char *, unsigned long);', 'libc.so.6');
     $ends = $c->new('int[2]'); $text = $c->new('char[9]'); $c->pipe2($ends, 04000) === 0 or exit;",
    "$GLOBALS['c']->write($GLOBALS['ends'][1], 'said', 4);",
    "if ($GLOBALS['c']->read($GLOBALS['ends'][0], $GLOBALS['text'], 9) > 0) { echo \
        FFI::string($GLOBALS['text'], 4); }",
];

#[test]
fn socket_pair_of_the_boot_is_private_to_each_worker() {
    let ffi = [("SURUS_PHP_FFI__ENABLE", "true")];
    for engine in ["rewind", "fork"] {
        for [pair, say, hear] in [SOCKETS, DATAGRAMS, PIPES] {
            let boot =
                format!("{pair} surus_serve(function () {{ {hear} {say} usleep(20000); }});");
            let site = try_booted(engine, &boot, &["--workers", "2"], &ffi)
                .unwrap_or_else(|log| panic!("{engine}: {pair}\n{log}"));
            // Two at a time: both workers have sent something when the other receives.
            let answers = std::thread::scope(|scope| {
                let ask = || (0..10).map(|_| site.get("/hello.php").body).collect();
                let asking = [scope.spawn(ask), scope.spawn(ask)];
                asking.map(|asked| -> Vec<String> { asked.join().unwrap() })
            });
            for heard in answers.iter().flatten() {
                assert_eq!(heard, "", "{engine}: {pair}\n{answers:?}");
            }
        }
    }
}

#[test]
fn emptied_socket_pair_of_the_boot_costs_no_worker() {
    let ffi = [("SURUS_PHP_FFI__ENABLE", "true")];
    for [pair, say, hear] in [SOCKETS, DATAGRAMS, PIPES] {
        let boot =
            format!("{pair} surus_serve(function () {{ {say} {hear} echo ' ', getmypid(); }});");
        let site = try_booted("rewind", &boot, &["--workers", "1"], &ffi)
            .unwrap_or_else(|log| panic!("{pair}\n{log}"));
        let first = site.get("/hello.php").body;
        assert!(first.starts_with("said "), "{pair}: {first}");
        for _ in 0..3 {
            assert_eq!(site.get("/hello.php").body, first, "{pair}");
        }
    }
}

#[test]
fn socket_pair_with_unread_data_is_rejected() {
    let ffi = [("SURUS_PHP_FFI__ENABLE", "true")];
    let [sockets, ..] = SOCKETS;
    let [datagrams, ..] = DATAGRAMS;
    let [pipes, ..] = PIPES;
    for (boot, words) in [
        (format!("{sockets} fwrite($near, 'x');"), "waits to be read"),
        (
            format!("{sockets} fwrite($near, 'x'); fclose($near);"),
            "waits to be read",
        ),
        (
            format!("{sockets} stream_socket_shutdown($near, STREAM_SHUT_WR);"),
            "half shut down",
        ),
        (
            format!("{datagrams} socket_write($pair[0], 'x');"),
            "waits to be read",
        ),
        (
            format!("{pipes} $c->write($ends[1], 'x', 1);"),
            "a pipe open (descriptor ",
        ),
    ] {
        for engine in ["rewind", "fork"] {
            let boot = format!("{boot} surus_serve(fn () => print 'x');");
            let Err(log) = try_booted(engine, &boot, &["--workers", "1"], &ffi) else {
                panic!("{engine} has started: {boot}");
            };
            assert!(
                log.contains(words) && log.contains("before the boot ends"),
                "{engine}: {boot}\n{log}"
            );
        }
    }
    // A single end leads nowhere; two descriptors of the same end count as two.
    for boot in [
        format!("{sockets} fclose($near);"),
        format!("{sockets} $first = [$near, $far]; {sockets} {datagrams}"),
    ] {
        let boot = format!("{boot} surus_serve(fn () => print 'served');");
        let site = try_booted("rewind", &boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{boot}\n{log}"));
        for _ in 0..3 {
            assert_eq!(site.get("/hello.php").body, "served", "{boot}");
        }
    }
}

/// A signal with a handler of the boot reaches the handler in a request, from an alarm and from
/// another process.
#[test]
fn signal_handler_of_the_boot_runs_in_requests() {
    let boot = "pcntl_async_signals(true);
        $heard = [];
        foreach ([SIGALRM, SIGUSR1, SIGWINCH] as $signal) { pcntl_signal($signal, function \
        ($signal) { $GLOBALS['heard'][] = $signal; }); }
        pcntl_alarm(1);
        surus_serve(function () {
            pcntl_alarm(1);
            foreach ([SIGUSR1, SIGWINCH] as $signal) { posix_kill(getmypid(), $signal); }
            for ($i = 0; $i < 150 && count($GLOBALS['heard']) < 3; $i++) { usleep(10000); }
            echo implode(' ', $GLOBALS['heard']);
        });";
    for engine in BOOTS {
        let site = try_booted(engine, boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{engine}\n{log}"));
        // A request gets neither an alarm of the boot nor signals to the prototype process.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        if engine == "rewind" || engine == "fork" {
            for signal in ["USR1", "WINCH"] {
                kill(site.master(), signal);
            }
        }
        let first = site.get("/hello.php").body;
        if engine == "rewind" || engine == "fork" {
            assert_eq!(first, "10 28 14", "{engine}\n{}", site.surus.log());
            assert_eq!(site.get("/hello.php").body, "10 28 14", "{engine}");
        } else {
            assert!(first.contains("14"), "{engine}: {first}");
        }
    }
}

#[test]
fn signals_blocked_by_the_boot_stay_blocked_and_pend_for_one_request() {
    let boot = "pcntl_sigprocmask(SIG_BLOCK, [SIGUSR2, SIGTERM]);
        surus_serve(function () {
            // Not by pcntl_sigprocmask(), which replaces the worker.
            // Nor by a regular expression: the worker is exchanged for one that knows it.
            $blocked = strstr(file_get_contents('/proc/self/status'), 'SigBlk:');
            $blocked = strstr($blocked, PHP_EOL, true);
            echo substr($blocked, -4), ' ', getmypid(), ' ', max(0, @pcntl_sigtimedwait([SIGUSR2], \
            $info, 0, 1000));
            if ($_SERVER['QUERY_STRING']) { posix_kill(getmypid(), SIGUSR2); }
        });";
    for engine in ["rewind", "fork"] {
        let site = try_booted(engine, boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{engine}\n{log}"));
        let ask = |path| site.get(path).body;
        let first = ask("/hello.php");
        assert!(
            first.starts_with("4800 ") && first.ends_with(" 0"),
            "{engine}: {first}"
        );
        let second = ask("/hello.php");
        let left = ask("/hello.php?leave");
        let what = || format!("{engine}: {first}, {second}, {left}\n{}", site.surus.log());
        assert_eq!(second == first, engine == "rewind", "{}", what());
        assert_eq!(left == first, engine == "rewind", "{}", what());
        let next = ask("/hello.php");
        assert!(
            next.starts_with("4800 ") && next.ends_with(" 0") && next != left,
            "{engine}: {left} {next}"
        );
    }
}

/// A boot that ignores SIGCHLD must not affect the prototype process's workers.
#[test]
fn boot_that_ignores_sigchld_loses_no_worker() {
    let boot = "pcntl_signal(SIGCHLD, SIG_IGN); surus_serve(fn () => print getmypid());";
    for engine in ["rewind", "fork"] {
        let site = try_booted(engine, boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("{engine}\n{log}"));
        let first = site.get("/hello.php").body;
        kill(first.parse().unwrap(), "KILL");
        assert_ne!(site.get("/hello.php").body, first, "{engine}");
    }
}

#[test]
fn changed_stderr_flags_do_not_reach_other_requests() {
    let boot = "$err = fopen('php://stderr', 'w');
        surus_serve(function () use ($err) {
            echo implode(' ', array_map(fn ($fd) => \
            octdec(substr(file(\"/proc/self/fdinfo/$fd\")[1], 7)) & 04001, $GLOBALS['fds'] ??= \
            array_filter(
                scandir('/proc/self/fd'), fn ($fd) => @readlink(\"/proc/self/fd/$fd\") === \
                readlink('/proc/self/fd/2'))));
            fwrite($err, 'said by ' . getmypid() . \"\\n\");
            stream_set_blocking($err, false);
            usleep(20000);
        });";
    for engine in ["rewind", "fork", "standby"] {
        let site = try_booted(engine, boot, &["--workers", "2"], &[])
            .unwrap_or_else(|log| panic!("{engine}\n{log}"));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        // stdout, stderr and the boot's copy: all are writable, and all block.
                        assert_eq!(site.get("/hello.php").body, "1 1 1", "{engine}");
                    }
                });
            }
        });
        site.surus
            .wait_for_log(|log| log.matches("said by ").count() == 10);
    }
}

/// A script has the user of the master process, so it can change its scheduling.
#[test]
fn changed_scheduling_of_the_master_process_reaches_no_request() {
    let boot = "surus_serve(function () {
            if (isset($_GET['change'])) {
                shell_exec($_GET['change'] . ' ' . posix_getppid());
            }
            $own = fn ($name) => file_get_contents(\"/proc/self/$name\");
            $fields = explode(' ', preg_replace('/.*\\) /', '', $own('stat')));
            preg_match('/Cpus_allowed_list:\\s*(\\S+)/', $own('status'), $cpus);
            echo $fields[16], ' ', $fields[38], ' ', $cpus[1], ' ', trim($own('oom_score_adj')),
                ' ', trim(shell_exec('ionice')),
                strstr((string) @file_get_contents('/proc/self/autogroup'), ' ');
        });";
    for engine in ["worker", "fork", "rewind"] {
        for change in [
            "renice -n 19 -p",
            "chrt -b -p 0",
            "taskset -p 1",
            "ionice -c 3 -p",
            "choom -n 999 -p",
            // Of its session, and so of all processes of the pool.
            "echo 19 >/proc/self/autogroup; :",
        ] {
            let site = try_booted(engine, boot, &["--workers", "2"], &[])
                .unwrap_or_else(|log| panic!("{engine}: {log}"));
            let before = site.get("/hello.php").body;
            assert!(before.split(' ').count() > 3, "{before}");
            let change = change.replace(' ', "%20").replace('>', "%3E");
            site.get(&format!("/hello.php?change={change}"));
            site.workers().iter().for_each(|pid| kill(*pid, "KILL"));
            until("requests are scheduled as before", || {
                (0..20).all(|_| site.get("/hello.php").body == before)
            });
        }
    }
}

/// It acts on all processes of the pool at once, and none of them exits by itself.
#[test]
fn changed_nice_value_of_the_session_is_noticed_while_requests_run() {
    if !std::path::Path::new("/proc/self/autogroup").exists() {
        return;
    }
    let own = "strstr(file_get_contents('/proc/self/autogroup'), ' ')";
    let text = format!(
        "<?php if (isset($_GET['change'])) {{ shell_exec('echo 19 >/proc/self/autogroup'); }}
        echo {own};"
    );
    let booted = format!(
        "surus_serve(function () {{
            if (isset($_GET['change'])) {{ shell_exec('echo 19 >/proc/self/autogroup'); }}
            echo {own};
        }});"
    );
    for engine in ["classic", "worker", "standby", "fork", "rewind"] {
        let args = ["--workers", "2"];
        let site = match engine {
            "classic" => {
                let site = Site::start(&args, &[]);
                std::fs::write(site.dir.path().join("hello.php"), &text).unwrap();
                site
            }
            _ => try_booted(engine, &booted, &args, &[])
                .unwrap_or_else(|log| panic!("{engine}: {log}")),
        };
        assert_eq!(site.get("/hello.php").body, " nice 0\n", "{engine}");
        // Without CAP_SYS_ADMIN, Linux refuses a change within 100 ms of any other: EAGAIN.
        until("the nice value of the session changes", || {
            site.get("/hello.php?change=1").body == " nice 19\n"
        });
        until("requests are scheduled as before", || {
            (0..20).all(|_| site.get("/hello.php").body == " nice 0\n")
        });
    }
}

/// A script has the user of the master process, so it can change its limits.
#[test]
fn changed_limits_of_the_master_process_reach_no_request() {
    let ffi = [("SURUS_PHP_FFI__ENABLE", "true")];
    const FILE_SIZE: u32 = 1;
    const PROCESSES: u32 = 6;
    const DESCRIPTORS: u32 = 7;
    let boot = "$c = FFI::cdef('int prlimit(int pid, int resource, unsigned long *new, void *old);
            int getppid(void);', 'libc.so.6');
        surus_serve(function () use ($c) {
            if (isset($_GET['limit'])) {
                $limit = $c->new('unsigned long[2]');
                $limit[0] = $limit[1] = (int) $_GET['to'];
                echo $c->prlimit($c->getppid(), (int) $_GET['limit'], $limit, null);
            } else {
                echo file_put_contents(__DIR__ . '/writable/file', 'x'), count(scandir('.')) > 0;
            }
        });";
    // The kernel asks for the same groups, and the master process has another saved one.
    let changed = if surus_sys::process::is_root() {
        "-1"
    } else {
        "0"
    };
    for engine in ["worker", "fork", "rewind"] {
        for (limit, to) in [(FILE_SIZE, 0), (PROCESSES, 0), (DESCRIPTORS, 3)] {
            let site = try_booted(engine, boot, &["--workers", "2"], &ffi)
                .unwrap_or_else(|log| panic!("{engine}: {log}"));
            let answer = site.get(&format!("/hello.php?limit={limit}&to={to}"));
            assert_eq!(answer.body, changed, "{engine}: {limit}");
            // Without waiting for a child, the master process does not look.
            site.workers().iter().for_each(|pid| kill(*pid, "KILL"));
            until("requests are answered as before", || {
                (0..20).all(|_| site.get("/hello.php").body == "11")
            });
        }
    }
}
