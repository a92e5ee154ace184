//! Tests of static files.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};

use http::HeaderName;
use http_body::Body as _;
use http_body_util::BodyExt;
use tempfile::TempDir;

use super::body::CHUNK;
use super::body::FileBody;
use super::ranges::MAX_RANGES;
use super::*;
use crate::event::Failure;

mod named_types;

fn at(name: &str, seconds: u64, content: &[u8]) -> (TempDir, FoundFile) {
    let dir = tempfile::tempdir().unwrap();
    let found = put(&dir, name, seconds, content);
    (dir, found)
}

fn put(dir: &TempDir, name: &str, seconds: u64, content: &[u8]) -> FoundFile {
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
    let metadata = file.metadata().unwrap();
    FoundFile {
        path,
        file,
        metadata,
        media_type: None,
    }
}

fn again(found: &FoundFile) -> FoundFile {
    FoundFile {
        path: found.path.clone(),
        file: File::open(&found.path).unwrap(),
        metadata: found.file.metadata().unwrap(),
        media_type: found.media_type.clone(),
    }
}

fn headers(of: &[(&str, &str)]) -> HeaderMap {
    of.iter()
        .map(|(n, v)| {
            (
                HeaderName::from_bytes(n.as_bytes()).unwrap(),
                v.parse().unwrap(),
            )
        })
        .collect()
}

fn get(found: &FoundFile, of: &[(&str, &str)]) -> Response {
    answer(again(found), &Method::GET, &headers(of), |_| None)
}

async fn text(response: Response) -> String {
    String::from_utf8(
        response
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes()
            .to_vec(),
    )
    .unwrap()
}

/// Sun, 09 Sep 2001 01:46:40 GMT
const BILLION: u64 = 1_000_000_000;
const AT: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const BEFORE: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
const AFTER: &str = "Sun, 09 Sep 2001 01:46:41 GMT";

#[tokio::test]
async fn file_is_sent_with_validators() {
    let (_dir, found) = at("a.css", BILLION, b"body {}");
    let response = get(&found, &[]);
    assert_eq!(response.status(), 200);
    let expected = [
        ("content-type", "text/css; charset=utf-8"),
        ("content-length", "7"),
        ("accept-ranges", "bytes"),
        ("last-modified", AT),
        ("etag", "\"3b9aca00.0-7\""),
        ("vary", "accept-encoding"),
    ];
    for (name, value) in expected {
        assert_eq!(response.headers()[name], value);
    }
    assert_eq!(response.headers().len(), expected.len());
    assert!(matches!(response.body(), ResponseBody::Full(_)));
    assert_eq!(text(response).await, "body {}");
}

#[tokio::test]
async fn head_has_no_body_and_other_methods_are_not_allowed() {
    let (_dir, found) = at("a.png", BILLION, b"png");
    let head = |of: &[(&str, &str)]| answer(again(&found), &Method::HEAD, &headers(of), |_| None);
    assert_eq!(head(&[]).headers(), get(&found, &[]).headers());
    assert_eq!(head(&[("range", "bytes=0-0")]).status(), 200);
    assert_eq!(head(&[("if-modified-since", AT)]).status(), 304);
    assert_eq!(text(head(&[])).await, "");
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let response = answer(again(&found), &method, &HeaderMap::new(), |_| None);
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers()["allow"], "GET, HEAD");
    }
}

#[test]
fn type_follows_the_file_name() {
    for (name, expected) in [
        ("a.html", "text/html; charset=utf-8"),
        ("a.JS", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.xml", "text/xml"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.wasm", "application/wasm"),
        ("a.woff", "font/woff"),
        ("a.woff2", "font/woff2"),
        ("a.m3u8", "application/vnd.apple.mpegurl"),
        ("a.TS", "video/mp2t"),
        ("a.m4a", "audio/mp4"),
        ("a.rpm", "application/x-redhat-package-manager"),
        ("a.jpg", "image/jpeg"),
        ("a.unknown", "application/octet-stream"),
        ("LICENSE", "application/octet-stream"),
    ] {
        assert_eq!(content_type(Path::new(name)), expected, "{name}");
    }
}

