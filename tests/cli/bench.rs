//! Tests `surus bench` as a command: its exit status, what it prints and what it writes.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::common::ports::free_address;

/// A server on a free port that answers every path with `200`, but `/missing` with `404` and
/// `/moved` with `301`.
pub(super) fn server() -> String {
    answering(|_| ())
}

/// The same, with a function that is called before each response.
pub(super) fn answering(before: impl Fn(&str) + Send + Sync + 'static) -> String {
    let before = Arc::new(before);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let before = before.clone();
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let mut path = String::new();
                for line in lines.map_while(Result::ok) {
                    if path.is_empty() {
                        path = line.split(' ').nth(1).unwrap_or_default().to_string();
                    }
                    if line.is_empty() {
                        before(&path);
                        let status = match path.as_str() {
                            "/missing" => "404",
                            "/moved" => "301",
                            _ => "200",
                        };
                        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\nhello");
                        if stream.write_all(head.as_bytes()).is_err() {
                            return;
                        }
                        path.clear();
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

/// A server that takes 300 ms for each response.
fn slow_server() -> String {
    answering(|_| std::thread::sleep(Duration::from_millis(300)))
}

/// A server that tells of each request.
fn counting_server() -> (String, Receiver<()>) {
    let (asked, receiver) = channel();
    let asked = Mutex::new(asked);
    let url = answering(move |_| {
        let _ = asked.lock().unwrap().send(());
    });
    (url, receiver)
}

pub(super) fn bench(args: &[&str]) -> Output {
    let surus = env!("CARGO_BIN_EXE_surus");
    Command::new(surus)
        .arg("bench")
        .args(args)
        .output()
        .unwrap()
}

/// What it prints if it succeeds.
pub(super) fn printed(args: &[&str]) -> String {
    let output = bench(args);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{error}");
    out
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn run_prints_rate_latencies_and_the_server() {
    let url = server();
    let out = printed(&[&url, "-n", "200", "-c", "4"]);
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "requests/s",
        "p99.99",
        "expected responses 200",
        "CPU per request",
        "Server",
    ] {
        assert!(words.contains(part), "no `{part}` in:\n{out}");
    }
}

#[test]
fn clients_that_back_off_are_named() {
    let out = printed(&[&server(), "-n", "8", "--back-off", "1s"]);
    assert!(out.contains("waits 1 s after a failure"), "{out}");
}

#[test]
fn options_of_ab_send_all_requests_without_keep_alive() {
    let url = server();
    let out = printed(&[&url, "-n", "100", "-c", "10", "--no-keepalive", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["throughput"]["responses"]["value"], 100.0);
    assert_eq!(json["throughput"]["connections"]["value"], 100.0);
    assert_eq!(json["throughput"]["rate"]["kind"], "measured");
}

#[test]
fn open_loop_offers_its_rate() {
    let url = server();
    let args = [
        "--url",
        &url,
        "--duration",
        "1",
        "--rps",
        "100",
        "--concurrency",
        "10",
        "--json",
    ];
    let json: Value = serde_json::from_str(&printed(&args)).unwrap();
    assert_eq!(json["throughput"]["due"]["value"], 100.0);
}

#[test]
fn load_that_ends_before_its_responses_come_has_a_note_and_a_rate() {
    let url = answering(|_| std::thread::sleep(Duration::from_millis(400)));
    let json: Value = serde_json::from_str(&printed(&[&url, "-d300ms", "-c2", "--json"])).unwrap();
    let rate = json["throughput"]["rate"]["value"].as_f64().unwrap();
    assert!(rate > 0.0 && rate <= 2.0 / 0.4, "{json}");
    let notes = json["notes"].to_string();
    let note = " responses came after the load had ended; requests/s counts them";
    assert!(notes.contains(note), "{notes}");
}

#[test]
fn unexpected_status_fails_and_names_the_actual_one() {
    let url = format!("{}/missing", server());
    let output = bench(&[&url, "-n", "10", "-c", "2"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("10 of 10 requests failed: 10 × unexpected status"),
        "{error}"
    );
    assert!(
        error.contains("/missing returned 404 with `hello`"),
        "{error}"
    );
    printed(&[
        &url,
        "-n",
        "10",
        "-c",
        "2",
        "--expect-status",
        "404",
        "--expect-body",
        "hell",
    ]);
}

#[test]
fn port_without_a_server_fails() {
    let url = format!("http://{}/", free_address());
    let output = bench(&[&url, "-n", "3", "-c", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("connection refused"),
        "{output:?}"
    );
}

#[test]
fn each_format_prints_in_its_own_format() {
    let url = server();
    let run = |format| printed(&[&url, "-n", "50", "-c", "2", format]);
    assert!(run("--csv").starts_with("second,responses,failures,bytes,p50_us,p99_us,max_us\n0,"));
    assert!(run("--markdown").contains("| p99 |"));
    let log = run("--hdr");
    assert!(
        log.contains("#[StartTime:") && log.contains("HISTF"),
        "{log}"
    );
}

#[test]
fn page_is_written_and_needs_no_network() {
    let url = server();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.html");
    printed(&[
        &url,
        "-n",
        "50",
        "-c",
        "2",
        "--html",
        file.to_str().unwrap(),
    ]);
    let page = std::fs::read_to_string(file).unwrap();
    assert!(page.contains("<svg") && page.contains("prefers-color-scheme: dark"));
    assert!(!page.contains("src=") && !page.contains("href="));
}

#[test]
fn comparison_of_a_server_with_itself_prints_a_verdict_per_quantity() {
    let url = server();
    let args = [
        "compare", &url, &url, "--rounds", "2", "-n", "50", "-c", "2", "--json",
    ];
    let json: Value = serde_json::from_str(&printed(&args)).unwrap();
    let rate = &json["comparison"]["rate"];
    assert!(rate["A / B"]["interval"].is_array(), "{json}");
    assert!(rate["verdict"]["verdict"].is_string(), "{json}");
    let notes = json["notes"].to_string();
    assert!(
        notes.contains("of 2 rounds, and a bootstrap of few"),
        "{notes}"
    );
}

#[test]
fn comparison_says_which_rate_was_not_kept() {
    let (fast, slow) = (server(), slow_server());
    let missed = "B: the rate could not be kept in 2 of 2 rounds";
    let never_sent = "due requests were never sent; each counts with the time";
    for (stop, parts) in [
        (["-d", "300ms"], &[missed, never_sent][..]),
        (["-n", "4"], &[missed]),
    ] {
        let load = ["--rps", "200", "-c", "1", "--warm-up", "10ms", "--json"];
        let compare = ["compare", &fast, &slow, "--rounds", "2"];
        let args = [&compare[..], &load, &stop].concat();
        let json: Value = serde_json::from_str(&printed(&args)).unwrap();
        let notes = json["notes"].to_string();
        for part in parts {
            assert!(notes.contains(part), "no `{part}` in {notes}");
        }
    }
}

#[test]
fn interrupt_ends_each_kind_of_run_with_status_1() {
    for (args, said) in [
        (vec!["-d", "30s"], "interrupted after "),
        (vec!["-n", "1000000000"], "interrupted after "),
        (vec!["--warm-up", "30s"], "interrupted in the warm-up"),
        (
            vec!["--find-max", "--p99", "1s", "-d", "30s"],
            "interrupted while searching the highest rate",
        ),
        (
            vec!["--find-max", "--p99", "1s", "--warm-up", "30s"],
            "interrupted in the warm-up",
        ),
        (
            vec!["compare", "--warm-up", "30s"],
            "interrupted in the warm-up",
        ),
    ] {
        let (url, asked) = counting_server();
        let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
        command.arg("bench").args(&args).arg(&url).args(["-c", "1"]);
        if args[0] == "compare" {
            command.arg(&url);
        }
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        asked.recv().unwrap();
        let pid = child.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(sent.unwrap().success());
        let output = child.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains(said), "{args:?}: {error}");
    }
}

#[test]
fn interrupt_keeps_the_measurements_before_it() {
    for (kind, marker, key) in [
        (&["--find-max", "--p99", "1s"][..], "/s: p99 ", "attempts"),
        (&["compare"], "round 2/1000  ", "comparison"),
    ] {
        let url = server();
        let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
        command.arg("bench").args(kind).arg(&url);
        if kind == ["compare"] {
            command.args([&url, "--rounds", "1000"]);
        }
        command.args(["-c", "1", "-d", "500ms", "--json"]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = lines.by_ref().map(Result::unwrap);
        lines.find(|line| line.contains(marker)).unwrap();
        let pid = child.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(sent.unwrap().success());
        let said = lines.collect::<Vec<_>>().join("\n");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("interrupted "), "{said}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = json[key].as_object();
        assert!(rows.is_some_and(|rows| !rows.is_empty()), "{json}");
        let notes = json["notes"].to_string();
        assert!(notes.contains("interrupted"), "{notes}");
    }
}

#[test]
fn page_that_cannot_be_written_fails_before_anything_is_sent() {
    let (url, asked) = counting_server();
    for args in [
        vec![&*url, "-n", "3"],
        vec![&*url, "--find-max", "--p99", "1s"],
        vec!["compare", &url, &url],
    ] {
        let output = bench(&[&args[..], &["--html", "/nowhere/report.html"]].concat());
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        let expected = "cannot write /nowhere/report.html (--html)";
        assert!(error.contains(expected), "{error}");
    }
    assert!(asked.try_recv().is_err(), "a request was sent");
}

#[test]
fn limit_of_open_files_is_raised_and_too_many_connections_are_refused() {
    let url = server();
    let run = |limits: &str, connections: &str| {
        let surus = env!("CARGO_BIN_EXE_surus");
        let script = format!("ulimit {limits} && exec {surus} bench {url} -n 200 -c {connections}");
        Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    let output = run("-S -n 64", "100");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = run("-n 64", "100");
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    let hint = "100 connections need about 124 open files, but only 64 are allowed; use fewer";
    assert!(error.contains(hint), "{error}");
}

#[test]
fn wrong_files_of_requests_and_weights_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("requests");
    std::fs::write(&file, "# nothing\n").unwrap();
    let file = file.to_str().unwrap();
    let of_file = "with --file, the URL only names the host";
    for (args, part) in [
        (&["--file", file][..], "(--file): no line is a request"),
        (
            &["--file", "/dev/zero"],
            "cannot read /dev/zero (--file): it is larger than 64 MiB",
        ),
        (&["http://127.0.0.1/x", "--file", file], of_file),
        (&["http://127.0.0.1/?x", "--file", file], of_file),
        (&["http://127.0.0.1/@3", "--file", file], of_file),
        (
            &["http://127.0.0.1", "http://127.0.0.2", "--file", file],
            "--file takes one URL",
        ),
        (
            &["http://127.0.0.1/", "--file", file],
            "no line is a request",
        ),
        (
            &["http://127.0.0.1/@0"],
            "the weight 0 is not between 1 and",
        ),
    ] {
        let output = bench(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let error = text(&output.stderr);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn missing_url_and_wrong_values_are_refused() {
    let output = bench(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("name a URL"), "{output:?}");
    for args in [
        ["http://127.0.0.1/", "--rps", "0"],
        ["http://127.0.0.1/", "--duration", "x"],
        ["http://127.0.0.1/", "--expect-status", "20"],
        ["http://127.0.0.1/", "--p99", "20ms"],
        ["http://127.0.0.1/", "--expect-status", "299-200"],
    ] {
        assert_eq!(bench(&args).status.code(), Some(2), "{args:?}");
    }
    for option in ["--method", "--body", "--body-file"] {
        let output = bench(&["http://127.0.0.1/", "--file", "requests", option, "x"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
    let output = bench(&["https://localhost/", "--unix", "/nowhere/socket"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("https over a Unix socket"),
        "{output:?}"
    );
}

#[test]
fn number_of_requests_at_a_rate_that_the_server_cannot_keep_has_a_note() {
    let url = slow_server();
    let out = printed(&[&url, "-n", "4", "--rps", "200", "-c", "1"]);
    let note = "the rate could not be kept, because the connection (--concurrency) was waiting";
    assert!(out.contains(note), "{out}");
}

#[test]
fn failed_measurement_leaves_no_new_page_and_keeps_an_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let (new, old) = (directory.path().join("new"), directory.path().join("old"));
    std::fs::write(&old, "a report").unwrap();
    for page in [&new, &old] {
        let output = bench(&["nonsense://x", "--html", page.to_str().unwrap()]);
        assert!(!output.status.success());
    }
    assert!(!new.exists());
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "a report");
}
