//! Tests of `compression.rs`.

use async_compression::tokio::write::{BrotliDecoder, GzipDecoder, ZstdDecoder};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::*;

const TEXT: &str = "text/html; charset=UTF-8";

fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
    of.iter()
        .map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v)))
        .collect()
}

fn page(body: impl Into<ResponseBody>, of: &[(&'static str, &'static str)]) -> Response {
    let mut response = Response::new(body.into());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT));
    response.headers_mut().extend(headers(of));
    response
}

async fn get(accept: &'static str, response: Response) -> Response {
    let headers = headers(&[("accept-encoding", accept)]);
    compress_if_wanted(&Settings::default(), &Method::GET, &headers, response).await
}

async fn compress_if_wanted(
    settings: &Settings,
    method: &Method,
    headers: &HeaderMap,
    response: Response,
) -> Response {
    if settings.enabled && is_wanted(settings, method, &response) {
        compress(headers, response).await
    } else {
        response
    }
}

/// Decodes as far as the bytes go.
struct Decoder {
    brotli: BrotliDecoder<Vec<u8>>,
    zstd: ZstdDecoder<Vec<u8>>,
    gzip: GzipDecoder<Vec<u8>>,
}

impl Decoder {
    fn new() -> Self {
        Self {
            brotli: BrotliDecoder::new(Vec::new()),
            zstd: ZstdDecoder::new(Vec::new()),
            gzip: GzipDecoder::new(Vec::new()),
        }
    }

    async fn decode(&mut self, coding: &str, bytes: &[u8]) -> Vec<u8> {
        macro_rules! with {
            ($decoder:expr) => {{
                $decoder.write_all(bytes).await.unwrap();
                // One flush of the Brotli decoder yields 8 KiB, whatever it holds.
                let mut length = usize::MAX;
                while length != $decoder.get_ref().len() {
                    length = $decoder.get_ref().len();
                    $decoder.flush().await.unwrap();
                }
                std::mem::take($decoder.get_mut())
            }};
        }
        match coding {
            "br" => with!(self.brotli),
            "zstd" => with!(self.zstd),
            "gzip" => with!(self.gzip),
            _ => bytes.to_vec(),
        }
    }
}

#[test]
fn client_preference_selects_the_coding_and_ties_follow_our_order() {
    for (accept, expected) in [
        ("", ""),
        ("gzip", "gzip"),
        ("gzip, deflate, br, zstd", "zstd br gzip"),
        ("gzip;q=1.0, br;q=0.5", "gzip br"),
        ("br;q=0, *", "zstd gzip"),
        ("*;q=0", ""),
        ("identity", ""),
        ("identity, gzip;q=0.5", ""),
        ("identity;q=0.5, gzip", "gzip"),
        ("GZIP ; Q=0.3", "gzip"),
        ("x-gzip", "gzip"),
        ("gzip;q=nonsense", ""),
        ("gzip;q=7", ""),
        (",,;q=1,gzip;;q=1,", "gzip"),
        ("deflate", ""),
    ] {
        let headers = headers(&[("accept-encoding", accept)]);
        let names: Vec<_> = accepted(&headers, &DYNAMIC)
            .iter()
            .map(|c| c.name())
            .collect();
        assert_eq!(names.join(" "), expected, "{accept}");
    }
    assert!(accepted(&HeaderMap::new(), &DYNAMIC).is_empty());
}

#[test]
fn text_is_compressible_and_images_are_not() {
    for good in [
        "text/html",
        "TEXT/CSS; charset=x",
        "application/json",
        "image/svg+xml",
        "application/ld+json",
        "application/wasm",
    ] {
        assert!(is_compressible(good), "{good}");
    }
    for bad in [
        "image/png",
        "video/mp4",
        "application/zip",
        "font/woff2",
        "application/octet-stream",
        "",
    ] {
        assert!(!is_compressible(bad), "{bad}");
    }
}

