//! Tests requests and responses over TLS.

use std::io::{Read, Write};

use rustls::version::{TLS12, TLS13};

use super::serve;
use crate::common::Surus;
use crate::wire::{Wire, site, text};

const GET: &str = "GET /index.php HTTP/1.1\r\nHost: localhost:8443\r\n\r\n";

#[test]
fn php_sees_an_encrypted_connection() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    for (versions, protocol, cipher) in [
        (&[&TLS13], "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        (&[&TLS12], "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ] {
        let client = secure.client_for("localhost", secure.config(versions));
        let mut wire = secure.connect_by(client);
        for _ in 0..2 {
            let answer = wire.ask(GET).unwrap();
            for (name, expected) in [
                ("HTTPS", "on"),
                ("REQUEST_SCHEME", "https"),
                ("SERVER_NAME", "localhost"),
                ("SERVER_PORT", "8443"),
                ("SSL_PROTOCOL", protocol),
                ("SSL_CIPHER", cipher),
                ("SSL_CIPHER_USEKEYSIZE", "256"),
                ("SSL_TLS_SNI", "localhost"),
                ("SSL_SESSION_RESUMED", "Initial"),
                ("SSL_CLIENT_VERIFY", "null"),
                ("REMOTE_ADDR", "127.0.0.1"),
            ] {
                assert_eq!(answer.seen(name), expected, "{protocol} {name}");
            }
        }
    }
    let plain = Wire::connect(&secure.surus).ask(GET).unwrap();
    for name in ["HTTPS", "SSL_PROTOCOL"] {
        assert_eq!(plain.seen(name), "null", "{name}");
    }
}

#[test]
fn bodies_and_files_arrive_whole() {
    let dir = site();
    let file: Vec<u8> = (0..9_000_001_u32).map(|at| (at * 7 % 251) as u8).collect();
    std::fs::write(dir.path().join("large.bin"), &file).unwrap();
    let secure = serve(dir.path(), &[]);
    let mut wire = secure.connect();
    let get = |path: &str, header: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n")
    };
    for _ in 0..2 {
        assert_eq!(wire.ask(&get("/static.txt", "")).unwrap().body, b"static");
        let whole = wire.ask(&get("/large.bin", "")).unwrap();
        assert!(whole.body == file);
        let part = wire
            .ask(&get("/large.bin", "Range: bytes=70000-8000000\r\n"))
            .unwrap();
        assert_eq!(part.status, 206);
        assert!(part.body == file[70000..=8_000_000]);
        let generated = wire.ask(&get("/index.php?mib=20", "")).unwrap();
        assert_eq!(generated.body.len(), 20 << 20);
        let sent = "y".repeat(300_000);
        let post = format!(
            "POST /index.php HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{sent}",
            sent.len()
        );
        assert_eq!(wire.ask(&post).unwrap().seen("body"), sent);
    }
}

#[test]
fn curl_speaks_http_2_and_http_1_by_alpn() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let show = ["--write-out", "\n%{http_version} %{ssl_verify_result}"];
    for (option, version, protocol) in [
        ("--http2", "2 0", "HTTP/2.0"),
        ("--http1.1", "1.1 0", "HTTP/1.1"),
        ("--no-alpn", "1.1 0", "HTTP/1.1"),
    ] {
        let printed = secure.curl(dir.path(), &[&[option], &show[..]].concat(), "/index.php");
        let (body, seen) = printed.rsplit_once('\n').unwrap();
        assert_eq!(seen, version, "{option}");
        let php: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(php["SERVER_PROTOCOL"], protocol);
        assert_eq!(php["HTTPS"], "on");
        assert_eq!(php["SSL_PROTOCOL"], "TLSv1.3");
    }
    let upload = dir.path().join("upload");
    std::fs::write(&upload, "z".repeat(3_000_000)).unwrap();
    let data = format!("@{}", upload.display());
    let printed = secure.curl(
        dir.path(),
        &["--http2", "--data-binary", &data],
        "/index.php",
    );
    let php: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(php["body"].as_str().unwrap().len(), 3_000_000);
}

