//! Tests a script that writes to the memory that all workers share, or that stops or disconnects
//! other processes. It may cost its own request, and others at most a second.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::booted::{BOOT, boot_in};
use crate::site::{Answer, PATIENT, Site, app, ask, kill, lives, metrics, request, until};

/// Functions for the scripts below.
pub const TOOLS: &str = r#"
function libc() {
    static $libc;
    return $libc ??= FFI::cdef('
        int kill(int pid, int signal); int shutdown(int fd, int how); int getppid();
        long write(int fd, const char *from, size_t n); long syscall(long n, ...);
        int getsockopt(int fd, int level, int name, int *value, unsigned *len);
        void *memcpy(uintptr_t to, const char *from, size_t n); void _exit(int status);
        int sigprocmask(int how, const char *set, const char *old);', 'libc.so.6');
}
function poke(int $to, string $bytes) { libc()->memcpy($to, $bytes, strlen($bytes)); }
function peek(int $from, int $n): string {
    return FFI::string(FFI::cast('char *', FFI::cast('void *', number($from))), $n);
}
function number(int $n) {
    static $kept = [];
    $kept[] = $c = FFI::new('uintptr_t');
    $c->cdata = $n;
    return $c;
}
// Begin and end of a shared mapping by its name.
function memory(string $name): array {
    foreach (file('/proc/self/maps') as $line) {
        if (preg_match('~^([0-9a-f]+)-([0-9a-f]+) rw-s .*' . $name . '~', $line, $m)) {
            return [hexdec($m[1]), hexdec($m[2])];
        }
    }
    throw new Exception("no $name in " . file_get_contents('/proc/self/maps'));
}
// sapi/base/scoreboard_layout.h and sapi/ipc/rings.h, for four workers.
function line(int $worker): int { return memory('surus-scoreboard')[0] + 64 * $worker; }
function own_line(): int {
    for ($i = 0; $i < 4; $i++) {
        if (unpack('V', peek(line($i) + 48, 4))[1] === getmypid()) return line($i);
    }
    throw new Exception('no line is ours');
}
function ring(int $n): int { return memory('surus-rings')[0] + 64 * 4 + 128 * $n; }
function siblings(): array {
    $own = getmypid();
    $master = libc()->getppid();
    $pids = explode(' ', trim(file_get_contents("/proc/$master/task/$master/children")));
    return array_filter($pids, fn ($pid) => $pid != $own);
}
function outbox(): int {
    for ($fd = 3; $fd < 64; $fd++) {
        $type = FFI::new('int'); $len = FFI::new('unsigned'); $len->cdata = 4;
        $result = libc()->getsockopt($fd, 1, 3, FFI::addr($type), FFI::addr($len));
        if ($result === 0 && $type->cdata === 1) return $fd;
    }
    throw new Exception('no outbox');
}
function record(int $kind, int $request, string $content): string {
    return pack('CCnnCC', 1, $kind, $request, strlen($content), 0, 0) . $content;
}
function count_me() {
    file_put_contents(__DIR__ . '/writable/count', $_GET['n'] . "\n", FILE_APPEND | LOCK_EX);
}
"#;

pub const ENGINES: [&str; 4] = ["classic", "worker", "fork", "rewind"];

/// Four workers, and the scripts, which include the functions above.
pub fn site(engine: &str, files: &[(&str, &str)], env: &[(&str, &str)]) -> Site {
    let dir = app();
    std::fs::write(dir.path().join("tools.php"), format!("<?php {TOOLS}")).unwrap();
    for (name, code) in files {
        let code = format!("<?php require_once __DIR__ . '/tools.php'; {code}");
        std::fs::write(dir.path().join(name), code).unwrap();
    }
    let counted = "require_once __DIR__ . '/tools.php'; count_me(); usleep((int) ($_GET['us'] ?? \
        0)); echo $_GET['n'];";
    std::fs::write(dir.path().join("counted.php"), format!("<?php {counted}")).unwrap();
    let admin = format!("unix:{}", dir.path().join("admin.sock").display());
    let own = [
        ("SURUS_PHP_FFI__ENABLE", "true"),
        // The functions above count on four places for workers.
        ("SURUS_ENGINE_SPARE_WORKERS", "0"),
        ("SURUS_ADMIN_LISTEN", &admin[..]),
    ];
    let settings = [&PATIENT, &own[..], env].concat();
    let args = ["--workers", "4"];
    if engine == "classic" {
        let surus = crate::common::Surus::spawn(dir.path(), &args, &settings)
            .unwrap_or_else(|log| panic!("{log}"));
        return Site { surus, dir };
    }
    boot_in(dir, engine, BOOT, &args, &settings).unwrap_or_else(|log| panic!("{engine}: {log}"))
}

pub fn ready(site: &Site) -> bool {
    let output = std::process::Command::new("curl")
        .args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "--unix-socket",
        ])
        .arg(site.dir.path().join("admin.sock"))
        .arg("http://admin/-/ready")
        .output()
        .unwrap();
    output.stdout == b"200"
}

