//! Changes what hyper reads of a request where hyper is stricter or laxer than RFC 9110 and 9112: bytes of the target are
//! percent-encoded, later minor versions of HTTP/1 become 1.1, malformed extensions of chunks become what hyper refuses.
//!
//! hyper refuses some bytes in a target that clients send as they are and other servers take. What we put in their place is longer, so
//! nothing but a request's line may ever be touched: a body that became longer would end in the next request. Lines are found without
//! parsing requests a second time: what comes while none is in flight begins one, if hyper has taken all that came before. Where that is
//! not certain, as with requests that do not wait for the answer to those before them, bytes stay as they are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::chunk_extensions::Chunks;

/// What the service tells of the request that has begun last.
#[derive(Debug)]
pub struct Begun {
    /// The length of its body.
    body: AtomicU64,
    /// hyper has read it to its end.
    is_whole: AtomicBool,
}

/// None has begun since the line did that we follow.
const NONE: u64 = u64::MAX;
/// Where its body ends, cannot be told by counting.
const UNCOUNTED: u64 = u64::MAX - 1;

impl Default for Begun {
    fn default() -> Begun {
        Begun {
            body: AtomicU64::new(NONE),
            is_whole: AtomicBool::new(false),
        }
    }
}

impl Begun {
    /// hyper has read a head, with this as the length of its body.
    pub fn begins(&self, body: Option<u64>) {
        self.is_whole.store(body == Some(0), Ordering::Relaxed);
        let is_alone = self.body.load(Ordering::Relaxed) == NONE;
        let body = match body {
            Some(0) => 0,
            Some(len) if is_alone && len < UNCOUNTED => len,
            _ => UNCOUNTED,
        };
        self.body.store(body, Ordering::Relaxed);
    }

    /// hyper has read its body to the end.
    pub fn is_taken_in(&self) {
        self.is_whole.store(true, Ordering::Relaxed);
        if self.body.load(Ordering::Relaxed) == UNCOUNTED {
            self.body.store(0, Ordering::Relaxed);
        }
    }

    /// Has hyper read the last request to its end? False before the first.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    fn take(&self) -> u64 {
        match self.body.load(Ordering::Relaxed) {
            NONE => NONE,
            _ => self.body.swap(NONE, Ordering::Relaxed),
        }
    }
}

/// What has come, up to the last byte that hyper was given.
#[derive(Debug)]
pub struct Follower {
    at: At,
    last: [u8; VERSION.len()],
    /// The head has a transfer coding, which can only be chunked: others are refused.
    is_chunked: bool,
}

/// What precedes the minor version in a request's first line. A target has no space, or hyper refuses it.
const VERSION: &[u8; 8] = b" HTTP/1.";

const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";

#[derive(Debug, Clone, Copy)]
enum At {
    /// Before a request, or where empty lines precede one.
    Start,
    Method,
    /// At the target's beginning, or in what precedes the path of `http://host/path`.
    Authority {
        slashes: u8,
    },
    Target,
    /// Behind the first line. A body may follow, whatever the method is.
    Head(Line),
    /// So many bytes behind that head.
    Behind(u64),
    /// In a chunked body, or behind it.
    Chunked(Chunks),
    /// Anywhere.
    Unknown,
}

/// Where in a line of the head.
#[derive(Debug, Clone, Copy)]
enum Line {
    Start,
    AfterCr,
    /// So many bytes of it are those of [`TRANSFER_ENCODING`].
    Name(u8),
    Within,
}

impl Default for Follower {
    fn default() -> Follower {
        Follower {
            at: At::Start,
            last: [0; VERSION.len()],
            is_chunked: false,
        }
    }
}

