//! Handling of responses that HTTP/2 and HTTP/3 share.

use std::time::SystemTime;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body;

use crate::fronts::http::request::response_body::TrackedBody;

/// A response's header section as it is sent, and the body that follows.
pub struct OutgoingResponse {
    pub head: Response<()>,
    /// None if nothing follows.
    pub body: Option<TrackedBody>,
}

/// Completes the header section: HTTP/1 has hyper for that.
pub fn outgoing(response: Response<TrackedBody>, is_head: bool) -> OutgoingResponse {
    let (mut head, body) = response.into_parts();
    let is_empty = body.is_end_stream();
    let has_none = matches!(
        head.status,
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    if !is_empty
        && !has_none
        && let Some(len) = body.size_hint().exact()
    {
        let len = || HeaderValue::from(len);
        head.headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(len);
    }
    if !head.headers.contains_key(header::DATE)
        && let Ok(now) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now()))
    {
        head.headers.insert(header::DATE, now);
    }
    // Extensions, such as the file to send, are for Surus only.
    head.extensions.clear();
    OutgoingResponse {
        head: Response::from_parts(head, ()),
        body: (!is_empty && !is_head && !has_none).then_some(body),
    }
}

/// The headers of early hints, and their approximate memory.
pub fn links(headers: &HeaderMap) -> (HeaderMap, u64) {
    let mut links = HeaderMap::new();
    let mut size = 0;
    for value in headers.get_all(header::LINK) {
        size += value.len() as u64 + 256;
        links.append(header::LINK, value.clone());
    }
    (links, size)
}

/// An informational response.
pub fn informational(status: StatusCode, headers: HeaderMap) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Whether the client waits for `100 Continue`.
pub fn expects_continue(headers: &HeaderMap) -> bool {
    let expects = headers.get(header::EXPECT);
    expects.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}
