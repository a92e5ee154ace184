//! Reloading, draining, ending.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

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

#[test]
fn draining_under_load_answers_whatever_was_accepted() {
    let mut site = Site::start(&["--workers", "2"], &[]);
    let processes: Vec<u32> = site
        .workers()
        .into_iter()
        .chain([site.template()])
        .collect();
    let slow = site.begun("/nap.php?ms=1000");
    let load = site.load(4, "/nap.php?ms=10");
    std::thread::sleep(Duration::from_millis(300));
    site.surus.signal("TERM");
    assert!(site.surus.wait().success());
    assert_eq!(slow.join().unwrap().unwrap().body, "rested");
    let answers = load.stop();
    assert!(answers.len() > 5, "{answers:?}");
    // A connection that the kernel completes as the listener closes ends without an answer; at most one for each client.
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

#[test]
fn a_kept_connection_is_told_to_close() {
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
fn a_second_signal_ends_at_once() {
    let mut site = Site::start(&["--workers", "1"], &[]);
    let processes: Vec<u32> = site
        .workers()
        .into_iter()
        .chain([site.template()])
        .collect();
    let _looping = site.begun("/loop.php");
    site.surus.signal("TERM");
    site.surus.wait_for_log(|log| log.contains("shutting down"));
    let began = Instant::now();
    site.surus.signal("TERM");
    site.surus.wait();
    assert!(began.elapsed() < Duration::from_secs(5));
    for pid in processes {
        until("PHP has ended", || !lives(pid));
    }
}

#[test]
fn the_grace_period_has_an_end() {
    let mut site = Site::start(&["--workers", "1"], &[("SURUS_HTTP_GRACE", "500ms")]);
    let processes: Vec<u32> = site
        .workers()
        .into_iter()
        .chain([site.template()])
        .collect();
    let _looping = site.begun("/loop.php");
    let began = Instant::now();
    site.surus.signal("TERM");
    site.surus.wait();
    assert!(began.elapsed() < Duration::from_secs(10));
    for pid in processes {
        until("PHP has ended", || !lives(pid));
    }
}
