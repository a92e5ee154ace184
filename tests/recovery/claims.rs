//! Tests a script that writes tickets back, copies lines or takes wake-ups of other workers.
//!
//! Every other request still runs once, and its client gets its own response.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::shared_memory::{ENGINES, SOON, answers_within, counted, post_counted, ready, site};
use crate::site::{Site, request, until};

/// Writes back each ticket that it has seen as soon as it is claimed.
const WRITES_BACK: &str = r#"
    $words = memory('surus-scoreboard')[0] + 64 * 4; $seen = []; touch($_GET['began']);
    $end = microtime(true) + 5;
    while (microtime(true) < $end) {
        foreach (unpack('P*', peek($words, 8 * 60)) as $n => $word) {
            if ($word !== 0) $seen[$n] = $word;
            elseif (isset($seen[$n])) poke($words + 8 * ($n - 1), pack('P', $seen[$n]));
        }
    }
    echo 'done';
"#;

#[test]
fn ticket_written_back_runs_no_request_twice() {
    for engine in ENGINES {
        let site = site(engine, &[("lie.php", WRITES_BACK)], &[]);
        let lie = site.begun("/lie.php");
        // Three workers remain. The other requests wait, so that their tickets can be read. Each
        // runs longer than the time after which a message counts as lost.
        for (number, answer) in post_counted(&site, 0..6, 1_200_000) {
            assert_eq!(
                (answer.status, answer.body),
                (200, number.to_string()),
                "{engine}: {}",
                site.surus.log()
            );
            // Twice if the ticket was back before Surus had looked
            // (docs/internals/shared-memory.md).
            assert!((1..=2).contains(&counted(&site, number)), "{engine}");
        }
        // Its own request may suffer.
        let _ = lie.join();
        answers_within(&site, SOON, engine);
        assert!(ready(&site), "{engine}");
    }
}

/// The request id of the closed client belongs to another, and the worker still responds.
#[test]
fn response_to_a_closed_client_reaches_no_other_when_its_ticket_is_written_back() {
    for engine in ENGINES {
        let streams = "ignore_user_abort(true); echo 'begun'; flush(); touch($_GET['streams']); \
                       while (!file_exists($_GET['go'])) { usleep(1000); clearstatcache(); } echo \
                       'of another'; flush();";
        let files = [("lie.php", WRITES_BACK), ("streams.php", streams)];
        // The response of the script itself may be lost.
        let site = site(engine, &files, &[("SURUS_HTTP_REQUEST_TIMEOUT", "10s")]);
        let path = |name: &str| site.dir.path().join("writable").join(name);
        let lie = site.begun("/lie.php");
        // The request waits until a worker is free.
        let naps: Vec<_> = (0..3).map(|_| site.begun("/nap.php?ms=1500")).collect();
        let (streams, go) = (path("streams"), path("go"));
        let asked = format!(
            "/streams.php?streams={}&go={}",
            streams.display(),
            go.display()
        );
        let mut client = TcpStream::connect(&site.surus.address).unwrap();
        client
            .write_all(request("GET", &asked, "").as_bytes())
            .unwrap();
        until("it streams", || streams.exists());
        let mut bytes = [0; 16];
        assert!(client.read(&mut bytes).unwrap() > 0, "{engine}");
        // Their request ids must differ from the next ones.
        for nap in naps {
            assert_eq!(nap.join().unwrap().unwrap().body, "rested", "{engine}");
        }
        drop(client);
        std::thread::sleep(Duration::from_millis(300));
        let others: Vec<_> = (0..2).map(|_| site.begun("/nap.php?ms=900")).collect();
        std::fs::write(go, "").unwrap();
        for other in others {
            let answer = other.join().unwrap().unwrap();
            assert_eq!(
                (answer.status, &answer.body[..]),
                (200, "rested"),
                "{engine}: {}",
                site.surus.log()
            );
        }
        drop(lie.join().unwrap());
        answers_within(&site, SOON, engine);
    }
}

