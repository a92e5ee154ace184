//! Parses a CGI script's response: header lines, an empty line, the body (RFC 3875, section 6).

use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use hyper::ext::ReasonPhrase;

use crate::budget::SMALL;

/// The parsed header block: a response without its body.
#[derive(Debug)]
pub struct CgiParts {
    pub status: StatusCode,
    /// A reason phrase other than the standard one, sent over HTTP/1.
    pub reason: Option<ReasonPhrase>,
    pub headers: HeaderMap,
}

/// The largest header block in bytes; a script that sends more is considered faulty.
pub const MAX_BLOCK: usize = 256 * 1024;

/// The most lines of a header block; each uses more memory than its bytes.
const MAX_LINES: usize = 1024;

/// How many rejected lines are returned for the log, and how many bytes of each.
const MAX_REJECTED: usize = 8;
const MAX_REJECTED_LEN: usize = 256;

/// Finds the end of the header block. Returns its length and the length of the empty line after it.
pub fn find_end(bytes: &[u8]) -> Option<(usize, usize)> {
    find_end_from(bytes, 0)
}

/// Like `find_end`, if the first `searched` bytes contain no end.
fn find_end_from(bytes: &[u8], searched: usize) -> Option<(usize, usize)> {
    // The end may begin in the last two of them.
    let from = searched.saturating_sub(2);
    if from == 0 && bytes.starts_with(b"\r\n") {
        return Some((0, 2));
    }
    if from == 0 && bytes.starts_with(b"\n") {
        return Some((0, 1));
    }
    memchr::memchr_iter(b'\n', &bytes[from..]).find_map(|at| {
        let end = from + at + 1;
        match &bytes[end..] {
            [b'\n', ..] => Some((end, 1)),
            [b'\r', b'\n', ..] => Some((end, 2)),
            _ => None,
        }
    })
}

/// A header block that arrives in pieces; each byte is searched once, whatever their size.
#[derive(Default)]
pub struct Block {
    bytes: BytesMut,
    searched: usize,
}

/// A complete header block and the data after it.
pub struct Split {
    pub block: Bytes,
    pub rest: Bytes,
}

/// The header block is larger than [`MAX_BLOCK`].
#[derive(Debug)]
pub struct TooLarge;

impl Block {
    /// Adds a piece. Returns None until the block is complete.
    pub fn add(&mut self, piece: Bytes) -> Result<Option<Split>, TooLarge> {
        // The first piece usually contains the whole block.
        let is_first = self.bytes.is_empty();
        let all = match is_first {
            true => &piece[..],
            false => {
                self.bytes.extend_from_slice(&piece);
                &self.bytes[..]
            }
        };
        match find_end_from(all, self.searched) {
            Some((end, _)) if end > MAX_BLOCK => Err(TooLarge),
            Some((end, empty)) => {
                let all = match is_first {
                    true => piece,
                    false => std::mem::take(&mut self.bytes).freeze(),
                };
                Ok(Some(Split {
                    // A copy: clients keep headers for long, and would keep the block of up to 256
                    // KiB in which they arrived.
                    block: Bytes::copy_from_slice(&all[..end]),
                    rest: all.slice(end + empty..),
                }))
            }
            None if all.len() > MAX_BLOCK => Err(TooLarge),
            None => {
                self.searched = all.len();
                if is_first {
                    self.bytes.extend_from_slice(&piece);
                }
                Ok(None)
            }
        }
    }
}

