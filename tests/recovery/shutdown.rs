//! Tests reload, drain and shutdown.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::shared_memory;
use crate::site::{READ_TIMEOUT, Site, lives, request, until};

#[test]
fn reloading_under_load_fails_no_request() {
    let site = Site::start(&["--workers", "2"], &[]);
    let load = site.load(4, "/nap.php?ms=5");
    for round in 1..=4 {
        if round % 2 == 0 {
            site.surus.signal("HUP");
        } else {
            let reload = Command::new(env!("CARGO_BIN_EXE_surus"))
                .arg("reload")
                .arg(site.dir.path())
                .output()
                .unwrap();
            assert!(reload.status.success(), "{reload:?}");
        }
        site.surus
            .wait_for_log(|log| log.matches("reloaded").count() == round);
    }
    let answers = load.stop();
    assert!(answers.len() > 20);
    assert!(
        answers.iter().all(|status| *status == Some(200)),
        "{answers:?}"
    );
}

/// http.shutdown_timeout: a drain that does not end by itself takes as long.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn draining_under_load_answers_every_accepted_request() {
    for signal in ["TERM", "INT"] {
        let mut site = Site::start(&["--workers", "2"], &[]);
        let processes: Vec<u32> = site.workers().into_iter().chain([site.master()]).collect();
        let slow = site.begun("/gate.php");
        let load = site.load(4, "/nap.php?ms=10");
        load.wait_for(6);
        site.surus.signal(signal);
        site.surus.wait_for_log(|log| log.contains("shutting down"));
        site.open_gate();
        assert!(site.surus.wait().success());
        assert_eq!(slow.join().unwrap().unwrap().body, "rested");
        let answers = load.stop();
        // A connection that the kernel completes while the listener closes ends without a response;
        // at most one per client.
        let unanswered = answers.iter().filter(|status| status.is_none()).count();
        assert!(unanswered <= 4, "{answers:?}");
        assert!(
            answers.iter().flatten().all(|status| *status == 200),
            "{answers:?}"
        );
        for pid in processes {
            assert!(!lives(pid));
        }
    }
}

/// Idle workers, or the master process, while no request is in flight.
#[test]
fn processes_stopped_by_a_script_hold_neither_a_reload_nor_a_shutdown() {
    let workers = "foreach (siblings() as $pid) libc()->kill((int) $pid, 19); echo 'done';";
    let master = "libc()->kill(libc()->getppid(), 19); echo 'done';";
    let files = [("workers.php", workers), ("master.php", master)];
    for engine in ["classic", "fork", "rewind"] {
        for path in ["/workers.php", "/master.php"] {
            let mut site = shared_memory::site(engine, &files, &[]);
            let old = site.master();
            assert_eq!(site.get(path).body, "done", "{engine}");
            site.surus.signal("HUP");
            until("the old generation ends", || !lives(old));
            let processes = [site.workers(), vec![site.master()]].concat();
            assert_eq!(site.get(path).body, "done", "{engine}");
            let began = Instant::now();
            site.surus.signal("TERM");
            assert!(site.surus.wait().success(), "{engine}{path}");
            assert!(began.elapsed() < SHUTDOWN_TIMEOUT / 2, "{engine}{path}");
            for pid in processes {
                assert!(!lives(pid), "{engine}{path}");
            }
        }
    }
}

/// A draining server waits for the next request of a connection for a little longer than this.
const DRAIN_GRACE: Duration = Duration::from_millis(900);

/// Sends requests on one connection until the server closes it, and reports the first response. The
/// error says which request was lost.
fn ask_while_it_is_kept(
    address: &str,
    pause: Duration,
    begun: &mpsc::Sender<()>,
) -> Result<(), String> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    let mut last_sent = Instant::now();
    for answered in 0.. {
        let before = std::mem::replace(&mut last_sent, Instant::now());
        let sent =
            stream.write_all(b"POST /count.php HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx");
        let is_late = before.elapsed() > DRAIN_GRACE;
        let answer = sent.and_then(|()| read_count(&mut stream));
        let text = match answer {
            Ok(text) if text.starts_with("http/1.1 200 ") => text,
            // A busy machine has stopped this thread, and the server did not wait for it.
            Err(_) if is_late && answered > 0 => return Ok(()),
            lost => return Err(format!("after {answered}: {lost:?}")),
        };
        let _ = begun.send(());
        if text.contains("connection: close") {
            return Ok(());
        }
        std::thread::sleep(pause);
    }
    Ok(())
}

