//! Workers that crash, and requests that end early or are malformed, over HTTP/3.

use bytes::Bytes;

use super::client::{Client, PATIENCE, get, quic, request, serve_h3};
use crate::wire::site;

#[tokio::test]
async fn crashed_worker_costs_one_request() {
    let dir = site();
    let script = "<?php posix_kill(getmypid(), 9);";
    std::fs::write(dir.path().join("crash.php"), script).unwrap();
    let late = "<?php echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9);";
    std::fs::write(dir.path().join("late.php"), late).unwrap();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    let post = || request("POST", "/crash.php").body(()).unwrap();
    assert_eq!(client.ask(post(), b"a").await.unwrap().status(), 502);
    assert_eq!(client.get("/index.php").await.status(), 200);
    // A truncated response does not look complete.
    let error = client.ask(get("/late.php"), b"").await.unwrap_err();
    assert!(error.to_string().contains("H3_INTERNAL_ERROR"), "{error}");
    assert_eq!(client.get("/index.php").await.status(), 200);
}

#[tokio::test]
async fn incomplete_body_does_not_reach_php() {
    let dir = site();
    let marker = "<?php file_put_contents(__DIR__ . '/ran', '1');";
    std::fs::write(dir.path().join("mark.php"), marker).unwrap();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    let post = |length: u32| {
        let post = request("POST", "/mark.php").header("content-length", length);
        post.body(()).unwrap()
    };
    // Shorter and longer than announced.
    for length in [100, 2] {
        match client.ask(post(length), b"half").await {
            Ok(answer) => assert_eq!(answer.status(), 400),
            Err(error) => assert!(error.to_string().contains("H3_MESSAGE_ERROR"), "{error}"),
        }
    }
    // Reset in the middle.
    let mut stream = client.requests.send_request(post(100)).await.unwrap();
    stream.send_data(Bytes::from_static(b"half")).await.unwrap();
    stream.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
    drop(stream);
    assert_eq!(client.get("/index.php").await.status(), 200);
    assert!(!dir.path().join("ran").exists());
}

#[tokio::test]
async fn malformed_requests_are_rejected() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    for (name, value) in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("te", "gzip"),
        ("content-length", "-1"),
    ] {
        let wrong = request("GET", "/index.php").header(name, value);
        let answer = client.ask(wrong.body(()).unwrap(), b"").await.unwrap();
        assert_eq!(answer.status(), 400, "{name}");
    }
    assert_eq!(client.get("/index.php").await.status(), 200);
}

#[tokio::test]
async fn header_value_with_space_at_an_end_is_rejected() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    for padded in [" x", "x ", "\tx", "x\t", " "] {
        let wrong = request("GET", "/index.php").header("x-padded", padded);
        let answer = client.ask(wrong.body(()).unwrap(), b"").await.unwrap();
        assert_eq!(answer.status(), 400, "{padded:?}");
    }
    let inner = request("GET", "/index.php").header("x-inner", "a b\tc");
    let answer = client.ask(inner.body(()).unwrap(), b"").await.unwrap();
    assert_eq!(answer.seen("HTTP_X_INNER"), "a b\tc");
}

#[tokio::test]
async fn cancelled_request_releases_its_worker() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[("SURUS_HTTP_MAX_RESPONSE_BUFFER", "0")]);
    let mut client = Client::connect(&secure).await;
    let mut stream = client.send(get("/?mib=1000"), b"").await.unwrap();
    assert_eq!(stream.recv_response().await.unwrap().status(), 200);
    stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    drop(stream);
    // There is one worker.
    assert_eq!(client.get("/index.php").await.status(), 200);
}

/// An encoded header section (RFC 9204) of lines that are spelled out.
fn section(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in lines {
        // The names here have 7 to 133 bytes, the values less than 127.
        section.extend([0x27, name.len() as u8 - 7]);
        section.extend(name.bytes());
        section.push(value.len() as u8);
        section.extend(value.bytes());
    }
    section
}

/// The first bytes of the response to a header section, or the code of the reset stream.
async fn send_section(connection: &quinn::Connection, section: &[u8]) -> Result<Vec<u8>, u64> {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let mut frame = vec![1, 0x40, section.len() as u8];
    frame.extend(section);
    send.write_all(&frame).await.unwrap();
    send.finish().unwrap();
    let answer = tokio::time::timeout(PATIENCE, receive.read_to_end(1 << 20));
    match answer.await.unwrap() {
        Ok(answer) => Ok(answer),
        Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code))) => Err(code.into_inner()),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn pseudo_headers_are_once_and_first() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let config = secure.config(&[&rustls::version::TLS13]);
    let (_endpoint, connection) = quic(&secure, config).await.unwrap();
    // `:method: GET`, `:scheme: https`, `:path: /` and `:authority` by number.
    let numbered = [&[0, 0, 0xd1, 0xd7, 0xc1, 0x50, 9][..], b"localhost"].concat();
    let spelled = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
    ];
    // The Huffman code of `:path`.
    let path = [&[0x2c, 0xb9, 0x58, 0xd3, 0x3f, 10][..], b"/index.php"].concat();
    let coded = [section(&spelled), path.clone()].concat();
    let regular = section(&[("x-regular", "1")])[2..].to_vec();
    let fine = [
        numbered.clone(),
        coded.clone(),
        [numbered.clone(), regular.clone()].concat(),
        // A name that has the same code as `:path`, but not as code.
        [&coded[..], &[0x25, b'p', b'a', b't', b'h', b's', 0]].concat(),
    ];
    for section in &fine {
        let answer = send_section(&connection, section).await;
        assert_eq!(answer.map(|answer| answer[0]), Ok(1), "{section:x?}");
    }
    let wrong = [
        // Twice, by number, with a name by number, spelled and coded.
        [&numbered[..], &[0xd1]].concat(),
        [&numbered[..], &[0xd4]].concat(),
        [&numbered[..], &[0x51, 2, b'/', b'a']].concat(),
        [&numbered[..], &[0x50, 1, b'b']].concat(),
        [
            numbered.clone(),
            section(&[(":scheme", "http")])[2..].to_vec(),
        ]
        .concat(),
        [coded.clone(), path.clone()].concat(),
        // After others.
        [section(&spelled), regular.clone(), path.clone()].concat(),
        // Of responses, of other requests and of nothing.
        [&numbered[..], &[0xd9]].concat(),
        [&numbered[..], &[0x5f, 0x09, 3, b'2', b'0', b'0']].concat(),
        [
            numbered.clone(),
            section(&[(":status", "200")])[2..].to_vec(),
        ]
        .concat(),
        [
            numbered.clone(),
            section(&[(":protocol", "websocket")])[2..].to_vec(),
        ]
        .concat(),
        [
            numbered.clone(),
            section(&[(":foreign", "1")])[2..].to_vec(),
        ]
        .concat(),
    ];
    for section in &wrong {
        let answer = send_section(&connection, section).await;
        assert_eq!(answer, Err(0x10e), "{section:x?}");
    }
    // The connection goes on.
    assert!(send_section(&connection, &numbered).await.is_ok());
}
