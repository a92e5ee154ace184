//! Tests requests and responses that pass through shared memory: none reaches another client, none
//! is lost, and none waits for a busy worker.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::booted::{BOOT, try_booted};
use crate::site::{READ_TIMEOUT, Site, kill, request, until};

/// Sends requests on one connection until `done`; calls `seen` with each status, None for a
/// truncated response, and whether the body is the requested one. The lengths alternate between
/// those for the ring and those for the socket.
fn ask_repeatedly(
    site: &Site,
    client: usize,
    done: &AtomicBool,
    mut seen: impl FnMut(Option<u16>, bool),
) {
    let mut connection = None;
    for n in 0.. {
        if done.load(Ordering::Relaxed) {
            return;
        }
        let mut stream = connection.take().unwrap_or_else(|| {
            let stream = TcpStream::connect(&site.surus.address).unwrap();
            stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
            BufReader::new(stream)
        });
        let key = format!("{client}-{n}");
        let more = [0, 0, 10, 3_000, 0, 40_000][n % 6];
        let body = "b".repeat([0, 0, 0, 100, 20_000][n % 5]);
        let query = format!("/echo.php?n={key}&more={more}&us={}", n % 3 * 50);
        let asked = format!(
            "GET {query} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        match answer(&mut stream, &asked) {
            Ok(answer) => {
                let right = answer.body == format!("{key}{}", ".".repeat(more)).as_bytes();
                seen(Some(answer.status), right);
                connection = answer.goes_on.then_some(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("no answer in time"),
            Err(_) => seen(None, false),
        }
    }
}

struct Whole {
    status: u16,
    body: Vec<u8>,
    goes_on: bool,
}

/// One request and its response.
fn answer(connection: &mut BufReader<TcpStream>, asked: &str) -> io::Result<Whole> {
    connection.get_mut().write_all(asked.as_bytes())?;
    read_answer(connection)
}

fn read_answer(connection: &mut BufReader<TcpStream>) -> io::Result<Whole> {
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if connection.read_line(&mut head)? == 0 {
            return Err(cut());
        }
    }
    let head = head.to_ascii_lowercase();
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    let mut body = Vec::new();
    match length {
        Some(length) => {
            body.resize(length.parse().unwrap(), 0);
            connection.read_exact(&mut body)?;
        }
        None => loop {
            let mut size = String::new();
            connection.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim(), 16).map_err(|_| cut())?;
            let mut chunk = vec![0; size + 2];
            connection.read_exact(&mut chunk)?;
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        },
    }
    Ok(Whole {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        body,
        goes_on: !head.contains("connection: close"),
    })
}

/// The rings' memory.
fn memory(site: &Site) -> File {
    let is_it = |to: PathBuf| to.to_string_lossy().contains("surus-rings");
    let mut descriptors = std::fs::read_dir(format!("/proc/{}/fd", site.surus.front())).unwrap();
    let rings = descriptors
        .find_map(|entry| {
            Some(entry.ok()?.path()).filter(|fd| std::fs::read_link(fd).is_ok_and(is_it))
        })
        .expect("the rings' memory");
    File::options().read(true).write(true).open(rings).unwrap()
}

/// The offset of the doorbells (sapi/ipc/rings.h), which follow two cache lines: four bytes for
/// each worker.
const DOORBELLS: u64 = 64 * 2;
/// What a polling worker's doorbell says, and the doorbells of two workers that block.
const POLLING: u32 = 1;
const BOTH_BLOCKED: [u32; 2] = [2, 2];

/// What the doorbells of two workers say.
fn doorbells(memory: &mut File) -> [u32; 2] {
    let mut words = [0; 8];
    memory.seek(SeekFrom::Start(DOORBELLS)).unwrap();
    memory.read_exact(&mut words).unwrap();
    let [a, b, c, d, second @ ..] = words;
    [[a, b, c, d], second].map(u32::from_ne_bytes)
}

/// The positions of the request ring and of each response ring: the bytes that have passed through
/// so far.
fn passed(site: &Site, workers: u64) -> Vec<u64> {
    let mut file = memory(site);
    // sapi/ipc/rings.h: two cache lines, one for the doorbells, one for the bits of written rings,
    // then two for each ring.
    let tail = |ring: u64| {
        let mut bytes = [0; 8];
        file.seek(SeekFrom::Start(64 * (4 + 2 * ring + 1))).unwrap();
        file.read_exact(&mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    };
    (0..=workers).map(tail).collect()
}

/// Clients that send requests while `meanwhile` runs: how many responses were right, and how many
/// were 502. Others fail the test.
fn load(site: &Site, clients: usize, least: usize, meanwhile: impl FnOnce()) -> (usize, usize) {
    let (done, right, failed) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (done, right, failed) = (&done, &right, &failed);
            scope.spawn(move || {
                ask_repeatedly(site, client, done, |status, is_right| match status {
                    Some(200) => {
                        assert!(is_right, "another client's answer, or not all of it");
                        right.fetch_add(1, Ordering::Relaxed);
                    }
                    Some(502) | None => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    Some(other) => panic!("status {other}: {}", site.surus.log()),
                });
            });
        }
        meanwhile();
        until("enough requests are answered", || {
            right.load(Ordering::Relaxed) >= least
        });
        done.store(true, Ordering::Relaxed);
    });
    (right.into_inner(), failed.into_inner())
}

