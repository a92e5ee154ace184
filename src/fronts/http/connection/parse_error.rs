//! Counts and logs requests that hyper or h3 cannot parse, and therefore answer themselves.

use std::error::Error;
use std::time::Duration;

use http::StatusCode;

use crate::app::STATIC;
use crate::app::forwarded::Peer;
use crate::app::response::class;
use crate::fronts::http::request::Accounting;
use crate::fronts::http::request::access_log::AccessLogEntry;
use crate::fronts::http::request::access_log::wire_bytes::of_rejection;
use crate::fronts::http::transport::io::ConnectionState;

/// Records why a connection has ended, if that was a parse error.
pub fn record(
    error: &(dyn Error + 'static),
    peer: &Peer,
    accounting: &Accounting,
    connection: &ConnectionState,
) {
    let Some(error) = error.downcast_ref::<hyper::Error>() else {
        return;
    };
    // An incomplete preface of HTTP/2 has no response.
    if !error.is_parse() || error.is_parse_version_h2() {
        return;
    }
    let status = match connection.uri_too_long.get() {
        Some(_) => StatusCode::URI_TOO_LONG,
        None if error.is_parse_too_large() => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        None => StatusCode::BAD_REQUEST,
    };
    let sent = connection.uri_too_long.get().copied();
    let took = connection.timers.headers_took();
    record_status(status, sent, took, peer, accounting);
}

/// Records the response to a request that could not be parsed. `sent` are the bytes of its body and
/// of the whole; without them, it is the response of hyper, which has no body.
pub fn record_status(
    status: StatusCode,
    sent: Option<(u64, u64)>,
    took: Duration,
    peer: &Peer,
    accounting: &Accounting,
) {
    accounting.metrics.answered(STATIC, class(status), took);
    if let Some(log) = &accounting.access_log {
        let (bytes, sent) = sent.unwrap_or_else(|| (0, of_rejection(status)));
        log.log(AccessLogEntry {
            request_id: accounting.next_id(),
            // The client behind a proxy is named in the headers, which could not be parsed.
            client: peer.client.as_ref().map(|client| client.ip()),
            request: None,
            status,
            bytes,
            received: 0,
            sent,
            took,
            answered: None,
            engine: STATIC,
        });
    }
}
