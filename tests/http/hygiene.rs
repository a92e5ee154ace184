//! What is a request and what is not: RFC 9110 and 9112 as a table.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};

use crate::wire::{Wire, serve, site, text};

/// What a request comes to.
enum Comes {
    /// PHP answers, with this body, and the connection goes on in step.
    Through(&'static str),
    /// PHP answers, and the connection is closed.
    ThroughThenClosed(&'static str),
    /// Refused with a status; the connection is closed and nothing of what followed was taken for a
    /// request.
    Refused(u16),
}
use Comes::*;

fn check(cases: &[(&str, String, Comes)]) {
    let dir = site();
    let surus = serve(
        dir.path(),
        &[("max_body_size", "1M"), ("body_timeout", "1s")],
    );
    let mut wrong = Vec::new();
    for (sentence, request, comes) in cases {
        let mut wire = Wire::connect(&surus);
        wire.send(request);
        // What a smuggler would have answered.
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

fn post(headers: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

fn get(headers: &str) -> String {
    format!("GET / HTTP/1.1\r\n{headers}\r\n")
}

#[test]
fn a_bodys_length_has_one_meaning() {
    let hello = "5\r\nhello\r\n0\r\n\r\n";
    let with_length = |value: &str| post(&format!("Content-Length: {value}\r\n"), "hello");
    let with_coding = |value: &str| post(&format!("Transfer-Encoding: {value}\r\n"), hello);
    check(&[
        ("a length", with_length("5"), Through("hello")),
        (
            "a length with leading zeros is digits all the same",
            with_length("0005"),
            Through("hello"),
        ),
        ("chunked", with_coding("chunked"), Through("hello")),
        (
            "codings are compared without case",
            with_coding("CHUNKED"),
            Through("hello"),
        ),
        // RFC 9112, 6.1: MAY be processed by Transfer-Encoding alone, MUST be closed afterwards.
        (
            "length before chunked: chunked counts, and then the end",
            post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", hello),
            ThroughThenClosed("hello"),
        ),
        (
            "chunked before length: the same",
            post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", hello),
            ThroughThenClosed("hello"),
        ),
        (
            "two lengths that differ",
            post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
            Refused(400),
        ),
        // RFC 9112, 6.3: MAY be taken for one.
        (
            "two lengths that agree",
            post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
            Through("hello"),
        ),
        ("a list of lengths", with_length("5, 5"), Refused(400)),
        ("a signed length", with_length("+5"), Refused(400)),
        ("a negative length", with_length("-5"), Refused(400)),
        ("a hexadecimal length", with_length("0x5"), Refused(400)),
        ("an empty length", with_length(""), Refused(400)),
        ("two numbers", with_length("5 5"), Refused(400)),
        (
            "a length beyond 64 bits",
            with_length("18446744073709551621"),
            Refused(400),
        ),
        (
            "chunked that is not the last coding",
            with_coding("chunked, identity"),
            Refused(400),
        ),
        (
            "chunked that is not the last coding, in two lines",
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                hello,
            ),
            Refused(400),
        ),
        (
            "a coding that looks like chunked",
            with_coding("xchunked"),
            Refused(400),
        ),
        ("a quoted coding", with_coding("\"chunked\""), Refused(400)),
        (
            "a coding after a vertical tab",
            with_coding("\x0bchunked"),
            Refused(400),
        ),
        ("no coding", with_coding(""), Refused(400)),
        (
            "a coding that we do not know",
            with_coding("gzip, chunked"),
            Refused(501),
        ),
        (
            "identity, which is no coding any more",
            with_coding("identity, chunked"),
            Refused(501),
        ),
        (
            "chunked twice",
            with_coding("chunked, chunked"),
            Refused(400),
        ),
        (
            "chunked twice, in two lines",
            post(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                hello,
            ),
            Refused(400),
        ),
        (
            "Transfer-Encoding in HTTP/1.0",
            format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{hello}"),
            Refused(400),
        ),
        (
            "a GET may have a body",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello".into(),
            Through("hello"),
        ),
    ]);
}

#[test]
fn chunks_are_sizes_and_bytes_and_nothing_else() {
    let many_trailers = format!("0\r\n{}\r\n", "X: y\r\n".repeat(3000));
    check(&[
        (
            "digits of both cases",
            chunked("A\r\n0123456789\r\n0\r\n\r\n"),
            Through("0123456789"),
        ),
        (
            "leading zeros",
            chunked("0005\r\nhello\r\n0\r\n\r\n"),
            Through("hello"),
        ),
        (
            "extensions are ignored",
            chunked("5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n"),
            Through("hello"),
        ),
        (
            "extensions with spaces",
            chunked("5 ; a = b ; c\r\nhello\r\n0\r\n\r\n"),
            Through("hello"),
        ),
        (
            "a NUL in an extension",
            chunked("5;a\0\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a NUL in the extension of the last chunk",
            chunked("5\r\nhello\r\n0;a=\0\r\n\r\n"),
            Refused(400),
        ),
        (
            "an extension without a name",
            chunked("5;=b\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "an extension that is no token",
            chunked("5;a(b\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a quoted value without an end",
            chunked("5;a=\"b\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "what looks like an extension in a chunk",
            chunked("5\r\n;\0(\"\x01\r\n0\r\n\r\n"),
            Through(";\0(\"\x01"),
        ),
        (
            "but not without end",
            chunked(&format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(20_000))),
            Refused(400),
        ),
        (
            "a bare LF in an extension",
            chunked("5;a=b\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare CR in an extension",
            chunked("5;a=\rb\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "trailers are dropped",
            chunked("5\r\nhello\r\n0\r\nX: y\r\nContent-Length: 9\r\n\r\n"),
            ThroughThenClosed("hello"),
        ),
        ("too many trailers", chunked(&many_trailers), Refused(400)),
        (
            "a trailer without a colon",
            chunked("0\r\nX y\r\n\r\n"),
            Refused(400),
        ),
        (
            "a folded trailer",
            chunked("0\r\nX: y\r\n z\r\n\r\n"),
            Refused(400),
        ),
        (
            "a NUL in a trailer",
            chunked("0\r\nX: \0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a size beyond 64 bits",
            chunked("10000000000000005\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a negative size",
            chunked("-5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a signed size",
            chunked("+5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a size with 0x",
            chunked("0x5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a size that is no number",
            chunked("five\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        ("no size", chunked("\r\nhello\r\n0\r\n\r\n"), Refused(400)),
        (
            "a space before the size",
            chunked(" 5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "two sizes",
            chunked("5 5\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare LF after the size",
            chunked("5\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare CR after the size",
            chunked("5\rhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare LF after the bytes",
            chunked("5\r\nhello\n0\r\n\r\n"),
            Refused(400),
        ),
        (
            "a bare LF after the last size",
            chunked("5\r\nhello\r\n0\n\r\n"),
            Refused(400),
        ),
        (
            "more bytes than the size",
            chunked("4\r\nhello\r\n0\r\n\r\n"),
            Refused(400),
        ),
        // The request that follows is taken for a chunk's size, not for a request.
        (
            "a missing last chunk",
            chunked("5\r\nhello\r\n"),
            Refused(400),
        ),
        // hyper takes what follows these two for trailers; it must never become a request.
        (
            "a bare LF at the end",
            chunked("5\r\nhello\r\n0\r\n\n"),
            ThroughThenClosed("hello"),
        ),
        (
            "a bare LF in a trailer",
            chunked("5\r\nhello\r\n0\r\nX: y\n\r\n"),
            ThroughThenClosed("hello"),
        ),
        (
            "an unannounced body above max_body",
            chunked(&format!(
                "{:x}\r\n{}\r\n0\r\n\r\n",
                2 << 20,
                "x".repeat(2 << 20)
            )),
            Refused(413),
        ),
    ]);
}

#[test]
fn header_lines_are_names_and_values_and_nothing_else() {
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
fn a_request_is_for_one_host() {
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
            "an empty host beside an absolute target",
            target("http://a/", "Host:\r\n"),
            Refused(400),
        ),
        (
            "an empty host in HTTP/1.0",
            "GET / HTTP/1.0\r\nHost: \r\n\r\n".into(),
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
fn a_request_line_is_three_words() {
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
fn an_absolute_targets_authority_is_the_host() {
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
fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
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
    // A client that sends without waiting gets the answer too, not a reset.
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
fn a_body_is_asked_for_where_the_client_waits_to_be_asked() {
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
fn pipelined_requests_are_answered_in_their_order() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    let targets = [
        "/a?sleep=50",
        "/static.txt",
        "/b",
        "/static.txt",
        "/c?status=404",
        "/d",
    ];
    for target in targets {
        wire.send(format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
        ));
    }
    for target in targets {
        let answer = wire.answer().unwrap();
        match target {
            "/static.txt" => assert_eq!(answer.status, 405),
            target => assert_eq!(answer.seen("REQUEST_URI"), target),
        }
    }
}

#[test]
fn a_connection_lasts_as_long_as_the_client_wants() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    for (version, connection, goes_on) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, Close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
    ] {
        for target in ["/", "/static.txt", "/?status=404"] {
            let case = format!("HTTP/{version} {connection:?} {target}");
            let request = format!("GET {target} HTTP/{version}\r\nHost: a\r\n{connection}\r\n");
            let mut wire = Wire::connect(&surus);
            wire.send(&request);
            wire.send(&request);
            assert!(wire.answer().is_some(), "{case}");
            if goes_on {
                assert!(wire.answer().is_some(), "{case}");
            } else {
                assert!(wire.rest().is_empty(), "{case}");
            }
        }
    }
}

#[test]
fn answers_that_have_no_body_have_none() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    for (method, target, status) in [
        ("HEAD", "/", 200),
        ("HEAD", "/static.txt", 200),
        ("HEAD", "/?mib=1", 200),
        ("GET", "/?status=204", 204),
        ("GET", "/?status=304", 304),
        ("HEAD", "/?status=404", 404),
        ("GET", "/", 200),
    ] {
        wire.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = wire.answer_to(method).unwrap();
        assert_eq!(answer.status, status, "{method} {target}");
        if status == 204 {
            assert_eq!(answer.header("content-length"), None);
            assert_eq!(answer.header("transfer-encoding"), None);
        }
    }
}

#[test]
fn answers_stay_in_step_after_an_error() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    for (target, status) in [
        ("/.env", 404),
        ("/?status=500", 500),
        ("/static.txt", 405),
        ("/fine", 200),
    ] {
        wire.send(format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nGET "
        ));
        assert_eq!(wire.answer().unwrap().status, status, "{target}");
    }
}

#[test]
fn a_client_that_closes_its_sending_direction_has_left() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    wire.send("GET /?sleep=2000 HTTP/1.1\r\nHost: a\r\n\r\n");
    surus.wait_for_log(|log| log.contains("begun"));
    wire.close_sending();
    assert_eq!(
        text(&wire.rest()),
        "",
        "nginx with php-fpm does the same: 499"
    );
    surus.wait_for_log(|log| log.contains(" 499 "));
}

#[test]
fn http_2_is_spoken_to_those_who_begin_with_it() {
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
