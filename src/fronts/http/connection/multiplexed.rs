//! Handling of responses that HTTP/2 and HTTP/3 share.

use std::time::SystemTime;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body;

use crate::budget::Reservation;
use crate::fronts::http::request::response_body::TrackedBody;

/// A response's header section as it is sent, and the body that follows.
pub struct OutgoingResponse {
    pub parts: Response<()>,
    /// The memory of the header section, to keep until that is written.
    pub taken: Reservation,
    /// None if nothing follows.
    pub body: Option<TrackedBody>,
}

/// Completes the header section: HTTP/1 has hyper for that.
pub fn outgoing(response: Response<TrackedBody>, is_head: bool) -> OutgoingResponse {
    let (mut parts, mut body) = response.into_parts();
    let is_empty = body.is_end_stream();
    let has_none = matches!(
        parts.status,
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    if !is_empty
        && !has_none
        && let Some(len) = body.size_hint().exact()
    {
        let len = || HeaderValue::from(len);
        parts
            .headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(len);
    }
    if !parts.headers.contains_key(header::DATE)
        && let Ok(now) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now()))
    {
        parts.headers.insert(header::DATE, now);
    }
    // Extensions, such as the file to send, are for Surus only.
    parts.extensions.clear();
    OutgoingResponse {
        parts: Response::from_parts(parts, ()),
        taken: body.take_headers(),
        body: (!is_empty && !is_head && !has_none).then_some(body),
    }
}

/// Bytes of early hints of a request that may wait for its client.
const MAX_HINTS: u64 = 64 << 10;

/// The headers of early hints, if there is memory for them besides the hints before.
pub fn links(headers: &HeaderMap, taken: &mut Reservation) -> Option<HeaderMap> {
    let links = headers.get_all(header::LINK);
    let lengths = links.iter().map(|value| value.len() as u64 + 256);
    let size = 256 + lengths.sum::<u64>();
    let fits = taken.bytes().saturating_add(size) <= MAX_HINTS;
    (fits && taken.try_grow(size)).then(|| {
        // Copies: values share the block in which they arrived.
        let copies = links
            .iter()
            .filter_map(|value| HeaderValue::from_bytes(value.as_bytes()).ok());
        copies.map(|value| (header::LINK, value)).collect()
    })
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
