//! Tests static files through the real server: whole and in part, to slow and disconnecting
//! clients, over HTTP/1 and HTTP/2.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::common::Surus;

/// A directory with a file larger than any buffer on its way.
fn site() -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..20_000_003_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    std::fs::write(dir.path().join("large.bin"), &content).unwrap();
    std::fs::write(dir.path().join("index.php"), "<?php echo 'php';").unwrap();
    Command::new("chmod")
        .args(["-R", "a+rX"])
        .arg(dir.path())
        .status()
        .unwrap();
    (dir, content)
}

fn curl(args: &[&str]) -> Vec<u8> {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60"])
        .args(args)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "curl {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

#[test]
fn large_file_arrives_unchanged() {
    let (dir, content) = site();
    let surus = Surus::serve(dir.path(), &["--workers", "1"]);
    let url = format!("{}/large.bin", surus.url);
    assert!(curl(&[&url]) == content, "HTTP/1.1");
    assert!(curl(&["--http1.0", &url]) == content, "HTTP/1.0");
    assert!(
        curl(&["--http2-prior-knowledge", &url]) == content,
        "HTTP/2"
    );
    assert!(curl(&["--limit-rate", "40M", &url]) == content, "slowly");
    assert!(
        curl(&["-r", "1000-12345678", &url]) == content[1000..=12_345_678],
        "a range"
    );
    assert!(
        curl(&["-r", "-70000", &url]) == content[content.len() - 70_000..],
        "the end"
    );
    let head = String::from_utf8(curl(&["-I", &url])).unwrap();
    assert!(head.contains("content-length: 20000003"), "{head}");
}

#[test]
fn pipelined_requests_get_their_own_responses() {
    let (dir, content) = site();
    let surus = Surus::serve(dir.path(), &["--workers", "1"]);
    let mut stream = TcpStream::connect(&surus.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let file = "GET /large.bin HTTP/1.1\r\nHost: x\r\nRange: bytes=100-9000099\r\n\r\n";
    let php = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream
        .write_all([file, php, file, last].concat().as_bytes())
        .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let mut rest = &bytes[..];
    for body in [
        &content[100..9_000_100],
        b"php",
        &content[100..9_000_100],
        b"php",
    ] {
        let end = rest
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap()
            + 4;
        assert!(rest[end..].starts_with(body));
        rest = &rest[end + body.len()..];
    }
    assert!(rest.is_empty());
}

#[test]
fn truncated_file_aborts_the_response_only() {
    let (dir, content) = site();
    let surus = Surus::serve(dir.path(), &["--workers", "1"]);
    let mut stream = TcpStream::connect(&surus.address).unwrap();
    stream
        .write_all(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut beginning = [0; 1000];
    stream.read_exact(&mut beginning).unwrap();
    std::fs::write(dir.path().join("large.bin"), &content[..1000]).unwrap();
    let mut rest = Vec::new();
    // An end or a reset; less than was promised in either case.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < content.len());
    assert_eq!(curl(&[&surus.url]), b"php");
}

#[test]
fn disconnected_clients_leave_no_open_files() {
    let (dir, _) = site();
    let surus = Surus::serve(dir.path(), &["--workers", "1"]);
    let descriptors = || {
        std::fs::read_dir(format!("/proc/{}/fd", surus.front()))
            .unwrap()
            .count()
    };
    let before = descriptors();
    for _ in 0..50 {
        let mut stream = TcpStream::connect(&surus.address).unwrap();
        stream
            .write_all(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut beginning = [0; 1000];
        stream.read_exact(&mut beginning).unwrap();
    }
    for _ in 0..1000 {
        if descriptors() <= before {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} descriptors before, {} after", before, descriptors());
}