impl Follower {
    /// To be told of all that comes, before hyper is. What is to be given to hyper instead, if it is not the same.
    pub fn read(&mut self, bytes: &[u8], is_idle: bool, begun: &Begun) -> Option<Vec<u8>> {
        if is_idle {
            self.at = match (begun.take(), self.at) {
                (NONE, at) => at,
                // All that hyper can have kept is a head without its end, and such a head does not end with an empty line.
                (0, _) if self.last.ends_with(b"\n\n") || self.last.ends_with(b"\n\r\n") => {
                    At::Start
                }
                (body, At::Behind(len)) if body == len => At::Start,
                _ => At::Unknown,
            };
        }
        let mut encoded = None;
        let rest = match self.at {
            At::Unknown => bytes,
            At::Start | At::Method | At::Authority { .. } | At::Target if is_idle => {
                let (from, end) = self.line(bytes);
                if let Some(first) = bytes[from..end].iter().position(|byte| is_encoded(*byte)) {
                    encoded = Some(encode(bytes, from + first..end));
                }
                if let Some(at) = self.later_version(&bytes[..end]) {
                    let line = encoded.get_or_insert_with(|| bytes.to_vec());
                    // What follows the line is as long as it came.
                    let at = line.len() - (bytes.len() - at);
                    line[at] = b'1';
                }
                &bytes[end..]
            }
            // No request has a line that it begins before.
            At::Start | At::Method | At::Authority { .. } | At::Target => {
                self.at = At::Unknown;
                bytes
            }
            At::Head(_) | At::Behind(_) | At::Chunked(_) => bytes,
        };
        if let Some(at) = self.behind_the_line(rest) {
            let changed = encoded.get_or_insert_with(|| bytes.to_vec());
            let at = changed.len() - (rest.len() - at);
            // The one byte that hyper refuses in an extension; so the client gets 400.
            changed[at] = b'\n';
        }
        let tail = &bytes[bytes.len().saturating_sub(VERSION.len())..];
        self.last.rotate_left(tail.len());
        self.last[VERSION.len() - tail.len()..].copy_from_slice(tail);
        encoded
    }

    /// Goes through a line, or the part of it that there is: where in it the path begins, and where it ends.
    fn line(&mut self, bytes: &[u8]) -> (usize, usize) {
        let mut at = 0;
        if let At::Start = self.at {
            let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            at = bytes.iter().take_while(|byte| is_line_end(byte)).count();
            if at == bytes.len() {
                return (at, at);
            }
            self.is_chunked = false;
            self.at = At::Method;
        }
        let newline = memchr::memchr(b'\n', &bytes[at..]).map(|len| at + len);
        let end = newline.unwrap_or(bytes.len());
        if let At::Method = self.at {
            match memchr::memchr(b' ', &bytes[at..end]) {
                Some(len) => {
                    at += len + 1;
                    self.at = At::Authority { slashes: 0 };
                }
                None => at = end,
            }
        }
        while let At::Authority { slashes } = self.at
            && at < end
        {
            // The first byte of `/path`, the third of `http://host/path`.
            let slashes = match bytes[at] {
                b'/' if slashes == 0 => 4,
                b'/' => slashes + 1,
                _ => slashes.max(1),
            };
            self.at = match slashes {
                4 => At::Target,
                _ => At::Authority { slashes },
            };
            at += 1;
        }
        if let Some(newline) = newline {
            self.at = At::Head(Line::Start);
            return (at, newline + 1);
        }
        (at, end)
    }

    /// Where in what has come of the line the minor version of HTTP/1 is, if it is one that hyper does not know. Whoever speaks it
    /// is answered in 1.1, the latest that we know (RFC 9112, 2.6).
    fn later_version(&self, line: &[u8]) -> Option<usize> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let (digit, before) = text.split_last()?;
        if !matches!(digit, b'2'..=b'9') {
            return None;
        }
        let earlier = VERSION.len().saturating_sub(before.len());
        let is_version = before.ends_with(&VERSION[earlier..])
            && self.last[VERSION.len() - earlier..] == VERSION[..earlier];
        is_version.then_some(before.len())
    }

    /// The position of a byte that hyper takes and should not.
    fn behind_the_line(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        while let At::Head(line) = self.at {
            let first = rest.first()?;
            let matched = match line {
                Line::Name(matched) => usize::from(matched),
                _ => 0,
            };
            let (next, len) = match (line, first) {
                (Line::Start | Line::AfterCr, b'\n') if self.is_chunked => {
                    (At::Chunked(Chunks::default()), 1)
                }
                (Line::Start | Line::AfterCr, b'\n') => (At::Behind(0), 1),
                (Line::Start, b'\r') => (At::Head(Line::AfterCr), 1),
                (Line::Start | Line::Name(_), byte)
                    if byte.to_ascii_lowercase() == TRANSFER_ENCODING[matched] =>
                {
                    let matched = matched + 1;
                    self.is_chunked |= matched == TRANSFER_ENCODING.len();
                    let line = match matched == TRANSFER_ENCODING.len() {
                        true => Line::Within,
                        // It is shorter than that.
                        false => Line::Name(matched as u8),
                    };
                    (At::Head(line), 1)
                }
                _ => match memchr::memchr(b'\n', rest) {
                    Some(len) => (At::Head(Line::Start), len + 1),
                    None => (At::Head(Line::Within), rest.len()),
                },
            };
            self.at = next;
            rest = &rest[len..];
        }
        match &mut self.at {
            At::Behind(len) => *len += rest.len() as u64,
            At::Chunked(chunks) => {
                let at = chunks.read(rest)?;
                return Some(bytes.len() - rest.len() + at);
            }
            _ => {}
        }
        None
    }
}

