//! A file as a response.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::compress::{Coding, accepted, is_compressible, vary};
use crate::event::{Failure, Response, ResponseBody};
use crate::fronts::site::Found;

/// Up to this many bytes are read at once, which costs less than asking another thread to.
const AT_ONCE: u64 = 64 << 10;

/// What is read of a larger file at a time.
const CHUNK: u64 = 256 << 10;

/// A client that asks for more parts gets the whole file.
const MOST_RANGES: usize = 16;

/// The smallest comes first, since nobody waits for it to be compressed.
const PRECOMPRESSED: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

/// Answers with a file: all of it, some of it, or that the client has it already (RFC 9110, 13 and 14).
///
/// `siblings` finds the file whose name is so much longer: `.br`, `.zst` and `.gz` are sent instead where the client
/// accepts that and they are not older. What needs no negotiation does not call it.
pub fn answer(
    found: Found,
    method: &Method,
    headers: &HeaderMap,
    siblings: impl Fn(&str) -> Option<Found>,
) -> Response {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let content_type = content_type(&found.path);
    let negotiable = content_type.to_str().is_ok_and(is_compressible);
    let modified = modified(&found);
    let (found, coding) = match negotiable {
        true => negotiate(found, headers, siblings),
        false => (found, None),
    };
    let etag = etag(&found, coding);

    let mut response = empty(StatusCode::OK);
    let out = response.headers_mut();
    if negotiable {
        vary(out, header::ACCEPT_ENCODING);
    }
    set(out, header::ETAG, &etag);
    if let Some(modified) = modified {
        set(
            out,
            header::LAST_MODIFIED,
            &httpdate::fmt_http_date(modified),
        );
    }
    if let Some(status) = precondition(headers, &etag, modified) {
        *response.status_mut() = status;
        return response;
    }
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(coding) = coding {
        out.insert(
            header::CONTENT_ENCODING,
            HeaderValue::from_static(coding.name()),
        );
    }

    let length = found.metadata.len();
    let ranges = match *method == Method::GET && if_range(headers, &etag, modified) {
        true => ranges(headers, length),
        false => Ranges::Whole,
    };
    let file = Arc::new(found.file);
    let (length, body) = match ranges {
        Ranges::Whole if *method == Method::HEAD => (length, ResponseBody::empty()),
        Ranges::Whole => (length, body(&mut response, file, 0..length)),
        Ranges::One(range) => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let content_range = content_range(&range, length);
            set(
                response.headers_mut(),
                header::CONTENT_RANGE,
                &content_range,
            );
            (range.end - range.start, body(&mut response, file, range))
        }
        Ranges::Many(ranges) => {
            let parts = Parts::new(file, ranges, length, &content_type);
            let out = response.headers_mut();
            set(
                out,
                header::CONTENT_TYPE,
                &format!("multipart/byteranges; boundary={}", parts.boundary),
            );
            out.insert(header::CONTENT_LENGTH, parts.left.into());
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            *response.body_mut() = ResponseBody::stream(parts);
            return response;
        }
        Ranges::Unsatisfiable => {
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            let out = response.headers_mut();
            out.remove(header::CONTENT_ENCODING);
            set(out, header::CONTENT_RANGE, &format!("bytes */{length}"));
            out.insert(header::CONTENT_LENGTH, 0.into());
            return response;
        }
    };
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, content_type);
    out.insert(header::CONTENT_LENGTH, length.into());
    *response.body_mut() = body;
    response
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = status;
    response
}

