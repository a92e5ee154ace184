//! Tests the client's address in PHP, with and without proxies.

use std::path::Path;

use crate::common::Surus;
use crate::wire::{Answer, Wire, serve, site};

const FORWARDED: &str = "X-Forwarded-For: 198.51.100.9, 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\
                         X-Forwarded-Host: shop.example\r\n";

fn ask(surus: &Surus, before: &[u8], headers: &str) -> Answer {
    let mut wire = Wire::connect(surus);
    wire.send(before);
    wire.ask(&format!("GET / HTTP/1.1\r\nHost: inner\r\n{headers}\r\n"))
        .expect("an answer")
}

fn seen(answer: &Answer) -> [String; 5] {
    [
        "REMOTE_ADDR",
        "HTTPS",
        "HTTP_HOST",
        "SERVER_NAME",
        "REQUEST_SCHEME",
    ]
    .map(|name| answer.seen(name))
}

#[test]
fn trusted_proxy_headers_set_the_client_address() {
    let dir = site();
    let surus = serve(dir.path(), &[("trusted_proxies", "127.0.0.0/8")]);
    let answer = ask(&surus, b"", FORWARDED);
    let expected = ["192.0.2.7", "on", "shop.example", "shop.example", "https"];
    assert_eq!(seen(&answer), expected);
    assert_eq!(answer.seen("SERVER_PORT"), "443");
    let with_port = FORWARDED.replace("shop.example", "shop.example:8443");
    assert_eq!(ask(&surus, b"", &with_port).seen("SERVER_PORT"), "8443");
    let nonsense = FORWARDED.replace("shop.example", "shop example/");
    assert_eq!(ask(&surus, b"", &nonsense).seen("HTTP_HOST"), "inner");
}

#[test]
fn htaccess_rules_see_the_host_that_a_trusted_proxy_names() {
    let dir = site();
    let rules = "RewriteEngine on\nRewriteCond %{HTTP_HOST} ^shop\nRewriteRule ^ - [F]\n";
    std::fs::write(dir.path().join(".htaccess"), rules).unwrap();
    for (trusted, status) in [("127.0.0.0/8", 403), ("10.0.0.0/8", 200)] {
        let surus = serve(dir.path(), &[("trusted_proxies", trusted)]);
        assert_eq!(ask(&surus, b"", FORWARDED).status, status, "{trusted}");
    }
}

#[test]
fn htaccess_redirect_to_https_ends_behind_a_trusted_proxy() {
    let dir = site();
    let rules = "RewriteEngine on\nRewriteCond %{SERVER_PORT} !^443$\n\
                 RewriteRule ^ https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]\n";
    std::fs::write(dir.path().join(".htaccess"), rules).unwrap();
    let surus = serve(dir.path(), &[("trusted_proxies", "127.0.0.0/8")]);
    for (headers, status) in [("", 301), (FORWARDED, 200)] {
        assert_eq!(ask(&surus, b"", headers).status, status, "{headers}");
    }
}

#[test]
fn untrusted_proxy_headers_are_ignored() {
    let dir = site();
    for trusted in [&[][..], &[("trusted_proxies", "10.0.0.0/8")]] {
        let surus = serve(dir.path(), trusted);
        let answer = ask(&surus, b"", FORWARDED);
        let expected = ["127.0.0.1", "null", "inner", "inner", "http"];
        assert_eq!(seen(&answer), expected);
        let port = surus.address.rsplit(':').next().unwrap();
        assert_eq!(answer.seen("SERVER_PORT"), port);
    }
}

/// nginx in front of a unix socket, which is trusted as `unix` and by no network.
#[test]
fn proxy_on_a_unix_socket_is_trusted_if_configured() {
    use std::io::{Read, Write};
    for (trusted, client, port) in [("unix", "192.0.2.7", "443"), ("10.0.0.0/8", "", "80")] {
        let dir = site();
        // A rule and PHP see the same port.
        let rules = format!(
            "RewriteEngine on\nRewriteCond %{{SERVER_PORT}} !^{port}$\nRewriteRule ^ - [F]\n"
        );
        std::fs::write(dir.path().join(".htaccess"), rules).unwrap();
        let socket = dir.path().join("http.sock");
        let listen = format!("unix:{}", socket.display());
        let env = [
            ("SURUS_HTTP_TRUSTED_PROXIES", trusted),
            ("SURUS_ENGINE_WORKERS", "1"),
        ];
        let _surus = Surus::spawn(dir.path(), &["--listen", &listen], &env).unwrap();
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        let ask = format!("GET / HTTP/1.1\r\nHost: inner\r\nConnection: close\r\n{FORWARDED}\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        for (name, value) in [("REMOTE_ADDR", client), ("SERVER_PORT", port)] {
            let seen = format!("\"{name}\":\"{value}\"");
            assert!(answer.contains(&seen), "{trusted}: {answer}");
        }
    }
}