/// What hyper refuses, in the path or in the query, and is neither a space nor a control character.
fn is_encoded(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x80..)
}

fn encode(bytes: &[u8], part: std::ops::Range<usize>) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = Vec::with_capacity(bytes.len() + 2 * part.len());
    encoded.extend_from_slice(&bytes[..part.start]);
    for byte in &bytes[part.clone()] {
        match is_encoded(*byte) {
            true => encoded.extend_from_slice(&[
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
            false => encoded.push(*byte),
        }
    }
    encoded.extend_from_slice(&bytes[part.end..]);
    encoded
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use http_body_util::BodyExt;
    use hyper::body::{Body, Frame, Incoming};
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::io::{Io, Shared, Socket};
    use super::*;

    fn read_in_pieces(text: &[u8], size: usize) -> Vec<u8> {
        let (mut follower, begun) = (Follower::default(), Begun::default());
        let pieces = text.chunks(size);
        let read = pieces.flat_map(|piece| {
            let encoded = follower.read(piece, true, &begun);
            encoded.unwrap_or_else(|| piece.to_vec())
        });
        read.collect()
    }

    #[test]
    fn the_path_of_the_first_line_is_encoded() {
        for (sent, given) in [
            ("GET /?q={\"a\":1} HTTP/1.1", "GET /?q={%22a%22:1} HTTP/1.1"),
            ("GET /<`\u{e9}> HTTP/1.1", "GET /%3C%60%C3%A9%3E HTTP/1.1"),
            ("\r\n\nGET /\" HTTP/1.1", "\r\n\nGET /%22 HTTP/1.1"),
            (
                "GET http://a\"b/\" HTTP/1.1",
                "GET http://a\"b/%22 HTTP/1.1",
            ),
            ("\"GET a\"b HTTP/1.1", "\"GET a\"b HTTP/1.1"),
            ("GET * HTTP/1.1", "GET * HTTP/1.1"),
            ("GET /a b HTTP/1.1", "GET /a b HTTP/1.1"),
            ("GET /{}|\\^~# HTTP/1.1", "GET /{}|\\^~# HTTP/1.1"),
        ] {
            let rest = "\r\nX: /\"\r\n\r\n\"GET /\" HTTP/1.1\r\n";
            for size in 1..=sent.len() + rest.len() {
                let read = read_in_pieces(format!("{sent}{rest}").as_bytes(), size);
                assert_eq!(
                    String::from_utf8_lossy(&read),
                    format!("{given}{rest}"),
                    "{size}"
                );
            }
        }
    }

    #[test]
    fn later_versions_of_http_1_become_1_1() {
        for (sent, given) in [
            ("GET / HTTP/1.2", "GET / HTTP/1.1"),
            ("GET /?\" HTTP/1.9", "GET /?%22 HTTP/1.1"),
            ("OPTIONS * HTTP/1.3", "OPTIONS * HTTP/1.1"),
            ("GET / HTTP/1.0", "GET / HTTP/1.0"),
            ("GET / HTTP/2.0", "GET / HTTP/2.0"),
            ("GET / HTTP/2.2", "GET / HTTP/2.2"),
            ("GET /HTTP/1.2", "GET /HTTP/1.2"),
            ("GET / http/1.2", "GET / http/1.2"),
        ] {
            for end in ["\r\n", "\n"] {
                let rest = format!("{end}X: HTTP/1.2{end}{end} HTTP/1.2");
                for size in 1..=sent.len() + rest.len() {
                    let read = read_in_pieces(format!("{sent}{rest}").as_bytes(), size);
                    let read = String::from_utf8_lossy(&read);
                    assert_eq!(read, format!("{given}{rest}"), "{size}");
                }
            }
        }
    }

    #[test]
    fn malformed_chunk_extensions_become_what_hyper_refuses() {
        let head = "POST /\" HTTP/1.2\r\nHost: a\r\nTRANSFER-Encoding: chunked\r\n\r\n";
        let given = "POST /%22 HTTP/1.1\r\nHost: a\r\nTRANSFER-Encoding: chunked\r\n\r\n";
        let get = head.replace("POST", "GET");
        let given_get = given.replace("POST", "GET");
        let plain = head.replace("TRANSFER", "X");
        let given_plain = given.replace("TRANSFER", "X");
        for (sent, expected) in [
            (
                format!("{head}1;a\0\r\nx\r\n"),
                format!("{given}1;a\n\r\nx\r\n"),
            ),
            (
                format!("{head}1;a\r\n;\r\n"),
                format!("{given}1;a\r\n;\r\n"),
            ),
            (
                format!("{get}1;a\0\r\nx\r\n"),
                format!("{given_get}1;a\n\r\nx\r\n"),
            ),
            (
                format!("{plain}1;a\0\r\n"),
                format!("{given_plain}1;a\0\r\n"),
            ),
        ] {
            for size in 1..=sent.len() {
                let read = read_in_pieces(sent.as_bytes(), size);
                assert_eq!(String::from_utf8_lossy(&read), expected, "{size}");
            }
        }
    }

    #[test]
    fn what_http_refuses_is_encoded() {
        for byte in 0x21..=0xff_u8 {
            for before in [&b"/a"[..], b"/a?b"] {
                let target = [before, &[byte, b'c']].concat();
                let is_taken = http::Uri::try_from(&target[..]).is_ok();
                let is_control = byte == 0x7f;
                assert!(
                    is_taken || is_encoded(byte) != is_control,
                    "{byte:x} behind {before:?}"
                );
            }
        }
    }

    #[derive(Debug, Clone)]
    struct Asked {
        target: &'static str,
        body: &'static str,
        is_chunked: bool,
        /// The service answers without having looked at the body.
        is_ignored: bool,
        /// It is sent before the answers to those before it have come.
        is_early: bool,
    }

    impl Asked {
        fn text(&self) -> Vec<u8> {
            let method = if self.body.is_empty() { "GET" } else { "POST" };
            let path = if self.is_ignored { "/ignored" } else { "" };
            let line = format!("{method} {path}{} HTTP/1.1\r\nHost: \"a\"\r\n", self.target);
            let (len, body) = (self.body.len(), self.body);
            match (body, self.is_chunked) {
                ("", _) => format!("{line}\r\n"),
                (_, true) => format!(
                    "{line}Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n{body}\r\n0\r\n\r\n"
                ),
                (_, false) => format!("{line}Content-Length: {len}\r\n\r\n{body}"),
            }
            .into_bytes()
        }
    }

    fn asked() -> impl Strategy<Value = Asked> {
        let target = prop::sample::select(vec!["/", "/?a=\"<>\"", "/\u{e9}?`", "/plain?b={}"]);
        let body = prop::sample::select(vec![
            "",
            "",
            "x",
            "\r\n\r\n",
            "GET /\"smuggled HTTP/1.1\r\nHost: \"x\"\r\n\r\n",
            "\r\nGET /\"smuggled HTTP/1.1\r\n",
            "POST /\" HTTP/1.1\nContent-Length: 5\n\n\"",
        ]);
        let maybe = || prop::bool::weighted(0.3);
        (target, body, maybe(), maybe(), maybe()).prop_map(
            |(target, body, is_chunked, is_ignored, is_early)| Asked {
                target,
                body,
                is_chunked,
                is_ignored,
                is_early,
            },
        )
    }

    /// A response's body, at whose end nothing is in flight, as with the service's own.
    struct Answer(Option<Bytes>, Arc<Shared>);

    impl Body for Answer {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    impl Drop for Answer {
        fn drop(&mut self) {
            self.1.activity.request_ends();
        }
    }

    type Seen = Arc<Mutex<Vec<(String, Option<Bytes>)>>>;

    async fn answer(
        request: http::Request<Incoming>,
        connection: Arc<Shared>,
        seen: Seen,
    ) -> Result<http::Response<Answer>, Infallible> {
        let target = request.uri().to_string();
        let mut body = None;
        if !target.starts_with("/ignored") {
            match request.into_body().collect().await {
                Ok(all) => body = Some(all.to_bytes()),
                Err(_) => return Ok(http::Response::new(Answer(None, connection))),
            }
            connection.begun.is_taken_in();
        }
        seen.lock().unwrap().push((target, body));
        Ok(http::Response::new(Answer(
            Some(Bytes::from_static(b"answer")),
            connection,
        )))
    }

    /// Sends requests in pieces of these sizes; what the service has seen, and whether the connection was still good at the end.
    async fn exchange(requests: &[Asked], sizes: &[usize]) -> Vec<(String, Option<Bytes>)> {
        let (mut client, server) = tokio::net::UnixStream::pair().unwrap();
        let io = Io::new(Socket::Unix(server), 1 << 20);
        let (shared, seen) = (io.shared(), Seen::default());
        let service = {
            let seen = seen.clone();
            hyper::service::service_fn(move |request: http::Request<Incoming>| {
                use hyper::body::Body as _;
                shared.activity.request_begins();
                shared.begun.begins(match request.body().is_end_stream() {
                    true => Some(0),
                    false => request.body().size_hint().exact(),
                });
                answer(request, shared.clone(), seen.clone())
            })
        };
        let served = tokio::spawn(async move {
            let http = hyper::server::conn::http1::Builder::new();
            let _ = http.serve_connection(TokioIo::new(io), service).await;
        });
        let mut sizes = sizes.iter().cycle();
        let (mut answers, mut wanted) = (Vec::new(), 0);
        'all: for request in requests {
            while !request.is_early && count(&answers) < wanted {
                match client.read_buf(&mut answers).await {
                    Ok(1..) => {}
                    _ => break 'all,
                }
            }
            let text = request.text();
            let mut rest = &text[..];
            while !rest.is_empty() {
                let piece = rest.len().min(*sizes.next().unwrap());
                if client.write_all(&rest[..piece]).await.is_err() {
                    break 'all;
                }
                rest = &rest[piece..];
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
            }
            wanted += 1;
        }
        let _ = client.shutdown().await;
        let _ = client.read_to_end(&mut answers).await;
        served.await.unwrap();
        let seen = seen.lock().unwrap();
        seen.clone()
    }

    fn count(answers: &[u8]) -> usize {
        memchr::memmem::find_iter(answers, b"6\r\nanswer\r\n0\r\n\r\n").count()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn nothing_but_lines_is_touched(
            requests in prop::collection::vec(asked(), 1..6),
            sizes in prop::collection::vec(1_usize..120, 1..5),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let exchange = exchange(&requests, &sizes);
            let seen = runtime.block_on(async {
                tokio::time::timeout(std::time::Duration::from_secs(10), exchange).await
            });
            prop_assert!(seen.is_ok(), "an answer did not come");
            let seen = seen.unwrap();
            prop_assert!(seen.len() <= requests.len(), "{seen:?}");
            for (seen, sent) in seen.iter().zip(&requests) {
                let path = if sent.is_ignored { "/ignored" } else { "" };
                let whole = format!("{path}{}", sent.target);
                let raw = whole.as_bytes();
                let encoded = String::from_utf8(encode(raw, 0..raw.len())).unwrap();
                // Where it was not certain that a line is one, valid UTF-8 is as it was.
                prop_assert!(seen.0 == encoded || sent.is_early || seen.0 == whole, "{seen:?}");
                if let Some(body) = &seen.1 {
                    prop_assert_eq!(body, sent.body);
                }
            }
            // Who waits for each answer, loses none.
            if requests.iter().all(|one| !one.is_early && (!one.is_ignored || one.body.is_empty())) {
                prop_assert_eq!(seen.len(), requests.len());
                for (seen, sent) in seen.iter().zip(&requests) {
                    prop_assert!(seen.0.is_ascii(), "{seen:?} {sent:?}");
                }
            }
        }
    }
}
