//! Rewrites request heads and chunks where hyper is stricter or laxer than RFC 9110 and 9112.
//!
//! Bytes of the target are percent-encoded, later minor versions of HTTP/1 become 1.1, and
//! malformed chunk extensions become bytes that hyper rejects.
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
    at: LinePosition,
    last: [u8; VERSION.len()],
    /// The header section has a transfer coding, which can only be chunked: others are rejected.
    is_chunked: bool,
}

/// Precedes the minor version in a request line. hyper rejects a target with a space.
const VERSION: &[u8; 8] = b" HTTP/1.";

const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";

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
            at: LinePosition::Start,
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
                    LinePosition::Start
                }
                (body, LinePosition::AfterHead(len)) if body == len => LinePosition::Start,
                _ => LinePosition::Unknown,
            };
        }
        let mut encoded = None;
        let rest = match self.at {
            LinePosition::Unknown => bytes,
            LinePosition::Start
            | LinePosition::Method
            | LinePosition::Authority { .. }
            | LinePosition::Target
                if is_idle =>
            {
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
            LinePosition::Start
            | LinePosition::Method
            | LinePosition::Authority { .. }
            | LinePosition::Target => {
                self.at = LinePosition::Unknown;
                bytes
            }
            LinePosition::Head(_) | LinePosition::AfterHead(_) | LinePosition::Chunked(_) => bytes,
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
        if let LinePosition::Start = self.at {
            let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            at = bytes.iter().take_while(|byte| is_line_end(byte)).count();
            if at == bytes.len() {
                return (at, at);
            }
            self.is_chunked = false;
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
            self.at = LinePosition::Head(HeaderLine::Start);
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
        while let LinePosition::Head(line) = self.at {
            let first = rest.first()?;
            let matched = match line {
                HeaderLine::Name(matched) => usize::from(matched),
                _ => 0,
            };
            let (next, len) = match (line, first) {
                (HeaderLine::Start | HeaderLine::AfterCr, b'\n') if self.is_chunked => {
                    (LinePosition::Chunked(Chunks::default()), 1)
                }
                (HeaderLine::Start | HeaderLine::AfterCr, b'\n') => (LinePosition::AfterHead(0), 1),
                (HeaderLine::Start, b'\r') => (LinePosition::Head(HeaderLine::AfterCr), 1),
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
                    (LinePosition::Head(line), 1)
                }
                _ => match memchr::memchr(b'\n', rest) {
                    Some(len) => (LinePosition::Head(HeaderLine::Start), len + 1),
                    None => (LinePosition::Head(HeaderLine::Within), rest.len()),
                },
            };
            self.at = next;
            rest = &rest[len..];
        }
        match &mut self.at {
            LinePosition::AfterHead(len) => *len += rest.len() as u64,
            LinePosition::Chunked(chunks) => {
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
mod tests;
