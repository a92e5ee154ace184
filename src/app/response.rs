//! Surus's own responses, and the corrections that PHP's responses need.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use tracing::warn;

use super::retry_after::{count_rejection, retry_after};
use crate::event::{Failure, Response, ResponseBody};
use crate::observe::rate_limit::RateLimit;

pub fn no_content() -> Response {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Redirects to a path of this host and appends the query.
pub fn redirect(to: &str, query: Option<&str>) -> Response {
    let location = match query {
        Some(query) => format!("{to}?{query}"),
        None => to.to_string(),
    };
    redirect_to(StatusCode::MOVED_PERMANENTLY, &location)
}

/// Redirects to a location that contains its query.
pub fn redirect_to(status: StatusCode, location: &str) -> Response {
    let mut response = plain(status, "");
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// What `sapi/php/fatal_header.c` says of a fatal error.
pub static FATAL: HeaderName = HeaderName::from_static("surus-fatal");

/// Marks a short text of Surus in a response's extensions: a page may take its place.
#[derive(Debug, Clone)]
pub struct OwnText;

/// Marks a page of Surus in a response's extensions. Its Content-Security-Policy forbids scripts,
/// and may be extended for those of Surus.
#[derive(Debug, Clone)]
pub struct OwnPage;

/// A short text for people. The log has the details.
pub fn plain(status: StatusCode, why: &str) -> Response {
    let reason = status.canonical_reason().unwrap_or("Error");
    let text = match why {
        "" => format!("{} {reason}\n", status.as_u16()),
        why => format!("{} {reason}: {why}\n", status.as_u16()),
    };
    let mut response = Response::new(ResponseBody::from(text));
    *response.status_mut() = status;
    response.extensions_mut().insert(OwnText);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(
            header::RETRY_AFTER,
            HeaderValue::from(retry_after().as_secs()),
        );
    }
    response
}

/// The response to a failure.
pub fn failed(failure: &Failure, event: u64) -> Response {
    let status = match failure {
        Failure::Thrown(_) => StatusCode::INTERNAL_SERVER_ERROR,
        Failure::WorkerCrashed(_) | Failure::Malformed(_) => StatusCode::BAD_GATEWAY,
        Failure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Failure::QueueFull(_) | Failure::QueueTimeout(_) | Failure::Busy(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Failure::TooLarge(_) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Failure::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
    };
    match failure {
        _ if failure.is_busy() => log_overload(failure, event),
        _ => {
            warn!(request_id = event, status = status.as_u16(), error = %failure, "request failed")
        }
    }
    plain(status, "")
}

/// Logs one line for many rejected requests: under overload, a line for each would cost more than
/// the requests that are served.
fn log_overload(failure: &Failure, event: u64) {
    static REPORTED: RateLimit = RateLimit::new();
    static REJECTED: AtomicU64 = AtomicU64::new(0);
    REJECTED.fetch_add(1, Ordering::Relaxed);
    count_rejection();
    if REPORTED.is_time(Instant::now()) {
        let requests = REJECTED.swap(0, Ordering::Relaxed);
        warn!(request_id = event, requests, status = 503, error = %failure, "request failed");
    }
}

/// The outcome in metrics.
pub fn failure_name(failure: &Failure) -> &'static str {
    match failure {
        Failure::Thrown(_) => "thrown",
        Failure::WorkerCrashed(_) => "worker_crashed",
        Failure::TimedOut => "timeout",
        Failure::QueueFull(_) => "queue_full",
        Failure::QueueTimeout(_) => "queue_timeout",
        Failure::Busy(_) => "overloaded",
        Failure::TooLarge(_) | Failure::BodyTooLarge(_) => "too_large",
        Failure::Malformed(_) => "bad_response",
    }
}

/// The outcome in metrics.
pub fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

/// Headers that are about the connection, which belongs to Surus.
static CONNECTION_HEADERS: [HeaderName; 6] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

pub fn is_connection_header(name: &HeaderName) -> bool {
    CONNECTION_HEADERS.contains(name)
}

/// Removes the headers that are not for clients. The connection belongs to Surus: PHP's headers
/// would contradict Surus's, and are an error in HTTP/2 (RFC 9113, 8.2.2). `surus-fatal` is a
/// message to Surus.
pub fn strip_headers(headers: &mut HeaderMap) {
    // Usually there are none; one pass then costs less than six look-ups.
    let is_ours = |name: &HeaderName| is_connection_header(name) || *name == FATAL;
    if headers.keys().any(is_ours) {
        for name in CONNECTION_HEADERS.iter().chain([&FATAL]) {
            headers.remove(name);
        }
    }
}

/// Resolves a difference between a complete body and PHP's Content-Length. As behind nginx, the
/// client gets no more than announced, and a closed connection shows that the response is
/// incomplete.
pub fn fit_length(mut response: Response) -> Response {
    if response.status() == StatusCode::NO_CONTENT {
        // RFC 9110, 8.6.
        response.headers_mut().remove(header::CONTENT_LENGTH);
        return response;
    }
    let ResponseBody::Full(body) = response.body_mut() else {
        return response;
    };
    let body = std::mem::take(body);
    let header = response.headers().get(header::CONTENT_LENGTH);
    let promised = header.map(|length| length.to_str().ok()?.parse::<u64>().ok());
    let length = body.len() as u64;
    let is_not_modified = response.status() == StatusCode::NOT_MODIFIED;
    *response.body_mut() = match promised {
        Some(Some(promised)) if promised < length => {
            ResponseBody::Full(body.slice(..promised as usize))
        }
        Some(Some(promised)) if promised > length && !is_not_modified => {
            let failure = Failure::Malformed(format!(
                "{length} bytes instead of the {promised} of Content-Length"
            ));
            let frames = [Ok(Frame::data(body)), Err(failure)];
            ResponseBody::stream(StreamBody::new(futures_util::stream::iter(frames)))
        }
        Some(None) => {
            response.headers_mut().remove(header::CONTENT_LENGTH);
            ResponseBody::Full(body)
        }
        Some(Some(_)) | None => ResponseBody::Full(body),
    };
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_that_is_too_large_gets_the_status_of_its_part() {
        let status = |failure: Failure| failed(&failure, 1).status();
        assert_eq!(status(Failure::TooLarge("headers")), 431);
        assert_eq!(status(Failure::BodyTooLarge("form")), 413);
    }
}
