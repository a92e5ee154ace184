//! Tests what reports of `surus bench` say of failed runs and of the server, and their charts.

use std::fs::{OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::bench::{answering, bench, printed, server, text};

/// Runs with a page; returns it and what the command said.
fn with_page(args: &[&str]) -> (String, Output) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.html");
    let output = bench(&[args, &["--html", file.to_str().unwrap()]].concat());
    let page = std::fs::read_to_string(file).unwrap();
    (page, output)
}

/// The titles of a page's charts.
fn charts(page: &str) -> Vec<&str> {
    let captions = page.split("<figcaption>").skip(1);
    captions
        .map(|it| it.split('<').next().unwrap_or_default())
        .collect()
}

#[test]
fn page_of_a_failed_run_says_what_failed() {
    let url = format!("{}/missing", server());
    let (page, output) = with_page(&[&url, "-n", "10", "-c", "2"]);
    assert_eq!(output.status.code(), Some(1));
    let said = "<b>Failed:</b> 10 of 10 requests failed: 10 × unexpected status";
    assert!(page.contains(said), "{page}");
    assert!(
        page.contains("/missing returned 404 with <code>hello</code>"),
        "{page}"
    );
    let (page, output) = with_page(&[&server(), "-n", "10", "-c", "2"]);
    assert!(output.status.success());
    assert!(!page.contains("Failed:"), "{page}");
}

#[test]
fn redirects_are_listed_by_status_with_a_note_that_they_are_not_followed() {
    let (url, note) = (
        server(),
        "all 20 responses were 301; redirects are not followed",
    );
    let moved = format!("{url}/moved");
    let args = [&*moved, "-n", "20", "-c", "2"];
    let out = printed(&args);
    assert!(out.contains("Responses by status\n  301  20\n"), "{out}");
    assert!(out.contains(note), "{out}");
    let json = printed(&[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["statuses"]["301"]["value"], 20.0, "{json}");

    let load = ["--rounds", "2", "-n", "10", "-c", "2", "--json"];
    let compare = |a: &str, b: &str| -> Value {
        let out = printed(&[&["compare", a, b], &load[..]].concat());
        serde_json::from_str(&out).unwrap()
    };
    let json = compare(&url, &moved);
    let statuses = &json["statuses"];
    let count = |status: &str, url: &str| statuses[status][url]["value"].as_f64();
    assert_eq!(
        (count("200", "A"), count("200", "B")),
        (Some(20.0), Some(0.0))
    );
    assert_eq!(
        (count("301", "A"), count("301", "B")),
        (Some(0.0), Some(20.0))
    );
    let notes = json["notes"].to_string();
    assert!(notes.contains(&format!("B: {note}")), "{notes}");

    // Nothing but 200 needs no table.
    assert!(compare(&url, &url)["statuses"].is_null());
    assert!(!printed(&[&url, "-n", "20", "-c", "2"]).contains("by status"));
}

#[test]
fn page_of_a_comparison_has_charts_of_latencies_and_of_rounds() {
    let url = server();
    let args = [
        "compare", &url, &url, "--rounds", "2", "-n", "50", "-c", "2",
    ];
    let (page, output) = with_page(&args);
    assert!(output.status.success(), "{output:?}");
    let titles = charts(&page);
    for title in [
        "Latency by percentile, all rounds",
        "requests/s by round",
        "p50 by round",
        "p99 by round",
    ] {
        assert!(titles.contains(&title), "no {title} in {titles:?}");
    }
    let lines = page.matches("class=\"line l1\"").count();
    assert!(lines >= 4, "each chart has both URLs: {lines} lines");
}

#[test]
fn comparison_with_a_failing_url_reports_the_rounds_before_and_what_failed() {
    // The third round of B fails. Each round has ten requests, and the warm-up some.
    let count = AtomicUsize::new(0);
    let failing = answering(move |path| {
        if path == "/" && count.fetch_add(1, Ordering::SeqCst) >= 30 {
            panic!("the server gives up");
        }
    });
    let args = [
        "compare",
        &server(),
        &failing,
        "--rounds",
        "1000",
        "-n",
        "10",
        "-c",
        "1",
        "--warm-up",
        "1ms",
    ];
    let (page, output) = with_page(&args);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.contains("B, round ") && error.contains(" of 1000: "),
        "{error}"
    );
    assert!(page.contains("<b>Failed:</b> B, round "), "{page}");
}

