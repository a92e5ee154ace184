//! Connections that carry several requests: order, reuse and closing.

use crate::wire::{Wire, serve, site, text};

#[test]
fn pipelined_requests_are_answered_in_order() {
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
fn pipelined_requests_are_checked_like_others() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    for first in ["GET", "POST"] {
        let mut wire = Wire::connect(&surus);
        let (length, body) = match first {
            "POST" => ("Content-Length: 1\r\n", "x"),
            _ => ("", ""),
        };
        let chunked = "Transfer-Encoding: chunked\r\n\r\n5;a\0\r\nhello\r\n0\r\n\r\n";
        wire.send(format!(
            "{first} /a HTTP/1.1\r\nHost: a\r\n{length}\r\n{body}\
             GET /b?\" HTTP/1.2\r\nHost: a\r\n\r\n\
             POST /c HTTP/1.1\r\nHost: a\r\n{chunked}"
        ));
        let mut answer = || wire.answer().unwrap();
        assert_eq!(answer().seen("REQUEST_URI"), "/a");
        assert_eq!(answer().seen("REQUEST_URI"), "/b?%22");
        assert_eq!(answer().status, 400);
    }
}

#[test]
fn connection_closes_when_the_client_asks_for_it() {
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
fn responses_without_a_body_send_none() {
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
fn responses_match_their_requests_after_an_error() {
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
fn half_closed_client_counts_as_closed() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    wire.send("GET /?until=go HTTP/1.1\r\nHost: a\r\n\r\n");
    surus.wait_for_log(|log| log.contains("begun"));
    wire.close_sending();
    assert_eq!(
        text(&wire.rest()),
        "",
        "nginx with php-fpm does the same: 499"
    );
    surus.wait_for_log(|log| log.contains(" 499 "));
    std::fs::write(dir.path().join("go"), "").unwrap();
}
