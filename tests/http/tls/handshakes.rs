//! Tests slow, wrong and hostile handshakes.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use rustls::ClientConnection;

use super::{Secure, serve};
use crate::wire::{Wire, site, text};

const GET: &str = "GET /index.php HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The first bytes that the client sends.
fn hello(client: &mut ClientConnection) -> Vec<u8> {
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// The failures of this reason.
fn failures(secure: &Secure, dir: &std::path::Path, reason: &str) -> u64 {
    let name = format!("surus_tls_handshake_failures_total{{reason=\"{reason}\"}} ");
    secure.metric(dir, &name)
}

#[test]
fn bytes_may_arrive_one_at_a_time() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let mut client = secure.client();
    let mut socket = secure.socket();
    while client.is_handshaking() {
        for byte in hello(&mut client) {
            socket.write_all(&[byte]).unwrap();
        }
        if client.wants_read() {
            client.read_tls(&mut socket).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    // Each byte of the request in a record of its own, in pieces.
    for byte in GET.bytes() {
        client.writer().write_all(&[byte]).unwrap();
        for byte in hello(&mut client) {
            socket.write_all(&[byte]).unwrap();
        }
    }
    let mut wire = Wire::over(rustls::StreamOwned::new(client, socket));
    assert_eq!(wire.answer().unwrap().seen("HTTPS"), "on");
}

#[test]
fn plain_http_is_answered_with_400() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    for request in [
        GET,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789",
        "G",
    ] {
        let socket = secure.socket();
        let mut wire = Wire::over(socket);
        let answer = wire.ask(request).unwrap();
        assert_eq!(answer.status, 400);
        assert!(text(&answer.body).contains("https://"), "{answer:?}");
        assert_eq!(wire.rest(), b"");
    }
    assert_eq!(failures(&secure, dir.path(), "plain_http"), 3);
}

#[test]
fn malformed_handshakes_are_rejected_with_an_alert() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let mut truncated = hello(&mut secure.client());
    let len = truncated.len();
    truncated[len / 2..].fill(0xff);
    // SSL 2.0 and 3.0, an empty record, a record that is too long, application data.
    let others: [&[u8]; 6] = [
        b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",
        b"\x16\x03\x00\x00\x05\x01\x00\x00\x01\x03",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff\x01",
        b"\x17\x03\x03\x00\x01x",
        &[0; 5],
    ];
    for bytes in others.into_iter().chain([&truncated[..]]) {
        let mut socket = secure.socket();
        socket.write_all(bytes).unwrap();
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        // An alert, if anything.
        assert!(
            answer.first().is_none_or(|kind| *kind == 0x15),
            "{answer:?}"
        );
    }
    assert!(failures(&secure, dir.path(), "malformed") >= 4);
    assert_eq!(secure.connect().ask(GET).unwrap().status, 200);
}

#[test]
fn half_a_handshake_is_timed_out_and_delays_no_other() {
    // On a busy machine the other handshake may be timed out, too.
    let is_answered = ["2s", "10s", "50s"].into_iter().any(half_handshakes);
    assert!(is_answered);
}

/// Whether a request on another connection is answered meanwhile.
fn half_handshakes(timeout: &str) -> bool {
    let dir = site();
    let secure = serve(dir.path(), &[("SURUS_TLS_HANDSHAKE_TIMEOUT", timeout)]);
    let mut half = hello(&mut secure.client());
    half.truncate(half.len() / 2);
    let mut slow: Vec<_> = [&half[..], b"", b"\x16"]
        .map(|bytes| {
            let mut socket = secure.socket();
            socket.write_all(bytes).unwrap();
            socket
        })
        .into();
    // One that stops after the server's answer.
    let mut socket = secure.socket();
    socket.write_all(&hello(&mut secure.client())).unwrap();
    slow.push(socket);
    let Some(answer) = secure.connect().ask(GET) else {
        return false;
    };
    assert_eq!(answer.status, 200);
    for mut socket in slow {
        // Closed, or reset: the client of the last one has sent nothing wrong.
        let _ = socket.read_to_end(&mut Vec::new());
    }
    assert_eq!(failures(&secure, dir.path(), "timeout"), 4);
    true
}

#[test]
fn handshake_replaces_the_one_that_takes_longest() {
    let dir = site();
    let env = [
        ("SURUS_TLS_MAX_HANDSHAKES", "3"),
        ("SURUS_TLS_HANDSHAKE_TIMEOUT", "5m"),
    ];
    let secure = serve(dir.path(), &env);
    let silent: Vec<_> = (0..3).map(|_| secure.socket()).collect();
    // Only what has been idle for a while is replaced.
    for _ in 0..4 {
        assert_eq!(secure.connect().ask(GET).unwrap().status, 200);
    }
    assert!(failures(&secure, dir.path(), "evicted") >= 1);
    drop(silent);
}

#[test]
fn many_handshakes_at_once_all_succeed() {
    let dir = site();
    let secure = serve(dir.path(), &[("SURUS_TLS_MAX_HANDSHAKES", "8")]);
    std::thread::scope(|scope| {
        for _ in 0..60 {
            // On a busy machine some wait for more than a second, and are closed.
            let ask = || {
                std::iter::repeat_with(|| secure.connect().ask(GET))
                    .flatten()
                    .next()
            };
            scope.spawn(move || assert_eq!(ask().unwrap().status, 200));
        }
    });
    let name = "surus_tls_handshakes_total{version=\"TLSv1.3\",kind=\"full\"} ";
    assert!(secure.metric(dir.path(), name) >= 60);
}

#[test]
fn second_connection_resumes_the_session() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        let config = std::sync::Arc::new(secure.config(versions));
        for expected in ["Initial", "Resumed", "Resumed"] {
            let name = "localhost".try_into().unwrap();
            let client = ClientConnection::new(config.clone(), name).unwrap();
            let answer = secure.connect_by(client).ask(GET).unwrap();
            assert_eq!(answer.seen("SSL_SESSION_RESUMED"), expected);
        }
    }
    for version in ["TLSv1.3", "TLSv1.2"] {
        let name = format!("surus_tls_handshakes_total{{version=\"{version}\",kind=\"resumed\"}} ");
        assert_eq!(secure.metric(dir.path(), &name), 2, "{version}");
    }
}

/// Runs `openssl s_client` with this input. Returns what it prints.
fn s_client(secure: &Secure, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("openssl")
        .args([
            "s_client",
            "-connect",
            &secure.address,
            "-servername",
            "localhost",
        ])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may have ended.
    let _ = stdin.write_all(input.as_bytes());
    // Kept open: at the end of its input the program leaves.
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn renegotiation_is_rejected() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    // A line with an R makes the program renegotiate.
    let said = s_client(&secure, &["-tls1_2"], "R\n");
    assert!(said.contains("Secure Renegotiation IS supported"), "{said}");
    assert!(said.contains("no renegotiation"), "{said}");
}

#[test]
fn old_versions_are_rejected() {
    let dir = site();
    let secure = serve(dir.path(), &[("SURUS_TLS_MIN_VERSION", "1.3")]);
    let said = s_client(&secure, &["-tls1_2"], "");
    assert!(said.contains("alert protocol version"), "{said}");
    assert_eq!(secure.connect().ask(GET).unwrap().status, 200);
    let said = s_client(&secure, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], "");
    assert!(said.contains("alert"), "{said}");
    assert_eq!(failures(&secure, dir.path(), "incompatible"), 2);
}
