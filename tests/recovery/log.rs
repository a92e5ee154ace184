//! Tests an unread or closed stderr and stdout.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::common::engines::{TestDir, subjects};
use crate::site::{app, ask, kill, request, until};

/// Serves an application whose log is as large as `error_log()` makes it; returns its address, too.
fn serve(dir: &tempfile::TempDir, stderr: Stdio) -> (Child, String) {
    let code = "<?php error_log('<'.str_repeat('l', (int) $_GET['bytes']).'>'); echo 'logged';";
    std::fs::write(dir.path().join("long.php"), code).unwrap();
    let mut surus = Command::new(env!("CARGO_BIN_EXE_surus"))
        .arg("serve")
        .arg(dir.path())
        .args(["--listen", "127.0.0.1:0", "--workers", "1"])
        .env("SURUS_LOG_MAX_MESSAGE", "2M")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(surus.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    let address = line.trim_end().rsplit('/').next().unwrap().to_string();
    (surus, address)
}

fn log(address: &str, bytes: usize) {
    let path = format!("/long.php?bytes={bytes}");
    let answer = ask(address, request("GET", &path, "").as_bytes()).unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "logged"));
}

#[test]
fn unread_stderr_blocks_neither_requests_nor_the_shutdown() {
    let dir = app();
    let (mut surus, address) = serve(&dir, Stdio::piped());
    for _ in 0..8 {
        log(&address, 60_000);
    }
    kill(surus.id(), "TERM");
    let mut status = None;
    until("it ends", || {
        status = surus.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
}

#[test]
fn dropped_log_lines_are_counted_in_the_log() {
    let dir = app();
    let (mut surus, address) = serve(&dir, Stdio::piped());
    for _ in 0..24 {
        log(&address, 1_000_000);
    }
    let mut stderr = surus.stderr.take().unwrap();
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        text
    });
    log(&address, 1);
    kill(surus.id(), "TERM");
    assert!(surus.wait().unwrap().success());
    let text = read.join().unwrap();
    let lost = text
        .lines()
        .find_map(|line| line.split_once("lines of the log lost: it is full or was not read lost="))
        .and_then(|(_, lost)| lost.parse::<usize>().ok());
    let whole = text.matches("ll>").count();
    assert_eq!(lost.map(|lost| lost + whole), Some(24), "{whole} are there");
}

#[test]
fn log_is_complete_at_the_end() {
    let dir = app();
    let (mut surus, address) = serve(&dir, Stdio::piped());
    for _ in 0..12 {
        log(&address, 1_000_000);
    }
    kill(surus.id(), "TERM");
    let mut text = String::new();
    let mut stderr = surus.stderr.take().unwrap();
    stderr.read_to_string(&mut text).unwrap();
    assert!(surus.wait().unwrap().success());
    assert_eq!(text.matches("ll>").count(), 12);
    assert!(!text.contains("lines of the log lost"), "{}", text.len());
}

#[test]
fn last_line_without_line_break_is_logged_at_the_shutdown() {
    // The child keeps stderr open after its parent's exit.
    let answer = "file_put_contents('php://stderr', 'last words of a request');
        proc_open(['sleep', '20'], [], $pipes);
        echo 'answered';";
    let boot = format!(
        "file_put_contents('php://stderr', 'last words of the boot');
        surus_serve(function () {{ {answer} }});"
    );
    for subject in subjects() {
        let home = TestDir::empty();
        for (name, code) in [("front.php", answer), ("boot.php", &boot)] {
            std::fs::write(home.root.join(name), format!("<?php {code}")).unwrap();
        }
        let mut surus = home.serve(subject, "boot.php", "front.php", 1, &[]);
        let asked = ask(&surus.address, request("GET", "/", "").as_bytes()).unwrap();
        assert_eq!(asked.body, "answered", "{}", subject.name);
        surus.signal("TERM");
        assert!(surus.wait().success());
        surus.wait_for_log(|log| log.contains("last words of a request"));
        surus.wait_for_log(|log| !subject.boots || log.contains("last words of the boot"));
    }
}