#[tokio::test]
async fn complete_body_is_compressed_at_once() {
    for length in [2000, 500_000] {
        for coding in ["br", "zstd", "gzip"] {
            let plain = "Surus ".repeat(length / 6 + 1);
            let of = [
                ("etag", "\"a\""),
                ("accept-ranges", "bytes"),
                ("content-length", "1"),
                ("vary", "Cookie"),
            ];
            let response = get(coding, page(plain.clone(), &of)).await;
            let (parts, body) = response.into_parts();
            let ResponseBody::Full(bytes) = body else {
                panic!("a stream")
            };
            assert!(bytes.len() < plain.len() / 4);
            assert_eq!(parts.headers[header::CONTENT_ENCODING], coding);
            assert_eq!(
                parts.headers[header::CONTENT_LENGTH],
                bytes.len().to_string()
            );
            assert_eq!(parts.headers[header::ETAG], "W/\"a-gzip\"");
            assert!(!parts.headers.contains_key(header::ACCEPT_RANGES));
            let vary: Vec<_> = parts.headers.get_all(header::VARY).iter().collect();
            assert_eq!(vary, ["Cookie", "accept-encoding"]);
            assert_eq!(
                Decoder::new().decode(coding, &bytes).await,
                plain.as_bytes()
            );
        }
    }
}

#[tokio::test]
async fn ineligible_response_is_not_compressed() {
    let long = || Bytes::from("x".repeat(5000));
    let with = |of| page(long(), of);
    let status = |status| {
        let mut response = with(&[]);
        *response.status_mut() = status;
        response
    };
    for response in [
        page("short", &[]),
        with(&[("content-encoding", "identity")]),
        with(&[("cache-control", "public, No-Transform")]),
        with(&[("content-range", "bytes 0-1/2")]),
        with(&[("content-digest", "sha-256=:x:")]),
        with(&[("repr-digest", "sha-256=:x:"), ("etag", "\"a\"")]),
        with(&[("dav", "1, 3, calendar-access")]),
        with(&[("x-sabre-version", "4.6.0"), ("etag", "\"a\"")]),
        with(&[
            ("content-type", "text/calendar; charset=utf-8"),
            ("etag", "\"a\""),
        ]),
        with(&[("content-type", "Text/VCard"), ("etag", "\"a\"")]),
        status(StatusCode::MULTI_STATUS),
        status(StatusCode::PARTIAL_CONTENT),
        status(StatusCode::NO_CONTENT),
        status(StatusCode::NOT_MODIFIED),
        Response::new(long().into()),
    ] {
        let before = (response.headers().clone(), format!("{:?}", response.body()));
        let after = get("gzip", response).await;
        assert_eq!(
            (after.headers().clone(), format!("{:?}", after.body())),
            before
        );
    }
    let headers = headers(&[("accept-encoding", "gzip")]);
    let off = Settings {
        enabled: false,
        ..Settings::default()
    };
    for (settings, method) in [(off, Method::GET), (Settings::default(), Method::HEAD)] {
        let after = compress_if_wanted(&settings, &method, &headers, with(&[])).await;
        assert!(!after.headers().contains_key(header::CONTENT_ENCODING));
    }
    let plain = get("identity", with(&[])).await;
    assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
    assert_eq!(plain.headers()[header::VARY], "accept-encoding");
}

