//! What PHP has answered, as what Lambda takes.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::response::Parts;
use http_body_util::BodyExt;

use super::fault::{self, Fault};
use super::runtime_api::LARGEST;
use crate::event::ResponseBody;

/// The kind of an error that the PHP library tells of.
const KIND: &str = "lambda-runtime-function-error-type";

/// Of an error that much is read.
const LARGEST_ERROR: usize = 8 * LARGEST;

/// Which error the PHP library tells of, if it does.
pub fn error_kind(head: &Parts) -> Option<&str> {
    head.headers.get(KIND)?.to_str().ok()
}

/// The result of an event that is not HTTP.
pub fn result(head: &Parts, body: Bytes) -> Result<Bytes, Fault> {
    if let Some(kind) = error_kind(head) {
        return Err(Fault::told(kind, &body));
    }
    // What frameworks answer a path and a method that no route has.
    if [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&head.status) {
        return Err(Fault::new(
            fault::NO_HANDLER,
            "the event is not HTTP and the application has no POST /events; name the PHP file for such events in lambda.handler, or as \
             the function's handler",
        ));
    }
    if !head.status.is_success() {
        return Err(unsuccessful(head.status, &body));
    }
    Ok(match body.is_empty() {
        true => Bytes::from_static(b"null"),
        false => body,
    })
}

/// A status that is no answer.
pub fn unsuccessful(status: StatusCode, body: &[u8]) -> Fault {
    let said = fault::shortened(body);
    Fault::new(
        fault::THROWN,
        format!("PHP answered the event with status {status}: {said}"),
    )
}

/// Takes in what Lambda has to be given as a whole. What is too large is only counted.
pub async fn take(body: ResponseBody) -> Result<Bytes, Fault> {
    take_up_to(LARGEST, body).await
}

/// Takes in what PHP has answered an event with that is not HTTP. An error may be larger than Lambda takes: it can be shortened, and an
/// error that only says how large the error is would say nothing.
pub async fn take_result(head: &Parts, body: ResponseBody) -> Result<Bytes, Fault> {
    let most = match error_kind(head) {
        Some(_) => LARGEST_ERROR,
        None => LARGEST,
    };
    take_up_to(most, body).await
}

async fn take_up_to(most: usize, body: ResponseBody) -> Result<Bytes, Fault> {
    let mut body = match body {
        ResponseBody::Full(bytes) => return Ok(bytes),
        body => body,
    };
    let mut taken = BytesMut::new();
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|failure| Fault::of(&failure))?.into_data() else {
            continue;
        };
        size += data.len();
        match size > most {
            true => taken = BytesMut::new(),
            false => taken.extend_from_slice(&data),
        }
    }
    match size > most {
        true => Err(Fault::too_large(size as u64, LARGEST as u64)),
        false => Ok(taken.freeze()),
    }
}

/// The answer, if Lambda takes it.
pub fn fitting(payload: Bytes) -> Result<Bytes, Fault> {
    match payload.len() > LARGEST {
        true => Err(Fault::too_large(payload.len() as u64, LARGEST as u64)),
        false => Ok(payload),
    }
}