fn set(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    // All of these are made of visible ASCII.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// By the file's name. Text is said to be UTF-8, but for XML, which says itself what it is.
pub(super) fn content_type(path: &Path) -> HeaderValue {
    let guess = mime_guess::from_path(path)
        .first_raw()
        .unwrap_or("application/octet-stream");
    match guess {
        "text/html" => HeaderValue::from_static("text/html; charset=utf-8"),
        "text/css" => HeaderValue::from_static("text/css; charset=utf-8"),
        // RFC 9239: the other name is obsolete.
        "text/javascript" | "application/javascript" => {
            HeaderValue::from_static("text/javascript; charset=utf-8")
        }
        "text/xml" => HeaderValue::from_static("text/xml"),
        text if text.starts_with("text/") => {
            HeaderValue::from_str(&format!("{text}; charset=utf-8"))
                .unwrap_or(HeaderValue::from_static(text))
        }
        other => HeaderValue::from_static(other),
    }
}

fn negotiate(
    found: Found,
    headers: &HeaderMap,
    siblings: impl Fn(&str) -> Option<Found>,
) -> (Found, Option<Coding>) {
    for coding in accepted(headers, &PRECOMPRESSED) {
        let suffix = match coding {
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        };
        // One that is older was made of something else. Whole seconds, because archives keep no more.
        let sibling = siblings(suffix).filter(|s| s.metadata.mtime() >= found.metadata.mtime());
        if let Some(sibling) = sibling {
            return (sibling, Some(coding));
        }
    }
    (found, None)
}

/// When the file was last modified, if its date says so. Archives and reproducible builds date everything to 1970 or to the
/// beginning of 1980, and a date in the future would never be reached by a newer version.
fn modified(found: &Found) -> Option<SystemTime> {
    let seconds = u64::try_from(found.metadata.mtime()).ok()?;
    let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?;
    (is_dated(found) && modified <= SystemTime::now()).then_some(modified)
}

fn is_dated(found: &Found) -> bool {
    const SECOND_OF_JANUARY_1980: i64 = 315_619_200;
    found.metadata.mtime() > SECOND_OF_JANUARY_1980
}

/// Strong: other bytes have another one. Without the inode, so that the replicas of a service say the same; only where the
/// date of modification says nothing must it be what changes with every copy of the file.
fn etag(found: &Found, coding: Option<Coding>) -> String {
    let m = &found.metadata;
    let (seconds, nanoseconds, inode) = match is_dated(found) {
        true => (m.mtime(), m.mtime_nsec(), 0),
        false => (m.ctime(), m.ctime_nsec(), m.ino()),
    };
    let length = m.len();
    let coding = coding.map(Coding::name).unwrap_or_default();
    match inode {
        0 => format!("\"{seconds:x}.{nanoseconds:x}-{length:x}{coding}\""),
        _ => format!("\"{seconds:x}.{nanoseconds:x}-{length:x}-{inode:x}{coding}\""),
    }
}

/// The status that ends the matter, in the order of RFC 9110, 13.2.2.
fn precondition(
    headers: &HeaderMap,
    etag: &str,
    modified: Option<SystemTime>,
) -> Option<StatusCode> {
    let date = |name| {
        let value = headers.get(name)?.to_str().ok()?;
        httpdate::parse_http_date(value).ok().zip(modified)
    };
    if headers.contains_key(header::IF_MATCH) {
        if !lists(headers, header::IF_MATCH, etag, Compare::Strong) {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
    } else if date(header::IF_UNMODIFIED_SINCE).is_some_and(|(since, modified)| modified > since) {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let known = if headers.contains_key(header::IF_NONE_MATCH) {
        lists(headers, header::IF_NONE_MATCH, etag, Compare::Weak)
    } else {
        date(header::IF_MODIFIED_SINCE).is_some_and(|(since, modified)| modified <= since)
    };
    known.then_some(StatusCode::NOT_MODIFIED)
}

#[derive(PartialEq, Eq)]
enum Compare {
    Strong,
    Weak,
}

/// Is the entity tag in the list of this header, or does that say `*`?
fn lists(headers: &HeaderMap, name: header::HeaderName, etag: &str, compare: Compare) -> bool {
    headers.get_all(name).iter().any(|value| {
        let mut rest = value.to_str().unwrap_or_default().trim();
        if rest == "*" {
            return true;
        }
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let weak = rest.strip_prefix("W/");
            let tag = weak.unwrap_or(rest);
            let Some(end) = tag.strip_prefix('"').and_then(|tag| tag.find('"')) else {
                return false;
            };
            let (tag, after) = tag.split_at(end + 2);
            if tag == etag && (weak.is_none() || compare == Compare::Weak) {
                return true;
            }
            rest = after;
        }
    })
}

/// May a range be sent? Not when the client holds parts of another version.
fn if_range(headers: &HeaderMap, etag: &str, modified: Option<SystemTime>) -> bool {
    let Some(value) = headers.get(header::IF_RANGE) else {
        return true;
    };
    let value = value.to_str().unwrap_or_default().trim();
    value == etag || httpdate::parse_http_date(value).is_ok_and(|date| Some(date) == modified)
}

#[derive(Debug, PartialEq, Eq)]
enum Ranges {
    Whole,
    One(Range<u64>),
    Many(Vec<Range<u64>>),
    Unsatisfiable,
}

/// What cannot be read is as if it were not there, and so are ranges that together are more than the file.
fn ranges(headers: &HeaderMap, length: u64) -> Ranges {
    let mut values = headers.get_all(header::RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Ranges::Whole;
    };
    parse_ranges(value.to_str().unwrap_or_default(), length).unwrap_or(Ranges::Whole)
}

fn parse_ranges(value: &str, length: u64) -> Option<Ranges> {
    let (unit, specs) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut satisfiable = Vec::new();
    for (count, spec) in specs
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .enumerate()
    {
        if count == MOST_RANGES {
            return None;
        }
        let (first, last) = spec.split_once('-')?;
        let range = match (position(first)?, position(last)?) {
            (None, None) => return None,
            (Some(first), Some(last)) if first > last => return None,
            (Some(first), last) => {
                first..last.map_or(length, |last| last.saturating_add(1).min(length))
            }
            (None, Some(suffix)) => length.saturating_sub(suffix)..length,
        };
        if range.start < range.end {
            satisfiable.push(range);
        }
    }
    // Neither a range nor a mistake: `bytes=,`.
    if specs.split(',').all(|spec| spec.trim().is_empty()) {
        return None;
    }
    let sum = satisfiable
        .iter()
        .fold(0, |sum: u64, r| sum.saturating_add(r.end - r.start));
    match satisfiable.pop() {
        None => Some(Ranges::Unsatisfiable),
        Some(only) if satisfiable.is_empty() => Some(Ranges::One(only)),
        Some(_) if sum > length => None,
        Some(last) => {
            satisfiable.push(last);
            Some(Ranges::Many(satisfiable))
        }
    }
}

/// `None` when it is not a number, `Some(None)` when it is left out.
fn position(digits: &str) -> Option<Option<u64>> {
    if digits.is_empty() {
        return Some(None);
    }
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    // Only one that is too large does not parse, and it lies behind the end of any file.
    is_number.then(|| Some(digits.parse().unwrap_or(u64::MAX)))
}

fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// The bytes of a file that a response's body consists of, in the response's extensions: a front that can send them without
/// reading them does so. Whoever changes the body removes it.
#[derive(Debug, Clone)]
pub struct FileRange {
    pub file: Arc<File>,
    pub range: Range<u64>,
}

fn body(response: &mut Response, file: Arc<File>, range: Range<u64>) -> ResponseBody {
    let length = range.end - range.start;
    if length <= AT_ONCE
        && let Ok(bytes) = read(&file, range.start, length)
    {
        return ResponseBody::Full(bytes);
    }
    // Also when it could not be read: the head is made already, and there the client sees that the body fails.
    let whole = FileBody::new(file.clone(), range.start, length);
    response.extensions_mut().insert(FileRange { file, range });
    ResponseBody::stream(whole)
}

fn read(file: &File, offset: u64, length: u64) -> io::Result<Bytes> {
    // Never more than a chunk.
    let mut buffer = vec![0; length as usize];
    file.read_exact_at(&mut buffer, offset)?;
    Ok(buffer.into())
}

/// A part of a file, read by another thread, one chunk ahead of the client. A file that has become shorter meanwhile is an
/// error, not a shorter body.
#[derive(Debug)]
pub struct FileBody {
    file: Arc<File>,
    offset: u64,
    length: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl FileBody {
    pub fn new(file: Arc<File>, offset: u64, length: u64) -> Self {
        Self {
            file,
            offset,
            length,
            reading: None,
        }
    }

    fn read(&self) -> JoinHandle<io::Result<Bytes>> {
        let (file, offset, length) = (self.file.clone(), self.offset, self.length.min(CHUNK));
        tokio::task::spawn_blocking(move || read(&file, offset, length))
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.length == 0 {
            return Poll::Ready(None);
        }
        let mut reading = self.reading.take().unwrap_or_else(|| self.read());
        let Poll::Ready(read) = Pin::new(&mut reading).poll(cx) else {
            self.reading = Some(reading);
            return Poll::Pending;
        };
        match read.unwrap_or_else(|error| Err(error.into())) {
            Ok(bytes) => {
                self.offset += bytes.len() as u64;
                self.length -= bytes.len() as u64;
                if self.length > 0 {
                    self.reading = Some(self.read());
                }
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Err(error) => {
                self.length = 0;
                let why = match error.kind() {
                    io::ErrorKind::UnexpectedEof => {
                        "a file became shorter while it was sent".to_owned()
                    }
                    _ => format!("a file could not be read: {error}"),
                };
                Poll::Ready(Some(Err(Failure::Malformed(why))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.length == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

/// `multipart/byteranges`: several parts of a file, each with a head of its own.
struct Parts {
    parts: VecDeque<Part>,
    boundary: String,
    left: u64,
}

enum Part {
    Head(Bytes),
    Bytes(FileBody),
}

impl Parts {
    fn new(
        file: Arc<File>,
        ranges: Vec<Range<u64>>,
        length: u64,
        content_type: &HeaderValue,
    ) -> Self {
        // Nobody who could put it into the file knows it.
        let random = || RandomState::new().hash_one(length);
        let boundary = format!("{:016x}{:016x}", random(), random());
        let content_type = content_type.to_str().unwrap_or_default();
        let mut parts = VecDeque::with_capacity(2 * ranges.len() + 1);
        for range in ranges {
            let content_range = content_range(&range, length);
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {content_range}\r\n\r\n"
            );
            parts.push_back(Part::Head(head.into()));
            parts.push_back(Part::Bytes(FileBody::new(
                file.clone(),
                range.start,
                range.end - range.start,
            )));
        }
        parts.push_back(Part::Head(format!("\r\n--{boundary}--\r\n").into()));
        let left = parts.iter().map(|part| match part {
            Part::Head(head) => head.len() as u64,
            Part::Bytes(bytes) => bytes.length,
        });
        Self {
            left: left.sum(),
            parts,
            boundary,
        }
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let bytes = loop {
            match self.parts.front_mut() {
                None => return Poll::Ready(None),
                Some(Part::Head(head)) => {
                    let head = std::mem::take(head);
                    self.parts.pop_front();
                    break head;
                }
                Some(Part::Bytes(body)) => match ready!(Pin::new(body).poll_frame(cx)) {
                    None => {
                        self.parts.pop_front();
                    }
                    Some(Ok(frame)) => break frame.into_data().unwrap_or_default(),
                    Some(Err(failure)) => {
                        self.parts.clear();
                        return Poll::Ready(Some(Err(failure)));
                    }
                },
            }
        };
        self.left -= bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use http::HeaderName;
    use http_body_util::BodyExt;
    use tempfile::TempDir;

    use super::*;

    fn at(name: &str, seconds: u64, content: &[u8]) -> (TempDir, Found) {
        let dir = tempfile::tempdir().unwrap();
        let found = put(&dir, name, seconds, content);
        (dir, found)
    }

    fn put(dir: &TempDir, name: &str, seconds: u64, content: &[u8]) -> Found {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
            .unwrap();
        let metadata = file.metadata().unwrap();
        Found {
            path,
            file,
            metadata,
        }
    }

    fn again(found: &Found) -> Found {
        Found {
            path: found.path.clone(),
            file: File::open(&found.path).unwrap(),
            metadata: found.file.metadata().unwrap(),
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

    fn get(found: &Found, of: &[(&str, &str)]) -> Response {
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
    async fn a_file_is_sent_with_what_a_cache_wants_to_know() {
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
    async fn head_is_get_without_the_body_and_the_rest_is_not_allowed() {
        let (_dir, found) = at("a.png", BILLION, b"png");
        let head =
            |of: &[(&str, &str)]| answer(again(&found), &Method::HEAD, &headers(of), |_| None);
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
    fn types_are_those_of_the_names() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.JS", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.xml", "text/xml"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.wasm", "application/wasm"),
            ("a.woff2", "font/woff2"),
            ("a.jpg", "image/jpeg"),
            ("a.unknown", "application/octet-stream"),
            ("LICENSE", "application/octet-stream"),
        ] {
            assert_eq!(content_type(Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn conditions_are_decided_in_the_order_of_the_standard() {
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
    async fn one_range_is_sent_as_it_is() {
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
            let said = response.headers()["content-range"]
                .to_str()
                .unwrap()
                .to_owned();
            assert!(
                said.starts_with("bytes ") && said.ends_with("/10"),
                "{said}"
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
    async fn ranges_that_make_no_sense_get_the_whole_file() {
        let (_dir, found) = at("a.bin", BILLION, b"0123456789");
        let many = format!("bytes={}", "0-0,".repeat(MOST_RANGES + 1));
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
    fn a_range_behind_the_end_is_not_satisfiable() {
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
    async fn many_ranges_are_sent_as_parts() {
        let (_dir, found) = at("a.txt", BILLION, b"0123456789");
        let response = get(&found, &[("range", "bytes=0-1, 4-4,-2")]);
        assert_eq!(response.status(), 206);
        let said = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        let boundary = said
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
                "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{bytes}"
            )
        };
        let parts = [part("0-1", "01"), part("4-4", "4"), part("8-9", "89")].concat();
        assert_eq!(text, format!("{parts}\r\n--{boundary}--\r\n"));
    }

    #[test]
    fn a_range_of_another_version_is_not_sent() {
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
    async fn a_compressed_sibling_is_sent_to_those_who_accept_it() {
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
            let said = response
                .headers()
                .get("content-encoding")
                .map(|v| v.to_str().unwrap());
            assert_eq!(said.unwrap_or_default(), coding, "{accept}");
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
    fn a_sibling_that_is_older_or_of_an_image_is_not_asked_for() {
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
    fn a_date_that_says_nothing_is_not_believed() {
        // What zip and reproducible builds write, and a clock that was wrong.
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
    async fn a_large_file_comes_in_chunks() {
        let content: Vec<u8> = (0..700_000u32).map(|i| (i % 251) as u8).collect();
        let (_dir, found) = at("a.bin", BILLION, &content);
        for range in [0..700_000, 5..600_000, 262_144..524_288, 0..65_537] {
            let asked = format!("bytes={}-{}", range.start, range.end - 1);
            let response = get(&found, &[("range", &asked)]);
            let body = response.into_body();
            assert!(matches!(body, ResponseBody::Stream(_)));
            assert_eq!(body.size_hint().exact(), Some(range.len() as u64));
            assert_eq!(body.collect().await.unwrap().to_bytes(), content[range]);
        }
        let mut body = FileBody::new(Arc::new(again(&found).file), 10, 300_000);
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first.len() as u64, CHUNK);
        assert_eq!((body.offset, body.length), (10 + CHUNK, 300_000 - CHUNK));
    }

    #[tokio::test]
    async fn a_file_that_becomes_shorter_is_a_failure_and_not_a_shorter_body() {
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
    async fn the_parts_fail_as_the_whole_does() {
        let (_dir, found) = at("a.bin", BILLION, &vec![1; 1000]);
        let response = get(&found, &[("range", "bytes=0-1,900-999")]);
        found.file.set_len(500).unwrap();
        assert!(matches!(
            response.into_body().collect().await,
            Err(Failure::Malformed(_))
        ));
    }

    /// What a client sees on a connection of its own, and whether the connection ended well.
    async fn over_http(found: impl Fn() -> Found, request: &str) -> (String, bool) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let service =
            hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
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
    async fn the_client_can_tell_a_head_from_a_body_and_a_failure_from_an_end() {
        let (_dir, found) = at("a.txt", BILLION, &[b'x'; 300_000]);
        let get = |request| over_http(|| again(&found), request);
        let (head, _) = get("HEAD / HTTP/1.1\r\n").await;
        assert!(
            head.contains("content-length: 300000\r\n") && head.ends_with("\r\n\r\n"),
            "{head}"
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
}
