//! Tests entity tags of scripts with compression.

use crate::wire::{Wire, serve};

/// Responds with what the script has seen; a matching tag gives 304, a failing precondition 412.
const SCRIPT: &str = r#"<?php
$tag = $_GET['tag'] ?? '"abc"';
header("ETag: $tag");
header('Content-Type: '.($_GET['type'] ?? 'text/css'));
if (isset($_GET['sabre'])) { header('X-Sabre-Version: 4.6.0'); }
foreach (['IF_MATCH', 'IF_NONE_MATCH', 'IF_RANGE', 'RANGE'] as $name) {
    header('X-Seen-'.strtr($name, '_', '-').': '.($_SERVER["HTTP_$name"] ?? ''));
}
if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === $tag) { http_response_code(304); exit; }
if (($_SERVER['HTTP_IF_MATCH'] ?? $tag) !== $tag) { http_response_code(412); exit; }
echo str_repeat("body { color: red }\n", 200);
"#;

#[test]
fn script_gets_its_own_etag_back_with_and_without_compression() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.php"), SCRIPT).unwrap();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    for (query, coding, expected) in [
        ("", "gzip", "W/\"abc-gzip\""),
        ("", "zstd", "W/\"abc-gzip\""),
        ("", "identity", "\"abc\""),
        ("type=text/calendar", "gzip", "\"abc\""),
        ("type=text/vcard", "gzip", "\"abc\""),
        // A file of sabre/dav.
        ("sabre", "gzip", "\"abc\""),
        ("tag=W/%22weak%22", "gzip", "W/\"weak\""),
        ("tag=unquoted", "gzip", "unquoted"),
    ] {
        let mut ask = |headers: &str| {
            wire.ask(&format!(
                "GET /?{query} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n{headers}\r\n"
            ))
            .unwrap()
        };
        let case = format!("{query} {coding}");
        let first = ask("");
        assert_eq!(first.status, 200, "{case}");
        let is_left_alone = expected == "\"abc\"";
        assert_eq!(
            first.header("content-encoding").is_none(),
            is_left_alone,
            "{case}"
        );
        assert_eq!(first.header("etag"), Some(expected), "{case}");

        let known = ask(&format!("If-None-Match: {expected}\r\n"));
        assert_eq!(known.status, 304, "{case}");
        // PHP drops the type of a 304, which may be that of a calendar.
        if first.header("vary").is_some() {
            assert_eq!(known.header("vary"), first.header("vary"), "{case}");
        }
        assert_eq!(known.header("etag"), Some(expected), "{case}");
        let matched = ask(&format!("If-Match: {expected}\r\n"));
        assert_eq!(matched.status, 200, "{case}");
        assert_eq!(ask("If-Match: \"other\"\r\n").status, 412, "{case}");
        if expected.ends_with("-gzip\"") {
            let part = ask(&format!("Range: bytes=9-\r\nIf-Range: {expected}\r\n"));
            assert_eq!(part.header("x-seen-range"), Some(""), "{case}");
            assert_eq!(part.header("x-seen-if-range"), Some(""), "{case}");
        }
    }
}

/// Like Nextcloud's `remote.php`, which names WebDAV in answers to PROPFIND only.
const DAV: &str = r#"<?php
if ($_SERVER['REQUEST_METHOD'] === 'PROPFIND') {
    http_response_code(207);
    header('Content-Type: application/xml; charset=utf-8');
    exit('<multistatus/>');
}
header('ETag: "abc"');
header('Content-Type: text/plain');
echo str_repeat("a line of a file\n", 200);
"#;

#[test]
fn script_that_answers_propfind_keeps_its_tags_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["index.php", "remote.php"] {
        std::fs::write(dir.path().join(name), DAV).unwrap();
    }
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    let mut ask = |method: &str, path: &str| {
        wire.ask(&format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"
        ))
        .unwrap()
    };
    let file = "/remote.php/dav/files/a.txt";
    assert_eq!(ask("GET", file).header("etag"), Some("W/\"abc-gzip\""));
    assert_eq!(ask("PROPFIND", "/remote.php/dav/files").status, 207);
    let kept = ask("GET", file);
    assert_eq!(kept.header("etag"), Some("\"abc\""));
    assert_eq!(kept.header("content-encoding"), None);
    let other = ask("GET", "/index.php");
    assert_eq!(other.header("etag"), Some("W/\"abc-gzip\""));
    assert_eq!(other.header("content-encoding"), Some("gzip"));
}

#[test]
fn webdav_below_a_route_without_compression_leaves_the_other_pages_of_its_script_compressed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.php"), DAV).unwrap();
    let route = "[[route]]\nprefix = '/dav'\ncompress = false\n";
    std::fs::write(dir.path().join("surus.toml"), route).unwrap();
    let surus = serve(dir.path(), &[]);
    let mut wire = Wire::connect(&surus);
    let mut ask = |method: &str, path: &str| {
        wire.ask(&format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"
        ))
        .unwrap()
    };
    assert_eq!(ask("PROPFIND", "/dav/files").status, 207);
    let file = ask("GET", "/dav/files/a");
    assert_eq!(file.header("etag"), Some("\"abc\""));
    let page = ask("GET", "/page");
    assert_eq!(page.header("etag"), Some("W/\"abc-gzip\""));
    assert_eq!(page.header("content-encoding"), Some("gzip"));
}