#[test]
fn conditions_follow_the_order_of_rfc_9110() {
    let (_dir, found) = at("a.bin", BILLION, b"body {}");
    let etag = "\"3b9aca00.0-7\"";
    let weak = &format!("W/{etag}");
    let listed = &format!("\"a,b\", W/\"c\",, {etag}");
    for (of, status) in [
        (vec![("if-none-match", etag)], 304),
        (vec![("if-none-match", weak)], 304),
        (vec![("if-none-match", listed)], 304),
        (
            vec![("if-none-match", "\"x\""), ("if-none-match", etag)],
            304,
        ),
        (vec![("if-none-match", "*")], 304),
        (vec![("if-none-match", "\"other\"")], 200),
        (vec![("if-none-match", "nonsense")], 200),
        (vec![("if-none-match", "\"unclosed")], 200),
        (
            vec![("if-none-match", "\"other\""), ("if-modified-since", AFTER)],
            200,
        ),
        (vec![("if-modified-since", AT)], 304),
        (vec![("if-modified-since", AFTER)], 304),
        (vec![("if-modified-since", BEFORE)], 200),
        (vec![("if-modified-since", "yesterday")], 200),
        (vec![("if-match", etag)], 200),
        (vec![("if-match", "*")], 200),
        (vec![("if-match", weak)], 412),
        (vec![("if-match", "\"other\"")], 412),
        (
            vec![("if-match", etag), ("if-unmodified-since", BEFORE)],
            200,
        ),
        (vec![("if-match", etag), ("if-none-match", etag)], 304),
        (
            vec![("if-match", "\"other\""), ("if-none-match", etag)],
            412,
        ),
        (vec![("if-unmodified-since", AT)], 200),
        (vec![("if-unmodified-since", BEFORE)], 412),
        (vec![("if-unmodified-since", "nonsense")], 200),
        (vec![("if-none-match", etag), ("range", "bytes=0-0")], 304),
    ] {
        let response = get(&found, &of);
        assert_eq!(response.status(), status, "{of:?}");
        if status != 200 {
            assert_eq!(response.headers()["etag"], etag);
            assert!(!response.headers().contains_key("content-length"), "{of:?}");
            assert!(!response.headers().contains_key("content-type"), "{of:?}");
        }
    }
}

#[tokio::test]
async fn single_range_is_sent_without_multipart() {
    let (_dir, found) = at("a.bin", BILLION, b"0123456789");
    for (range, expected) in [
        ("bytes=0-0", "0"),
        ("bytes=2-4", "234"),
        ("bytes=7-", "789"),
        ("bytes=-3", "789"),
        ("bytes=-99", "0123456789"),
        ("bytes=8-99999999999999999999999", "89"),
        ("Bytes = 1-1", "1"),
        ("bytes=99-,1-2", "12"),
        ("bytes=0-9", "0123456789"),
    ] {
        let response = get(&found, &[("range", range)]);
        assert_eq!(response.status(), 206, "{range}");
        let content_range = response.headers()["content-range"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(
            content_range.starts_with("bytes ") && content_range.ends_with("/10"),
            "{content_range}"
        );
        assert_eq!(
            response.headers()["content-length"],
            expected.len().to_string()
        );
        assert_eq!(
            response.headers()["content-type"],
            "application/octet-stream"
        );
        assert_eq!(text(response).await, expected, "{range}");
    }
    assert_eq!(
        get(&found, &[("range", "bytes=2-4")]).headers()["content-range"],
        "bytes 2-4/10"
    );
}

#[tokio::test]
async fn invalid_range_gets_the_whole_file() {
    let (_dir, found) = at("a.bin", BILLION, b"0123456789");
    let many = format!("bytes={}", "0-0,".repeat(MAX_RANGES + 1));
    for range in [
        "bytes=4-2",
        "bytes=a-b",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=1",
        "lines=0-1",
        "0-1",
        "bytes=1-2,x",
        "bytes=+1-2",
        "bytes=0-,0-",
        "bytes=0-5,5-9",
        &many,
    ] {
        let response = get(&found, &[("range", range)]);
        assert_eq!(response.status(), 200, "{range}");
        assert_eq!(text(response).await, "0123456789");
    }
    let twice = get(&found, &[("range", "bytes=0-0"), ("range", "bytes=1-1")]);
    assert_eq!(twice.status(), 200);
}

#[test]
fn range_beyond_the_end_is_not_satisfiable() {
    let (_dir, found) = at("a.bin", BILLION, b"0123456789");
    for range in ["bytes=10-", "bytes=10-11", "bytes=-0", "bytes=10-,11-"] {
        let response = get(&found, &[("range", range)]);
        assert_eq!(response.status(), 416, "{range}");
        assert_eq!(response.headers()["content-range"], "bytes */10");
    }
    let (_dir, found) = at("empty", BILLION, b"");
    assert_eq!(get(&found, &[("range", "bytes=0-")]).status(), 416);
    assert_eq!(get(&found, &[]).status(), 200);
}

#[tokio::test]
async fn several_ranges_are_sent_as_multipart() {
    let (_dir, found) = at("a.txt", BILLION, b"0123456789");
    let response = get(&found, &[("range", "bytes=0-1, 4-4,-2")]);
    assert_eq!(response.status(), 206);
    let content_type = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    let boundary = content_type
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let length = response.headers()["content-length"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(!response.headers().contains_key("content-range"));
    let text = text(response).await;
    assert_eq!(text.len().to_string(), length);
    let part = |range, bytes| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes \
             {range}/10\r\n\r\n{bytes}"
        )
    };
    let parts = [part("0-1", "01"), part("4-4", "4"), part("8-9", "89")].concat();
    assert_eq!(text, format!("{parts}\r\n--{boundary}--\r\n"));
}

