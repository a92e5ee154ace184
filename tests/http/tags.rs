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
        ("", "gzip", "W/\"abc-surus\""),
        ("", "zstd", "W/\"abc-surus\""),
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
        if expected.ends_with("-surus\"") {
            let part = ask(&format!("Range: bytes=9-\r\nIf-Range: {expected}\r\n"));
            assert_eq!(part.header("x-seen-range"), Some(""), "{case}");
            assert_eq!(part.header("x-seen-if-range"), Some(""), "{case}");
        }
    }
}
