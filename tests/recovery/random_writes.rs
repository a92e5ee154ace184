//! Tests random writes to the memory that workers share with Surus while requests are in flight.
//!
//! Surus survives, each client gets its own response or an error, no request runs twice, and after
//! the writes everything works again.
//!
//! `SHARED_MEMORY_SECONDS` is the duration (5); `RANDOM_SEED` repeats the writes of a failure, as
//! far as timing allows.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::common::Surus;
use crate::site::{Site, app, ask, is_root, request, until};

/// Records its token and responds with it, sometimes slowly, sometimes with more than fits into a
/// ring.
const ONCE: &str = r#"<?php
    $token = $_GET['token'];
    file_put_contents(__DIR__ . '/writable/ran', "$token\n", FILE_APPEND | LOCK_EX);
    preg_match('/^' . $token[0] . '/', 'a');
    usleep((int) $_GET['us']);
    echo $token, str_repeat('.', (int) $_GET['more']);"#;

const BOOT: &str = "<?php surus_serve(function () { require $_SERVER['SCRIPT_FILENAME']; });";

const CLIENTS: u64 = 8;

/// xorshift64*: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

fn start(engine: &str) -> Site {
    let dir = app();
    std::fs::write(dir.path().join("once.php"), ONCE).unwrap();
    let script = dir.path().join("boot.php");
    let admin = format!("unix:{}", dir.path().join("admin.sock").display());
    std::fs::write(&script, BOOT).unwrap();
    let mut env = vec![
        ("SURUS_ENGINE_NAME", engine),
        ("SURUS_HTTP_REQUEST_TIMEOUT", "4s"),
        ("SURUS_ENGINE_KILL_TIMEOUT", "1s"),
        ("SURUS_ADMIN_LISTEN", &admin[..]),
    ];
    if engine != "classic" {
        env.push(("SURUS_ENGINE_SCRIPT", script.to_str().unwrap()));
    }
    let surus = Surus::spawn(dir.path(), &["--workers", "4"], &env)
        .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));
    Site { surus, dir }
}

/// Writable ranges: a file, and its ranges that are shared memory.
struct Memory {
    file: File,
    begin: u64,
    len: u64,
}

/// The memory of all generations, and the table of regular expressions if a worker's memory is
/// writable.
fn memories(site: &Site) -> Vec<Memory> {
    let mut found = Vec::new();
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", site.surus.front()));
    for entry in descriptors.into_iter().flatten().flatten() {
        let name = std::fs::read_link(entry.path()).unwrap_or_default();
        let name = name.to_string_lossy();
        if !name.contains("surus-scoreboard") && !name.contains("surus-rings") {
            continue;
        }
        let opened = File::options().read(true).write(true).open(entry.path());
        if let Ok(file) = opened
            && let Ok(meta) = file.metadata()
        {
            found.push(Memory {
                file,
                begin: 0,
                len: meta.len(),
            });
        }
    }
    for worker in site.workers().into_iter().take(1) {
        let maps = std::fs::read_to_string(format!("/proc/{worker}/maps")).unwrap_or_default();
        for line in maps.lines().filter(|line| line.contains("/dev/zero")) {
            let memory = File::options()
                .write(true)
                .open(format!("/proc/{worker}/mem"));
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            if let (Ok(file), Some((begin, end))) = (memory, range) {
                let begin = u64::from_str_radix(begin, 16).unwrap();
                let len = u64::from_str_radix(end, 16).unwrap() - begin;
                // The expressions, the files of the boot and so on. OPcache's memory, which is much
                // larger, belongs to PHP.
                if line.contains(" rw-s ") && len < 32 << 20 {
                    found.push(Memory { file, begin, len });
                }
            }
        }
    }
    found
}

/// Writes until `end`; returns how often.
fn damage(site: &Site, random: &mut Random, end: Instant) -> u64 {
    let mut written = 0;
    while Instant::now() < end {
        // A reload would replace the memory.
        let memories = memories(site);
        for _ in 0..100 {
            if memories.is_empty() || Instant::now() >= end {
                break;
            }
            let memory = &memories[random.below(memories.len() as u64) as usize];
            // Positions, bits and lines are at the beginning.
            let within = if random.below(3) > 0 {
                2048
            } else {
                memory.len
            };
            let at = random.below(within.min(memory.len) - 8);
            let value = match random.below(5) {
                0 => 0,
                1 => u64::MAX,
                2 => random.below(100_000),
                _ => random.next(),
            };
            let bytes = value.to_ne_bytes();
            let done = match random.below(2) {
                0 => memory.file.write_all_at(&bytes, memory.begin + at / 8 * 8),
                _ => memory.file.write_all_at(&bytes[..1], memory.begin + at),
            };
            written += u64::from(done.is_ok());
            std::thread::sleep(Duration::from_micros(random.below(3000)));
        }
    }
    written
}