/// The response of `count.php` to a body of one byte.
fn read_count(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n1") {
        let mut piece = [0; 4096];
        match stream.read(&mut piece)? {
            0 => {
                let text = String::from_utf8_lossy(&bytes);
                return Err(std::io::Error::other(format!("it ends after {text:?}")));
            }
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
    Ok(String::from_utf8(bytes).unwrap().to_ascii_lowercase())
}

#[test]
fn draining_loses_no_request_of_a_persistent_connection() {
    // When the signal comes, some clients send without a pause, some have just got a response, and
    // some wait.
    for round in 0..3 {
        let mut site = Site::start(&["--workers", "2"], &[]);
        let (clients, first_answers): (Vec<_>, Vec<_>) = (0..32)
            .map(|n| {
                let address = site.surus.address.clone();
                let pause = Duration::from_millis(n % 4 * 20);
                let (begun, first) = mpsc::channel();
                let client = move || ask_while_it_is_kept(&address, pause, &begun);
                (std::thread::spawn(client), first)
            })
            .unzip();
        for first in &first_answers {
            first.recv_timeout(READ_TIMEOUT).expect("a response");
        }
        site.surus.signal("TERM");
        for client in clients {
            assert_eq!(client.join().unwrap(), Ok(()), "round {round}");
        }
        let began = Instant::now();
        assert!(site.surus.wait().success());
        assert!(began.elapsed() < SHUTDOWN_TIMEOUT);
    }
}

#[test]
fn draining_waits_for_an_idle_connection_only_for_a_moment() {
    let mut site = Site::start(&["--workers", "1"], &[]);
    let idle = TcpStream::connect(&site.surus.address).unwrap();
    let mut used = TcpStream::connect(&site.surus.address).unwrap();
    write!(used, "GET /hello.php HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    assert_ne!(used.read(&mut [0; 4096]).unwrap(), 0);
    let began = Instant::now();
    site.surus.signal("TERM");
    assert!(site.surus.wait().success());
    let took = began.elapsed();
    let expected = Duration::from_millis(900)..SHUTDOWN_TIMEOUT;
    assert!(expected.contains(&took), "{took:?}");
    drop(idle);
}

#[test]
fn draining_without_connections_does_not_wait_for_any() {
    // A busy machine may take longer, but not every time.
    let ends_before_it_would_close_idle_connections = || {
        let mut site = Site::start(&["--workers", "1"], &[]);
        assert_eq!(site.get("/hello.php").body, "hello");
        let began = Instant::now();
        site.surus.signal("TERM");
        assert!(site.surus.wait().success());
        began.elapsed() < Duration::from_millis(900)
    };
    assert!((0..20).any(|_| ends_before_it_would_close_idle_connections()));
}

#[test]
fn shutdown_delay_serves_requests_and_fails_readiness() {
    // A busy machine may use up a short delay.
    let is_served = [1500, 6000, 24_000].into_iter().any(serves_during_delay);
    assert!(is_served);
}

/// False if the delay was over before the test had asked.
fn serves_during_delay(delay: u64) -> bool {
    let text = format!("{delay}ms");
    let delay = Duration::from_millis(delay);
    let dir = tempfile::tempdir().unwrap();
    let admin = dir.path().join("admin.sock");
    let listen = format!("unix:{}", admin.display());
    let mut site = Site::start(
        &["--workers", "1"],
        &[
            ("SURUS_ADMIN_LISTEN", &listen),
            ("SURUS_HTTP_SHUTDOWN_DELAY", &text),
        ],
    );
    assert_eq!(ready(&admin).as_deref(), Some(READY));
    let began = Instant::now();
    site.surus.signal("TERM");
    let mut readiness = None;
    until("it is not ready", || {
        readiness = ready(&admin);
        readiness.as_deref() != Some(READY)
    });
    let mut is_served = readiness.as_deref() == Some(NOT_READY);
    while is_served && began.elapsed() < Duration::from_secs(1) {
        match site.ask(&request("GET", "/hello.php", "")) {
            Ok(answer) => assert_eq!(answer.body, "hello"),
            Err(_) => is_served = false,
        }
    }
    assert!(is_served || began.elapsed() >= delay, "{readiness:?}");
    assert!(site.surus.wait().success());
    let took = began.elapsed();
    let expected = delay..delay + SHUTDOWN_TIMEOUT;
    assert!(expected.contains(&took), "{took:?}");
    is_served
}

#[test]
fn second_signal_ends_the_shutdown_delay() {
    let mut site = Site::start(&["--workers", "1"], &[("SURUS_HTTP_SHUTDOWN_DELAY", "1h")]);
    site.surus.signal("TERM");
    site.surus.wait_for_log(|log| log.contains("shutting down"));
    // One that comes at once repeats the first.
    std::thread::sleep(Duration::from_millis(1500));
    let began = Instant::now();
    site.surus.signal("TERM");
    site.surus.wait();
    assert!(began.elapsed() < SHUTDOWN_TIMEOUT);
}

#[test]
fn draining_server_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let admin = dir.path().join("admin.sock");
    let listen = format!("unix:{}", admin.display());
    let mut site = Site::start(&["--workers", "1"], &[("SURUS_ADMIN_LISTEN", &listen)]);
    assert_eq!(ready(&admin).as_deref(), Some(READY));
    let slow = site.begun("/gate.php");
    site.surus.signal("TERM");
    until("it is not ready", || {
        ready(&admin).as_deref() == Some(NOT_READY)
    });
    site.open_gate();
    assert_eq!(slow.join().unwrap().unwrap().body, "rested");
    assert!(site.surus.wait().success());
}

const READY: &str = "HTTP/1.1 200 OK";
const NOT_READY: &str = "HTTP/1.1 503 Service Unavailable";

/// The status line of the admin socket's readiness; None if the server has ended.
fn ready(admin: &std::path::Path) -> Option<String> {
    let mut stream = std::os::unix::net::UnixStream::connect(admin).ok()?;
    let request = b"GET /-/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text.lines().next()?.to_string())
}

#[test]
fn persistent_connection_gets_connection_close() {
    let mut site = Site::start(&["--workers", "1"], &[]);
    let mut stream = TcpStream::connect(&site.surus.address).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    let began = site.dir.path().join("writable/began");
    write!(
        stream,
        "GET /gate.php?began={} HTTP/1.1\r\nHost: t\r\n\r\n",
        began.display()
    )
    .unwrap();
    until("it has begun", || began.exists());
    site.surus.signal("TERM");
    until("it drains", || {
        TcpStream::connect(&site.surus.address).is_err()
    });
    site.open_gate();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.to_ascii_lowercase().contains("connection: close") && text.ends_with("rested"),
        "{text}"
    );
    assert!(site.surus.wait().success());
}

