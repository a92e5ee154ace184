//! Does `rewind` answer right, and keep its memory, for as many requests as `SOAK_REQUESTS` says? A mixed load from every kind of
//! script that leaves something behind: `SOAK_REQUESTS=1000000 cargo test --release --test soak -- --ignored --nocapture`.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::Surus;

const BOOT: &str = r#"<?php
class Counter { public static $count = 0; public $log = []; }
$counter = new Counter;
$table = range(1, 20000);
surus_serve(function () use ($counter, &$table) {
    // Whatever an event leaves behind would show in the next one's number.
    $number = ++Counter::$count + count($counter->log) + count($table) - 20000;
    $counter->log[] = str_repeat('x', 100);
    $table[] = $number;
    $n = (int) $_GET['n'];
    switch ($_GET['do']) {
        case 'hello':
            break;
        case 'string':
            $string = str_repeat(chr(65 + $n % 26), 6 << 20);
            $number += strlen($string) - (6 << 20) + (md5($string) === md5($string) ? 0 : 1);
            break;
        case 'class':
            require __DIR__."/classes/C{$n}.php";
            $class = "C$n";
            $number += (new $class)->value() - $n + $class::$count++;
            break;
        case 'session':
            session_id("soak$n");
            session_start();
            $_SESSION['n'] ??= $n;
            $number += $_SESSION['n'] - $n;
            session_write_close();
            break;
        case 'throw':
            throw new RuntimeException("n $n");
        case 'exit':
            echo "$number $n";
            exit;
        case 'fatal':
            no_such_function();
        case 'array':
            $array = [];
            for ($i = 0; $i < 20000; $i++) {
                $array["k$i"] = [$i];
            }
            $number += count($array) - 20000;
            break;
        case 'ini':
            ini_set('precision', 3);
            setlocale(LC_ALL, 'C.UTF-8');
            mb_internal_encoding('ISO-8859-1');
            $f = fopen('php://temp', 'w');
            $g = fopen(__FILE__, 'r');
            ob_start();
            break;
    }
    echo "$number $n";
});
"#;

const CLASSES: u64 = 2000;

fn app() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(dir.path().join("index.php"), BOOT).unwrap();
    std::fs::create_dir(dir.path().join("classes")).unwrap();
    let sessions = dir.path().join("sessions");
    std::fs::create_dir(&sessions).unwrap();
    std::fs::set_permissions(&sessions, PermissionsExt::from_mode(0o777)).unwrap();
    for n in 0..CLASSES {
        let code = format!(
            "<?php class C{n} {{ public static $count = 0; private const N = {n}; function value() {{ static $calls = 0; return self::N + $calls++; }} }}"
        );
        std::fs::write(dir.path().join(format!("classes/C{n}.php")), code).unwrap();
    }
    dir
}

/// What to do, how often of a hundred, and the status that answers it.
const MIX: [(&str, u64, u16); 9] = [
    ("hello", 48, 200),
    ("class", 20, 200),
    ("session", 8, 200),
    ("exit", 6, 200),
    ("throw", 5, 500),
    ("ini", 5, 200),
    ("array", 4, 200),
    ("fatal", 2, 500),
    ("string", 2, 200),
];

fn pick(random: u64) -> (&'static str, u16) {
    let mut left = random % 100;
    for (what, share, status) in MIX {
        if left < share {
            return (what, status);
        }
        left -= share;
    }
    unreachable!()
}

#[test]
#[ignore = "long; SOAK_REQUESTS says how long"]
fn every_answer_is_right_and_memory_stays() {
    let requests = std::env::var("SOAK_REQUESTS").map_or(20_000, |n| n.parse().unwrap());
    let dir = app();
    let sessions = format!(
        "session.save_path={}",
        dir.path().join("sessions").display()
    );
    let surus = Surus::spawn(
        dir.path(),
        &[
            "--workers",
            "2",
            "-d",
            &sessions,
            "-d",
            "display_errors=0",
            "-d",
            "log_errors=0",
        ],
        &[
            ("SURUS_ACCESS_LOG_FORMAT", "off"),
            ("SURUS_ENGINE_NAME", "rewind"),
            ("SURUS_COMPRESS_ENABLED", "false"),
        ],
    )
    .unwrap_or_else(|log| panic!("surus did not start:\n{log}"));

    let (asked, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let mut clients = Vec::new();
    for client in 0..4 {
        let (asked, address) = (asked.clone(), surus.address.clone());
        clients.push(std::thread::spawn(move || {
            ask_all(client, &address, &asked, requests)
        }));
    }
    let mut memory = Vec::new();
    while clients.iter().any(|client| !client.is_finished()) {
        let done = asked.load(Ordering::Relaxed).min(requests);
        memory.push((done, resident(surus.pid())));
        println!(
            "{:5} s {done:8} requests  {:?}",
            began.elapsed().as_secs(),
            memory.last().unwrap().1
        );
        std::thread::sleep(Duration::from_secs(if requests > 100_000 { 10 } else { 1 }));
    }
    let wrong: Vec<String> = clients
        .into_iter()
        .flat_map(|client| client.join().unwrap())
        .collect();
    println!(
        "{requests} requests in {:?}, {} wrong",
        began.elapsed(),
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{} wrong answers: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
    let log = surus.log();
    assert!(
        !log.contains("replaced instead") && !log.contains("died"),
        "{log}"
    );
    // From when every script has been seen.
    let settled = &memory[memory.len() / 2..];
    let total = |sample: &Vec<(String, u64)>| sample.iter().map(|(_, kib)| kib).sum::<u64>();
    let (first, last) = (total(&settled[0].1), total(&settled.last().unwrap().1));
    assert!(
        last <= first + first / 10 + 4096,
        "{first} KiB have become {last} KiB"
    );
}

/// Returns what was wrong.
fn ask_all(client: u64, address: &str, asked: &AtomicU64, requests: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(40)))
        .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    let mut random = client + 1;
    while asked.fetch_add(1, Ordering::Relaxed) < requests && wrong.len() < 100 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let (what, status) = pick(random >> 33);
        let n = (random >> 20) % CLASSES;
        let request = format!("GET /?do={what}&n={n} HTTP/1.1\r\nHost: soak\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let (got, body) = answer(&mut reader);
        let expected = if status == 200 {
            format!("1 {n}")
        } else {
            String::new()
        };
        if got != status || body != expected {
            println!("wrong: {what} {n}: {got} {body:?}");
            wrong.push(format!("{what} {n}: {got} {body:?}"));
        }
    }
    wrong
}

fn answer(reader: &mut impl BufRead) -> (u16, String) {
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest[..3].parse().unwrap();
        } else if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// KiB of each process that is ours: surus, its template, the workers. Private ones, since the rest is shared.
fn resident(pid: u32) -> Vec<(String, u64)> {
    let mut found = vec![("surus".to_string(), private(pid))];
    for template in children(pid) {
        found.push(("template".into(), private(template)));
        for worker in children(template) {
            found.push(("worker".into(), private(worker)));
        }
    }
    found
}

fn private(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("Private_Dirty:"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let mut found = Vec::new();
    for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(
            text.split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    found
}