#[test]
fn concurrent_requests_use_the_rings_and_get_their_own_responses() {
    for engine in ["classic", "worker", "rewind"] {
        let site = site(engine, "2");
        let (right, failed) = load(&site, 24, 500, || ());
        assert_eq!(failed, 0, "{engine}: of {right}");
        let passed = passed(&site, 2);
        assert!(
            passed.iter().all(|bytes| *bytes > 0),
            "{engine}: {passed:?}"
        );
    }
}

fn site(engine: &str, workers: &str) -> Site {
    if engine == "classic" {
        return Site::start(&["--workers", workers], &[]);
    }
    try_booted(engine, BOOT, &["--workers", workers], &[]).unwrap_or_else(|log| panic!("{log}"))
}

/// Also between receiving a request and reporting it, between a response and its notification,
/// while waiting and shortly before.
#[test]
fn killed_workers_cost_at_most_their_requests() {
    for engine in ["classic", "worker", "rewind", "fork"] {
        let site = site(engine, "3");
        let mut killed = 0;
        let (right, failed) = load(&site, 24, 300, || {
            let mut random = 1_u64;
            while killed < 100 {
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                std::thread::sleep(Duration::from_micros(10_000 + (random >> 49)));
                let workers = site.workers();
                if let Some(pid) = workers.get((random >> 33) as usize % workers.len().max(1)) {
                    kill(*pid, "KILL");
                    killed += 1;
                }
            }
        });
        assert!(
            failed <= killed,
            "{engine}: {failed} failed, {right} right, {killed} killed"
        );
        assert_eq!(site.get("/hello.php").body, "hello");
    }
}

/// In any state in which killed workers leave the doorbells.
#[test]
fn request_goes_to_an_idle_worker_when_one_exists() {
    let site = Site::start(&["--workers", "3"], &[]);
    for _ in 0..30 {
        for pid in site.workers() {
            kill(pid, "KILL");
        }
        site.get("/hello.php");
    }
    until("all are replaced", || site.workers().len() == 3);
    let busy = [site.begun("/gate.php"), site.begun("/gate.php")];
    for _ in 0..20 {
        let many: Vec<_> = (0..6).map(|_| site.begin("/hello.php")).collect();
        for one in many {
            assert_eq!(one.join().unwrap().unwrap().body, "hello");
        }
    }
    site.open_gate();
    for one in busy {
        assert_eq!(one.join().unwrap().unwrap().body, "rested");
    }
}

/// Worker and Surus busy-poll for a single client; workers are also stopped and killed, and serve
/// others now and then.
#[test]
fn single_request_is_answered_when_waiting_workers_are_killed() {
    for engine in ["classic", "worker", "rewind"] {
        let site = site(engine, "3");
        for signal in ["STOP", "KILL"].repeat(4) {
            let mut connection = connect(&site);
            for _ in 0..300 {
                hello(&mut connection);
            }
            // One of them is polling, or was; the third worker is available anyway.
            let workers = site.workers();
            workers.iter().take(2).for_each(|pid| kill(*pid, signal));
            for _ in 0..5 {
                hello(&mut connection);
            }
            if signal == "STOP" {
                workers.iter().take(2).for_each(|pid| kill(*pid, "CONT"));
            }
        }
        // Other clients come while one continues.
        let (right, failed) = load(&site, 1, 1, || {
            for _ in 0..10 {
                std::thread::sleep(Duration::from_millis(50));
                let (right, failed) = load(&site, 6, 6, || ());
                assert_eq!(failed, 0, "of {right}");
            }
        });
        assert_eq!(failed, 0, "{engine}: of {right}");
        kill(site.surus.pid(), "HUP");
        let mut connection = connect(&site);
        (0..300).for_each(|_| hello(&mut connection));
    }
}

/// A worker whose doorbell says that it polls gets requests; it may have been stopped or killed
/// meanwhile.
#[test]
fn request_for_a_stopped_polling_worker_goes_to_another() {
    let site = Site::start(&["--workers", "2"], &[]);
    let mut memory = memory(&site);
    for (n, signal) in ["STOP", "KILL"].repeat(3).into_iter().enumerate() {
        until("both are there", || site.workers().len() == 2);
        let mut connection = connect(&site);
        (0..n * 100).for_each(|_| hello(&mut connection));
        std::thread::sleep(Duration::from_millis(20));
        let workers = site.workers();
        kill(workers[n / 2 % 2], signal);
        // Of both workers, as if the killed one had been polling.
        memory.seek(SeekFrom::Start(DOORBELLS)).unwrap();
        let both = [POLLING; 2].map(u32::to_ne_bytes).concat();
        memory.write_all(&both).unwrap();
        (0..5).for_each(|_| hello(&mut connection));
        kill(workers[n / 2 % 2], "CONT");
    }
}

