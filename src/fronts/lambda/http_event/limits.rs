//! Size limits of services that accept less than Lambda does.

use http::HeaderMap;

use super::format::EventFormat;

/// The part of a response that exceeds a limit of its service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch {
    pub what: &'static str,
    pub size: usize,
    pub max: usize,
    pub remedy: &'static str,
}

/// Maximum size of a load balancer's event or response, as JSON.
pub const MAX_ALB: usize = 1 << 20;

/// Maximum size of all header values together, in API Gateway's events and responses.
pub const MAX_GATEWAY: usize = 10_240;

/// Checks the response's headers against the service's limit.
pub fn headers(format: EventFormat, headers: &HeaderMap) -> Result<(), TooMuch> {
    if !matches!(
        format,
        EventFormat::Rest
            | EventFormat::HttpApiV1
            | EventFormat::HttpApiV2
            | EventFormat::WebSocket
    ) {
        return Ok(());
    }
    match headers.values().map(|value| value.len()).sum() {
        size if size > MAX_GATEWAY => Err(TooMuch {
            what: "the response's headers have",
            size,
            max: MAX_GATEWAY,
            remedy: "send fewer or shorter ones; the longest are usually cookies",
        }),
        _ => Ok(()),
    }
}

/// Checks the size of the response's JSON against the service's limit.
pub fn size(format: EventFormat, size: usize) -> Result<(), TooMuch> {
    match format {
        EventFormat::Alb { .. } if size > MAX_ALB => Err(TooMuch {
            what: "the response has",
            size,
            max: MAX_ALB,
            remedy: "put it into S3 and respond with a link, or call the function through a \
                     function URL or API Gateway",
        }),
        _ => Ok(()),
    }
}