/// Parses a header block without its empty line. Returns lines that are invalid in an HTTP response
/// separately, for the log. The values share the block's memory, unless it is large: HTTP/2 keeps
/// single values in its compression table.
pub fn parse(block: &Bytes) -> Result<(CgiParts, Vec<String>), String> {
    let capacity = memchr::memchr_iter(b'\n', block).count().min(MAX_LINES) + 2;
    let mut parts = CgiParts {
        status: StatusCode::OK,
        reason: None,
        headers: HeaderMap::with_capacity(capacity),
    };
    let mut rejected = RejectedLines::default();
    let mut lines = 0;
    let mut start = 0;
    while start < block.len() {
        lines += 1;
        if lines > MAX_LINES {
            return Err(format!("the response has more than {MAX_LINES} headers"));
        }
        let end = memchr::memchr(b'\n', &block[start..]).map_or(block.len(), |at| start + at);
        let line = block[start..end]
            .strip_suffix(b"\r")
            .unwrap_or(&block[start..end]);
        start = end + 1;
        let Some(colon) = memchr::memchr(b':', line) else {
            rejected.add(line);
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"status") {
            (parts.status, parts.reason) = parse_status(value)?;
            continue;
        }
        let value = match block.len() > SMALL {
            true => HeaderValue::from_bytes(value),
            false => HeaderValue::from_maybe_shared(block.slice_ref(value)),
        };
        match (HeaderName::from_bytes(name), value) {
            (Ok(name), Ok(value)) => {
                parts.headers.append(name, value);
            }
            _ => rejected.add(line),
        }
    }
    Ok((parts, rejected.lines))
}

/// Rejected lines, as many as the log needs.
#[derive(Default)]
struct RejectedLines {
    lines: Vec<String>,
}

impl RejectedLines {
    fn add(&mut self, line: &[u8]) {
        if self.lines.len() < MAX_REJECTED {
            let line = &line[..line.len().min(MAX_REJECTED_LEN)];
            self.lines.push(String::from_utf8_lossy(line).into_owned());
        }
    }
}