pub fn repairs(site: &Site, reason: &str) -> u64 {
    let metrics = metrics(&site.dir.path().join("admin.sock"));
    let line = metrics.lines().find(|line| {
        line.starts_with("surus_shared_state_repairs_total")
            && line.contains(&format!("reason=\"{reason}\""))
    });
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Concurrent POST requests, each of which records its number.
pub fn post_counted(
    site: &Site,
    numbers: std::ops::Range<usize>,
    us: usize,
) -> Vec<(usize, Answer)> {
    let asking: Vec<_> = numbers
        .map(|n| {
            let address = site.surus.address.clone();
            let asked = request("POST", &format!("/counted.php?n={n}&us={us}"), "");
            (
                n,
                std::thread::spawn(move || ask(&address, asked.as_bytes())),
            )
        })
        .collect();
    asking
        .into_iter()
        .map(|(n, one)| (n, one.join().unwrap().unwrap()))
        .collect()
}

/// How often each request has run.
pub fn counted(site: &Site, n: usize) -> usize {
    let path = site.dir.path().join("writable/count");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| *line == n.to_string()).count()
}

pub fn answers_within(site: &Site, limit: Duration, what: &str) {
    let began = Instant::now();
    for n in 0..8 {
        let answer = site.get_in_time("/hello.php");
        assert_eq!(
            (answer.status, &answer.body[..]),
            (200, "hello"),
            "{what}, {n}: {}",
            site.surus.log()
        );
    }
    // Tests wait while others need the CPUs: far less than Surus's timeout, 60 s.
    assert!(began.elapsed() < limit, "{what}: {:?}", began.elapsed());
}

pub const SOON: Duration = Duration::from_secs(15);

#[test]
fn lines_overwritten_by_a_script_cost_no_other_request() {
    for engine in ENGINES {
        for byte in ["\\xff", "\\x00", "\\x01", "\\x03"] {
            let code = format!(
                "poke(memory('surus-scoreboard')[0], str_repeat(\"{byte}\", 4 * 64)); echo 'done';"
            );
            let site = site(engine, &[("lie.php", &code)], &[]);
            let others = [
                site.begun("/nap.php?ms=1500"),
                site.begun("/nap.php?ms=1500"),
            ];
            assert_eq!(site.get("/lie.php").body, "done", "{engine}");
            answers_within(&site, SOON, engine);
            for other in others {
                assert_eq!(
                    other.join().unwrap().unwrap().body,
                    "rested",
                    "{engine} {byte}"
                );
            }
            assert!(ready(&site), "{engine}");
        }
    }
}