/// Its own line claims another worker's request, and that worker's line is empty.
#[test]
fn line_copied_by_a_script_keeps_no_client_waiting() {
    for engine in ENGINES {
        let code = "$own = own_line(); touch($_GET['began']); $end = microtime(true) + 60; $copied \
                    = false; while (microtime(true) < $end) { for ($i = 0; $i < 4 && !$copied; \
                    $i++) { $line = peek(line($i), 24); if (line($i) !== $own && unpack('V', \
                    $line)[1] === 3) { poke($own, $line); poke(line($i), str_repeat(\"\\0\", 24)); \
                    $copied = touch($_GET['copied']); $end = microtime(true) + 4; } } } echo \
                    'done';";
        let site = site(engine, &[("lie.php", code)], &[]);
        let copied = site.dir.path().join("writable/copied");
        let lie = site.begun(&format!("/lie.php?copied={}", copied.display()));
        let began = Instant::now();
        for (number, answer) in post_counted(&site, 0..1, 1_500_000) {
            assert_eq!(
                (answer.status, answer.body),
                (200, number.to_string()),
                "{engine}: {}",
                site.surus.log()
            );
            assert_eq!(counted(&site, number), 1, "{engine}");
        }
        assert!(began.elapsed() < SOON, "{engine}: {:?}", began.elapsed());
        assert!(copied.exists(), "{engine}");
        // The script may have cost its own request.
        drop(lie.join().unwrap());
        answers_within(&site, SOON, engine);
    }
}

/// A forked process has all doorbells say that their workers are awake, so Surus wakes none.
#[test]
fn doorbells_overwritten_by_a_forked_process_keep_no_request_waiting() {
    let code = "$x86 = php_uname('m') === 'x86_64'; $end = microtime(true) + 30; \
                $bells = memory('surus-rings')[0] + 64 * 2; \
                if (libc()->syscall($x86 ? 56 : 220, 17, 0, 0, 0, 0) === 0) { \
                touch($_GET['waits']); \
                while (microtime(true) < $end && !file_exists($_GET['end'])) { \
                for ($i = 0; $i < 1000; $i++) poke($bells, str_repeat(\"\\0\", 16)); \
                clearstatcache(); } \
                libc()->_exit(0); } while (!file_exists($_GET['waits'])) { usleep(1000); \
                clearstatcache(); } echo 'done';";
    for engine in ENGINES {
        let site = site(engine, &[("lie.php", code)], &[]);
        let path = |name: &str| site.dir.path().join("writable").join(name);
        let (waits, end) = (path("waits"), path("end"));
        let asked = format!("/lie.php?waits={}&end={}", waits.display(), end.display());
        assert_eq!(site.get(&asked).body, "done", "{engine}");
        for n in 0..4 {
            // All workers wait.
            std::thread::sleep(Duration::from_millis(500));
            let began = Instant::now();
            let answer = site.get("/hello.php");
            assert_eq!(
                (answer.status, &answer.body[..]),
                (200, "hello"),
                "{engine} {n}: {}",
                site.surus.log()
            );
            assert!(began.elapsed() < SOON, "{engine}: {:?}", began.elapsed());
        }
        assert!(ready(&site), "{engine}");
        std::fs::write(end, "").unwrap();
    }
}

/// Surus looks for the worker that holds the request while others are served.
#[test]
fn worker_that_hides_its_request_costs_no_other_request() {
    for engine in ENGINES {
        // On a busy machine, others may miss a short deadline, too.
        let served = ["2s", "8s", "30s"]
            .iter()
            .any(|deadline| costs_no_other_request(engine, deadline));
        assert!(served, "{engine}: others were not served");
    }
}

