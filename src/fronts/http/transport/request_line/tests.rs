//! Tests of `request_line.rs`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::io::{ConnectionState, Io};
use super::super::socket::Socket;
use super::*;

fn read_in_pieces(text: &[u8], size: usize) -> Vec<u8> {
    let mut follower = RequestLineEncoder::default();
    let pieces = text.chunks(size);
    let read = pieces.flat_map(|piece| follower.read(piece).unwrap_or_else(|| piece.to_vec()));
    read.collect()
}

#[test]
fn path_of_the_first_line_is_encoded() {
    for (sent, given) in [
        ("GET /?q={\"a\":1} HTTP/1.1", "GET /?q={%22a%22:1} HTTP/1.1"),
        ("GET /<`\u{e9}> HTTP/1.1", "GET /%3C%60%C3%A9%3E HTTP/1.1"),
        ("\r\n\nGET /\" HTTP/1.1", "\r\n\nGET /%22 HTTP/1.1"),
        (
            "GET http://a\"b/\" HTTP/1.1",
            "GET http://a\"b/%22 HTTP/1.1",
        ),
        ("\"GET a\"b HTTP/1.1", "\"GET a\"b HTTP/1.1"),
        ("GET * HTTP/1.1", "GET * HTTP/1.1"),
        ("GET /a b HTTP/1.1", "GET /a b HTTP/1.1"),
        ("GET /{}|\\^~# HTTP/1.1", "GET /{}|\\^~# HTTP/1.1"),
    ] {
        let rest = "\r\nX: /\"\r\nContent-Length: 018\r\n\r\n\"GET /\" HTTP/1.1\r\n";
        for size in 1..=sent.len() + rest.len() {
            let read = read_in_pieces(format!("{sent}{rest}").as_bytes(), size);
            assert_eq!(
                String::from_utf8_lossy(&read),
                format!("{given}{rest}"),
                "{size}"
            );
        }
    }
}

#[test]
fn later_http_1_version_becomes_1_1() {
    for (sent, given) in [
        ("GET / HTTP/1.2", "GET / HTTP/1.1"),
        ("GET /?\" HTTP/1.9", "GET /?%22 HTTP/1.1"),
        ("OPTIONS * HTTP/1.3", "OPTIONS * HTTP/1.1"),
        ("GET / HTTP/1.0", "GET / HTTP/1.0"),
        ("GET / HTTP/2.0", "GET / HTTP/2.0"),
        ("GET / HTTP/2.2", "GET / HTTP/2.2"),
        ("GET /HTTP/1.2", "GET /HTTP/1.2"),
        ("GET / http/1.2", "GET / http/1.2"),
    ] {
        for end in ["\r\n", "\n"] {
            let rest = format!("{end}X: HTTP/1.2{end}Content-Length:9{end}{end} HTTP/1.2{end}");
            for size in 1..=sent.len() + rest.len() {
                let read = read_in_pieces(format!("{sent}{rest}").as_bytes(), size);
                let read = String::from_utf8_lossy(&read);
                assert_eq!(read, format!("{given}{rest}"), "{size}");
            }
        }
    }
}

#[test]
fn malformed_chunk_extension_is_rejected() {
    let request = "POST /\" HTTP/1.2\r\nHost: a\r\nTRANSFER-Encoding: chunked\r\n\r\n";
    let given = "POST /%22 HTTP/1.1\r\nHost: a\r\nTRANSFER-Encoding: chunked\r\n\r\n";
    let get = request.replace("POST", "GET");
    let given_get = given.replace("POST", "GET");
    let plain = request.replace("TRANSFER", "X");
    let given_plain = given.replace("TRANSFER", "X");
    for (sent, expected) in [
        (
            format!("{request}1;a\0\r\nx\r\n"),
            format!("{given}1;a\n\r\nx\r\n"),
        ),
        (
            format!("{request}1;a\r\n;\r\n"),
            format!("{given}1;a\r\n;\r\n"),
        ),
        (
            format!("{get}1;a\0\r\nx\r\n"),
            format!("{given_get}1;a\n\r\nx\r\n"),
        ),
        (
            format!("{plain}1;a\0\r\n"),
            format!("{given_plain}1;a\0\r\n"),
        ),
    ] {
        for size in 1..=sent.len() {
            let read = read_in_pieces(sent.as_bytes(), size);
            assert_eq!(String::from_utf8_lossy(&read), expected, "{size}");
        }
    }
}

