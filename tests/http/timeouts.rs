//! Tests slow, silent and numerous clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::Surus;
use crate::wire::{Wire, serve, site};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn status(surus: &Surus) -> Option<u16> {
    Wire::connect(surus).ask(GET).map(|answer| answer.status)
}

#[test]
fn slow_header_section_times_out() {
    let dir = site();
    let surus = serve(
        dir.path(),
        &[("header_timeout", "1s"), ("keep_alive_timeout", "1h")],
    );
    let mut wire = Wire::connect(&surus);
    wire.send("GET / HTTP/1.1\r\n");
    let began = Instant::now();
    while wire.send("X: y\r\n") {
        assert!(began.elapsed() < Duration::from_secs(30), "still open");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(began.elapsed() >= Duration::from_millis(900));
    assert_eq!(status(&surus), Some(200));
}

#[test]
fn stalled_request_body_occupies_no_worker() {
    let dir = site();
    // There is one worker: if the slow client had it, no other request would be answered.
    let surus = serve(dir.path(), &[("body_timeout", "1h")]);
    let mut slow = Wire::connect(&surus);
    slow.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    for _ in 0..20 {
        assert_eq!(status(&surus), Some(200));
    }
    assert_eq!(slow.ask("lo").unwrap().seen("body"), "hello");
}

#[test]
fn stalled_request_body_times_out() {
    let dir = site();
    let surus = serve(dir.path(), &[("body_timeout", "500ms")]);
    for body in [
        "Content-Length: 5\r\n\r\nhel",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    ] {
        let mut slow = Wire::connect(&surus);
        let answer = slow
            .ask(&format!("POST / HTTP/1.1\r\nHost: a\r\n{body}"))
            .unwrap();
        assert_eq!(answer.status, 408);
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(slow.rest().is_empty());
    }
}

#[test]
fn idle_connection_is_closed() {
    let dir = site();
    let surus = serve(dir.path(), &[("keep_alive_timeout", "500ms")]);
    assert!(Wire::answered(&surus).rest().is_empty());
    assert!(
        Wire::connect(&surus).rest().is_empty(),
        "nor one that was never used"
    );
}

#[test]
fn stalled_client_releases_its_worker() {
    let dir = site();
    let timeout = ("send_timeout", "500ms");
    let surus = serve(dir.path(), &[timeout, ("max_response_buffer", "0")]);
    let mut wire = Wire::connect(&surus);
    wire.send("GET /?mib=100 HTTP/1.1\r\nHost: a\r\n\r\n");
    wire.begins();
    // There is one worker: when this is answered, the stalled request has been aborted.
    assert_eq!(status(&surus), Some(200));
    let got = wire.rest().len();
    assert!(got < 100 << 20, "{got} bytes");
}

/// Starts a request that takes PHP until `finish`.
fn busy(surus: &Surus) -> Wire {
    let mut wire = Wire::connect(surus);
    wire.send("GET /?until=finish HTTP/1.1\r\nHost: a\r\n\r\n");
    surus.wait_for_log(|log| log.contains("begun"));
    wire
}

fn finish(dir: &Path) {
    std::fs::write(dir.join("finish"), "").unwrap();
}

fn sockets(surus: &Surus) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", surus.front())).unwrap();
    let leads_to = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    leads_to
        .filter(|to| to.to_string_lossy().starts_with("socket:"))
        .count()
}

/// PHP notices it at the next write.
#[test]
fn closed_connection_holds_no_descriptor_while_php_continues() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let before = sockets(&surus);
    let wire = busy(&surus);
    assert_eq!(sockets(&surus), before + 1);
    drop(wire);
    let left = eventually_below(before as u64 + 1, || sockets(&surus) as u64);
    assert!(left <= before as u64, "{left} sockets");
    finish(dir.path());
}

const STATIC: &str = "GET /static.txt HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn stalled_client_times_out_and_its_buffer_is_freed() {
    let dir = site();
    let surus = serve(dir.path(), &[("send_timeout", "500ms")]);
    let mut wire = Wire::connect(&surus);
    wire.send("GET /?mib=100 HTTP/1.1\r\nHost: a\r\n\r\n");
    wire.begins();
    assert_eq!(status(&surus), Some(200));
    std::thread::sleep(Duration::from_secs(3));
    let got = wire.rest().len();
    assert!(got < 100 << 20, "{got} bytes");
}

