//! Rewrites request lines, headers and chunks where hyper is stricter or laxer than RFC 9110 and
//! 9112.
//!
//! Bytes of the target are percent-encoded, later minor versions of HTTP/1 become 1.1, and
//! malformed chunk extensions become bytes that hyper rejects.
//!
//! hyper rejects some bytes in a target that clients send unencoded and other servers accept. Their
//! encoding is longer, so only a request line may be changed: a longer body would end inside the
//! next request. The encoder therefore finds the end of each request as hyper does. It need not
//! know which requests hyper rejects, because they end the connection.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::chunk_extensions::{Chunks, ChunksRead};

/// The body of the last request that hyper has parsed.
#[derive(Debug, Default)]
pub struct BodyFraming {
    /// hyper has yet to read the body to its end.
    is_awaited: AtomicBool,
}

impl BodyFraming {
    /// hyper has parsed a header section.
    pub fn begins(&self, has_body: bool) {
        self.is_awaited.store(has_body, Ordering::Relaxed);
    }

    /// hyper has read the body to its end.
    pub fn is_received(&self) {
        self.is_awaited.store(false, Ordering::Relaxed);
    }

    /// Whether hyper has read the last request to its end, also before the first.
    pub fn is_whole(&self) -> bool {
        !self.is_awaited.load(Ordering::Relaxed)
    }
}

/// What has arrived, up to the last byte given to hyper.
#[derive(Debug)]
pub struct RequestLineEncoder {
    at: LinePosition,
    last: [u8; VERSION.len()],
    /// The body that the header section announces.
    body: BodyLength,
}

/// Precedes the minor version in a request line. hyper rejects a target with a space.
const VERSION: &[u8; 8] = b" HTTP/1.";

#[derive(Debug, Clone, Copy)]
enum LinePosition {
    /// Before a request, or at empty lines before one.
    Start,
    Method,
    /// At the target's beginning, or in what precedes the path of `http://host/path`.
    Authority {
        slashes: u8,
    },
    Target,
    /// After the request line.
    Headers(HeaderLine),
    /// In a body of which this many bytes are left.
    Counted(u64),
    Chunked(Chunks),
}

/// The position in a line of the header section.
#[derive(Debug, Clone, Copy)]
enum HeaderLine {
    Start,
    AfterCr,
    /// This many bytes match the name.
    Name(BodyHeader, u8),
    /// In the value of Content-Length.
    Length,
    Within,
}

/// A header that announces a body.
#[derive(Debug, Clone, Copy)]
enum BodyHeader {
    Length,
    Coding,
}

impl BodyHeader {
    const fn name(self) -> &'static [u8] {
        match self {
            BodyHeader::Length => b"content-length:",
            BodyHeader::Coding => b"transfer-encoding:",
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum BodyLength {
    Counted(u64),
    /// By any transfer coding: hyper and Surus reject others.
    Chunked,
}

impl Default for RequestLineEncoder {
    fn default() -> RequestLineEncoder {
        RequestLineEncoder {
            at: LinePosition::Start,
            last: [0; VERSION.len()],
            body: BodyLength::Counted(0),
        }
    }
}

/// Bytes with changes, which are made in their order.
struct Changes<'a> {
    bytes: &'a [u8],
    changed: Vec<u8>,
    /// This many of the bytes are in `changed`.
    copied: usize,
}

impl<'a> Changes<'a> {
    fn of(bytes: &'a [u8]) -> Changes<'a> {
        Changes {
            bytes,
            changed: Vec::new(),
            copied: 0,
        }
    }

    fn replace(&mut self, at: usize, with: &[u8]) {
        self.changed.extend_from_slice(&self.bytes[self.copied..at]);
        self.changed.extend_from_slice(with);
        self.copied = at + 1;
    }

    fn encode(&mut self, part: Range<usize>) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        for at in part {
            let byte = self.bytes[at];
            if is_encoded(byte) {
                let digits = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                self.replace(at, &[b'%', digits[0], digits[1]]);
            }
        }
    }

    /// None without a change.
    fn made(mut self) -> Option<Vec<u8>> {
        (self.copied > 0).then(|| {
            self.changed.extend_from_slice(&self.bytes[self.copied..]);
            self.changed
        })
    }
}

impl RequestLineEncoder {
    /// Processes bytes before hyper reads them. Returns what hyper must read instead, if that
    /// differs.
    pub fn read(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut changes = Changes::of(bytes);
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            at += match &mut self.at {
                LinePosition::Start
                | LinePosition::Method
                | LinePosition::Authority { .. }
                | LinePosition::Target => {
                    let (path, end) = self.line(rest);
                    let line = &bytes[..at + end];
                    let version = match self.at {
                        LinePosition::Start => None, // no line has begun
                        _ => self.later_version(line),
                    };
                    changes.encode(at + path..version.unwrap_or(line.len()));
                    if let Some(digit) = version {
                        changes.replace(digit, b"1");
                    }
                    end
                }
                LinePosition::Headers(line) => {
                    let line = *line;
                    self.header(line, rest)
                }
                LinePosition::Counted(left) => {
                    let len = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= len as u64;
                    if *left == 0 {
                        self.at = LinePosition::Start;
                    }
                    len
                }
                LinePosition::Chunked(chunks) => match chunks.read(rest) {
                    ChunksRead::All => rest.len(),
                    ChunksRead::End(len) => {
                        self.at = LinePosition::Start;
                        len
                    }
                    ChunksRead::Rejected(byte) => {
                        // The one byte that hyper rejects in an extension, so the client gets 400.
                        changes.replace(at + byte, b"\n");
                        rest.len()
                    }
                },
            };
        }
        let tail = &bytes[bytes.len().saturating_sub(VERSION.len())..];
        self.last.rotate_left(tail.len());
        self.last[VERSION.len() - tail.len()..].copy_from_slice(tail);
        changes.made()
    }

