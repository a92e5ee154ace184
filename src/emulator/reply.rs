//! Reads requests and builds replies for the calls of the Runtime and Extensions APIs.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;

pub type RuntimeReplyBody = http_body_util::Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;
/// A reply of the Runtime API or the Extensions API.
pub type RuntimeReply = Response<RuntimeReplyBody>;

/// Why a request body cannot be read.
pub enum ReadBodyError {
    TooLarge,
    Truncated,
}

/// Reads a request body and its trailers.
pub async fn collect(
    mut body: Incoming,
    limit: usize,
) -> Result<(Bytes, Option<HeaderMap>), ReadBodyError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    let mut trailers = None;
    let mut is_too_large = false;
    while let Some(frame) = body.frame().await {
        match frame.map_err(|_| ReadBodyError::Truncated)?.into_data() {
            Ok(data) => {
                is_too_large |= first.len() + all.len() + data.len() > limit;
                if is_too_large {
                    // Read the body to its end; otherwise the client may miss the response.
                } else if first.is_empty() {
                    first = data;
                } else {
                    all.extend_from_slice(&data);
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    if is_too_large {
        return Err(ReadBodyError::TooLarge);
    }
    if all.is_empty() {
        return Ok((first, trailers));
    }
    let mut whole = BytesMut::with_capacity(first.len() + all.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&all);
    Ok((whole.freeze(), trailers))
}

/// The value of a header as text.
pub fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

pub fn reply(status: StatusCode, body: Bytes) -> RuntimeReply {
    let mut reply = Response::new(RuntimeReplyBody::Left(Full::new(body)));
    *reply.status_mut() = status;
    reply
}

pub fn json(status: StatusCode, body: String) -> RuntimeReply {
    let mut reply = reply(status, body.into());
    let kind = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply
}

pub fn accepted() -> RuntimeReply {
    let mut reply = reply(
        StatusCode::ACCEPTED,
        Bytes::from_static(b"{\"status\":\"OK\"}\n"),
    );
    let kind = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply
}