fn costs_no_other_request(engine: &str, deadline: &str) -> bool {
    let code = "libc()->sigprocmask(0, str_repeat(\"\\xff\", 128), ''); poke(own_line(), \
                pack('VV', 1, 0) . str_repeat(\"\\0\", 32)); ini_set('max_execution_time', 0); \
                touch($_GET['began']); while (true) {}";
    let limits = [
        ("SURUS_HTTP_REQUEST_TIMEOUT", deadline),
        ("SURUS_ENGINE_KILL_TIMEOUT", "1s"),
    ];
    let site = site(engine, &[("lie.php", code)], &limits);
    let Ok(lie) = site.try_begun("/lie.php?") else {
        return false;
    };
    let workers = site.workers();
    let began = Instant::now();
    let mut number = 0;
    while !is_hidden_one_gone(&site, &workers) {
        assert!(began.elapsed() < SOON * 4, "{engine}: it is not killed");
        for (asked, answer) in post_counted(&site, number..number + 6, 20_000) {
            let log = site.surus.log();
            assert!(counted(&site, asked) <= 1, "{engine}: {log}");
            if answer.status == 504 {
                return false;
            }
            let expected = (200, asked.to_string());
            assert_eq!((answer.status, answer.body), expected, "{engine}: {log}");
            assert_eq!(counted(&site, asked), 1, "{engine}");
        }
        number += 6;
    }
    assert!(number > 0);
    drop(lie.join().unwrap());
    answers_within(&site, SOON, engine);
    true
}

/// The hidden request has been repaired, and the log names the killed process.
fn is_hidden_one_gone(site: &Site, before: &[u32]) -> bool {
    let log = site.surus.log();
    before.iter().any(|pid| {
        log.lines().any(|line| {
            line.contains("runs one that was given up") && line.contains(&pid.to_string())
        })
    })
}

/// Options that a script sets on the request socket, which all workers share.
fn set_option(code: &str) -> String {
    let declared = "struct filter { unsigned short code; unsigned char t, f; unsigned k; }; \
        struct program { unsigned short len; struct filter *filter; }; \
        int setsockopt(int fd, int level, int name, void *value, unsigned len);";
    format!("$c = FFI::cdef('{declared}', 'libc.so.6'); {code} echo 'done';")
}

/// A body that reaches the worker as a descriptor.
fn post_large(site: &Site) -> (u16, String) {
    let body = "x".repeat(200_000);
    let asked = request("POST", "/length.php", &body);
    let answer = crate::site::ask(&site.surus.address, asked.as_bytes()).unwrap();
    (answer.status, answer.body)
}

const LENGTH: &str = "echo strlen(file_get_contents('php://input'));";

#[test]
fn socket_credentials_enabled_by_a_script_cost_no_body() {
    // SO_PASSCRED, SO_TIMESTAMP, SO_PASSSEC, SO_PASSPIDFD; not every kernel knows the last.
    let options = set_option(
        "$one = FFI::new('int'); $one->cdata = 1; \
         foreach ([16, 29, 34, 76] as $name) $c->setsockopt(4, 1, $name, FFI::addr($one), 4);",
    );
    for engine in ENGINES {
        let site = site(
            engine,
            &[("lie.php", &options), ("length.php", LENGTH)],
            &[],
        );
        assert_eq!(site.get("/lie.php").body, "done", "{engine}");
        for n in 0..8 {
            let log = || site.surus.log();
            assert_eq!(
                post_large(&site),
                (200, "200000".into()),
                "{engine} {n}: {}",
                log()
            );
        }
        answers_within(&site, SOON, engine);
    }
}