#[test]
fn http_2_must_be_selected_and_then_spoken() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // Not selected: no HTTP/1 request either.
    let mut wire = secure.connect();
    wire.send(preface);
    assert!(!text(&wire.rest()).contains("200"));
    let mut config = secure.config(rustls::DEFAULT_VERSIONS);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut wire = secure.connect_by(secure.client_for("localhost", config));
    wire.send(GET);
    assert_eq!(text(&wire.rest()), "");
    let mut config = secure.config(rustls::DEFAULT_VERSIONS);
    config.alpn_protocols = vec![b"spdy/3".to_vec()];
    let mut client = secure.client_for("localhost", config);
    let refused = client.complete_io(&mut secure.socket()).unwrap_err();
    assert!(
        refused.to_string().contains("NoApplicationProtocol"),
        "{refused}"
    );
}

#[test]
fn early_hints_are_sent_before_the_response() {
    let dir = site();
    let script = "<?php header('Link: </a.css>; rel=preload'); headers_send(103); echo 'done';";
    std::fs::write(dir.path().join("hints.php"), script).unwrap();
    let secure = serve(dir.path(), &[]);
    let mut wire = secure.connect();
    for _ in 0..2 {
        let hints = wire
            .ask("GET /hints.php HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap();
        assert_eq!(hints.status, 103);
        assert_eq!(hints.header("link"), Some("</a.css>; rel=preload"));
        assert_eq!(wire.answer().unwrap().body, b"done");
    }
}

#[test]
fn incomplete_body_does_not_reach_php() {
    let dir = site();
    let marker = "<?php file_put_contents(__DIR__ . '/ran', '1');";
    std::fs::write(dir.path().join("mark.php"), marker).unwrap();
    let secure = serve(dir.path(), &[]);
    let post = "POST /mark.php HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf";
    // The socket is closed without a close_notify, as an attacker in between would do.
    let mut wire = secure.connect();
    wire.send(post);
    wire.close_sending();
    wire.rest();
    // And in the middle of a record.
    let mut client = secure.client();
    let mut socket = secure.socket();
    client.complete_io(&mut socket).unwrap();
    client.writer().write_all(post.as_bytes()).unwrap();
    let mut record = Vec::new();
    client.write_tls(&mut record).unwrap();
    socket.write_all(&record[..record.len() - 1]).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = socket.read_to_end(&mut Vec::new());
    assert_eq!(secure.connect().ask(GET).unwrap().status, 200);
    assert!(!dir.path().join("ran").exists());
}

/// `Wire` fails if the end comes without one.
#[test]
fn last_response_is_followed_by_close_notify() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let mut wire = secure.connect();
    let closing = GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    assert_eq!(wire.ask(&closing).unwrap().status, 200);
    assert_eq!(wire.rest(), b"");
}

#[test]
fn client_that_does_not_read_is_disconnected() {
    let dir = site();
    let env = [
        ("SURUS_HTTP_SEND_TIMEOUT", "500ms"),
        ("SURUS_HTTP_MAX_RESPONSE_BUFFER", "0"),
    ];
    let secure = serve(dir.path(), &env);
    let mut wire = secure.connect();
    wire.send("GET /index.php?mib=100 HTTP/1.1\r\nHost: a\r\n\r\n");
    wire.begins();
    // There is one worker: when this is answered, the stalled request has been aborted.
    assert_eq!(secure.connect().ask(GET).unwrap().status, 200);
}

#[test]
fn request_in_flight_is_answered_during_shutdown() {
    let dir = site();
    let secure = serve(dir.path(), &[]);
    let mut wire = secure.connect();
    wire.send("GET /index.php?sleep=1000 HTTP/1.1\r\nHost: a\r\n\r\n");
    secure.surus.wait_for_log(|log| log.contains("begun"));
    secure.surus.signal("TERM");
    assert_eq!(wire.answer().unwrap().status, 200);
}