#[test]
fn impossible_request_id_in_a_line_costs_only_its_worker_and_repeats_no_request() {
    for engine in ENGINES {
        let code = "count_me(); poke(own_line() + 4, pack('V', 70000)); libc()->kill(getmypid(), \
            9); sleep(9);";
        let site = site(engine, &[("lie.php", code)], &[]);
        let master = site.master();
        let other = site.begun("/nap.php?ms=2500");
        let answer = site.ask(&request("POST", "/lie.php?n=1", "")).unwrap();
        assert_eq!(answer.status, 502, "{engine}: {}", site.surus.log());
        assert_eq!(counted(&site, 1), 1, "{engine}");
        answers_within(&site, SOON, engine);
        assert_eq!(other.join().unwrap().unwrap().body, "rested", "{engine}");
        assert_eq!(site.master(), master, "{engine}: the generation stays");
        assert_eq!(counted(&site, 1), 1, "{engine}");
    }
}

/// Whatever progress a worker's line shows.
#[test]
fn hidden_post_is_not_repeated_when_all_processes_are_killed() {
    for engine in ENGINES {
        let code = "count_me(); poke(own_line(), str_repeat(\"\\0\", 40)); touch($_GET['began']); \
            $end = microtime(true) + 20; while (microtime(true) < $end) {}";
        let site = site(engine, &[("lie.php", code)], &[]);
        let began = site.dir.path().join("writable/began");
        let asked = request(
            "POST",
            &format!("/lie.php?n=1&began={}", began.display()),
            "",
        );
        let address = site.surus.address.clone();
        let lie = std::thread::spawn(move || ask(&address, asked.as_bytes()));
        until("it has begun", || began.exists());
        let (master, workers) = (site.master(), site.workers());
        kill(master, "KILL");
        workers.iter().for_each(|pid| kill(*pid, "KILL"));
        assert_eq!(lie.join().unwrap().unwrap().status, 502, "{engine}");
        answers_within(&site, SOON, engine);
        assert_eq!(counted(&site, 1), 1, "{engine}");
    }
}

#[test]
fn ring_positions_written_by_a_script_lose_and_repeat_no_request() {
    // The head: where workers read the next request; the tail: where Surus puts the next.
    let moves = [
        ("ring(0)", "pack('P', 0)"),
        ("ring(0)", "pack('P', -1)"),
        ("ring(0)", "peek(ring(0) + 64, 8)"),
        ("ring(0)", "pack('P', unpack('P', peek(ring(0), 8))[1] + 8)"),
        (
            "ring(0)",
            "pack('P', unpack('P', peek(ring(0), 8))[1] - 4096)",
        ),
        ("ring(0) + 64", "pack('P', -1)"),
        ("ring(0) + 64", "pack('P', 0)"),
        // Header, doorbells, and the bits of workers that have written response frames.
        ("memory('surus-rings')[0]", "str_repeat(\"\\xff\", 64 * 4)"),
        ("memory('surus-rings')[0]", "str_repeat(\"\\0\", 64 * 4)"),
    ];
    for engine in ENGINES {
        let files: Vec<_> = moves
            .iter()
            .enumerate()
            .map(|(n, (to, bytes))| {
                (
                    format!("lie{n}.php"),
                    format!("usleep(100000); poke({to}, {bytes}); echo 'done';"),
                )
            })
            .collect();
        let files: Vec<_> = files.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        let site = site(engine, &files, &[]);
        for n in 0..moves.len() {
            // More than the number of workers: some requests wait in the ring when it is
            // overwritten.
            let lie = site.begin(&format!("/lie{n}.php"));
            std::thread::sleep(Duration::from_millis(20));
            let numbers = n * 100..n * 100 + 24;
            for (number, answer) in post_counted(&site, numbers, 40_000) {
                assert_eq!(
                    (answer.status, answer.body),
                    (200, number.to_string()),
                    "{engine} {n}: {}",
                    site.surus.log()
                );
                assert_eq!(counted(&site, number), 1, "{engine} {n}");
            }
            assert_eq!(lie.join().unwrap().unwrap().status, 200, "{engine} {n}");
            answers_within(&site, SOON, engine);
            assert!(ready(&site), "{engine} {n}");
        }
    }
}

