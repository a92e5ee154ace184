//! Tests `surus top`, and the dashboard of the admin listener, which shows the same.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::Surus;
use crate::{project, says, surus};

const INDEX: &str = r#"<?php
if (isset($_GET['fail'])) { throw new Exception('x'); }
function hang() { while (true) { usleep(1000); } }
if (isset($_GET['hang'])) { hang(); }
echo 'hello';
"#;

struct Served {
    project: tempfile::TempDir,
    surus: Surus,
    socket: PathBuf,
}

impl Served {
    fn new() -> Served {
        let project = project(&[("index.php", INDEX)]);
        let socket = project.path().join("admin.sock");
        let address = format!("unix:{}", socket.display());
        let env = [
            ("SURUS_ADMIN_LISTEN", address.as_str()),
            ("SURUS_ENGINE_WORKERS", "2"),
            ("SURUS_HTTP_REQUEST_TIMEOUT", "2s"),
        ];
        let surus = Surus::spawn(project.path(), &[], &env).unwrap();
        Served {
            project,
            surus,
            socket,
        }
    }

    /// Asks until the status is this one: on a busy machine, others are late.
    fn get(&self, target: &str, status: u16) {
        while crate::get(&self.surus, target).0 != status {}
    }

    fn top(&self, args: &[&str]) -> crate::Said {
        let address = format!("unix:{}", self.socket.display());
        let mut all = vec!["top"];
        all.extend(args);
        all.push(self.project.path().to_str().unwrap());
        surus(&all, &[("SURUS_ADMIN_LISTEN", &address)])
    }
}

/// The head of the response to a request, and what follows it until `until` is there.
fn admin(socket: &Path, path: &str, until: &str) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&read).contains(until) {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&read));
        read.extend(&buffer[..len]);
    }
    (stream, String::from_utf8_lossy(&read).into_owned())
}

#[test]
fn top_without_a_running_surus_says_so() {
    let project = project(&[]);
    let directory = project.path().to_str().unwrap();
    let said = surus(&["top", "--once", directory], &[]);
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &[
            "no running surus answers at unix:",
            "this directory",
            "--config",
        ],
    );
    let said = surus(&["top", directory], &[]);
    assert_eq!(said.status, 1);
    says(
        &said.stderr,
        &["stdout is not a terminal", "--once", "--json"],
    );
}

#[test]
fn top_prints_requests_errors_and_the_backtrace_of_a_stopped_request() {
    let served = Served::new();
    served.get("/?a=%3Cb%3E", 200);
    served.get("/?fail=1", 500);
    // On a busy machine, PHP may not run between the deadline and its end.
    let is_stopped = (0..6).any(|_| {
        served.get("/?hang=1", 504);
        (0..300).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            served.surus.log().contains("Stopped at its deadline")
        })
    });
    assert!(is_stopped, "{}", served.surus.log());
    let said = served.top(&["--once"]);
    assert_eq!(said.status, 0, "{}", said.stderr);
    says(
        &said.stdout,
        &[
            "requests/s            ",
            "of 2\n",
            "classic: PHP 8.",
            "504  GET /?hang=1\n",
            "index.php(4): hang()",
            "500  GET /?fail=1\n",
            "timeout (classic)",
            "5xx (classic)",
        ],
    );
    let said = served.top(&["--once", "--json"]);
    let json: Value = serde_json::from_str(&said.stdout).unwrap();
    assert!(json["requests_per_second"].is_number(), "{json}");
    let mut slowest = json["slowest"].as_array().unwrap().iter();
    assert!(slowest.any(|slow| slow["target"] == "/?hang=1"), "{json}");
    assert_eq!(said.stdout.lines().count(), 1);
}

#[test]
fn dashboard_streams_snapshots_to_a_bounded_number_of_readers() {
    let served = Served::new();
    let (_, page) = admin(&served.socket, "/-/dashboard", "</html>");
    let head = page.split("\r\n\r\n").next().unwrap().to_lowercase();
    says(
        &head,
        &[
            "200 ok",
            "text/html",
            "default-src 'none'",
            "frame-ancestors 'none'",
        ],
    );
    served.get("/?a=%3Cscript%3E", 200);
    let (first, event) = admin(&served.socket, "/-/events", "\n\n");
    says(
        &event,
        &[
            "text/event-stream",
            "data: {",
            "\"pools\":[{\"engine\":\"classic\"",
        ],
    );
    let mut readers = vec![first];
    while readers.len() < 16 {
        readers.push(admin(&served.socket, "/-/events", "\n\n").0);
    }
    let (_, rejected) = admin(&served.socket, "/-/events", "close one");
    says(&rejected, &["503", "16 dashboards are open already"]);
    drop(readers);
    // A reader is known to have left at the next event.
    for _ in 0..600 {
        let (_, answer) = admin(&served.socket, "/-/events", "\r\n\r\n");
        if answer.starts_with("HTTP/1.1 200") {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("readers that left keep their places");
}

/// `surus top` in a terminal of its own, by script(1).
fn in_terminal(served: &Served) -> Child {
    let directory = served.project.path().to_str().unwrap();
    let surus = env!("CARGO_BIN_EXE_surus");
    let top = format!("stty rows 30 columns 100; exec {surus} top {directory}");
    Command::new("script")
        .args([
            "--quiet",
            "--return",
            "--flush",
            "--command",
            &top,
            "/dev/null",
        ])
        .env(
            "SURUS_ADMIN_LISTEN",
            format!("unix:{}", served.socket.display()),
        )
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads until `text` is there, or to the end.
fn read_until(child: &mut Child, text: &str) -> String {
    let stdout = child.stdout.as_mut().unwrap();
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let shown = String::from_utf8_lossy(&read).into_owned();
        if !text.is_empty() && shown.contains(text) {
            return shown;
        }
        match stdout.read(&mut buffer) {
            Ok(len) if len > 0 => read.extend(&buffer[..len]),
            _ => return shown,
        }
    }
}

/// Enters and leaves the alternate screen, and hides and shows the cursor.
const ENTERS: &str = "\u{1b}[?1049h";
const LEAVES: &str = "\u{1b}[?1049l";

#[test]
fn top_restores_the_terminal_when_it_quits_and_at_a_signal() {
    let served = Served::new();
    for ends in ["q", "\u{3}", "TERM"] {
        let mut top = in_terminal(&served);
        let begun = read_until(&mut top, "classic");
        assert!(begun.contains(ENTERS), "{begun:?}");
        match ends {
            "TERM" => {
                let children = format!("/proc/{0}/task/{0}/children", top.id());
                let child = std::fs::read_to_string(children).unwrap();
                let kill = Command::new("kill").arg(child.trim()).status().unwrap();
                assert!(kill.success());
            }
            keys => top
                .stdin
                .as_mut()
                .unwrap()
                .write_all(keys.as_bytes())
                .unwrap(),
        }
        let ended = read_until(&mut top, "");
        assert!(
            ended.contains(LEAVES) && ended.contains("\u{1b}[?25h"),
            "{ends}: {ended:?}"
        );
        assert_eq!(top.wait().unwrap().code(), Some(0), "{ends}: {ended:?}");
    }
}

#[test]
fn top_ends_with_a_message_when_the_server_stops() {
    let served = Served::new();
    let mut top = in_terminal(&served);
    read_until(&mut top, "classic");
    served.surus.signal("TERM");
    let ended = read_until(&mut top, "");
    assert!(
        ended.contains(LEAVES) && ended.contains("the server"),
        "{ended:?}"
    );
    assert_eq!(top.wait().unwrap().code(), Some(1));
}