const BEHIND_A_BALANCER: [(&str, &str); 2] = [
    ("proxy_protocol", "true"),
    ("trusted_proxies", "127.0.0.0/8"),
];

fn behind_a_balancer(dir: &Path) -> Surus {
    serve(dir, &BEHIND_A_BALANCER)
}

fn version_2(tls: bool) -> Vec<u8> {
    let client: std::net::SocketAddr = "[2001:db8::1]:4711".parse().unwrap();
    let server: std::net::SocketAddr = "[2001:db8::2]:443".parse().unwrap();
    ppp::v2::Builder::with_addresses(
        ppp::v2::Version::Two | ppp::v2::Command::Proxy,
        ppp::v2::Protocol::Stream,
        (client, server),
    )
    .write_tlv(ppp::v2::Type::SSL, &[u8::from(tls), 0, 0, 0, 0])
    .unwrap()
    .build()
    .unwrap()
}

#[test]
fn proxy_protocol_header_sets_the_client_address() {
    let dir = site();
    let surus = behind_a_balancer(dir.path());
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 8443\r\n";
    let answer = ask(&surus, line, "");
    assert_eq!(answer.seen("REMOTE_ADDR"), "192.0.2.1");
    assert_eq!(answer.seen("REMOTE_PORT"), "4711");
    assert_eq!(answer.seen("SERVER_ADDR"), "198.51.100.2");
    assert_eq!(answer.seen("SERVER_PORT"), "8443");
    assert_eq!(answer.seen("HTTPS"), "null");
    let answer = ask(&surus, line, FORWARDED);
    assert_eq!(
        answer.seen("REMOTE_ADDR"),
        "192.0.2.1",
        "the client is no trusted proxy"
    );

    let answer = ask(&surus, &version_2(true), "");
    assert_eq!(answer.seen("REMOTE_ADDR"), "2001:db8::1");
    assert_eq!(answer.seen("HTTPS"), "on");
    assert_eq!(ask(&surus, &version_2(false), "").seen("HTTPS"), "null");

    for own in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        assert_eq!(ask(&surus, own, "").seen("REMOTE_ADDR"), "127.0.0.1");
    }
}

#[test]
fn proxy_protocol_header_in_pieces_counts_for_the_whole_connection() {
    let dir = site();
    let surus = behind_a_balancer(dir.path());
    let mut wire = Wire::connect(&surus);
    for byte in version_2(true) {
        wire.send([byte]);
    }
    for _ in 0..3 {
        let answer = wire.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(answer.seen("REMOTE_ADDR"), "2001:db8::1");
    }
}

#[test]
fn connection_with_an_invalid_proxy_protocol_header_is_closed() {
    let dir = site();
    let timeout = [("header_timeout", "1s")];
    let surus = serve(dir.path(), &[&BEHIND_A_BALANCER[..], &timeout].concat());
    for wrong in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"PROXY TCP4 192.0.2.1 198.51.100.2 4711 99999\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PROXY TCP4 192.0.2.1",
        b"",
    ] {
        let mut wire = Wire::connect(&surus);
        wire.send(wrong);
        assert!(wire.rest().is_empty(), "{wrong:?}");
    }
}

#[test]
fn proxy_protocol_of_an_untrusted_peer_is_rejected() {
    let dir = site();
    let settings = [
        ("proxy_protocol", "true"),
        ("trusted_proxies", "10.0.0.0/8"),
    ];
    let surus = serve(dir.path(), &settings);
    let mut wire = Wire::connect(&surus);
    wire.send("PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wire.rest().is_empty());
    surus.wait_for_log(|log| log.contains("http.trusted_proxies"));
}