/// Also if its line is empty.
#[test]
fn worker_that_hides_its_request_is_killed_after_its_deadline() {
    for engine in ENGINES {
        // And stays empty after the signal that asks for it.
        let code = "libc()->sigprocmask(0, str_repeat(\"\\xff\", 128), ''); poke(own_line(), \
                    pack('VV', 1, 0) . str_repeat(\"\\0\", 32)); ini_set('max_execution_time', 0); \
                    touch($_GET['began']); while (true) {}";
        let limits = [
            ("SURUS_HTTP_REQUEST_TIMEOUT", "5s"),
            ("SURUS_ENGINE_KILL_TIMEOUT", "1s"),
        ];
        let site = site(engine, &[("lie.php", code)], &limits);
        // On a busy machine, it may not begin by its deadline.
        let mut before = Vec::new();
        let lie = (0..20).find_map(|_| {
            before = site.workers();
            site.try_begun("/lie.php?").ok()
        });
        let lie = lie.expect("it begins");
        let status = lie.join().unwrap().unwrap().status;
        assert!([502, 504].contains(&status), "{engine}: {status}");
        // Those that are suspected with it are killed only while they run nothing.
        let is_killed = std::sync::atomic::AtomicBool::new(false);
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_killed.load(Relaxed) && began.elapsed() < SOON {
                        // No POST request is sent again once a worker has claimed it.
                        let answer = site.ask(&request("POST", "/hello.php", "")).unwrap();
                        assert_ne!(answer.status, 502, "{engine}: {}", site.surus.log());
                    }
                });
            }
            until("it is killed", || before.iter().any(|pid| !lives(*pid)));
            std::thread::sleep(Duration::from_millis(500));
            is_killed.store(true, Relaxed);
        });
        answers_within(&site, SOON, engine);
    }
}

/// As FastCGI records in its own response socket, with and without a ticket, for all possible
/// request ids.
#[test]
fn response_to_another_workers_request_is_discarded() {
    for engine in ENGINES {
        for ticket in ["''", "record(130, $id, random_bytes(8))"] {
            let code = format!(
                "$out = outbox(); for ($id = 1; $id < 40; $id++) {{ \
                 $bytes = {ticket} . record(6, $id, \"Content-Type: \
                 text/plain\\r\\n\\r\\nforged\") . record(3, $id, pack('NN', 0, 0)); \
                 libc()->write($out, $bytes, strlen($bytes)); }} echo 'done';"
            );
            let site = site(engine, &[("lie.php", &code)], &[]);
            let others: Vec<_> = (0..3).map(|_| site.begun("/nap.php?ms=700")).collect();
            let lie = site.get("/lie.php");
            assert!(
                !lie.body.contains("forged") || lie.status != 200,
                "{engine} {lie:?}"
            );
            for other in others {
                assert_eq!(
                    other.join().unwrap().unwrap().body,
                    "rested",
                    "{engine} {ticket}"
                );
            }
            answers_within(&site, SOON, engine);
        }
    }
}

/// The table in which workers record expressions for the prototype process.
#[test]
fn table_of_expressions_overwritten_by_a_script_does_no_harm() {
    let table = "foreach (file('/proc/self/maps') as $l) if (preg_match('~^([0-9a-f]+)-([0-9a-f]+) \
                 rw-s .*(/dev/zero|zero)~', $l, $m) && hexdec($m[2]) - hexdec($m[1]) > 4000000 && \
                 hexdec($m[2]) - hexdec($m[1]) < 4400000) $a = hexdec($m[1]); if (!isset($a)) \
                 throw new Exception(file_get_contents('/proc/self/maps'));";
    // Its first words: number due, number compiled, time of the next refresh. Then the slots:
    // state, requests, length.
    let due = "poke($a, pack('VVPP', 1000, 0, 0, 0));";
    let lies = [
        "poke($a + 24, pack('VVV', 2, 2, 0x7fffff00));".to_string(),
        "poke($a + 24, str_repeat(\"\\xff\", 4096 * 3));".to_string(),
        // An expression that takes much time and memory to compile.
        "$r = '/' . str_repeat('(?:a{1,60}){1,60}', 200) . '/'; poke($a + 24, pack('VVVVP', 2, 2, \
            strlen($r), 0, 7) . $r);"
            .to_string(),
        "$r = '/' . str_repeat('(', 2000) . 'a' . str_repeat(')', 2000) . '/'; poke($a + 24, \
            pack('VVVVP', 2, 2, strlen($r), 0, 7) . $r);"
            .to_string(),
    ];
    for engine in ["fork", "rewind"] {
        for lie in &lies {
            let code = format!("{table} {lie} {due} echo 'done';");
            let site = site(engine, &[("lie.php", &code)], &[]);
            let master = site.master();
            // The prototype process compiles for the first time a second after its boot.
            for _ in 0..8 {
                assert_eq!(site.get("/lie.php").body, "done", "{engine} {lie}");
                std::thread::sleep(Duration::from_millis(250));
                assert_eq!(site.get("/hello.php").body, "hello", "{engine} {lie}");
            }
            assert!(
                lives(master) && site.master() == master,
                "{engine} {lie}: {}",
                site.surus.log()
            );
        }
    }
}

