//! Marks the entity tags of responses that Surus compresses, and restores them for PHP.
//!
//! A compressed response is equivalent to PHP's but has other bytes, so its tag must differ and be
//! weak: `"abc"` becomes `W/"abc-gzip"`. nginx only weakens tags. PHP cannot tell those from its
//! own weak tags, and never finds them in `If-Match`; a mark can be removed again. The mark is that
//! of Apache, whatever the coding, because WebDAV clients such as Nextcloud's remove `-gzip`.

use std::borrow::Cow;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

const MARK: &[u8] = b"-gzip";

/// Headers that list tags. `If` is WebDAV's (RFC 4918, 10.4).
static CONDITIONS: [HeaderName; 3] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    HeaderName::from_static("if"),
];

/// The tag of the compressed response. None for a weak tag, which stays as it is, and for an
/// invalid one: scripts that forget the quotes recognize it only if it stays unchanged.
pub(super) fn marked(tag: &HeaderValue) -> Option<HeaderValue> {
    let opaque = tag.as_bytes().strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    HeaderValue::from_bytes(&[b"W/\"", opaque, MARK, b"\""].concat()).ok()
}

/// Removes the marks from a request's tags, so that PHP sees its own.
pub(super) fn unmark(headers: &mut HeaderMap) {
    // A compressed part must not be continued by an uncompressed one. Marked tags are weak, so a
    // strong one that ends in the mark is the script's own.
    if headers
        .get(header::IF_RANGE)
        .is_some_and(|tag| is_marked(tag.as_bytes()))
    {
        headers.remove(header::IF_RANGE);
        headers.remove(header::RANGE);
    }
    for name in &CONDITIONS {
        // Most requests have none, and `entry` may grow the map.
        if !headers.contains_key(name) {
            continue;
        }
        let header::Entry::Occupied(mut entry) = headers.entry(name) else {
            continue;
        };
        for value in entry.iter_mut() {
            if let Cow::Owned(bytes) = unmarked(value.as_bytes())
                && let Ok(unmarked) = HeaderValue::from_bytes(&bytes)
            {
                *value = unmarked;
            }
        }
    }
}

/// Gives a 304 the tag in the form that the client knows; another form would not refresh the
/// client's response (RFC 9111, 4.3.4). `requested` are the request's original headers.
pub(super) fn mark_as_requested<B>(requested: &HeaderMap, response: &mut Response<B>) {
    if response.status() != StatusCode::NOT_MODIFIED {
        return;
    }
    let tag = response.headers().get(header::ETAG);
    let Some(marked) = tag.and_then(marked) else {
        return;
    };
    // The client may have dropped the `W/`.
    let strong = &marked.as_bytes()[b"W/".len()..];
    let mut lists = requested.get_all(header::IF_NONE_MATCH).iter();
    let is_listed = lists.any(|list| {
        let mut windows = list.as_bytes().windows(strong.len());
        windows.any(|window| window == strong)
    });
    if is_listed {
        response.headers_mut().insert(header::ETAG, marked);
    }
}

/// Whether it is a tag that [`marked`] returns.
fn is_marked(tag: &[u8]) -> bool {
    let opaque = tag
        .strip_prefix(b"W/\"")
        .and_then(|tag| tag.strip_suffix(b"\""));
    opaque.is_some_and(|opaque| opaque.ends_with(MARK))
}

/// A list of tags without marks; borrowed if none has one. Clients that drop `W/`, because
/// `If-Match` takes strong tags only, mean the same tag.
fn unmarked(list: &[u8]) -> Cow<'_, [u8]> {
    if !list.windows(MARK.len()).any(|window| window == MARK) {
        return Cow::Borrowed(list);
    }
    let mut out = Vec::with_capacity(list.len());
    let mut is_changed = false;
    let mut rest = list;
    while let Some(open) = rest.iter().position(|byte| *byte == b'"') {
        let Some(length) = rest[open + 1..].iter().position(|byte| *byte == b'"') else {
            break;
        };
        let (before, tag) = (&rest[..open], &rest[open + 1..open + 1 + length]);
        match tag.strip_suffix(MARK) {
            Some(opaque) => {
                is_changed = true;
                out.extend_from_slice(before.strip_suffix(b"W/").unwrap_or(before));
                out.extend([b"\"", opaque, b"\""].concat());
            }
            None => out.extend_from_slice(&rest[..open + length + 2]),
        }
        rest = &rest[open + length + 2..];
    }
    if !is_changed {
        return Cow::Borrowed(list);
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn value(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).unwrap()
    }

    #[test]
    fn only_strong_tags_are_marked() {
        assert_eq!(marked(&value("\"abc\"")).unwrap(), "W/\"abc-gzip\"");
        assert_eq!(marked(&value("\"\"")).unwrap(), "W/\"-gzip\"");
        for tag in ["W/\"abc\"", "abc", "\"", "", "'abc'"] {
            assert_eq!(marked(&value(tag)), None, "{tag}");
        }
    }

    #[test]
    fn condition_tags_are_unmarked() {
        for (sent, expected) in [
            ("W/\"abc-gzip\"", "\"abc\""),
            ("\"abc-gzip\"", "\"abc\""),
            ("\"a\", W/\"b-gzip\",W/\"c\"", "\"a\", \"b\",W/\"c\""),
            ("W/\"abc-gzip-gzip\"", "\"abc-gzip\""),
            ("*", "*"),
            ("W/\"abc\"", "W/\"abc\""),
            ("W/\"-gzip-x\"", "W/\"-gzip-x\""),
            ("\"a-gzip", "\"a-gzip"),
            ("abc-gzip", "abc-gzip"),
            ("\"a\", -gzip, \"b\"", "\"a\", -gzip, \"b\""),
            ("(<urn:x> [W/\"a-gzip\"])", "(<urn:x> [\"a\"])"),
        ] {
            for name in &CONDITIONS {
                let mut headers = HeaderMap::new();
                headers.append(name, value("\"first\""));
                headers.append(name, value(sent));
                unmark(&mut headers);
                let all: Vec<_> = headers.get_all(name).iter().collect();
                assert_eq!(all, ["\"first\"", expected], "{sent}");
            }
        }
    }

    #[test]
    fn compressed_response_is_not_continued_by_a_range() {
        for (tag, is_kept) in [
            ("W/\"a-gzip\"", false),
            ("\"a\"", true),
            ("\"a-gzip\"", true),
            ("W/\"a\"", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, value("bytes=10-"));
            headers.insert(header::IF_RANGE, value(tag));
            unmark(&mut headers);
            assert_eq!(headers.contains_key(header::RANGE), is_kept);
            assert_eq!(headers.contains_key(header::IF_RANGE), is_kept);
        }
    }

    #[test]
    fn not_modified_names_the_tag_that_the_client_has() {
        for (sent, status, tag, expected) in [
            ("W/\"a-gzip\"", 304, "\"a\"", "W/\"a-gzip\""),
            ("\"x\", \"a-gzip\"", 304, "\"a\"", "W/\"a-gzip\""),
            ("\"a\"", 304, "\"a\"", "\"a\""),
            ("W/\"ba-gzip\"", 304, "\"a\"", "\"a\""),
            ("W/\"a-gzip\"", 412, "\"a\"", "\"a\""),
            ("W/\"a-gzip\"", 304, "W/\"a\"", "W/\"a\""),
        ] {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, value(sent))]);
            let response = Response::builder().status(status).header("etag", tag);
            let mut response = response.body(()).unwrap();
            mark_as_requested(&headers, &mut response);
            assert_eq!(response.headers()["etag"], expected, "{sent} {status}");
        }
    }
}