#[test]
fn idle_connection_is_closed_and_resumed_reading() {
    let dir = site();
    // On a busy machine a request may come too late.
    let closed = ["1s", "8s", "50s"].into_iter().any(|keep_alive| {
        let env = [
            ("SURUS_HTTP_KEEP_ALIVE_TIMEOUT", keep_alive),
            // Idle connections free their buffers after a quarter of the shortest timeout.
            ("SURUS_HTTP_SEND_TIMEOUT", "1s"),
        ];
        let secure = serve(dir.path(), &env);
        let mut wire = secure.connect();
        for _ in 0..2 {
            let Some(answer) = wire.ask(GET) else {
                return false;
            };
            assert_eq!(answer.status, 200);
            std::thread::sleep(std::time::Duration::from_millis(600));
        }
        assert_eq!(wire.rest(), b"");
        true
    });
    assert!(closed);
}

#[test]
fn proxy_header_precedes_tls() {
    let dir = site();
    let env = [
        ("SURUS_HTTP_PROXY_PROTOCOL", "true"),
        ("SURUS_HTTP_TRUSTED_PROXIES", "127.0.0.1"),
    ];
    let secure = serve(dir.path(), &env);
    let mut socket = secure.socket();
    // In one packet with the beginning of TLS, and alone.
    for is_together in [true, false] {
        let mut client = secure.client();
        let mut hello = b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 443\r\n".to_vec();
        if is_together {
            client.write_tls(&mut hello).unwrap();
        }
        socket.write_all(&hello).unwrap();
        let mut wire = Wire::over(rustls::StreamOwned::new(client, socket));
        let answer = wire.ask(GET).unwrap();
        assert_eq!(answer.seen("REMOTE_ADDR"), "192.0.2.1");
        assert_eq!(answer.seen("HTTPS"), "on");
        socket = secure.socket();
    }
}

#[test]
fn plain_request_is_redirected_and_https_sets_hsts() {
    let dir = site();
    let env = [
        ("SURUS_HTTP_REDIRECT_TO_HTTPS", "true"),
        ("SURUS_TLS_HSTS", "max-age=300; includeSubDomains"),
    ];
    let secure = serve(dir.path(), &env);
    let ask = |head: &str| Wire::connect(&secure.surus).ask(head).unwrap();
    let get = ask("GET /a?b=%20c HTTP/1.1\r\nHost: example.org:8080\r\n\r\n");
    assert_eq!(get.status, 301);
    assert_eq!(get.header("location"), Some("https://example.org/a?b=%20c"));
    assert_eq!(get.header("strict-transport-security"), None);
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(ask(post).status, 308);
    assert_eq!(ask("GET / HTTP/1.0\r\n\r\n").status, 400);
    let answer = secure.connect().ask(GET).unwrap();
    assert_eq!(answer.status, 200);
    let hsts = answer.header("strict-transport-security");
    assert_eq!(hsts, Some("max-age=300; includeSubDomains"));
}

/// A proxy says that the client's connection is encrypted.
#[test]
fn redirect_trusts_the_proxy_about_tls() {
    let dir = site();
    let env = [
        ("SURUS_HTTP_REDIRECT_TO_HTTPS", "true"),
        ("SURUS_HTTP_TRUSTED_PROXIES", "127.0.0.1"),
        ("SURUS_ENGINE_WORKERS", "1"),
    ];
    let surus = Surus::spawn(dir.path(), &[], &env).unwrap();
    let ask = |scheme: &str| {
        let headers = format!("X-Forwarded-Proto: {scheme}\r\nX-Forwarded-Host: shop.example");
        let request = format!("GET /index.php HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n");
        Wire::connect(&surus).ask(&request).unwrap()
    };
    assert_eq!(ask("https").status, 200);
    let redirected = ask("http");
    assert_eq!(
        redirected.header("location"),
        Some("https://shop.example/index.php")
    );
}
