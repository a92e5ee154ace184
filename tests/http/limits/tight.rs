//! Tests requests and responses without free memory, or without memory and disk.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use super::log::get_with;
use crate::common::Surus;
use crate::tls::metric;

const PAGE: &str = "<?php
if ($_SERVER['REQUEST_METHOD'] === 'POST') exit('got '.strlen(file_get_contents('php://input')));
header('Content-Type: text/plain');
if (isset($_GET['headers'])) exit(header('X: '.str_repeat('x', (int) $_GET['headers'])).'short');
if (isset($_GET['small'])) exit(str_repeat('x', 20_000));
if (isset($_GET['streams'])) {
    for ($n = 0; $n < 20; $n++) { echo str_repeat(chr(97 + $n), 10_000); flush(); usleep(2000); }
} else {
    for ($n = 0; $n < 20; $n++) echo str_repeat(chr(97 + $n), 10_000);
}
";

fn serve(settings: &[(&str, &str)]) -> (tempfile::TempDir, Surus) {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    std::fs::write(dir.path().join("index.php"), PAGE).unwrap();
    std::fs::write(dir.path().join("large.txt"), "l".repeat(300_000)).unwrap();
    let surus = Surus::spawn(dir.path(), &["--workers", "1"], settings).unwrap();
    (dir, surus)
}

/// Counts each of `g` to `t` in a response's body; chunk sizes are digits.
fn letters(answer: &[u8]) -> Vec<usize> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = &answer[end.unwrap()..];
    let count = |letter: u8| body.iter().filter(|byte| **byte == letter).count();
    (b'g'..=b't').map(count).collect()
}

/// How often bytes did not fit into a budget.
fn refusals(dir: &Path, buffer: &str) -> u64 {
    metric(
        dir,
        &format!("surus_buffer_refusals_total{{buffer=\"{buffer}\"}} "),
    )
}

fn post(surus: &Surus, len: usize) -> String {
    let mut stream = TcpStream::connect(&surus.address).unwrap();
    let head =
        format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; len]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn without_memory_bodies_pass_through_files_and_streams_stay_plain() {
    let (dir, surus) = serve(&[("SURUS_HTTP_BUFFER_MEMORY", "0")]);
    for path in ["/", "/?streams"] {
        let answer = get_with(&surus.address, path, "Accept-Encoding: identity\r\n");
        assert_eq!(letters(&answer), [10_000; 14], "{path}");
    }
    let streamed = get_with(&surus.address, "/?streams", "Accept-Encoding: gzip\r\n");
    assert_eq!(letters(&streamed), [10_000; 14]);
    let file = get_with(&surus.address, "/large.txt", "");
    assert!(file.ends_with(&[b'l'; 300_000]));
    for len in [10, 100_000] {
        let answer = post(&surus, len);
        assert!(answer.contains(&format!("got {len}")), "{answer}");
    }
    assert!(refusals(dir.path(), "memory") > 0);
    assert_eq!(refusals(dir.path(), "spool"), 0);
}

#[test]
fn without_memory_and_disk_bodies_are_rejected_and_streams_wait_for_their_client() {
    let (dir, surus) = serve(&[
        ("SURUS_HTTP_BUFFER_MEMORY", "0"),
        ("SURUS_HTTP_MAX_TEMP_SIZE", "0"),
    ]);
    let whole = get_with(&surus.address, "/?small", "");
    assert!(whole.starts_with(b"HTTP/1.1 503 "));
    let streamed = get_with(&surus.address, "/?streams", "");
    assert_eq!(letters(&streamed), [10_000; 14]);
    let answer = post(&surus, 10);
    assert!(answer.starts_with("HTTP/1.1 507 "), "{answer}");
    surus.wait_for_log(|log| log.contains("http.buffer_memory"));
    assert!(refusals(dir.path(), "memory") > 0);
    assert!(refusals(dir.path(), "spool") > 0);
}

#[test]
fn without_memory_long_headers_are_rejected_and_short_ones_sent() {
    let (dir, surus) = serve(&[("SURUS_HTTP_BUFFER_MEMORY", "0")]);
    let short = get_with(&surus.address, "/?headers=1000", "");
    assert!(short.starts_with(b"HTTP/1.1 200 ") && short.ends_with(b"short"));
    let long = get_with(&surus.address, "/?headers=9000", "");
    assert!(long.starts_with(b"HTTP/1.1 503 "));
    surus.wait_for_log(|log| log.contains("no memory for the headers of a response"));
    assert!(refusals(dir.path(), "memory") > 0);
    let failed = "surus_requests_total{engine=\"classic\",outcome=\"5xx\"} ";
    assert_eq!(metric(dir.path(), failed), 1);
}
