//! What becomes of a request that hyper cannot read, and so answers without asking us: it is
//! counted and logged as others are.

use std::error::Error;
use std::sync::atomic::Ordering;

use http::StatusCode;

use crate::app::STATIC;
use crate::app::forwarded::Peer;
use crate::app::response::class;
use crate::fronts::http::request::Service;
use crate::fronts::http::request::access_log::Entry;
use crate::fronts::http::transport::io::Shared;

/// To be told why a connection has ended.
pub fn note(error: &(dyn Error + 'static), peer: &Peer, service: &Service, connection: &Shared) {
    let Some(error) = error.downcast_ref::<hyper::Error>() else {
        return;
    };
    // To half a preface of HTTP/2 there is no answer.
    if !error.is_parse() || error.is_parse_version_h2() {
        return;
    }
    let (status, bytes) = match connection.uri_too_long.get() {
        Some(bytes) => (StatusCode::URI_TOO_LONG, *bytes),
        None if error.is_parse_too_large() => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, 0),
        None => (StatusCode::BAD_REQUEST, 0),
    };
    let took = connection.activity.head_took();
    service
        .application
        .metrics
        .answered(STATIC, class(status), took);
    if let Some(log) = &service.access_log {
        log.log(Entry {
            event: service.next_event.fetch_add(1, Ordering::Relaxed),
            // Whom a proxy speaks for, stands in the head.
            client: peer.client.as_ref().map(|client| client.ip()),
            head: None,
            status,
            bytes,
            took,
            engine: STATIC,
        });
    }
}