    /// Follows a request line or a part of it. Returns where in it the path begins, and where the
    /// line or its part ends.
    fn line(&mut self, bytes: &[u8]) -> (usize, usize) {
        let mut at = 0;
        if let LinePosition::Start = self.at {
            let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            at = bytes.iter().take_while(|byte| is_line_end(byte)).count();
            if at == bytes.len() {
                return (at, at);
            }
            self.body = BodyLength::Counted(0);
            self.at = LinePosition::Method;
        }
        let newline = memchr::memchr(b'\n', &bytes[at..]).map(|len| at + len);
        let end = newline.unwrap_or(bytes.len());
        if let LinePosition::Method = self.at {
            match memchr::memchr(b' ', &bytes[at..end]) {
                Some(len) => {
                    at += len + 1;
                    self.at = LinePosition::Authority { slashes: 0 };
                }
                None => at = end,
            }
        }
        while let LinePosition::Authority { slashes } = self.at
            && at < end
        {
            // The first byte of `/path`, the third of `http://host/path`.
            let slashes = match bytes[at] {
                b'/' if slashes == 0 => 4,
                b'/' => slashes + 1,
                _ => slashes.max(1),
            };
            self.at = match slashes {
                4 => LinePosition::Target,
                _ => LinePosition::Authority { slashes },
            };
            at += 1;
        }
        if let Some(newline) = newline {
            self.at = LinePosition::Headers(HeaderLine::Start);
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

    /// Follows a part of the header section. Returns its length.
    fn header(&mut self, line: HeaderLine, bytes: &[u8]) -> usize {
        let Some(first) = bytes.first() else { return 0 };
        let name = match (line, first) {
            (HeaderLine::Start, b'c' | b'C') => Some((BodyHeader::Length, 0)),
            (HeaderLine::Start, b't' | b'T') => Some((BodyHeader::Coding, 0)),
            (HeaderLine::Name(header, matched), _) => Some((header, matched)),
            _ => None,
        };
        if let Some((header, matched)) = name
            && first.to_ascii_lowercase() == header.name()[usize::from(matched)]
        {
            let matched = matched + 1;
            self.at = LinePosition::Headers(match usize::from(matched) == header.name().len() {
                true => self.announced(header),
                false => HeaderLine::Name(header, matched),
            });
            return 1;
        }
        let (next, len) = match (line, first) {
            (HeaderLine::Start | HeaderLine::AfterCr, b'\n') => (self.after_headers(), 1),
            (HeaderLine::Start, b'\r') => (LinePosition::Headers(HeaderLine::AfterCr), 1),
            (HeaderLine::Length, b'0'..=b'9' | b' ' | b'\t') => {
                self.digit(*first);
                (LinePosition::Headers(HeaderLine::Length), 1)
            }
            _ => match memchr::memchr(b'\n', bytes) {
                Some(len) => (LinePosition::Headers(HeaderLine::Start), len + 1),
                None => (LinePosition::Headers(HeaderLine::Within), bytes.len()),
            },
        };
        self.at = next;
        len
    }

    /// A header announces a body. A transfer coding overrides a length.
    fn announced(&mut self, header: BodyHeader) -> HeaderLine {
        match (header, self.body) {
            (BodyHeader::Coding, _) => self.body = BodyLength::Chunked,
            (BodyHeader::Length, BodyLength::Chunked) => {}
            (BodyHeader::Length, BodyLength::Counted(_)) => {
                self.body = BodyLength::Counted(0);
                return HeaderLine::Length;
            }
        }
        HeaderLine::Within
    }

    fn digit(&mut self, byte: u8) {
        if let (BodyLength::Counted(len), Some(digit)) =
            (&mut self.body, char::from(byte).to_digit(10))
        {
            *len = len.saturating_mul(10).saturating_add(digit.into());
        }
    }

    fn after_headers(&self) -> LinePosition {
        match self.body {
            BodyLength::Counted(0) => LinePosition::Start,
            BodyLength::Counted(len) => LinePosition::Counted(len),
            BodyLength::Chunked => LinePosition::Chunked(Chunks::default()),
        }
    }
}

/// Bytes that hyper rejects in the path or in the query, except spaces and control characters.
fn is_encoded(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x80..)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