#[test]
fn idle_connections_are_evicted_for_new_ones() {
    let dir = site();
    let surus = serve(
        dir.path(),
        &[("max_connections", "20"), ("header_timeout", "1h")],
    );
    let mut busy = busy(&surus);
    let mut unfinished = Wire::connect(&surus);
    unfinished.send("GET /static.txt HTTP/1.1\r\n");
    // Some have been used and some have not.
    let mut idle: Vec<Wire> = (0..18)
        .map(|n| {
            let mut wire = Wire::connect(&surus);
            if n % 2 == 0 {
                assert_eq!(wire.ask(STATIC).unwrap().status, 200);
            }
            std::thread::sleep(Duration::from_millis(5));
            wire
        })
        .collect();
    let mut new: Vec<Wire> = (0..10)
        .map(|n| {
            let mut wire = Wire::connect(&surus);
            let answer = wire.ask(STATIC);
            assert_eq!(answer.map(|answer| answer.status), Some(200), "{n}");
            std::thread::sleep(Duration::from_millis(5));
            wire
        })
        .collect();
    for (n, wire) in idle.iter_mut().enumerate() {
        match n {
            0..10 => assert!(wire.rest().is_empty(), "{n} was idle longest"),
            _ => assert_eq!(wire.ask(STATIC).unwrap().status, 200, "{n}"),
        }
    }
    for wire in &mut new {
        assert_eq!(wire.ask(STATIC).unwrap().status, 200);
    }
    assert_eq!(unfinished.ask("Host: a\r\n\r\n").unwrap().status, 200);
    finish(dir.path());
    assert_eq!(busy.answer().unwrap().status, 200);
}

#[test]
fn connection_over_the_limit_is_closed_or_waits_for_a_free_slot() {
    let dir = site();
    let surus = serve(
        dir.path(),
        &[("max_connections", "2"), ("header_timeout", "1h")],
    );
    let mut busy = busy(&surus);
    let mut unfinished = Wire::connect(&surus);
    unfinished.send("GET /static.txt HTTP/1.1\r\n");
    std::thread::sleep(Duration::from_millis(100));
    assert!(Wire::connect(&surus).rest().is_empty());
    surus.wait_for_log(|log| log.contains("http.max_connections"));
    let mut waiting: Vec<Wire> = (0..20).map(|_| Wire::connect(&surus)).collect();
    for wire in &mut waiting {
        wire.send(STATIC);
    }
    finish(dir.path());
    assert_eq!(busy.answer().unwrap().status, 200);
    let answers = waiting.iter_mut().filter_map(Wire::answer);
    assert!(answers.count() > 0, "those that wait get room");
    assert_eq!(unfinished.ask("Host: a\r\n\r\n").unwrap().status, 200);
}

#[test]
fn burst_of_connections_is_served_despite_as_many_idle_ones() {
    let dir = site();
    let surus = serve(dir.path(), &[("max_connections", "64")]);
    let _idle: Vec<Wire> = (0..64).map(|_| Wire::connect(&surus)).collect();
    let mut answered = 0;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let asked = (0..50).map(|_| Wire::connect(&surus).ask(STATIC));
                    asked.flatten().count()
                })
            })
            .collect();
        for client in clients {
            answered += client.join().unwrap();
        }
    });
    assert_eq!(answered, 16 * 50);
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// The limit of open files of this process.
fn open_files() -> usize {
    surus_sys::process::raise_open_files().unwrap();
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    line.split_whitespace()
        .nth(3)
        .unwrap()
        .parse()
        .unwrap_or(usize::MAX)
}

