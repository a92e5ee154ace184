//! Rewrites what hyper reads where it is stricter or laxer than RFC 9110 and 9112: percent-encodes
//! bytes of the target, turns later minor versions of HTTP/1 into 1.1, and turns malformed chunk
//! extensions into bytes that hyper rejects.
//!
//! hyper rejects some bytes in a target that clients send unencoded and other servers accept. Their
//! encoding is longer, so only a request line may be changed: a longer body would end inside the
//! next request. Request lines are found without parsing requests twice: what arrives while no
//! request is in flight begins one, if hyper has read everything before it. If that is not certain,
//! as with pipelined requests, the bytes stay unchanged.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::chunk_extensions::Chunks;

/// The body of the last request that hyper has parsed.
#[derive(Debug)]
pub struct BodyFraming {
    len: AtomicU64,
    /// hyper has read the body to its end.
    is_whole: AtomicBool,
}

/// No request has begun since the current line did.
const NONE: u64 = u64::MAX;
/// The end of the body cannot be determined by counting.
const UNCOUNTED: u64 = u64::MAX - 1;

impl Default for BodyFraming {
    fn default() -> BodyFraming {
        BodyFraming {
            len: AtomicU64::new(NONE),
            is_whole: AtomicBool::new(false),
        }
    }
}

impl BodyFraming {
    /// hyper has parsed a header section, whose body has this length.
    pub fn begins(&self, body: Option<u64>) {
        self.is_whole.store(body == Some(0), Ordering::Relaxed);
        let is_alone = self.len.load(Ordering::Relaxed) == NONE;
        let body = match body {
            Some(0) => 0,
            Some(len) if is_alone && len < UNCOUNTED => len,
            _ => UNCOUNTED,
        };
        self.len.store(body, Ordering::Relaxed);
    }

    /// hyper has read the body to its end.
    pub fn is_received(&self) {
        self.is_whole.store(true, Ordering::Relaxed);
        if self.len.load(Ordering::Relaxed) == UNCOUNTED {
            self.len.store(0, Ordering::Relaxed);
        }
    }

    /// Whether hyper has read the last request to its end; false before the first.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    fn take(&self) -> u64 {
        match self.len.load(Ordering::Relaxed) {
            NONE => NONE,
            _ => self.len.swap(NONE, Ordering::Relaxed),
        }
    }
}

/// What has arrived, up to the last byte given to hyper.
#[derive(Debug)]
pub struct RequestLineEncoder {
    at: At,
    last: [u8; VERSION.len()],
    /// The header section has a transfer coding, which can only be chunked: others are rejected.
    is_chunked: bool,
}

/// Precedes the minor version in a request line. hyper rejects a target with a space.
const VERSION: &[u8; 8] = b" HTTP/1.";

const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";

#[derive(Debug, Clone, Copy)]
enum At {
    /// Before a request, or at empty lines before one.
    Start,
    Method,
    /// At the target's beginning, or in what precedes the path of `http://host/path`.
    Authority {
        slashes: u8,
    },
    Target,
    /// After the request line. A body may follow, whatever the method is.
    Head(HeaderLine),
    /// This many bytes after the header section.
    AfterHead(u64),
    /// In or after a chunked body.
    Chunked(Chunks),
    /// At an unknown position.
    Unknown,
}

/// The position in a line of the header section.
#[derive(Debug, Clone, Copy)]
enum HeaderLine {
    Start,
    AfterCr,
    /// This many bytes match [`TRANSFER_ENCODING`].
    Name(u8),
    Within,
}

impl Default for RequestLineEncoder {
    fn default() -> RequestLineEncoder {
        RequestLineEncoder {
            at: At::Start,
            last: [0; VERSION.len()],
            is_chunked: false,
        }
    }
}

