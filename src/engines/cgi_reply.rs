//! The answer of a CGI script: a block of header lines, an empty line, the body (RFC 3875, section 6).

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use hyper::ext::ReasonPhrase;

/// What the header block says.
#[derive(Debug)]
pub struct Head {
    pub status: StatusCode,
    /// A reason other than the standard one, sent over HTTP/1.
    pub reason: Option<ReasonPhrase>,
    pub headers: HeaderMap,
}

/// A header block beyond this many bytes is refused; PHP scripts that need more have gone wrong.
pub const MAX_HEAD: usize = 256 * 1024;

/// Finds the end of the header block: its length and the length of the empty line behind it.
pub fn find_end(bytes: &[u8]) -> Option<(usize, usize)> {
    if bytes.starts_with(b"\r\n") {
        return Some((0, 2));
    }
    if bytes.starts_with(b"\n") {
        return Some((0, 1));
    }
    memchr::memchr_iter(b'\n', bytes).find_map(|at| match &bytes[at + 1..] {
        [b'\n', ..] => Some((at + 1, 1)),
        [b'\r', b'\n', ..] => Some((at + 1, 2)),
        _ => None,
    })
}

/// Reads a header block (without the empty line). Lines that no HTTP response can carry are left out and returned as text,
/// for the log. The values share the block's memory.
pub fn parse(block: &Bytes) -> Result<(Head, Vec<String>), String> {
    let mut head = Head {
        status: StatusCode::OK,
        reason: None,
        headers: HeaderMap::with_capacity(block.len() / 32 + 2),
    };
    let mut refused = Vec::new();
    let mut start = 0;
    while start < block.len() {
        let end = memchr::memchr(b'\n', &block[start..]).map_or(block.len(), |at| start + at);
        let line = block[start..end]
            .strip_suffix(b"\r")
            .unwrap_or(&block[start..end]);
        start = end + 1;
        let Some(colon) = memchr::memchr(b':', line) else {
            refused.push(String::from_utf8_lossy(line).into_owned());
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"status") {
            (head.status, head.reason) = parse_status(value)?;
            continue;
        }
        let value = HeaderValue::from_maybe_shared(block.slice_ref(value));
        match (HeaderName::from_bytes(name), value) {
            (Ok(name), Ok(value)) => {
                head.headers.append(name, value);
            }
            _ => refused.push(String::from_utf8_lossy(line).into_owned()),
        }
    }
    Ok((head, refused))
}

fn parse_status(value: &[u8]) -> Result<(StatusCode, Option<ReasonPhrase>), String> {
    let wrong = || format!("the status is `{}`", String::from_utf8_lossy(value));
    let digits = value.get(..3).ok_or_else(wrong)?;
    let status = StatusCode::from_bytes(digits).map_err(|_| wrong())?;
    if status.as_u16() < 200 || value.get(3).is_some_and(|c| *c != b' ') {
        return Err(wrong());
    }
    let reason = value.get(4..).unwrap_or_default();
    let standard = status
        .canonical_reason()
        .is_some_and(|standard| standard.as_bytes() == reason);
    let reason = (!standard && !reason.is_empty())
        .then(|| ReasonPhrase::try_from(reason).ok())
        .flatten()
        // hyper would make one up.
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

    fn head(block: &str) -> Head {
        parse(&Bytes::copy_from_slice(block.as_bytes())).unwrap().0
    }

    #[test]
    fn the_end_is_found_with_either_line_end() {
        assert_eq!(find_end(b"A: b\r\n\r\nbody"), Some((6, 2)));
        assert_eq!(find_end(b"A: b\n\nbody"), Some((5, 1)));
        assert_eq!(find_end(b"\r\nbody"), Some((0, 2)));
        assert_eq!(find_end(b"A: b\r\nC: d\r\n"), None);
        assert_eq!(find_end(b"A: b\r\n\r"), None);
    }

    #[test]
    fn status_and_reason() {
        assert_eq!(head("A: b\r\n").status, 200);
        assert_eq!(head("Status: 404 Not Found\r\n").status, 404);
        assert!(head("Status: 404 Not Found\r\n").reason.is_none());
        assert_eq!(
            head("Status: 404 Gone Fishing\r\n")
                .reason
                .unwrap()
                .as_bytes(),
            b"Gone Fishing"
        );
        assert_eq!(head("status:302").status, 302);
        for wrong in [
            "Status: abc",
            "Status: 99",
            "Status: 100 Continue",
            "Status: 2000K",
            "Status:",
        ] {
            assert!(parse(&Bytes::from(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn repeated_headers_stay_repeated() {
        let head = head("Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n");
        let cookies: Vec<_> = head.headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
    }

    #[test]
    fn lines_that_http_cannot_carry_are_left_out_and_said() {
        let (head, refused) = parse(&Bytes::from(
            "Good: 1\r\nno colon\r\nBad Name: 2\r\nX: a\x01b\r\n",
        ))
        .unwrap();
        assert_eq!(head.headers.len(), 1);
        assert_eq!(refused.len(), 3);
    }

    proptest! {
        #[test]
        fn any_block_is_read_or_refused(block: Vec<u8>) {
            if let Ok((head, _)) = parse(&block.clone().into()) {
                prop_assert!((200..1000).contains(&head.status.as_u16()));
            }
            if let Some((at, empty)) = find_end(&block) {
                prop_assert!(at + empty <= block.len());
            }
        }
    }
}