/// The clients' results.
#[derive(Default)]
struct Seen {
    asked: HashSet<String>,
    statuses: HashMap<u16, u64>,
}

/// Sends requests until `done`. Every response is this client's, damaged, or an error; and there is
/// one.
fn ask_until(site: &Site, client: u64, mut random: Random, done: &AtomicBool, seen: &Mutex<Seen>) {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    while !done.load(Ordering::Relaxed) {
        let token = format!("t{client}-{:016x}{:016x}-", random.next(), random.next());
        lock().asked.insert(token.clone());
        let more = [0, 0, 100, 40_000][random.below(4) as usize];
        let us = [0, 0, 0, 2_000, 50_000][random.below(5) as usize];
        let path = format!("/once.php?token={token}&more={more}&us={us}");
        let began = Instant::now();
        let answer = ask(
            &site.surus.address,
            request("POST", &path, "body").as_bytes(),
        );
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "no answer for {:?}: {answer:?}",
            began.elapsed()
        );
        let mut seen = lock();
        let Ok(answer) = answer else {
            *seen.statuses.entry(0).or_default() += 1;
            continue;
        };
        *seen.statuses.entry(answer.status).or_default() += 1;
        // A damaged body contains no request's token.
        let answered = answer.body.split('.').next().unwrap_or_default();
        assert!(
            answered == token || !seen.asked.contains(answered),
            "{token} got the answer to {answered}: {}",
            site.surus.log()
        );
    }
}

fn survives(engine: &str) {
    let seed = number("RANDOM_SEED", u64::from(std::process::id()) << 16 | 1);
    let seconds = number("SHARED_MEMORY_SECONDS", 5);
    println!("{engine}: RANDOM_SEED={seed} SHARED_MEMORY_SECONDS={seconds}");
    let site = start(engine);
    if engine == "worker" && is_root() {
        let files_of_the_boot = |memory: &Memory| memory.len >= 8 << 20;
        assert!(memories(&site).iter().any(files_of_the_boot));
    }
    let mut random = Random(seed.max(1));
    let (done, written, seen) = (
        AtomicBool::new(false),
        AtomicU64::new(0),
        Mutex::new(Seen::default()),
    );
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let own = Random(random.next().max(1));
            let (site, done, seen) = (&site, &done, &seen);
            scope.spawn(move || ask_until(site, client, own, done, seen));
        }
        let end = Instant::now() + Duration::from_secs(seconds);
        written.store(damage(&site, &mut random, end), Ordering::Relaxed);
        // Its effects last until the last lost request has been answered.
        done.store(true, Ordering::Relaxed);
    });
    let log = || site.surus.log();
    assert!(written.into_inner() > 100, "nothing could be written to");
    assert!(!log().contains("panicked"), "{}", log());

    let ended = Instant::now();
    until("requests are answered again", || {
        (0..20).all(|_| ask_once(&site) == Some(200))
    });
    assert!(
        ended.elapsed() < Duration::from_secs(50),
        "{:?}",
        ended.elapsed()
    );
    until("it says that it is ready", || is_ready(&site));

    // A token that was overwritten in a ring may not be text any more.
    let ran = std::fs::read(site.dir.path().join("writable/ran")).unwrap();
    let ran = String::from_utf8_lossy(&ran);
    let mut times: HashMap<&str, u64> = HashMap::new();
    for token in ran.lines() {
        *times.entry(token).or_default() += 1;
    }
    let seen = seen.into_inner().unwrap();
    for token in &seen.asked {
        let times = times.get(token.as_str()).copied().unwrap_or(0);
        assert!(times <= 1, "{token} ran {times} times: {}", log());
    }
    println!("{engine}: {:?} of {}", seen.statuses, seen.asked.len());
    assert!(
        seen.statuses.get(&200).is_some_and(|count| *count > 0),
        "{}",
        log()
    );
}

fn ask_once(site: &Site) -> Option<u16> {
    let asked = request("GET", "/hello.php", "");
    ask(&site.surus.address, asked.as_bytes())
        .ok()
        .map(|answer| answer.status)
}

fn is_ready(site: &Site) -> bool {
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

#[test]
fn classic_survives_random_writes_to_shared_memory() {
    survives("classic");
}

/// Its workers share the files of the boot, too.
#[test]
fn worker_survives_random_writes_to_shared_memory() {
    survives("worker");
}

#[test]
fn fork_survives_random_writes_to_shared_memory() {
    survives("fork");
}

#[test]
fn rewind_survives_random_writes_to_shared_memory() {
    survives("rewind");
}