#[test]
fn search_for_the_highest_rate_has_charts_by_rate() {
    let args = ["--find-max", "--p99", "5s", "-d", "200ms", "-c", "2"];
    let url = server();
    let (page, output) = with_page(&[&[&*url], &args[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let titles = charts(&page);
    for title in ["Latency by offered rate", "Responses by offered rate"] {
        assert!(titles.contains(&title), "no {title} in {titles:?}");
    }
    let best = "Latency by percentile at ";
    assert!(
        titles.iter().any(|title| title.starts_with(best)),
        "{titles:?}"
    );
    assert!(page.contains(">bound<"), "{page}");
    let out = text(&output.stdout);
    assert!(out.contains("99 % of the requests within 5000 ms"), "{out}");
    assert!(out.contains("kept"), "{out}");
}

#[test]
fn search_without_a_rate_that_keeps_the_bound_says_what_it_saw() {
    let slow = answering(|_| std::thread::sleep(Duration::from_millis(30)));
    let args = ["--find-max", "--p99", "1ms", "-d", "100ms", "-c", "1"];
    let (page, output) = with_page(&[&[&*slow], &args[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    let said = "no rate that was tried keeps 99 % of the requests within 1 ms; at the lowest, ";
    assert!(
        error.contains(said) && error.contains(", p99 was "),
        "{error}"
    );
    assert!(page.contains(said), "{page}");
}

#[test]
fn search_at_a_server_that_never_answers_as_expected_says_so() {
    let url = format!("{}/missing", server());
    let args = ["--find-max", "--p99", "1s", "-d", "100ms", "-c", "1"];
    let (page, output) = with_page(&[&[&*url], &args[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(page.contains("<b>Failed:</b> "), "{page}");
    assert!(page.contains("unexpected status"), "{page}");
}

#[test]
fn series_of_seconds_are_forms_of_a_single_run_only() {
    let help = |args: &[&str]| text(&bench(&[args, &["--help"]].concat()).stdout);
    for option in ["--csv", "--hdr"] {
        assert!(help(&[]).contains(option));
        for command in ["compare", "app"] {
            assert!(!help(&[command]).contains(option), "{command} {option}");
        }
        let url = "http://127.0.0.1:1/";
        for args in [
            vec!["compare", url, url, option],
            vec![url, "--find-max", "--p99", "1s", option],
            vec![url, "--json", option],
            vec![url, "--find-max", "--p99", "1s", "--back-off", "1s"],
        ] {
            assert_eq!(bench(&args).status.code(), Some(2), "{args:?}");
        }
    }
}

#[test]
fn missing_unix_socket_is_one_error() {
    let began = Instant::now();
    let output = bench(&["http://host/", "--unix", "/nowhere/socket"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    let said = "cannot connect to /nowhere/socket (--unix): No such file or directory";
    assert!(error.contains(said), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "no load was sent"
    );
    let output = bench(&["http://host/", "--unix", "/dev/null"]);
    let error = text(&output.stderr);
    assert!(
        error.contains("cannot connect to /dev/null: it is no socket (--unix)"),
        "{error}"
    );
}

/// A process that sleeps most of the time, and ends with the test.
pub(super) struct Sleeper(Child);

impl Sleeper {
    pub(super) fn start() -> Sleeper {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do sleep 0.01; done"]);
        Sleeper(command.spawn().unwrap())
    }

    pub(super) fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn named_process_is_watched_in_place_of_the_listening_one() {
    let (url, sleepers) = (server(), [Sleeper::start(), Sleeper::start()]);
    let pids = sleepers.each_ref().map(Sleeper::pid);
    let args = [&*url, "-d", "1s", "-c", "1", "--json", "--pid", &pids[0]];
    let json: Value = serde_json::from_str(&printed(&args)).unwrap();
    let watched = json["usage"]["pids"].to_string();
    assert_eq!(watched, format!("[{}]", pids[0]));
    // It sleeps a hundred times per second, at most, and gives its CPU away each time.
    let per_request = &json["server"]["switches_per_request"];
    assert!(per_request["value"].as_f64().unwrap() > 0.0, "{json}");
    let processes = json["server"]["processes"]["value"].as_f64().unwrap();
    assert!((1.0..=3.0).contains(&processes), "{json}");

    let args = [
        &*url, "-n", "5", "-c", "1", "--pid", &pids[0], "--pid", &pids[1],
    ];
    let out = printed(&args);
    let both = format!(
        "Server: sh ({}), sh ({}), with descendants",
        pids[0], pids[1]
    );
    assert!(out.contains(&both), "{out}");
}

#[test]
fn process_that_does_not_exist_is_an_error_in_every_option_that_names_one() {
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let (gone, sleeper, url) = (gone.id().to_string(), Sleeper::start(), server());
    let there = sleeper.pid();
    let compare = ["compare", &url, &url, "-n", "5"];
    for (args, option) in [
        (&[&*url, "-n", "5"][..], "--pid"),
        (&[&*url, "--find-max", "--p99", "1s"], "--pid"),
        (&compare, "--pid-a"),
        (&compare, "--pid-b"),
    ] {
        // One of several is not left out.
        let output = bench(&[args, &[option, &there, option, &gone]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let error = text(&output.stderr);
        let said = format!("there is no process {gone} ({option})");
        assert!(error.contains(&said), "{error}");
    }
}

#[test]
fn compared_servers_are_the_named_processes_and_the_report_says_so() {
    let (url, sleepers) = (server(), [Sleeper::start(), Sleeper::start()]);
    let pids = sleepers.each_ref().map(Sleeper::pid);
    let args = [
        "compare", &url, &url, "--rounds", "2", "-n", "5", "-c", "1", "--json", "--pid-a",
        &pids[0], "--pid-a", &pids[1],
    ];
    let json: Value = serde_json::from_str(&printed(&args)).unwrap();
    let servers = &json["servers"];
    let both = format!("sh ({}), sh ({})", pids[0], pids[1]);
    assert_eq!(servers["A"]["text"], both.as_str(), "{json}");
    let found = servers["B"]["text"].as_str().unwrap();
    let own = format!("({})", std::process::id());
    assert!(found.ends_with(&own), "{found}");
}

#[test]
fn second_without_a_response_has_no_latency() {
    // The second request is answered after more than two seconds.
    let count = AtomicUsize::new(0);
    let stalling = answering(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) == 1 {
            std::thread::sleep(Duration::from_millis(2500));
        }
    });
    let out = printed(&[&stalling, "-n", "3", "-c", "1", "--csv"]);
    assert!(out.lines().any(|line| line.ends_with(",0,0,0,,,")), "{out}");
    assert!(!out.contains(",0,0,0\n"), "{out}");
}

#[test]
fn log_of_latencies_is_printed_while_the_run_goes_on() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
    command.args(["bench", &server(), "-c", "1", "-d", "1h", "--hdr"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut intervals = lines
        .map(Result::unwrap)
        .filter(|line| !line.starts_with('#'));
    for start in ["0.000,1.000,", "1.000,1.000,"] {
        let line = intervals.next().unwrap();
        assert!(line.starts_with(start) && line.contains("HISTF"), "{line}");
    }
    assert!(child.try_wait().unwrap().is_none(), "it has ended");
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(sent.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn page_for_which_the_disk_has_no_room_keeps_the_one_before() {
    let url = server();
    let directory = tempfile::tempdir().unwrap();
    let (new, old) = (directory.path().join("new"), directory.path().join("old"));
    std::fs::write(&old, "a report").unwrap();
    for page in [&new, &old] {
        let (surus, page) = (env!("CARGO_BIN_EXE_surus"), page.display());
        // The limit of a file's size is that of a block.
        let script =
            format!("trap '' XFSZ; ulimit -f 1; exec {surus} bench {url} -n 3 -c 1 --html {page}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        let expected = format!("cannot write {page} (--html)");
        assert!(error.contains(&expected), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "a report");
    let names = std::fs::read_dir(directory.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["old"]);
}

#[test]
fn page_replaces_the_target_of_a_link_and_keeps_its_mode() {
    let url = server();
    let directory = tempfile::tempdir().unwrap();
    let (page, link) = (directory.path().join("page"), directory.path().join("link"));
    std::fs::write(&page, "a report").unwrap();
    std::fs::set_permissions(&page, Permissions::from_mode(0o604)).unwrap();
    std::os::unix::fs::symlink(&page, &link).unwrap();
    printed(&[&url, "-n", "3", "-c", "1", "--html", link.to_str().unwrap()]);
    assert!(link.is_symlink());
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
    let mode = std::fs::metadata(&page).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o604);
}

#[test]
fn interrupt_while_requests_are_read_leaves_no_page() {
    let url = server();
    let directory = tempfile::tempdir().unwrap();
    let (pipe, page) = (directory.path().join("pipe"), directory.path().join("page"));
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for args in [
        &["--file"][..],
        &["--find-max", "--p99", "1s", "--file"],
        &["compare", &url, "--body-file"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_surus"));
        command.arg("bench").args(args).arg(&pipe).arg(&url);
        let child = command.arg("--html").arg(&page);
        let child = child.stderr(Stdio::piped()).spawn().unwrap();
        // Returns when the other end is opened.
        let _open = OpenOptions::new().write(true).open(&pipe).unwrap();
        let pid = child.id().to_string();
        let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
        assert!(sent.unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success(), "{}", text(&output.stderr));
        assert!(!page.exists(), "{args:?}");
    }
}

#[test]
fn process_that_lives_for_one_request_is_seen_in_a_run_of_less_than_a_second() {
    // Starts a process at each line.
    let mut parent = Command::new("sh")
        .args(["-c", "while read line; do sleep 0.6; echo; done"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let commands = parent.stdin.take().unwrap();
    let ends = BufReader::new(parent.stdout.take().unwrap()).lines();
    let pipes = Mutex::new((commands, ends));
    let url = answering(move |_| {
        let (commands, ends) = &mut *pipes.lock().unwrap();
        commands.write_all(b"begin\n").unwrap();
        ends.next().unwrap().unwrap();
    });
    let pid = parent.id().to_string();
    // A busy machine may give the command no time while the process lives.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let args = [&url, "-n", "1", "-c", "1", "--pid", &pid, "--json"];
        let json: Value = serde_json::from_str(&printed(&args)).unwrap();
        if json["server"]["processes"]["value"] == 2.0 {
            break;
        }
        assert!(Instant::now() < deadline, "only the parent was seen");
    }
    parent.kill().unwrap();
    parent.wait().unwrap();
}