/// Links that take long to follow: each target is long, and names the next link.
fn slow_links(dir: &std::path::Path) -> std::path::PathBuf {
    std::fs::create_dir(dir.join("d")).unwrap();
    for n in 0..39 {
        let target = format!("{}l{}", "d/../".repeat(800), n + 1);
        std::os::unix::fs::symlink(target, dir.join(format!("l{n}"))).unwrap();
    }
    dir.join("l0")
}

/// The files of the boot, which the master process looks at.
#[test]
fn files_of_the_boot_forged_by_a_script_stop_no_replacement_of_workers() {
    let links = tempfile::tempdir().unwrap();
    std::fs::set_permissions(links.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let slow = slow_links(links.path());
    let forge = format!(
        "$path = {:?} . \"\\0\"; \
         foreach (file('/proc/self/maps') as $line) {{ \
             if (preg_match('~^([0-9a-f]+)-([0-9a-f]+) rw-s .*zero~', $line, $m)) {{ \
                 $more = hexdec($m[2]) - hexdec($m[1]) - 8388608; \
                 if ($more > 0 && $more < 65536) $at = hexdec($m[1]); \
             }} \
         }} \
         if (!isset($at)) throw new Exception(file_get_contents('/proc/self/maps')); \
         $size = 16 + intdiv(strlen($path) + 7, 8) * 8; \
         $record = str_pad(pack('PVV', 0, 0, strlen($path)) . $path, $size, \"\\0\"); \
         $n = intdiv(8 << 20, $size); \
         poke($at + 8, str_repeat($record, $n)); \
         poke($at, pack('VV', 2, $n * $size)); \
         echo 'forged';",
        slow.display().to_string()
    );
    let files = [("forge.php", &forge[..]), ("die.php", "libc()->_exit(1);")];
    for engine in ["worker", "standby"] {
        let looks = [("SURUS_PHP_OPCACHE__REVALIDATE_FREQ", "1")];
        let site = site(engine, &files, &looks);
        let master = site.master();
        assert_eq!(site.get("/forge.php").body, "forged", "{engine}");
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(1100));
            assert_eq!(site.get("/hello.php").status, 200, "{engine}");
            for _ in 0..4 {
                assert_eq!(site.get("/die.php").status, 502, "{engine}");
            }
            answers_within(&site, SOON, engine);
        }
        let log = site.surus.log();
        assert!(!log.contains("does not replace"), "{engine}: {log}");
        assert!(lives(master) && site.master() == master, "{engine}: {log}");
    }
}

#[test]
fn tools_of_these_tests_can_write() {
    let site = site(
        "classic",
        &[(
            "own.php",
            "poke(own_line() + 52, 'abcd'); echo peek(own_line() + 52, 4), count(siblings()), \
                outbox() > 2;",
        )],
        &[],
    );
    let mode = std::fs::metadata(site.dir.path()).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
    assert_eq!(site.get("/own.php").body, "abcd31");
}