#[test]
fn second_signal_ends_the_drain() {
    let mut site = Site::start(&["--workers", "1"], &[]);
    let processes: Vec<u32> = site.workers().into_iter().chain([site.master()]).collect();
    let _looping = site.begun("/loop.php");
    site.surus.signal("TERM");
    site.surus.wait_for_log(|log| log.contains("shutting down"));
    // One that comes at once repeats the first.
    std::thread::sleep(Duration::from_millis(1500));
    let began = Instant::now();
    site.surus.signal("TERM");
    site.surus.wait();
    assert!(began.elapsed() < SHUTDOWN_TIMEOUT);
    for pid in processes {
        until("PHP has ended", || !lives(pid));
    }
}

#[test]
fn shutdown_timeout_ends_the_drain() {
    let mut site = Site::start(
        &["--workers", "1"],
        &[("SURUS_HTTP_SHUTDOWN_TIMEOUT", "500ms")],
    );
    let processes: Vec<u32> = site.workers().into_iter().chain([site.master()]).collect();
    let _looping = site.begun("/loop.php");
    let began = Instant::now();
    site.surus.signal("TERM");
    site.surus.wait();
    assert!(began.elapsed() < SHUTDOWN_TIMEOUT);
    for pid in processes {
        until("PHP has ended", || !lives(pid));
    }
}