#[test]
fn pipelined_requests_are_changed_alike() {
    let bodies = [
        ("", ""),
        ("Content-Length: 0\r\n", ""),
        (
            "content-length:\t19 \r\nX: 9\r\n",
            "\r\nGET /\" HTTP/1.2\r\n",
        ),
        ("Content-Lengthy: 9\r\n", ""),
        ("Content-Length: 4\r\nContent-Length: 4\r\n", "\"\r\n\""),
        (
            "Transfer-Encoding: chunked\r\n",
            "13;a\r\n\r\n\r\nGET /\" HTTP/1.2\r\n0\r\n\r\n",
        ),
        (
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            "2\r\n\"\"\r\n0\r\n\r\n",
        ),
    ];
    let rest = [
        (
            "\r\nGET /\" HTTP/1.2\r\n\r\n",
            "\r\nGET /%22 HTTP/1.1\r\n\r\n",
        ),
        (
            "POST /<> HTTP/1.3\nTransfer-Encoding: chunked\n\n1;\0\r\n",
            "POST /%3C%3E HTTP/1.1\nTransfer-Encoding: chunked\n\n1;\n\r\n",
        ),
    ];
    for (headers, body) in bodies {
        let (mut sent, mut expected) = (String::new(), String::new());
        for version in ["1.1", "1.2"] {
            let after = format!("\r\nHost: a\r\n{headers}\r\n{body}");
            sent += &format!("GET /\" HTTP/{version}{after}");
            expected += &format!("GET /%22 HTTP/1.1{after}");
        }
        for (more, given) in rest {
            sent += more;
            expected += given;
        }
        for size in 1..=sent.len() {
            let read = read_in_pieces(sent.as_bytes(), size);
            assert_eq!(String::from_utf8_lossy(&read), expected, "{headers} {size}");
        }
    }
}

#[test]
fn bytes_that_hyper_rejects_are_encoded() {
    for byte in 0x21..=0xff_u8 {
        for before in [&b"/a"[..], b"/a?b"] {
            let target = [before, &[byte, b'c']].concat();
            let is_taken = http::Uri::try_from(&target[..]).is_ok();
            let is_control = byte == 0x7f;
            assert!(
                is_taken || is_encoded(byte) != is_control,
                "{byte:x} behind {before:?}"
            );
        }
    }
}

#[derive(Debug, Clone)]
struct SentRequest {
    target: &'static str,
    body: &'static str,
    is_chunked: bool,
    /// The service answers without reading the body.
    is_ignored: bool,
    /// Sent before the previous responses have arrived.
    is_early: bool,
}

impl SentRequest {
    fn text(&self) -> Vec<u8> {
        let method = if self.body.is_empty() { "GET" } else { "POST" };
        let path = if self.is_ignored { "/ignored" } else { "" };
        let line = format!("{method} {path}{} HTTP/1.1\r\nHost: \"a\"\r\n", self.target);
        let (len, body) = (self.body.len(), self.body);
        match (body, self.is_chunked) {
            ("", _) => format!("{line}\r\n"),
            (_, true) => {
                format!("{line}Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n{body}\r\n0\r\n\r\n")
            }
            (_, false) => format!("{line}Content-Length: {len}\r\n\r\n{body}"),
        }
        .into_bytes()
    }
}

fn sent_request() -> impl Strategy<Value = SentRequest> {
    let target = prop::sample::select(vec!["/", "/?a=\"<>\"", "/\u{e9}?`", "/plain?b={}"]);
    let body = prop::sample::select(vec![
        "",
        "",
        "x",
        "\r\n\r\n",
        "GET /\"smuggled HTTP/1.1\r\nHost: \"x\"\r\n\r\n",
        "\r\nGET /\"smuggled HTTP/1.1\r\n",
        "POST /\" HTTP/1.1\nContent-Length: 5\n\n\"",
    ]);
    let maybe = || prop::bool::weighted(0.3);
    (target, body, maybe(), maybe(), maybe()).prop_map(
        |(target, body, is_chunked, is_ignored, is_early)| SentRequest {
            target,
            body,
            is_chunked,
            is_ignored,
            is_early,
        },
    )
}

