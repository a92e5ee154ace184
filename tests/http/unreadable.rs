//! Tests that unparsable requests are logged and counted like others.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::common::Surus;
use crate::wire::{Wire, site};

#[test]
fn unparsable_request_is_logged_and_counted() {
    let dir = site();
    let socket = dir.path().join("admin.sock");
    let admin = format!("unix:{}", socket.display());
    let surus = Surus::spawn(
        dir.path(),
        &[],
        &[
            ("SURUS_ENGINE_WORKERS", "1"),
            ("SURUS_ADMIN_LISTEN", &admin),
        ],
    )
    .unwrap();
    let too_long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let too_large = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    for (request, status, bytes) in [
        ("GET / HTTP/1.1\r\nHost a\r\n\r\n", 400, 0),
        (&too_large, 431, 0),
        (&too_long, 414, 49),
    ] {
        let mut wire = Wire::connect(&surus);
        wire.send(request);
        assert_eq!(wire.answer().map(|answer| answer.status), Some(status));
        surus.wait_for_log(|log| {
            log.lines().any(|line| {
                line.starts_with("127.0.0.1 - - [")
                    && line.contains(&format!("] \"-\" {status} {bytes} \"-\" \"-\" "))
            })
        });
    }
    let mut admin = UnixStream::connect(socket).unwrap();
    admin
        .write_all(b"GET /-/metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut metrics = String::new();
    admin.read_to_string(&mut metrics).unwrap();
    assert!(
        metrics.contains("surus_requests_total{engine=\"static\",outcome=\"4xx\"} 3"),
        "{metrics}"
    );
}
