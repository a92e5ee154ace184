//! Tests `surus bench --find-max`: which rate it finds, and what it says limited it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{answering, bench, printed, server};
use crate::bench_reports::Sleeper;

#[test]
fn search_for_the_highest_rate_ends_with_one() {
    // Uses so much CPU time that there is enough to divide at any rate near the highest.
    let url = answering(|_| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
    });
    let args = [
        &*url,
        "--find-max",
        "--p99",
        "5s",
        "-d",
        "1s",
        "-c",
        "2",
        "--json",
    ];
    let json: Value = serde_json::from_str(&printed(&args)).unwrap();
    // Both name the offered rates.
    let highest: Vec<_> = json["highest"].as_object().unwrap().iter().collect();
    let [(offered, responses)] = highest[..] else {
        panic!("{json}");
    };
    assert!(offered.parse::<f64>().unwrap() > 0.0, "{json}");
    assert!(responses["value"].as_f64().unwrap() > 0.0, "{json}");
    let attempt = &json["attempts"][offered];
    assert_eq!(attempt["bound"]["verdict"], "kept");
    let cpu = attempt["CPU per request"]["value"].as_f64();
    assert!(cpu.is_some_and(|micros| micros > 0.0), "{json:#}");
    let memory = attempt["memory"]["value"].as_f64();
    assert!(memory.is_some_and(|bytes| bytes > 0.0), "{json:#}");
    let load = json["load"].as_str().unwrap();
    assert!(load.contains("open loop at the rates below"), "{load}");
    assert!(!load.contains("closed"), "{load}");
}

#[test]
fn search_watches_the_named_process_and_says_that_redirects_are_not_followed() {
    let (url, sleeper) = (format!("{}/moved", server()), Sleeper::start());
    let pid = sleeper.pid();
    let args = ["--find-max", "--p99", "5s", "-d", "100ms", "-c", "1"];
    let args = [&[&*url], &args[..], &["--pid", &pid]].concat();
    let out = printed(&args);
    let server = format!("Offered rates; server: sh ({pid}), with descendants");
    for part in [
        &*server,
        "Responses by status",
        " responses were 301; redirects are not followed",
    ] {
        assert!(out.contains(part), "{part} is not in {out}");
    }
    let markdown = printed(&[&args[..], &["--markdown"]].concat());
    let head = "|  | responses | CPU per request | memory | p50 | p99 |";
    assert!(markdown.contains(head), "{markdown}");
}

/// Answers two requests at a time, each after 10 ms, and others with 503.
fn shedding_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let running = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let running = running.clone();
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for _ in lines.map_while(Result::ok).filter(String::is_empty) {
                    let status = match running.fetch_add(1, Ordering::SeqCst) {
                        0..2 => "200",
                        _ => "503",
                    };
                    std::thread::sleep(Duration::from_millis(10));
                    running.fetch_sub(1, Ordering::SeqCst);
                    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\nhello");
                    if stream.write_all(head.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}/")
}

#[test]
fn search_goes_on_where_the_server_sheds_load() {
    let url = shedding_server();
    let args = [
        "--find-max",
        "--p99",
        "5s",
        "-d",
        "100ms",
        "-c",
        "20",
        "--json",
    ];
    let output = bench(&[&[&*url], &args[..]].concat());
    let json: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let attempts = json["attempts"].as_object();
    assert!(attempts.is_some_and(|rates| !rates.is_empty()), "{json}");
}

#[test]
fn search_that_connections_limit_says_so() {
    let url = answering(|_| std::thread::sleep(Duration::from_millis(50)));
    // In 200 ms nothing exceeds the bound, so that a rate fails only if requests are never sent.
    let args = [&*url, "--find-max", "--p99", "5s", "-d", "200ms", "-c", "1"];
    let output = bench(&[&args[..], &["--json"]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes = json["notes"].to_string();
    let note = "the connection (--concurrency) was waiting for a response";
    assert!(notes.contains(note), "{notes}");
    // A single miss may be due to other work of the machine.
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.contains("/s: p99"))
        .collect();
    let rate = |line: &str| line.split(": p99").next().unwrap_or_default().to_owned();
    let missed = (0..lines.len()).filter(|at| lines[*at].ends_with(", missed; once more"));
    let missed: Vec<_> = missed.collect();
    assert!(!missed.is_empty(), "{said}");
    for at in missed {
        assert_eq!(rate(lines[at]), rate(lines[at + 1]), "{said}");
    }
}
