//! What a service takes of an answer, where that is less than Lambda takes.

use http::HeaderMap;

use super::format::Format;

/// What of an answer its service refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch {
    pub what: &'static str,
    pub size: usize,
    pub most: usize,
    pub remedy: &'static str,
}

/// Of a whole answer, as JSON. A load balancer counts in both directions.
pub const ALB_MOST: usize = 1 << 20;

/// Of the values of all headers. API Gateway counts in both directions.
pub const GATEWAY_MOST: usize = 10_240;

/// Would the service make a response of an answer with these headers?
pub fn headers(format: Format, headers: &HeaderMap) -> Result<(), TooMuch> {
    if !matches!(
        format,
        Format::Rest | Format::HttpApiV1 | Format::HttpApiV2 | Format::WebSocket
    ) {
        return Ok(());
    }
    match headers.values().map(|value| value.len()).sum() {
        size if size > GATEWAY_MOST => Err(TooMuch {
            what: "the headers of the answer have",
            size,
            most: GATEWAY_MOST,
            remedy: "send fewer or shorter ones; mostly it is cookies that are long",
        }),
        _ => Ok(()),
    }
}

/// Would the service make a response of an answer of that many bytes of JSON?
pub fn size(format: Format, size: usize) -> Result<(), TooMuch> {
    match format {
        Format::Alb { .. } if size > ALB_MOST => Err(TooMuch {
            what: "the answer has",
            size,
            most: ALB_MOST,
            remedy: "put it into S3 and answer with a link, or have the function called by a function URL or API Gateway",
        }),
        _ => Ok(()),
    }
}