#[test]
fn response_without_a_body_varies_as_the_one_with_it_does() {
    let varies = |method: Method, status: u16, fields: &[(&'static str, &'static str)]| {
        let mut response = Response::new(ResponseBody::empty());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        *response.headers_mut() = headers(fields);
        stands_for_varying(&Settings::default(), &method, &response)
    };
    let html = ("content-type", "text/html");
    for (method, status, fields) in [
        (Method::HEAD, 200, &[html][..]),
        (Method::HEAD, 404, &[html]),
        (Method::HEAD, 200, &[html, ("content-length", "1024")]),
        (Method::GET, 304, &[]),
        (Method::GET, 304, &[html]),
    ] {
        assert!(varies(method, status, fields), "{status} {fields:?}");
    }
    for (method, status, fields) in [
        (Method::GET, 200, &[html][..]),
        (Method::HEAD, 200, &[]),
        (Method::HEAD, 200, &[html, ("content-length", "1023")]),
        (Method::HEAD, 200, &[html, ("content-encoding", "br")]),
        (Method::HEAD, 200, &[("content-type", "image/png")]),
        (Method::HEAD, 204, &[html]),
        (Method::GET, 304, &[("content-type", "image/png")]),
        (Method::GET, 304, &[("content-type", "text/calendar")]),
        (Method::GET, 304, &[html, ("cache-control", "no-transform")]),
    ] {
        assert!(!varies(method, status, fields), "{status} {fields:?}");
    }
}

/// A body whose frames the test sends.
struct Frames(mpsc::UnboundedReceiver<Result<Frame<Bytes>, Failure>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        self.0.poll_recv(cx)
    }
}

type Sender = mpsc::UnboundedSender<Result<Frame<Bytes>, Failure>>;

async fn stream(coding: &'static str, of: &[(&'static str, &'static str)]) -> (Sender, Response) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (
        sender,
        get(coding, page(ResponseBody::stream(Frames(receiver)), of)).await,
    )
}

fn data(text: &str) -> Result<Frame<Bytes>, Failure> {
    Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))
}

#[tokio::test]
async fn flushed_bytes_can_be_decoded_at_once() {
    for coding in ["br", "zstd", "gzip"] {
        let (sender, response) = stream(coding, &[]).await;
        assert_eq!(response.headers()[header::CONTENT_ENCODING], coding);
        let mut body = response.into_body();
        let mut decoder = Decoder::new();
        assert!(body.frame().now_or_never().is_none());
        for chunk in ["data: 1\n\n", "x", "data: 2\n\n", &"long ".repeat(100_000)] {
            sender.send(data(chunk)).unwrap();
            let mut text = Vec::new();
            while let Some(frame) = body.frame().now_or_never() {
                let bytes = frame.unwrap().unwrap().into_data().unwrap();
                text.extend(decoder.decode(coding, &bytes).await);
            }
            assert_eq!(String::from_utf8(text).unwrap(), chunk, "{coding}");
        }
        drop(sender);
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!(decoder.decode(coding, &rest).await, b"");
    }
}

#[tokio::test]
async fn available_frames_are_compressed_together() {
    let (sender, response) = stream("gzip", &[("content-length", "1024")]).await;
    assert!(!response.headers().contains_key(header::CONTENT_LENGTH));
    // Tokio's channels pretend to be empty after 128 reads.
    for _ in 0..100 {
        sender.send(data("0123456789")).unwrap();
    }
    drop(sender);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert!(
        bytes.len() < 60,
        "{} bytes: flushed between frames",
        bytes.len()
    );
    assert_eq!(Decoder::new().decode("gzip", &bytes).await.len(), 1000);
}

#[tokio::test]
async fn failure_follows_all_earlier_bytes() {
    let (sender, response) = stream("gzip", &[]).await;
    sender.send(data("before")).unwrap();
    sender.send(Err(Failure::TimedOut)).unwrap();
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(Decoder::new().decode("gzip", &first).await, b"before");
    assert!(matches!(body.frame().await, Some(Err(Failure::TimedOut))));
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn trailers_follow_the_body() {
    let (sender, response) = stream("br", &[]).await;
    sender.send(data("before")).unwrap();
    sender
        .send(Ok(Frame::trailers(headers(&[("x-end", "1")]))))
        .unwrap();
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["x-end"], "1");
    assert_eq!(
        Decoder::new().decode("br", &collected.to_bytes()).await,
        b"before"
    );
}