#[test]
fn ten_thousand_idle_connections_cost_little() {
    let many = 10_000.min(open_files() - 500);
    let dir = site();
    let surus = serve(
        dir.path(),
        &[("max_connections", "20000"), ("keep_alive_timeout", "1h")],
    );
    assert_eq!(status(&surus), Some(200));
    let before = resident(surus.front());
    let mut idle: Vec<Wire> = (0..many)
        .map(|_| {
            let mut wire = Wire::connect(&surus);
            let answer = wire
                .ask("GET /static.txt HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            assert_eq!(answer.status, 200);
            wire
        })
        .collect();
    let grown = || resident(surus.front()).saturating_sub(before);
    // Connections that have been idle for a while free their buffers.
    let each = eventually_below(8 * 1024, || grown() / many as u64);
    // Nor do they wake it: each would do so once in that time otherwise.
    let woken = || {
        let before = switches(surus.front());
        std::thread::sleep(Duration::from_secs(3));
        switches(surus.front()) - before
    };
    let woken = eventually_below(100, woken);
    println!("{many} idle connections: {each} bytes each, {woken} wake-ups");
    assert!(each < 8 * 1024, "{each} bytes");
    assert!(woken < 100, "{woken} wake-ups in 3 s");
    assert_eq!(status(&surus), Some(200), "a new one is served");
    for wire in idle.iter_mut().step_by(1000) {
        assert_eq!(
            wire.ask(GET).unwrap().status,
            200,
            "and so are the old ones"
        );
    }
    drop(idle);
    let kept = eventually_below(24 << 20, grown);
    assert!(kept < 24 << 20, "{kept} bytes are kept");
}

/// How often the threads of a process have blocked.
fn switches(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    threads.filter_map(of_thread).sum()
}

#[test]
fn slow_header_section_after_a_rest_times_out() {
    let dir = site();
    let surus = serve(
        dir.path(),
        &[("header_timeout", "1s"), ("keep_alive_timeout", "10m")],
    );
    let mut wire = Wire::connect(&surus);
    assert_eq!(wire.ask(GET).unwrap().status, 200);
    // The connection frees its buffers meanwhile.
    std::thread::sleep(Duration::from_millis(900));
    wire.send("GET / HT");
    wire.rest();
    // One that was never used rests, too.
    let mut wire = Wire::connect(&surus);
    std::thread::sleep(Duration::from_millis(900));
    wire.send("GET / HT");
    wire.rest();
    // One that goes on, and rests again.
    let mut wire = Wire::connect(&surus);
    for _ in 0..3 {
        assert_eq!(wire.ask(GET).unwrap().status, 200);
        std::thread::sleep(Duration::from_millis(600));
    }
    wire.send("GET / HT");
    wire.rest();
}

/// The number as soon as it is below the limit, or what it is after a minute.
fn eventually_below(limit: u64, number: impl Fn() -> u64) -> u64 {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let now = number();
        if now < limit || Instant::now() > until {
            return now;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// hyper has the end of a file long before the client has it.
#[test]
fn slowly_reading_client_of_a_file_is_not_idle() {
    let dir = site();
    std::fs::write(dir.path().join("large.bin"), vec![b'x'; 30 << 20]).unwrap();
    let surus = serve(dir.path(), &[("keep_alive_timeout", "300ms")]);
    let mut piece = vec![0; 2 << 20];
    // The server closes a connection whose request arrives too late.
    let begun = (0..100).find_map(|_| {
        let mut stream = TcpStream::connect(&surus.address).unwrap();
        let request = b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n";
        stream.write_all(request).ok()?;
        let length = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
        Some((stream, length))
    });
    let (mut stream, mut length) = begun.expect("a response");
    while length < 30 << 20 {
        std::thread::sleep(Duration::from_millis(100));
        match stream.read(&mut piece).unwrap() {
            0 => panic!("closed after {length} bytes"),
            read => length += read,
        }
    }
}

/// Sends requests of every kind on connections that were idle long enough to free their memory.
#[test]
fn idle_connection_then_serves_every_kind_of_request() {
    let dir = site();
    // Connections are checked every quarter of the shortest timeout. This one concerns none here.
    let settings = [
        ("send_timeout", "2s"),
        ("header_timeout", "1h"),
        ("keep_alive_timeout", "1h"),
    ];
    let surus = serve(dir.path(), &settings);
    let idle = || std::thread::sleep(Duration::from_millis(1000));
    let mut wires: Vec<_> = (0..6).map(|_| Wire::connect(&surus)).collect();
    for round in 0..3 {
        for (number, wire) in wires.iter_mut().enumerate() {
            match (number + round) % 6 {
                0 => assert_eq!(wire.ask(GET).unwrap().seen("REQUEST_METHOD"), "GET"),
                1 => {
                    wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
                    assert_eq!(wire.ask("llo").unwrap().seen("body"), "hello");
                }
                2 => {
                    wire.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n");
                    let answer = wire.ask("\r\n5\r\nhello\r\n0\r\n\r\n").unwrap();
                    assert_eq!(answer.seen("body"), "hello");
                }
                3 => {
                    let target = "GET /static.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
                    assert_eq!(wire.ask(target).unwrap().body, b"static");
                }
                4 => {
                    wire.send([GET, GET, "GET /?q HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
                    for query in ["", "", "q"] {
                        assert_eq!(wire.answer().unwrap().seen("QUERY_STRING"), query);
                    }
                }
                _ => {
                    wire.send("HEAD /static.txt HTTP/1.1\r\nHost: a\r\n\r\n");
                    assert_eq!(wire.answer_to("HEAD").unwrap().status, 200);
                    wire.send("\r\n");
                }
            }
        }
        idle();
    }
}
