//! Tests that `rewind` skips the kernel checks after a request without system calls, whatever
//! requests came before.

use std::collections::BTreeSet;

use crate::booted::try_booted;
use crate::site::Site;

/// Makes no system call unless told to.
const BOOT: &str = "surus_serve(function () {
    function deep($n) { return $n ? array_sum(array_map('deep', [$n - 1])) + 1 : 0; }
    switch ($_GET['do']) {
        case 'nothing': echo 'done'; break;
        case 'look':
            $open = count(scandir('/proc/self/fd'));
            echo json_encode([getmypid(), getcwd(), umask(), $open]);
            break;
        case 'ask': is_file('/no/such/file'.mt_rand()); echo 'done'; break;
        case 'chdir': chdir('/'); echo 'done'; break;
        case 'umask': umask(0); echo 'done'; break;
        case 'open':
            $object = new SplFileObject('/dev/null');
            $GLOBALS['open'] = [fopen('/dev/null', 'r'), $object, tmpfile()];
            echo 'done';
            break;
        case 'flush': echo 'done'; flush(); break;
        case 'finish': echo 'done'; fastcgi_finish_request(); break;
        case 'late': echo 'done'; fastcgi_finish_request(); chdir('/'); umask(0); break;
        case 'log': error_log('said'); echo 'done'; break;
        case 'limit': set_time_limit(30); echo 'done'; break;
        case 'large': echo strlen(str_repeat('x', 64 << 20)) ? 'done' : ''; break;
        case 'deep': echo deep(5000) ? 'done' : ''; break;
        case 'program': echo rtrim(shell_exec('echo done')); break;
    }
});";

fn site(env: &[(&str, &str)]) -> Site {
    try_booted("rewind", BOOT, &["--workers", "1"], env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"))
}

fn done(site: &Site, what: &str) {
    let answer = site.get(&format!("/?do={what}"));
    // Flushed output comes in pieces.
    assert!(
        answer.status == 200 && answer.body.contains("done"),
        "{what}: {}",
        answer.body
    );
}

/// How often the worker has read from a descriptor; checking its mappings reads one.
fn reads(site: &Site) -> u64 {
    let worker = site.workers()[0];
    let io = std::fs::read_to_string(format!("/proc/{worker}/io")).unwrap();
    let line = io.lines().find(|line| line.starts_with("syscr: "));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Whether the kernel reports system calls (since Linux 5.11).
fn reports_calls() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().unwrap().parse::<u32>().unwrap();
    cfg!(target_arch = "x86_64") && (next(), next()) >= (5, 11)
}

#[test]
fn request_without_system_calls_skips_the_kernel_checks() {
    const EVENTS: usize = 64;
    let site = site(&[]);
    let of = |what: &str| -> Vec<u64> {
        let mut seen = reads(&site);
        let mut more = || {
            done(&site, what);
            let before = std::mem::replace(&mut seen, reads(&site));
            seen - before
        };
        (0..EVENTS).map(|_| more()).collect()
    };
    for what in ["nothing", "finish"] {
        let reads = of(what);
        // Sometimes its memory is measured, or pages that were written for the first time are
        // looked for.
        let without = reads.iter().filter(|reads| **reads == 0).count();
        assert!(
            !reports_calls() || without > EVENTS / 2,
            "{what}: {reads:?}"
        );
    }
    assert!(of("ask").iter().sum::<u64>() >= EVENTS as u64);
}

#[test]
fn changed_state_is_restored_in_every_order() {
    // All requests are watched, and unchanged state is compared.
    let site = site(&[("SURUS_ENGINE_VERIFY_RESTORE", "true")]);
    let booted = site.get("/?do=look").body;
    let all = [
        "nothing", "ask", "chdir", "umask", "open", "flush", "finish", "late", "log", "limit",
        "large", "deep", "program",
    ];
    for first in all {
        for second in all {
            done(&site, first);
            done(&site, second);
            assert_eq!(site.get("/?do=look").body, booted, "{first}, then {second}");
        }
    }
}

#[test]
fn unwatched_request_is_restored() {
    let site = site(&[]);
    let booted = site.get("/?do=look").body;
    let mut seen = BTreeSet::new();
    for round in 0..40 {
        for what in ["nothing", "chdir", "umask", "open", "late"] {
            (0..round % 7).for_each(|_| done(&site, "nothing"));
            done(&site, what);
            (0..round % 3).for_each(|_| done(&site, "nothing"));
            seen.insert(site.get("/?do=look").body);
        }
    }
    assert_eq!(seen, BTreeSet::from([booted]));
}

/// The kernel kills a process that has blocked the signal by which it reports a call.
#[test]
fn boot_that_blocks_all_signals_serves() {
    for boot in [
        "pcntl_sigprocmask(SIG_BLOCK, range(1, 31));",
        "pcntl_async_signals(true); pcntl_signal(SIGTERM, fn () => null);",
    ] {
        let boot = format!(
            "{boot} surus_serve(function () {{ is_file('/no/such/file'); echo getmypid(); }});"
        );
        let site = try_booted("rewind", &boot, &["--workers", "1"], &[])
            .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
        let first = site.get("/").body;
        for _ in 0..10 {
            let answer = site.get("/");
            assert_eq!((answer.status, answer.body), (200, first.clone()), "{boot}");
        }
    }
}
