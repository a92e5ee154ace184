//! Evaluates the conditions of a request (RFC 9110, 13).

use std::time::SystemTime;

use http::StatusCode;
use http::header::{self, HeaderMap};

/// The status that the conditions lead to, evaluated in the order of RFC 9110, 13.2.2.
pub fn precondition(
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

/// Whether this header lists the entity tag, or is `*`.
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

/// Whether a range may be sent. Not if the client holds parts of another version.
pub fn if_range(headers: &HeaderMap, etag: &str, modified: Option<SystemTime>) -> bool {
    let Some(value) = headers.get(header::IF_RANGE) else {
        return true;
    };
    let value = value.to_str().unwrap_or_default().trim();
    value == etag || httpdate::parse_http_date(value).is_ok_and(|date| Some(date) == modified)
}
