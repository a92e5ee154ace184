//! Tests reload, drain and shutdown.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::shared_memory;
use crate::site::{Site, lives, until};

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
        let processes: Vec<u32> = site
            .workers()
            .into_iter()
            .chain([site.template()])
            .collect();
        let slow = site.begun("/nap.php?ms=1000");
        let load = site.load(4, "/nap.php?ms=10");
        std::thread::sleep(Duration::from_millis(300));
        site.surus.signal(signal);
        assert!(site.surus.wait().success());
        assert_eq!(slow.join().unwrap().unwrap().body, "rested");
        let answers = load.stop();
        assert!(answers.len() > 5, "{answers:?}");
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
            let old = site.template();
            assert_eq!(site.get(path).body, "done", "{engine}");
            site.surus.signal("HUP");
            until("the old generation ends", || !lives(old));
            let processes = [site.workers(), vec![site.template()]].concat();
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

/// Sends requests on one connection until the server closes it. Returns the outcome of each
/// request.
fn ask_while_it_is_kept(address: &str, pause: Duration) -> Result<usize, String> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut answered = 0;
    loop {
        let lost = |error: &dyn std::fmt::Display| format!("after {answered}: {error}");
        stream
            .write_all(b"POST /count.php HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\nx")
            .map_err(|error| lost(&error))?;
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n1") {
            let mut piece = [0; 4096];
            match stream.read(&mut piece).map_err(|error| lost(&error))? {
                0 => return Err(lost(&String::from_utf8_lossy(&bytes))),
                n => bytes.extend_from_slice(&piece[..n]),
            }
        }
        let text = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
        if !text.starts_with("http/1.1 200 ") {
            return Err(lost(&text));
        }
        answered += 1;
        if text.contains("connection: close") {
            return Ok(answered);
        }
        std::thread::sleep(pause);
    }
}

#[test]
fn draining_loses_no_request_of_a_persistent_connection() {
    // When the signal comes, some clients send without a pause, some have just got a response, and
    // some wait.
    for round in 0..3 {
        let mut site = Site::start(&["--workers", "2"], &[]);
        let clients: Vec<_> = (0..32)
            .map(|n| {
                let address = site.surus.address.clone();
                let pause = Duration::from_millis(n % 4 * 20);
                std::thread::spawn(move || ask_while_it_is_kept(&address, pause))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(500));
        site.surus.signal("TERM");
        for client in clients {
            let answered = client.join().unwrap();
            assert!(answered.is_ok_and(|n| n > 0), "round {round}");
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
    let dir = tempfile::tempdir().unwrap();
    let admin = dir.path().join("admin.sock");
    let listen = format!("unix:{}", admin.display());
    let mut site = Site::start(
        &["--workers", "1"],
        &[
            ("SURUS_ADMIN_LISTEN", &listen),
            ("SURUS_HTTP_SHUTDOWN_DELAY", "1500ms"),
        ],
    );
    assert_eq!(ready(&admin), "HTTP/1.1 200 OK");
    let began = Instant::now();
    site.surus.signal("TERM");
    until("it is not ready", || {
        ready(&admin) == "HTTP/1.1 503 Service Unavailable"
    });
    while began.elapsed() < Duration::from_secs(1) {
        assert_eq!(site.get("/hello.php").body, "hello");
    }
    assert!(site.surus.wait().success());
    let took = began.elapsed();
    let expected = Duration::from_millis(1500)..SHUTDOWN_TIMEOUT;
    assert!(expected.contains(&took), "{took:?}");
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
    assert_eq!(ready(&admin), "HTTP/1.1 200 OK");
    let slow = site.begun("/nap.php?ms=1500");
    site.surus.signal("TERM");
    until("it is not ready", || {
        ready(&admin) == "HTTP/1.1 503 Service Unavailable"
    });
    assert_eq!(slow.join().unwrap().unwrap().body, "rested");
    assert!(site.surus.wait().success());
}

/// The status line of the admin socket's readiness.
fn ready(admin: &std::path::Path) -> String {
    let mut stream = std::os::unix::net::UnixStream::connect(admin).unwrap();
    write!(
        stream,
        "GET /-/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().next().unwrap_or_default().to_string()
}

#[test]
fn persistent_connection_gets_connection_close() {
    let mut site = Site::start(&["--workers", "1"], &[]);
    let mut stream = TcpStream::connect(&site.surus.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let began = site.dir.path().join("writable/began");
    write!(
        stream,
        "GET /nap.php?ms=600&began={} HTTP/1.1\r\nHost: t\r\n\r\n",
        began.display()
    )
    .unwrap();
    until("it has begun", || began.exists());
    site.surus.signal("TERM");
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
    let processes: Vec<u32> = site
        .workers()
        .into_iter()
        .chain([site.template()])
        .collect();
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
    let processes: Vec<u32> = site
        .workers()
        .into_iter()
        .chain([site.template()])
        .collect();
    let _looping = site.begun("/loop.php");
    let began = Instant::now();
    site.surus.signal("TERM");
    site.surus.wait();
    assert!(began.elapsed() < SHUTDOWN_TIMEOUT);
    for pid in processes {
        until("PHP has ended", || !lives(pid));
    }
}