/// A response's body; when it ends, no request is in flight, as in the real service.
struct Answer(Option<Bytes>, Arc<ConnectionState>);

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.1.timers.request_ends();
    }
}

type Seen = Arc<Mutex<Vec<(String, Option<Bytes>)>>>;

async fn answer(
    request: http::Request<Incoming>,
    connection: Arc<ConnectionState>,
    seen: Seen,
) -> Result<http::Response<Answer>, Infallible> {
    let target = request.uri().to_string();
    let mut body = None;
    if !target.starts_with("/ignored") {
        match request.into_body().collect().await {
            Ok(all) => body = Some(all.to_bytes()),
            Err(_) => return Ok(http::Response::new(Answer(None, connection))),
        }
        connection.body_framing.is_received();
    }
    seen.lock().unwrap().push((target, body));
    Ok(http::Response::new(Answer(
        Some(Bytes::from_static(b"answer")),
        connection,
    )))
}

/// Sends requests in pieces of these sizes. Returns what the service has received.
async fn exchange(requests: &[SentRequest], sizes: &[usize]) -> Vec<(String, Option<Bytes>)> {
    let (mut client, server) = tokio::net::UnixStream::pair().unwrap();
    let io = Io::new(Socket::Unix(server), 1 << 20);
    let (shared, seen) = (io.shared(), Seen::default());
    let service = {
        let seen = seen.clone();
        hyper::service::service_fn(move |request: http::Request<Incoming>| {
            use hyper::body::Body as _;
            shared.timers.request_begins();
            shared.body_framing.begins(!request.body().is_end_stream());
            answer(request, shared.clone(), seen.clone())
        })
    };
    let served = tokio::spawn(async move {
        let http = hyper::server::conn::http1::Builder::new();
        let _ = http.serve_connection(TokioIo::new(io), service).await;
    });
    let mut sizes = sizes.iter().cycle();
    let (mut answers, mut wanted) = (Vec::new(), 0);
    'all: for request in requests {
        while !request.is_early && count(&answers) < wanted {
            match client.read_buf(&mut answers).await {
                Ok(1..) => {}
                _ => break 'all,
            }
        }
        let text = request.text();
        let mut rest = &text[..];
        while !rest.is_empty() {
            let piece = rest.len().min(*sizes.next().unwrap());
            if client.write_all(&rest[..piece]).await.is_err() {
                break 'all;
            }
            rest = &rest[piece..];
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        }
        wanted += 1;
    }
    let _ = client.shutdown().await;
    let _ = client.read_to_end(&mut answers).await;
    served.await.unwrap();
    let seen = seen.lock().unwrap();
    seen.clone()
}

fn count(answers: &[u8]) -> usize {
    memchr::memmem::find_iter(answers, b"6\r\nanswer\r\n0\r\n\r\n").count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn only_request_lines_are_changed(
        requests in prop::collection::vec(sent_request(), 1..6),
        sizes in prop::collection::vec(1_usize..120, 1..5),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let exchange = exchange(&requests, &sizes);
        let seen = runtime.block_on(async {
            tokio::time::timeout(std::time::Duration::from_secs(10), exchange).await
        });
        prop_assert!(seen.is_ok(), "an answer did not come");
        let seen = seen.unwrap();
        prop_assert!(seen.len() <= requests.len(), "{seen:?}");
        for (seen, sent) in seen.iter().zip(&requests) {
            let path = if sent.is_ignored { "/ignored" } else { "" };
            let whole = format!("{path}{}", sent.target);
            let raw = whole.as_bytes();
            let mut encoded = Changes::of(raw);
            encoded.encode(0..raw.len());
            let encoded = encoded.made().unwrap_or_else(|| raw.to_vec());
            prop_assert_eq!(seen.0.as_bytes(), encoded);
            if let Some(body) = &seen.1 {
                prop_assert_eq!(body, sent.body);
            }
        }
        // A client that waits for each response loses none.
        let waits = |one: &SentRequest| {
            !one.is_early && (!one.is_ignored || one.body.is_empty())
        };
        if requests.iter().all(waits) {
            prop_assert_eq!(seen.len(), requests.len());
            for (seen, sent) in seen.iter().zip(&requests) {
                prop_assert!(seen.0.is_ascii(), "{seen:?} {sent:?}");
            }
        }
    }
}
