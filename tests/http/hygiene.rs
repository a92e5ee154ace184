//! Tests which requests are accepted and how connections continue: RFC 9110 and 9112 as a table.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};

use crate::wire::{Wire, serve, site, text};

/// The expected outcome of a request.
pub enum Comes {
    /// PHP responds with this body, and the connection continues.
    Through(&'static str),
    /// PHP responds, and the connection is closed.
    ThroughThenClosed(&'static str),
    /// Rejected with a status; the connection is closed, and what followed was not taken for a
    /// request.
    Refused(u16),
}
use Comes::*;

pub fn check(cases: &[(&str, String, Comes)]) {
    let dir = site();
    let surus = serve(
        dir.path(),
        &[("max_body_size", "1M"), ("body_timeout", "1s")],
    );
    let mut wrong = Vec::new();
    for (sentence, request, comes) in cases {
        let mut wire = Wire::connect(&surus);
        wire.send(request);
        // A smuggled request.
        wire.send("GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let first = wire.answer();
        let status = first.as_ref().map(|answer| answer.status);
        let rest = text(&wire.rest());
        let (wanted, goes_on) = match comes {
            Through(_) => (200, true),
            ThroughThenClosed(_) => (200, false),
            Refused(status) => (*status, false),
        };
        if status != Some(wanted) {
            wrong.push(format!(
                "{sentence}: {status:?} instead of {wanted}: {first:?}"
            ));
            continue;
        }
        if let (Through(body) | ThroughThenClosed(body), Some(answer)) = (comes, &first)
            && answer.seen("body") != *body
        {
            wrong.push(format!("{sentence}: body {:?}", answer.seen("body")));
        }
        if rest.contains("/smuggled") != goes_on || (!goes_on && !rest.is_empty()) {
            wrong.push(format!("{sentence}: afterwards came {rest:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub fn post(headers: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}")
}

pub fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

fn get(headers: &str) -> String {
    format!("GET / HTTP/1.1\r\n{headers}\r\n")
}

#[test]
fn malformed_header_lines_are_rejected() {
    let with = |line: &str| get(&format!("Host: a\r\n{line}\r\n"));
    let many = format!("Host: a\r\n{}", "X: y\r\n".repeat(200));
    check(&[
        ("a header", with("X: y"), Through("")),
        (
            "bytes above 127 are a value's own business",
            with("X: \u{e9}"),
            Through(""),
        ),
        ("a folded line", with("X: y\r\n z"), Refused(400)),
        ("a folded first line", get(" Host: a\r\n"), Refused(400)),
        ("a space before the colon", with("X : y"), Refused(400)),
        ("a tab before the colon", with("X\t: y"), Refused(400)),
        ("no colon", with("X"), Refused(400)),
        ("no name", with(": y"), Refused(400)),
        ("a name that is no token", with("X(: y"), Refused(400)),
        ("a bare CR in a value", with("X: y\rZ: 1"), Refused(400)),
        (
            "a bare CR at the end of a value",
            with("X: y\r"),
            Refused(400),
        ),
        ("a NUL in a value", with("X: y\0z"), Refused(400)),
        ("a NUL in a name", with("X\0: y"), Refused(400)),
        (
            "another control character in a value",
            with("X: y\x01z"),
            Refused(400),
        ),
        // RFC 9112, 2.2: a recipient MAY recognize a single LF as a line terminator. hyper does, as
        // nginx does.
        (
            "bare LFs end lines",
            "GET / HTTP/1.1\nHost: a\n\n".into(),
            Through(""),
        ),
        ("more headers than max_headers", get(&many), Refused(431)),
        (
            "a head larger than max_header_size",
            with(&format!("X: {}", "y".repeat(40_000))),
            Refused(431),
        ),
        (
            "a head that never ends",
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(70_000)),
            Refused(431),
        ),
    ]);
}

#[test]
fn request_without_exactly_one_host_is_rejected() {
    let target = |target: &str, headers: &str| format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
    let host = |host: &str| get(&format!("Host: {host}\r\n"));
    check(&[
        ("a name and a port", host("a.example:80"), Through("")),
        ("an IPv6 address and a port", host("[::1]:80"), Through("")),
        (
            "an empty host, which no http URI has",
            host(""),
            Refused(400),
        ),
        (
            "an empty host with an absolute target",
            target("http://a/", "Host:\r\n"),
            Refused(400),
        ),
        (
            "an empty host in HTTP/1.0",
            "GET / HTTP/1.0\r\nHost: \r\n\r\n".into(),
            Refused(400),
        ),
        ("a port without a host", host(":80"), Refused(400)),
        ("a colon without a host", host(":"), Refused(400)),
        (
            "an absolute target without a host",
            target("http://:80/", "Host: a\r\n"),
            Refused(400),
        ),
        ("none in HTTP/1.1", get(""), Refused(400)),
        (
            "none in HTTP/1.0",
            "GET / HTTP/1.0\r\n\r\n".into(),
            ThroughThenClosed(""),
        ),
        ("two", get("Host: a\r\nHost: a\r\n"), Refused(400)),
        ("a space", host("a b"), Refused(400)),
        ("a slash", host("a/b"), Refused(400)),
        ("a user", host("u@a"), Refused(400)),
        ("a port that is no number", host("a:b"), Refused(400)),
        ("two ports", host("a:80:80"), Refused(400)),
        ("a bracket that is not closed", host("[::1"), Refused(400)),
        ("a percent that encodes nothing", host("a%zz"), Refused(400)),
        (
            "an absolute target",
            target("http://a/", "Host: a\r\n"),
            Through(""),
        ),
        (
            "an absolute target needs a Host nevertheless",
            target("http://a/", ""),
            Refused(400),
        ),
        (
            "an absolute target with a user",
            target("http://u:p@a/", "Host: a\r\n"),
            Refused(400),
        ),
        (
            "an absolute target of another scheme",
            target("ftp://a/", "Host: a\r\n"),
            Refused(400),
        ),
        (
            "an asterisk is for OPTIONS",
            target("*", "Host: a\r\n"),
            Refused(400),
        ),
        (
            "an authority is for CONNECT",
            target("a:80", "Host: a\r\n"),
            Refused(400),
        ),
        (
            "CONNECT",
            "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".into(),
            Refused(405),
        ),
    ]);
}

#[test]
fn malformed_request_line_is_rejected() {
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n");
    check(&[
        (
            "a method in small letters is another method",
            line("get / HTTP/1.1"),
            Through(""),
        ),
        (
            "an empty line before it is ignored",
            line("\r\nGET / HTTP/1.1"),
            Through(""),
        ),
        (
            "a TLS hello",
            "\x16\x03\x01\x02\0\x01\0\r\n\r\n".into(),
            Refused(400),
        ),
        ("HTTP/0.9", "GET /\r\n".into(), Refused(400)),
        (
            "HTTP/1.2, which is answered as 1.1",
            line("GET / HTTP/1.2"),
            Through(""),
        ),
        ("HTTP/1.10", line("GET / HTTP/1.10"), Refused(400)),
        ("HTTP/1.", line("GET / HTTP/1."), Refused(400)),
        (
            "HTTP/2.0 without its preface",
            line("GET / HTTP/2.0"),
            Refused(400),
        ),
        (
            "a protocol in small letters",
            line("GET / http/1.1"),
            Refused(400),
        ),
        ("two spaces", line("GET  / HTTP/1.1"), Refused(400)),
        ("a tab", line("GET\t/ HTTP/1.1"), Refused(400)),
        (
            "a space in the target",
            line("GET /a b HTTP/1.1"),
            Refused(400),
        ),
        ("a space at the end", line("GET / HTTP/1.1 "), Refused(400)),
        (
            "a space at the beginning",
            line(" GET / HTTP/1.1"),
            Refused(400),
        ),
        (
            "a method that is no token",
            line("G(T / HTTP/1.1"),
            Refused(400),
        ),
        (
            "a NUL in the target",
            line("GET /\0 HTTP/1.1"),
            Refused(400),
        ),
        (
            "UTF-8 in the target is PHP's business",
            line("GET /\u{e9} HTTP/1.1"),
            Through(""),
        ),
        (
            "a target that is no path",
            line("GET a/b HTTP/1.1"),
            Refused(400),
        ),
        (
            "a method longer than any",
            line(&format!("{} / HTTP/1.1", "A".repeat(1000))),
            Refused(501),
        ),
        (
            "a target longer than max_uri",
            line(&format!("GET /{} HTTP/1.1", "a".repeat(9000))),
            Refused(414),
        ),
        (
            "a target longer than max_header_size",
            line(&format!("GET /{} HTTP/1.1", "a".repeat(90_000))),
            Refused(414),
        ),
        (
            "a target that never ends",
            format!("GET /{}", "a".repeat(90_000)),
            Refused(414),
        ),
    ]);
}

#[test]
fn absolute_target_replaces_the_host_header() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    let answer = wire
        .ask("GET http://b.example:81/x?y HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert_eq!(answer.seen("HTTP_HOST"), "b.example:81");
    assert_eq!(answer.seen("REQUEST_URI"), "/x?y");
    let answer = wire
        .ask("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert_eq!(answer.status, 421);
    assert_eq!(
        wire.ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap()
            .status,
        204
    );
}

#[test]
fn announced_body_over_the_limit_is_rejected_before_it_is_sent() {
    let dir = site();
    let surus = serve(dir.path(), &[("max_body_size", "1M")]);
    let announced = 64 << 20;
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut wire = Wire::connect(&surus);
        wire.send(post(
            &format!("Content-Length: {announced}\r\n{expect}"),
            "",
        ));
        let answer = wire.answer().unwrap();
        assert_eq!(answer.status, 413, "and no 100 before it");
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(wire.rest().is_empty());
    }
    // A client that sends without waiting gets the response, too, not a reset.
    let mut wire = Wire::connect(&surus);
    wire.send(post(&format!("Content-Length: {announced}\r\n"), ""));
    for _ in 0..64 {
        if !wire.send(vec![b'x'; 1 << 20]) {
            break;
        }
    }
    assert_eq!(wire.answer().unwrap().status, 413);
}

#[test]
fn expect_100_continue_gets_100_before_the_body() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    for _ in 0..2 {
        let head = post("Content-Length: 5\r\nExpect: 100-Continue\r\n", "");
        assert_eq!(wire.ask(&head).unwrap().status, 100);
        let answer = wire.ask("hello").unwrap();
        assert_eq!(
            (answer.status, answer.seen("body").as_str()),
            (200, "hello")
        );
    }
}

#[test]
fn http_2_preface_starts_http_2() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(&surus.address)
            .await
            .unwrap();
        let (mut client, connection) = hyper::client::conn::http2::handshake(
            hyper_util::rt::TokioExecutor::new(),
            hyper_util::rt::TokioIo::new(stream),
        )
        .await
        .unwrap();
        tokio::spawn(connection);
        let mut with = |uri: &str, header: Option<(&str, &str)>| {
            let mut request = http::Request::get(uri);
            if let Some((name, value)) = header {
                request = request.header(name, value);
            }
            client.send_request(request.body(Empty::<Bytes>::new()).unwrap())
        };
        for padded in [" x", "x ", "\tx", "x\t", " "] {
            let answer = with("http://a.example/", Some(("x-padded", padded))).await;
            assert_eq!(answer.unwrap().status(), 400, "{padded:?}");
        }
        let answer = with("http://a.example/", Some(("x-inner", "a b\tc"))).await;
        assert_eq!(answer.unwrap().status(), 200);
        let mut ask = |uri: &str, host: Option<&'static str>| with(uri, host.map(|h| ("host", h)));
        let answer = ask("http://a.example:81/x", None).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let seen: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(seen["HTTP_HOST"], "a.example:81");
        assert_eq!(seen["SERVER_PROTOCOL"], "HTTP/2.0");
        let answer = ask("http://a.example/", Some("b.example")).await.unwrap();
        assert_eq!(answer.status(), 400, "Host is not :authority");
        let answer = ask("https://a.example/", None).await.unwrap();
        assert_eq!(answer.status(), 421);
    });
}
