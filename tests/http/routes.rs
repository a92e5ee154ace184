//! Tests rules of `[[route]]` by host, redirects and response headers.

use crate::wire::{Answer, Wire, serve, site};

const ROUTES: &str = r#"
[[route]]
prefix = "/"
headers = { "X-Frame-Options" = "DENY", "Content-Type" = "text/x-odd", "X-Powered-By" = "" }

[[route]]
host = ["www.example.org", "*.old.example"]
redirect = "https://example.org{uri}"
status = 308

[[route]]
regex = "^/blog/([0-9]+)$"
redirect = "/posts/{1}{query}"
headers = { "Cache-Control" = "max-age=60" }

[[route]]
host = "closed.example"
deny = true
"#;

fn ask(wire: &mut Wire, method: &str, host: &str, target: &str, headers: &str) -> Answer {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
    wire.ask(&request).unwrap()
}

#[test]
fn route_redirects_by_host_and_by_path() {
    let dir = site();
    std::fs::write(dir.path().join("surus.toml"), ROUTES).unwrap();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    for (host, target, status, location) in [
        (
            "www.example.org",
            "/a?b=1",
            308,
            "https://example.org/a?b=1",
        ),
        ("WWW.Example.org:8080", "/", 308, "https://example.org/"),
        (
            "a.old.example",
            "//evil.example",
            308,
            "https://example.org//evil.example",
        ),
        ("example.org", "/blog/17?full", 302, "/posts/17?full"),
        ("example.org", "/%62log/17", 302, "/posts/17"),
    ] {
        let answer = ask(&mut wire, "GET", host, target, "");
        assert_eq!(answer.status, status, "{host}{target}: {answer:?}");
        assert_eq!(answer.header("location"), Some(location), "{host}{target}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    }
    let cached = ask(&mut wire, "GET", "a", "/blog/1", "");
    assert_eq!(cached.header("cache-control"), Some("max-age=60"));
    assert_eq!(ask(&mut wire, "GET", "closed.example", "/", "").status, 403);
    assert_eq!(
        ask(&mut wire, "GET", "example.org", "/blog/x", "").status,
        200
    );
}

#[test]
fn headers_of_a_route_are_in_every_response() {
    let dir = site();
    std::fs::write(dir.path().join("surus.toml"), ROUTES).unwrap();
    std::fs::write(dir.path().join("composer.lock"), "{}").unwrap();
    let surus = serve(dir.path(), &[("max_body_size", "1")]);
    let mut wire = Wire::connect(&surus);
    for (target, status) in [
        ("/", 200),
        ("/?status=500", 500),
        ("/static.txt", 200),
        ("/composer.lock", 404),
    ] {
        let answer = ask(&mut wire, "GET", "a", target, "");
        assert_eq!(answer.status, status, "{target}: {answer:?}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{target}");
        assert_eq!(
            answer.header("content-type"),
            Some("text/x-odd"),
            "{target}"
        );
        assert_eq!(answer.header("x-powered-by"), None, "{target}");
    }
    let answer = ask(&mut wire, "POST", "a", "/", "Content-Length: 2\r\n");
    assert_eq!(answer.status, 413, "{answer:?}");
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
}

#[test]
fn route_by_host_sees_the_host_that_a_trusted_proxy_names() {
    let dir = site();
    std::fs::write(dir.path().join("surus.toml"), ROUTES).unwrap();
    let forwarded = "X-Forwarded-Host: closed.example\r\n";
    for (trusted, status) in [("127.0.0.0/8", 403), ("10.0.0.0/8", 200)] {
        let surus = serve(dir.path(), &[("trusted_proxies", trusted)]);
        let answer = ask(&mut Wire::connect(&surus), "GET", "a", "/", forwarded);
        assert_eq!(answer.status, status, "{trusted}: {answer:?}");
    }
}