/// A single client that sends requests in short intervals.
#[test]
fn worker_polls_for_its_next_request_on_an_idle_cpu() {
    let site = Site::start(&["--workers", "2"], &[]);
    let mut memory = memory(&site);
    let mut seen = false;
    let mut busy = 0_u32;
    load(&site, 1, 1, || {
        let end = Instant::now() + Duration::from_secs(10);
        for looks in 1.. {
            seen = doorbells(&mut memory).contains(&POLLING);
            if looks % 1000 == 0 && is_cpu_wanted() {
                busy += 1;
            }
            if seen || Instant::now() >= end {
                break;
            }
        }
    });
    let may_poll = surus::observe::system::Machine::read().has_spare();
    // A worker that loses its CPU to other programs does not poll.
    assert!(seen == may_poll || (may_poll && busy > 0), "{seen}");
    until("both block when nothing comes", || {
        doorbells(&mut memory) == BOTH_BLOCKED
    });
    let site = Site::start(&["--workers", "2"], &[("SURUS_ENGINE_BUSY_POLL", "false")]);
    let mut memory = self::memory(&site);
    load(&site, 1, 1, || {
        for _ in 0..1000 {
            let polls = doorbells(&mut memory).contains(&POLLING);
            assert!(!polls, "it has been forbidden");
            std::thread::sleep(Duration::from_micros(100));
        }
    });
}

/// Whether more threads are runnable than this test has: client, front end, worker and observer.
fn is_cpu_wanted() -> bool {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let running = stat
        .lines()
        .find_map(|line| line.strip_prefix("procs_running "))
        .unwrap();
    running.parse::<u32>().unwrap() > 4
}

fn connect(site: &Site) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(&site.surus.address).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    BufReader::new(stream)
}

fn hello(connection: &mut BufReader<TcpStream>) {
    let answer = answer(connection, "GET /hello.php HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"hello"[..]));
}

/// While Surus was stopped: it learns of an exited process together with its successor.
#[test]
fn responses_of_a_successor_are_read_if_its_predecessor_was_never_seen() {
    let site = Site::start(&["--workers", "1"], &[]);
    let first = site.workers();
    let held = site.begun("/gate.php");
    let dying: Vec<_> = (0..6).map(|_| site.begin("/die.php")).collect();
    std::thread::sleep(Duration::from_millis(100));
    kill(site.surus.front(), "STOP");
    site.open_gate();
    until("a successor has exited", || site.workers() != first);
    std::thread::sleep(Duration::from_secs(1));
    kill(site.surus.front(), "CONT");
    assert_eq!(held.join().unwrap().unwrap().body, "rested");
    for one in dying {
        assert_eq!(one.join().unwrap().unwrap().status, 502);
    }
    for _ in 0..5 {
        assert_eq!(site.get("/hello.php").body, "hello");
    }
}

#[test]
fn reload_and_shutdown_under_load_lose_no_request() {
    let site = site("rewind", "2");
    let (right, failed) = load(&site, 24, 300, || {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(500));
            kill(site.surus.pid(), "HUP");
        }
        std::thread::sleep(Duration::from_secs(1));
    });
    assert_eq!(failed, 0, "of {right}");
    // Requests in the ring when the shutdown begins are served.
    let send = |n| {
        let mut connection = connect(&site);
        let path = format!("/echo.php?n={n}&us=20000");
        let asked = request("GET", &path, "");
        connection.get_mut().write_all(asked.as_bytes()).unwrap();
        connection
    };
    let last: Vec<_> = (0..40).map(send).collect();
    std::thread::sleep(Duration::from_millis(100));
    kill(site.surus.pid(), "TERM");
    for (n, mut connection) in last.into_iter().enumerate() {
        let answer = read_answer(&mut connection).unwrap();
        assert_eq!(answer.body, n.to_string().as_bytes());
    }
}

/// A worker that sent nothing invalid may still have damaged memory.
#[test]
fn invalid_response_frame_costs_only_its_writer() {
    let site = Site::start(&["--workers", "2"], &[]);
    let mut file = memory(&site);
    let before = site.workers();
    const TIMES: usize = 10;
    let (right, failed) = load(&site, 8, 50, || {
        for _ in 0..TIMES {
            std::thread::sleep(Duration::from_millis(300));
            // The tail of the first worker's response ring: far ahead of its head. The worker may
            // repair it before it is read, but not every time.
            file.seek(SeekFrom::Start(64 * (4 + 2 + 1))).unwrap();
            file.write_all(&u64::MAX.to_ne_bytes()).unwrap();
        }
    });
    assert!(failed <= 8 * TIMES, "{failed} failed, {right} right");
    until("it is replaced", || {
        site.workers().len() == 2 && site.workers() != before
    });
}
