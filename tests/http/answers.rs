//! Tests responses byte by byte.

use crate::wire::{Wire, serve, site};

#[test]
fn http_1_0_body_of_unknown_length_ends_with_the_connection() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let ask = |wire: &mut Wire, target: &str| {
        wire.ask(&format!(
            "GET {target} HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n"
        ))
        .unwrap()
    };
    let mut wire = Wire::connect(&surus);
    for _ in 0..2 {
        let known = ask(&mut wire, "/");
        assert_eq!(known.header("connection"), Some("keep-alive"), "{known:?}");
    }
    let unknown = ask(&mut wire, "/?mib=2");
    assert_eq!(unknown.header("connection"), Some("close"), "{unknown:?}");
    assert_eq!(unknown.body.len(), 2 << 20);
}

#[test]
fn status_without_a_name_gets_no_reason_phrase() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    for status in [420, 599] {
        let answer = wire
            .ask(&format!(
                "GET /?status={status} HTTP/1.1\r\nHost: a\r\n\r\n"
            ))
            .unwrap();
        let line = answer.head.lines().next().unwrap();
        assert_eq!(line, format!("HTTP/1.1 {status} "));
    }
}

#[test]
fn more_headers_than_php_accepts_get_431() {
    let dir = site();
    let surus = serve(
        dir.path(),
        &[("max_headers", "5000"), ("max_header_size", "1M")],
    );
    let many: String = (0..1500).map(|n| format!("X-{n}: x\r\n")).collect();
    let long = format!("X: {}\r\n", "x".repeat(80_000));
    for headers in [many, long] {
        let answer = Wire::connect(&surus)
            .ask(&format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n"))
            .unwrap();
        assert_eq!(answer.status, 431, "{answer:?}");
    }
}

#[test]
fn private_file_gets_404_and_route_of_the_same_name_reaches_the_script() {
    let dir = site();
    std::fs::create_dir(dir.path().join("vendor")).unwrap();
    std::fs::write(dir.path().join("stream.key"), "0123456789abcdef").unwrap();
    for name in [
        "composer.lock",
        "dump.sql",
        "function.zip",
        "vendor/autoload.php",
    ] {
        std::fs::write(dir.path().join(name), "secret").unwrap();
    }
    std::fs::create_dir(dir.path().join("area")).unwrap();
    for (name, content) in [
        ("core", "about the core"),
        ("core.1234", "\x7fELF secret"),
        ("area/core", "\x7fELF secret"),
        ("server.key.1", "-----BEGIN PRIVATE KEY----- secret"),
        ("ssl.key.txt", "-----BEGIN PRIVATE KEY----- secret"),
    ] {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    for (target, status) in [
        ("/composer.lock", 404),
        ("/dump.sql", 404),
        ("/DUMP.SQL", 200),
        ("/function.zip", 404),
        ("/core", 200),
        ("/core.1234", 404),
        ("/area/core", 404),
        ("/server.key.1", 404),
        ("/ssl.key.txt", 404),
        ("/vendor/autoload.php", 404),
        ("/vendor/17", 200),
        ("/export.sql", 200),
        ("/static.txt", 200),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = wire.ask(&request).unwrap();
        assert_eq!(answer.status, status, "{target}: {answer:?}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("secret"));
    }
    // A stream resource from which a part was read; it is sent from its beginning.
    let request = "GET /stream.key HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(wire.ask(request).unwrap().body, b"0123456789abcdef");
}
