//! Tests idle persistent connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::memory::{MIB, resident, settles_at};
use crate::common::Surus;

/// Requests a file and reads the whole response.
fn ask(stream: &mut BufReader<TcpStream>, head: &str) {
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    let mut body = [0; 4];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"text");
}

#[test]
fn idle_connection_releases_the_memory_of_its_last_request() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.php"), "<?php").unwrap();
    std::fs::write(dir.path().join("file.txt"), "text").unwrap();
    let env = [
        ("SURUS_HTTP_MAX_HEADER_SIZE", "128K"),
        ("SURUS_HTTP_KEEP_ALIVE_TIMEOUT", "1h"),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    let surus = Surus::spawn(dir.path(), &[], &env).unwrap();
    let long = "x".repeat(100_000);
    let head = format!("GET /file.txt HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n");
    let pid = surus.front();
    let before = resident(pid);
    let mut connections: Vec<_> = (0..600)
        .map(|_| {
            let stream = TcpStream::connect(&surus.address).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            let mut stream = BufReader::new(stream);
            ask(&mut stream, &head);
            stream
        })
        .collect();
    let grown = settles_at(pid, before + 16 * MIB).saturating_sub(before) / MIB;
    assert!(grown <= 16, "600 idle connections take {grown} MiB");
    for stream in &mut connections {
        ask(stream, &head);
    }
}