#[test]
fn range_of_another_version_is_not_sent() {
    let (_dir, found) = at("a.bin", BILLION, b"0123456");
    for (if_range, status) in [
        ("\"3b9aca00.0-7\"", 206),
        (AT, 206),
        ("W/\"3b9aca00.0-7\"", 200),
        ("\"other\"", 200),
        (AFTER, 200),
        (BEFORE, 200),
        ("nonsense", 200),
    ] {
        let response = get(&found, &[("range", "bytes=0-0"), ("if-range", if_range)]);
        assert_eq!(response.status(), status, "{if_range}");
    }
}

#[tokio::test]
async fn compressed_sibling_is_sent_if_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let found = put(&dir, "a.css", BILLION, b"plain");
    let siblings = |suffix: &str| match suffix {
        ".br" => Some(put(&dir, "a.css.br", BILLION, b"brotli")),
        ".gz" => Some(put(&dir, "a.css.gz", BILLION + 5, b"gzip")),
        _ => None,
    };
    let ask = |of: &[(&str, &str)]| answer(again(&found), &Method::GET, &headers(of), siblings);
    for (accept, coding, body) in [
        ("gzip, deflate, br, zstd", "br", "brotli"),
        ("zstd, gzip", "gzip", "gzip"),
        ("br;q=0.1, gzip", "gzip", "gzip"),
        ("zstd", "", "plain"),
        ("identity", "", "plain"),
    ] {
        let response = ask(&[("accept-encoding", accept)]);
        let encoding = response
            .headers()
            .get("content-encoding")
            .map(|v| v.to_str().unwrap());
        assert_eq!(encoding.unwrap_or_default(), coding, "{accept}");
        assert_eq!(
            response.headers()["content-type"],
            "text/css; charset=utf-8"
        );
        assert_eq!(response.headers()["vary"], "accept-encoding");
        assert_eq!(response.headers()["last-modified"], AT);
        let etag = response.headers()["etag"].to_str().unwrap().to_owned();
        assert!(etag.ends_with(&format!("{coding}\"")), "{etag}");
        assert_eq!(text(response).await, body);
        let known = ask(&[("accept-encoding", accept), ("if-none-match", &etag)]);
        assert_eq!(known.status(), 304);
        assert_eq!(known.headers()["vary"], "accept-encoding");
    }
    let part = ask(&[("accept-encoding", "br"), ("range", "bytes=0-1")]);
    assert_eq!(part.headers()["content-range"], "bytes 0-1/6");
    assert_eq!(part.headers()["content-encoding"], "br");
}

#[test]
fn older_sibling_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let found = put(&dir, "a.css", BILLION, b"plain");
    let old = |_: &str| Some(put(&dir, "a.css.br", BILLION - 1, b"old"));
    let br = headers(&[("accept-encoding", "br")]);
    let response = answer(found, &Method::GET, &br, old);
    assert!(!response.headers().contains_key("content-encoding"));
    let image = put(&dir, "a.png", BILLION, b"plain");
    let response = answer(image, &Method::GET, &br, |_| panic!("asked"));
    assert!(!response.headers().contains_key("vary"));
}