#[test]
fn request_socket_filtered_by_a_script_is_replaced() {
    // BPF: return 0, which drops every message.
    let filter = set_option(
        "$drop = $c->new('struct filter'); $drop->code = 6; $program = $c->new('struct program'); \
         $program->len = 1; $program->filter = FFI::addr($drop); \
         $c->setsockopt(4, 1, 26, FFI::addr($program), FFI::sizeof($program));",
    );
    for engine in ENGINES {
        let site = site(engine, &[("lie.php", &filter), ("length.php", LENGTH)], &[]);
        assert_eq!(site.get("/lie.php").body, "done", "{engine}");
        let log = || site.surus.log();
        assert_eq!(
            post_large(&site),
            (200, "200000".into()),
            "{engine}: {}",
            log()
        );
        answers_within(&site, SOON, engine);
        until("it is ready", || ready(&site));
    }
}

#[test]
fn signals_of_the_request_socket_set_by_a_script_are_undone() {
    // F_SETSIG, F_SETOWN for the process group of all workers, F_SETFL with O_ASYNC.
    let signals = |signal: i32| {
        format!(
            "$c = FFI::cdef('int fcntl(int fd, int command, ...); int getpgrp();', 'libc.so.6');
            $c->fcntl(4, 10, {signal}); $c->fcntl(4, 8, -$c->getpgrp());
            $c->fcntl(4, 4, $c->fcntl(4, 3) | 0x2000);
            echo 'done';"
        )
    };
    // SIGPROF ends scripts, and neither workers nor the master process; SIGSTOP stops all of them.
    let files = [
        ("prof.php", signals(27)),
        ("stop.php", signals(19)),
        ("length.php", LENGTH.to_string()),
    ];
    let files = files.each_ref().map(|(name, code)| (*name, code.as_str()));
    for engine in ENGINES {
        let site = site(engine, &files, &[]);
        for script in ["/prof.php", "/prof.php", "/stop.php"] {
            assert_eq!(site.get(script).body, "done", "{engine}");
            // The first message may cost its request.
            let _ = post_large(&site);
            answers_within(&site, SOON, engine);
            // A signal would end this script.
            let nap = site.begun("/nap.php?ms=700");
            for n in 0..4 {
                let log = || site.surus.log();
                assert_eq!(
                    post_large(&site),
                    (200, "200000".into()),
                    "{engine} {script} {n}: {}",
                    log()
                );
            }
            let nap = nap.join().unwrap().unwrap();
            assert_eq!(nap.body, "rested", "{engine} {script}: {nap:?}");
        }
        let log = site.surus.log();
        assert!(
            log.contains("signal workers (F_SETOWN, O_ASYNC); undone"),
            "{log}"
        );
        until("it is ready", || ready(&site));
    }
}

/// The words by which workers claim requests: waiting requests cannot be claimed any more, or look
/// claimed.
#[test]
fn tickets_overwritten_by_a_script_cost_a_second_and_repeat_nothing() {
    for engine in ENGINES {
        for byte in ["\\x00", "\\xff"] {
            let code = format!(
                "usleep(100000); poke(memory('surus-scoreboard')[0] + 64 * 4, \
                    str_repeat(\"{byte}\", 8 * 69)); echo 'done';"
            );
            let site = site(engine, &[("lie.php", &code)], &[]);
            let began = Instant::now();
            let lie = site.begin("/lie.php");
            std::thread::sleep(Duration::from_millis(20));
            let gets: Vec<_> = (0..8)
                .map(|_| site.begin("/echo.php?n=get&us=30000"))
                .collect();
            for (number, answer) in post_counted(&site, 0..24, 40_000) {
                let times = counted(&site, number);
                assert!(
                    [200, 502].contains(&answer.status) && times <= 1,
                    "{engine}: {answer:?}, {times}: {}",
                    site.surus.log()
                );
                assert!(answer.status != 200 || answer.body == number.to_string());
            }
            for get in gets {
                let answer = get.join().unwrap().unwrap();
                assert_eq!((answer.status, &answer.body[..]), (200, "get"), "{engine}");
            }
            drop(lie.join().unwrap());
            assert!(began.elapsed() < SOON, "{engine}: {:?}", began.elapsed());
            answers_within(&site, SOON, engine);
        }
    }
}
