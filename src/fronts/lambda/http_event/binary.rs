//! Decides whether a REST API of API Gateway decodes a base64 response.

use http::HeaderMap;
use http::header::ACCEPT;
use serde::{Deserialize, Serialize};

use super::format::EventFormat;

/// A media type of an API's `binaryMediaTypes`: `image/png`, or `*/*` for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MediaType(String);

impl TryFrom<String> for MediaType {
    type Error = String;

    fn try_from(text: String) -> Result<MediaType, String> {
        let is_token = |part: &str| {
            let is_legal = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
            !part.is_empty() && part.bytes().all(is_legal)
        };
        match text.split_once('/') {
            Some((kind, subtype)) if is_token(kind) && is_token(subtype) => Ok(MediaType(text)),
            _ => Err(format!(
                "`{text}` is not a media type; write one such as `image/png` or `*/*`"
            )),
        }
    }
}

impl From<MediaType> for String {
    fn from(media_type: MediaType) -> String {
        media_type.0
    }
}

/// Whether the service decodes a base64 response to a request with these headers. REST APIs match
/// the first media type of `Accept`; all other services always decode.
pub fn decodes(format: EventFormat, configured: &[MediaType], headers: &HeaderMap) -> bool {
    if format != EventFormat::Rest || configured.iter().any(|it| it.0 == "*/*") {
        return true;
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let first = accept.and_then(|accept| accept.split([',', ';']).next());
    first.is_some_and(|first| {
        let first = first.trim();
        configured.iter().any(|it| it.0.eq_ignore_ascii_case(first))
    })
}