#[test]
fn implausible_date_is_ignored() {
    // Dates of zip, of reproducible builds and of a wrong clock.
    for seconds in [0, 1, 315_532_800, 99_999_999_999] {
        let (_dir, found) = at("a.css", seconds, b"x");
        let response = get(&found, &[("if-modified-since", AFTER)]);
        assert_eq!(response.status(), 200);
        assert!(
            !response.headers().contains_key("last-modified"),
            "{seconds}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let etag = |name| get(&put(&dir, name, 1, b"x"), &[]).headers()["etag"].clone();
    assert_ne!(etag("a.css"), etag("b.css"));
}

#[tokio::test]
async fn large_file_is_sent_in_chunks() {
    let content: Vec<u8> = (0..700_000u32).map(|i| (i % 251) as u8).collect();
    let (_dir, found) = at("a.bin", BILLION, &content);
    for range in [0..700_000, 5..600_000, 262_144..524_288, 0..65_537] {
        let header = format!("bytes={}-{}", range.start, range.end - 1);
        let response = get(&found, &[("range", &header)]);
        let body = response.into_body();
        assert!(matches!(body, ResponseBody::Stream(_)));
        assert_eq!(body.size_hint().exact(), Some(range.len() as u64));
        assert_eq!(body.collect().await.unwrap().to_bytes(), content[range]);
    }
    let mut body = FileBody::new(Arc::new(again(&found).file), 10, 300_000);
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first.len() as u64, CHUNK);
    assert_eq!(body.left(), 300_000 - CHUNK);
}

#[tokio::test]
async fn truncated_file_aborts_the_response() {
    let (_dir, found) = at("a.bin", BILLION, &vec![1; 1_000_000]);
    let mut body = get(&found, &[]).into_body();
    body.frame().await.unwrap().unwrap();
    found.file.set_len(600_000).unwrap();
    let failure = loop {
        match body.frame().await.expect("an end") {
            Ok(_) => {}
            Err(failure) => break failure,
        }
    };
    assert!(matches!(failure, Failure::Malformed(why) if why.contains("shorter")));
    assert!(body.frame().await.is_none());

    let (_dir, found) = at("small.bin", BILLION, &vec![1; 1000]);
    let stale = again(&found);
    found.file.set_len(10).unwrap();
    let body = answer(stale, &Method::GET, &HeaderMap::new(), |_| None).into_body();
    assert!(matches!(body.collect().await, Err(Failure::Malformed(_))));
}

#[tokio::test]
async fn truncated_file_aborts_a_multipart_response() {
    let (_dir, found) = at("a.bin", BILLION, &vec![1; 1000]);
    let response = get(&found, &[("range", "bytes=0-1,900-999")]);
    found.file.set_len(500).unwrap();
    assert!(matches!(
        response.into_body().collect().await,
        Err(Failure::Malformed(_))
    ));
}

/// What a client receives on its own connection, and whether the connection ended properly.
async fn over_http(found: impl Fn() -> FoundFile, request: &str) -> (String, bool) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
        let response = answer(found(), request.method(), request.headers(), |_| None);
        async { Ok::<_, Failure>(response) }
    });
    let request = format!("{request}Host: a\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(server);
    let ended = hyper::server::conn::http1::Builder::new()
        .serve_connection(io, service)
        .await;
    let mut text = Vec::new();
    client.read_to_end(&mut text).await.unwrap();
    (String::from_utf8(text).unwrap(), ended.is_ok())
}

#[tokio::test]
async fn client_sees_a_failed_body_as_incomplete() {
    let (_dir, found) = at("a.txt", BILLION, &[b'x'; 300_000]);
    let get = |request| over_http(|| again(&found), request);
    let (answer, _) = get("HEAD / HTTP/1.1\r\n").await;
    assert!(
        answer.contains("content-length: 300000\r\n") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
    let (whole, well) = get("GET / HTTP/1.1\r\n").await;
    assert_eq!(
        (whole.split_once("\r\n\r\n").unwrap().1.len(), well),
        (300_000, true)
    );
    let (known, _) = get("GET / HTTP/1.1\r\nIf-None-Match: *\r\n").await;
    assert!(
        known.starts_with("HTTP/1.1 304 ") && known.ends_with("\r\n\r\n"),
        "{known}"
    );

    let shortened = || {
        let before = again(&found);
        found.file.set_len(200_000).unwrap();
        before
    };
    let (part, well) = over_http(shortened, "GET / HTTP/1.1\r\n").await;
    assert!(!well && part.len() < 300_000);
}
