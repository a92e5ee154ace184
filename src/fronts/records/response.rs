//! Collects PHP's response to a record or another event that is not HTTP.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use crate::event::{Failure, ResponseBody};

/// Collects a body. The inner error is the size of a body above the limit, which is not kept.
pub async fn collect(body: ResponseBody, max: usize) -> Result<Result<Bytes, usize>, Failure> {
    let mut body = match body {
        ResponseBody::Full(bytes) => return Ok(Ok(bytes)),
        body => body,
    };
    let mut taken = BytesMut::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        size += data.len();
        match size > max {
            true => taken = BytesMut::new(),
            false => taken.extend_from_slice(&data),
        }
    }
    Ok(match size > max {
        true => Err(size),
        false => Ok(taken.freeze()),
    })
}
