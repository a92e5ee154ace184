//! HTTP/3 as clients see it.

mod certificates;
pub mod client;
mod faults;
mod limits;
mod shutdown;

use client::{Client, answer, get, request, serve_h3};
use http::header;

use crate::wire::site;

#[tokio::test]
async fn php_sees_http_3() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    for _ in 0..2 {
        let seen = client.get("/index.php?a=b").await;
        assert_eq!(seen.status(), 200);
        for (name, expected) in [
            ("SERVER_PROTOCOL", "HTTP/3.0"),
            ("HTTPS", "on"),
            ("REQUEST_SCHEME", "https"),
            ("HTTP_HOST", "localhost"),
            ("QUERY_STRING", "a=b"),
            ("SSL_PROTOCOL", "TLSv1.3"),
            ("SSL_TLS_SNI", "localhost"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("SERVER_ADDR", "127.0.0.1"),
        ] {
            assert_eq!(seen.seen(name), expected, "{name}");
        }
        assert!(seen.head.headers().contains_key(header::DATE));
    }
    let cookies = request("GET", "/index.php")
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    let seen = client.ask(cookies.body(()).unwrap(), b"").await.unwrap();
    assert_eq!(seen.seen("HTTP_COOKIE"), "a=1; b=2");
    drop(client);
    secure
        .surus
        .wait_for_log(|log| log.contains("\"GET /index.php?a=b HTTP/3.0\" 200 "));
    let handshakes = "surus_tls_handshakes_total{version=\"TLSv1.3\",kind=\"quic\"} ";
    assert_eq!(secure.metric(dir.path(), handshakes), 1);
}

#[tokio::test]
async fn bodies_and_files_arrive_whole() {
    let dir = site();
    let file: Vec<u8> = (0..9_000_001_u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(dir.path().join("large.bin"), &file).unwrap();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    for size in [1, 300_000] {
        let sent = "y".repeat(size);
        let post = request("POST", "/index.php").body(()).unwrap();
        let answer = client.ask(post, sent.as_bytes()).await.unwrap();
        assert!(answer.seen("body") == sent);
        let post = request("POST", "/index.php").header("content-length", size);
        let answer = client.ask(post.body(()).unwrap(), sent.as_bytes()).await;
        let answer = answer.unwrap();
        assert!(answer.seen("body") == sent);
        assert_eq!(answer.seen("CONTENT_LENGTH"), size.to_string());
    }
    assert!(client.get("/large.bin").await.body == file);
    assert_eq!(client.get("/index.php?mib=20").await.body.len(), 20 << 20);
    let head = request("HEAD", "/large.bin").body(()).unwrap();
    let head = client.ask(head, b"").await.unwrap();
    assert_eq!(head.head.headers()[header::CONTENT_LENGTH], "9000001");
    assert!(head.body.is_empty());
    assert_eq!(client.get("/?drip=3").await.body, b"dripdripdrip");
}

#[tokio::test]
async fn requests_of_a_connection_do_not_wait_for_each_other() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[("SURUS_ENGINE_WORKERS", "2")]);
    let mut client = Client::connect(&secure).await;
    let waiting = client.send(get("/?until=go"), b"").await.unwrap();
    for _ in 0..20 {
        assert_eq!(client.get("/index.php").await.status(), 200);
    }
    std::fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(answer(waiting).await.unwrap().status(), 200);
}

#[tokio::test]
async fn early_hints_are_sent_before_the_response() {
    let dir = site();
    let script = "<?php header('Link: </a.css>; rel=preload'); headers_send(103); echo 'done';";
    std::fs::write(dir.path().join("hints.php"), script).unwrap();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    for _ in 0..2 {
        let mut stream = client.send(get("/hints.php"), b"").await.unwrap();
        let hints = stream.recv_response().await.unwrap();
        assert_eq!(hints.status(), 103);
        assert_eq!(hints.headers()[header::LINK], "</a.css>; rel=preload");
        assert_eq!(answer(stream).await.unwrap().body, b"done");
    }
}

#[test]
fn tls_responses_offer_http_3_only_if_it_is_on() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let port = secure.address.rsplit(':').next().unwrap();
    let offer = format!("alt-svc: h3=\":{port}\"; ma=86400");
    for version in ["--http1.1", "--http2"] {
        let head = secure.curl(dir.path(), &[version, "--head"], "/index.php");
        assert!(head.to_lowercase().contains(&offer), "{head}");
    }
    let get = "GET /index.php HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let plain = crate::wire::Wire::connect(&secure.surus).ask(get).unwrap();
    assert_eq!(plain.header("alt-svc"), None);
    drop(secure);
    let secure = crate::tls::serve(dir.path(), &[]);
    let answer = secure.connect().ask(get).unwrap();
    assert_eq!(answer.header("alt-svc"), None);
}

#[test]
fn rule_can_remove_the_headers_of_tls() {
    let dir = site();
    let rules = "[tls]\nhsts = 'max-age=300'\n[[route]]\nprefix = '/static.txt'\n\
        headers = { Alt-Svc = '', Strict-Transport-Security = '' }\n";
    std::fs::write(dir.path().join("surus.toml"), rules).unwrap();
    let secure = serve_h3(dir.path(), &[]);
    for (path, are_there) in [("/index.php", true), ("/static.txt", false)] {
        let get = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = secure.connect().ask(&get).unwrap();
        assert_eq!(answer.status, 200, "{path}");
        for name in ["alt-svc", "strict-transport-security"] {
            assert_eq!(answer.header(name).is_some(), are_there, "{path}: {name}");
        }
    }
}

#[test]
fn http_3_without_tls_or_with_the_proxy_protocol_stops_the_start() {
    let dir = site();
    let h3 = ("SURUS_HTTP_H3", "true");
    let log = crate::common::Surus::spawn(dir.path(), &[], &[h3]).err();
    let log = log.unwrap();
    assert!(log.contains("http.h3 is on but HTTP/3 needs TLS"), "{log}");
    let env = [
        h3,
        ("SURUS_TLS_LISTEN", "127.0.0.1:0"),
        ("SURUS_HTTP_PROXY_PROTOCOL", "true"),
        ("SURUS_HTTP_TRUSTED_PROXIES", "127.0.0.1"),
    ];
    let log = crate::common::Surus::spawn(dir.path(), &[], &env).err();
    let log = log.unwrap();
    assert!(log.contains("http.h3 and http.proxy_protocol"), "{log}");
}

/// Anyone can send packets in the name of any address, and the first one may be a whole request.
#[tokio::test]
async fn address_of_the_client_is_the_one_of_its_handshake() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    let address =
        |answer: &client::Answer| (answer.seen("REMOTE_ADDR"), answer.seen("REMOTE_PORT"));
    let before = address(&client.get("/index.php").await);
    assert_eq!(before.0, "127.0.0.1");
    // The connection continues from there.
    let other = std::net::UdpSocket::bind("127.0.0.66:0").unwrap();
    client.endpoint.rebind(other).unwrap();
    for _ in 0..2 {
        assert_eq!(address(&client.get("/index.php").await), before);
    }
}