impl RequestLineEncoder {
    /// Processes bytes before hyper reads them. Returns what hyper must read instead, if that
    /// differs.
    pub fn read(
        &mut self,
        bytes: &[u8],
        is_idle: bool,
        body_framing: &BodyFraming,
    ) -> Option<Vec<u8>> {
        if is_idle {
            self.at = match (body_framing.take(), self.at) {
                (NONE, at) => at,
                // All that hyper can still hold is an incomplete header section, which does not end
                // with an empty line.
                (0, _) if self.last.ends_with(b"\n\n") || self.last.ends_with(b"\n\r\n") => {
                    At::Start
                }
                (body, At::AfterHead(len)) if body == len => At::Start,
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
                    // The bytes after the line are unchanged.
                    let at = line.len() - (bytes.len() - at);
                    line[at] = b'1';
                }
                &bytes[end..]
            }
            // No request can begin inside a request line.
            At::Start | At::Method | At::Authority { .. } | At::Target => {
                self.at = At::Unknown;
                bytes
            }
            At::Head(_) | At::AfterHead(_) | At::Chunked(_) => bytes,
        };
        if let Some(at) = self.after_the_line(rest) {
            let changed = encoded.get_or_insert_with(|| bytes.to_vec());
            let at = changed.len() - (rest.len() - at);
            // The one byte that hyper rejects in an extension, so the client gets 400.
            changed[at] = b'\n';
        }
        let tail = &bytes[bytes.len().saturating_sub(VERSION.len())..];
        self.last.rotate_left(tail.len());
        self.last[VERSION.len() - tail.len()..].copy_from_slice(tail);
        encoded
    }

    /// Follows a request line or a part of it. Returns where in it the path begins and ends.
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
            self.at = At::Head(HeaderLine::Start);
            return (at, newline + 1);
        }
        (at, end)
    }

    /// The position of the minor version in the line, if hyper does not know that version. The
    /// client is answered in 1.1, the latest known version (RFC 9112, 2.6).
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

    /// The position of a byte that hyper accepts but should reject.
    fn after_the_line(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        while let At::Head(line) = self.at {
            let first = rest.first()?;
            let matched = match line {
                HeaderLine::Name(matched) => usize::from(matched),
                _ => 0,
            };
            let (next, len) = match (line, first) {
                (HeaderLine::Start | HeaderLine::AfterCr, b'\n') if self.is_chunked => {
                    (At::Chunked(Chunks::default()), 1)
                }
                (HeaderLine::Start | HeaderLine::AfterCr, b'\n') => (At::AfterHead(0), 1),
                (HeaderLine::Start, b'\r') => (At::Head(HeaderLine::AfterCr), 1),
                (HeaderLine::Start | HeaderLine::Name(_), byte)
                    if byte.to_ascii_lowercase() == TRANSFER_ENCODING[matched] =>
                {
                    let matched = matched + 1;
                    self.is_chunked |= matched == TRANSFER_ENCODING.len();
                    let line = match matched == TRANSFER_ENCODING.len() {
                        true => HeaderLine::Within,
                        // A shorter match.
                        false => HeaderLine::Name(matched as u8),
                    };
                    (At::Head(line), 1)
                }
                _ => match memchr::memchr(b'\n', rest) {
                    Some(len) => (At::Head(HeaderLine::Start), len + 1),
                    None => (At::Head(HeaderLine::Within), rest.len()),
                },
            };
            self.at = next;
            rest = &rest[len..];
        }
        match &mut self.at {
            At::AfterHead(len) => *len += rest.len() as u64,
            At::Chunked(chunks) => {
                let at = chunks.read(rest)?;
                return Some(bytes.len() - rest.len() + at);
            }
            _ => {}
        }
        None
    }
}

/// Bytes that hyper rejects in the path or in the query, except spaces and control characters.
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

    use super::super::io::{ConnectionState, Io, Socket};
    use super::*;

    fn read_in_pieces(text: &[u8], size: usize) -> Vec<u8> {
        let (mut follower, body_framing) = (RequestLineEncoder::default(), BodyFraming::default());
        let pieces = text.chunks(size);
        let read = pieces.flat_map(|piece| {
            let encoded = follower.read(piece, true, &body_framing);
            encoded.unwrap_or_else(|| piece.to_vec())
        });
        read.collect()
    }

    #[test]
    fn path_of_the_first_line_is_encoded() {
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
    fn later_http_1_version_becomes_1_1() {
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
    fn malformed_chunk_extension_is_rejected() {
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
    fn bytes_that_hyper_rejects_are_encoded() {
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
        /// The service answers without reading the body.
        is_ignored: bool,
        /// Sent before the previous responses have arrived.
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

    /// A response's body; when it ends, no request is in flight, as in the real service.
    struct Answer(Option<Bytes>, Arc<ConnectionState>);

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
            self.1.timers.request_ends();
        }
    }

    type Seen = Arc<Mutex<Vec<(String, Option<Bytes>)>>>;

    async fn answer(
        request: http::Request<Incoming>,
        connection: Arc<ConnectionState>,
        seen: Seen,
    ) -> Result<http::Response<Answer>, Infallible> {
        let target = request.uri().to_string();
        let mut body = None;
        if !target.starts_with("/ignored") {
            match request.into_body().collect().await {
                Ok(all) => body = Some(all.to_bytes()),
                Err(_) => return Ok(http::Response::new(Answer(None, connection))),
            }
            connection.body_framing.is_received();
        }
        seen.lock().unwrap().push((target, body));
        Ok(http::Response::new(Answer(
            Some(Bytes::from_static(b"answer")),
            connection,
        )))
    }

    /// Sends requests in pieces of these sizes. Returns what the service has received.
    async fn exchange(requests: &[Asked], sizes: &[usize]) -> Vec<(String, Option<Bytes>)> {
        let (mut client, server) = tokio::net::UnixStream::pair().unwrap();
        let io = Io::new(Socket::Unix(server), 1 << 20);
        let (shared, seen) = (io.shared(), Seen::default());
        let service = {
            let seen = seen.clone();
            hyper::service::service_fn(move |request: http::Request<Incoming>| {
                use hyper::body::Body as _;
                shared.timers.request_begins();
                shared
                    .body_framing
                    .begins(match request.body().is_end_stream() {
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
        fn only_request_lines_are_changed(
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
                // If it was not certain where a line begins, valid UTF-8 is unchanged.
                prop_assert!(seen.0 == encoded || sent.is_early || seen.0 == whole, "{seen:?}");
                if let Some(body) = &seen.1 {
                    prop_assert_eq!(body, sent.body);
                }
            }
            // A client that waits for each response loses none.
            let waits = |one: &Asked| {
                !one.is_early && (!one.is_ignored || one.body.is_empty())
            };
            if requests.iter().all(waits) {
                prop_assert_eq!(seen.len(), requests.len());
                for (seen, sent) in seen.iter().zip(&requests) {
                    prop_assert!(seen.0.is_ascii(), "{seen:?} {sent:?}");
                }
            }
        }
    }
}