fn parse_status(value: &[u8]) -> Result<(StatusCode, Option<ReasonPhrase>), String> {
    let wrong = || {
        let value = &value[..value.len().min(MAX_REJECTED_LEN)];
        format!("invalid status `{}`", String::from_utf8_lossy(value))
    };
    let digits = value.get(..3).ok_or_else(wrong)?;
    let status = StatusCode::from_bytes(digits).map_err(|_| wrong())?;
    if value.get(3).is_some_and(|c| *c != b' ') {
        return Err(wrong());
    }
    if status.is_informational() {
        // An interim status cannot end a response.
        return Ok((StatusCode::OK, None));
    }
    let reason = value.get(4..).unwrap_or_default();
    let standard = status
        .canonical_reason()
        .is_some_and(|standard| standard.as_bytes() == reason);
    let reason = (!standard && !reason.is_empty())
        .then(|| ReasonPhrase::try_from(reason).ok())
        .flatten()
        // Otherwise hyper would invent a reason phrase.
        .or_else(|| {
            let is_unknown = status.canonical_reason().is_none();
            is_unknown.then(|| ReasonPhrase::from_static(b""))
        });
    Ok((status, reason))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(block: &str) -> CgiParts {
        parse(&Bytes::copy_from_slice(block.as_bytes())).unwrap().0
    }

    #[test]
    fn header_end_is_found_with_lf_and_crlf() {
        assert_eq!(find_end(b"A: b\r\n\r\nbody"), Some((6, 2)));
        assert_eq!(find_end(b"A: b\n\nbody"), Some((5, 1)));
        assert_eq!(find_end(b"\r\nbody"), Some((0, 2)));
        assert_eq!(find_end(b"A: b\r\nC: d\r\n"), None);
        assert_eq!(find_end(b"A: b\r\n\r"), None);
    }

    #[test]
    fn status_line_sets_status_and_nonstandard_reason() {
        assert_eq!(parts("A: b\r\n").status, 200);
        assert_eq!(parts("Status: 404 Not Found\r\n").status, 404);
        assert!(parts("Status: 404 Not Found\r\n").reason.is_none());
        assert_eq!(
            parts("Status: 404 Gone Fishing\r\n")
                .reason
                .unwrap()
                .as_bytes(),
            b"Gone Fishing"
        );
        assert_eq!(parts("status:302").status, 302);
        let informational = parts("Status: 102 Processing\r\n");
        assert_eq!(informational.status, 200);
        assert!(informational.reason.is_none());
        for wrong in [
            "Status: abc",
            "Status: 99",
            "Status: 100Continue",
            "Status: 2000K",
            "Status:",
        ] {
            assert!(parse(&Bytes::from(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn repeated_headers_stay_repeated() {
        let parts = parts("Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n");
        let cookies: Vec<_> = parts.headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
    }

    #[test]
    fn invalid_lines_are_removed_and_returned() {
        let (parts, rejected) = parse(&Bytes::from(
            "Good: 1\r\nno colon\r\nBad Name: 2\r\nX: a\x01b\r\n",
        ))
        .unwrap();
        assert_eq!(parts.headers.len(), 1);
        assert_eq!(rejected.len(), 3);
    }

    #[test]
    fn block_beyond_its_limits_is_rejected_with_the_reason() {
        let mut block = Block::default();
        let line = Bytes::from("X: ".to_string() + &"x".repeat(1000) + "\n");
        let rejected = (0..1000).find(|_| block.add(line.clone()).is_err());
        assert_eq!(rejected, Some(MAX_BLOCK / line.len()));
        let lines = |count| Bytes::from((0..count).map(|n| format!("{n}:\n")).collect::<String>());
        assert!(parse(&lines(MAX_LINES)).is_ok());
        let why = parse(&lines(MAX_BLOCK / 8)).unwrap_err();
        assert_eq!(why, "the response has more than 1024 headers");
    }

    #[test]
    fn rejected_lines_are_limited_in_number_and_length() {
        let long = "x".repeat(1000) + "\n";
        let (_, rejected) = parse(&Bytes::from(long.repeat(100))).unwrap();
        assert_eq!(rejected.len(), MAX_REJECTED);
        assert!(rejected.iter().all(|line| line.len() == MAX_REJECTED_LEN));
    }

    /// Bytes that say by their owner's count whether something keeps them.
    fn arrived(bytes: &[u8]) -> (std::sync::Arc<[u8]>, Bytes) {
        struct Arrived(std::sync::Arc<[u8]>);
        impl AsRef<[u8]> for Arrived {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let memory = std::sync::Arc::from(bytes);
        let piece = Bytes::from_owner(Arrived(std::sync::Arc::clone(&memory)));
        (memory, piece)
    }

    #[test]
    fn value_does_not_keep_a_large_block() {
        let large = format!("A: b\r\nX: {}\r\n", "x".repeat(SMALL));
        let (memory, block) = arrived(large.as_bytes());
        let (parts, _) = parse(&block).unwrap();
        drop(block);
        assert_eq!(parts.headers["a"], "b");
        assert_eq!(std::sync::Arc::strong_count(&memory), 1);
    }

    #[test]
    fn header_block_does_not_keep_the_memory_in_which_it_arrived() {
        let (memory, piece) = arrived(b"A: b\r\n\r\nbody");
        let Split { block, rest } = Block::default().add(piece).unwrap().unwrap();
        assert_eq!(
            (block.trim_ascii(), &rest[..]),
            (&b"A: b"[..], &b"body"[..])
        );
        drop(rest);
        assert_eq!(std::sync::Arc::strong_count(&memory), 1);
    }

    proptest! {
        #[test]
        fn block_in_pieces_ends_like_the_whole_block(
            bytes in "[a\r\n]{0,12}",
            cuts in prop::collection::vec(0..13_usize, 0..12),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let all = Bytes::copy_from_slice(bytes.as_bytes());
            let mut block = Block::default();
            let mut found = None;
            for pair in cuts.windows(2) {
                if let Some(split) = block.add(all.slice(pair[0]..pair[1])).unwrap() {
                    let empty = pair[1] - split.block.len() - split.rest.len();
                    found = Some((split.block.len(), empty));
                    break;
                }
            }
            // The data after the block may be shorter than in the whole, but the end is the same.
            prop_assert_eq!(found, find_end(&all));
        }

        #[test]
        fn arbitrary_block_is_parsed_or_rejected(block: Vec<u8>) {
            if let Ok((parts, _)) = parse(&block.clone().into()) {
                prop_assert!((200..1000).contains(&parts.status.as_u16()));
            }
            if let Some((at, empty)) = find_end(&block) {
                prop_assert!(at + empty <= block.len());
            }
        }
    }
}
