//! Tests commands that cannot write to stdout or stderr.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{project, says};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.args(args).stdin(Stdio::null());
    command
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// The writing end of a pipe with a closed reading end.
fn unread() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

/// The exit status of a command that writes to `stdout`, and its stderr.
fn said(args: &[&str], stdout: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut child = command(args)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = String::new();
    let _ = child.stderr.take().unwrap().read_to_string(&mut stderr);
    (child.wait().unwrap().code(), stderr)
}

#[test]
fn closed_pipe_is_no_error() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let place = project.path().to_str().unwrap();
    for args in [
        &["engines"][..],
        &["check", place, "--listen", "127.0.0.1:0"],
    ] {
        let (status, stderr) = said(args, unread());
        assert_eq!(status, Some(0), "{args:?}: {stderr}");
        assert!(!stderr.contains("pipe"), "{args:?}: {stderr}");
    }
}

#[test]
fn full_stdout_is_a_failure() {
    let (status, stderr) = said(&["engines"], full());
    assert_eq!(status, Some(1), "{stderr}");
    says(&stderr, &["cannot write to stdout: No space left"]);
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn failure_keeps_its_status_without_stderr() {
    for stderr in [Stdio::from(full()), Stdio::from(unread())] {
        let mut reload = command(&["reload", "/nonexistent"]);
        let status = reload.stdout(Stdio::null()).stderr(stderr).status();
        assert_eq!(status.unwrap().code(), Some(1));
    }
}

#[test]
fn server_serves_without_a_reader_of_stdout() {
    let project = project(&[("index.php", "<?php echo 'hello';")]);
    let place = project.path().to_str().unwrap();
    for stdout in [Stdio::from(full()), Stdio::from(unread())] {
        let sockets = tempfile::tempdir().unwrap();
        let socket = sockets.path().join("http.sock");
        let listen = format!("unix:{}", socket.display());
        // Processes of the first server may still hold the project's own socket.
        let admin = format!("unix:{}", sockets.path().join("admin.sock").display());
        let mut child = command(&["serve", place, "--listen", &listen, "--workers", "1"])
            .env("SURUS_ADMIN_LISTEN", admin)
            .stdout(stdout)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answer = ask(&socket, &mut child);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(answer, "HTTP/1.0 200 OK\r\n");
    }
}

/// The first line of its response, once it listens.
fn ask(socket: &Path, server: &mut Child) -> String {
    let until = Instant::now() + Duration::from_secs(30);
    let mut stream = loop {
        if let Ok(stream) = UnixStream::connect(socket) {
            break stream;
        }
        if let Some(status) = server.try_wait().unwrap() {
            return format!("it has ended: {status}");
        }
        assert!(Instant::now() < until, "it does not listen");
        std::thread::sleep(Duration::from_millis(10));
    };
    stream
        .write_all(b"GET / HTTP/1.0\r\nHost: t\r\n\r\n")
        .unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}
