//! Converts PHP's response to the payload that Lambda accepts.

use bytes::Bytes;
use http::StatusCode;
use http::response::Parts;

use super::error;
use super::error::{FunctionError, LARGEST};
use crate::event::ResponseBody;
use crate::fronts::records::request::ERROR_KIND;
use crate::fronts::records::response::collect;

/// Errors are read up to this size.
const LARGEST_ERROR: usize = 8 * LARGEST;

/// The kind of the error that the PHP library reports, if it does.
pub fn error_kind(parts: &Parts) -> Option<&str> {
    parts.headers.get(ERROR_KIND)?.to_str().ok()
}

/// The result of an event that is not HTTP.
pub fn result(parts: &Parts, body: Bytes) -> Result<Bytes, FunctionError> {
    if let Some(kind) = error_kind(parts) {
        return Err(FunctionError::reported(kind, &body));
    }
    // Frameworks answer with these statuses if no route matches.
    if [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&parts.status) {
        return Err(FunctionError::new(
            error::NO_HANDLER,
            "the event is not HTTP and the application has no POST /events; name the PHP file for \
             such events in lambda.handler, or as the function's handler",
        ));
    }
    if !parts.status.is_success() {
        return Err(unsuccessful(parts.status, &body));
    }
    Ok(match body.is_empty() {
        true => Bytes::from_static(b"null"),
        false => body,
    })
}

/// The error of a response without a success status.
pub fn unsuccessful(status: StatusCode, body: &[u8]) -> FunctionError {
    let message = error::shortened(body);
    FunctionError::new(
        error::THROWN,
        format!("PHP responded to the event with status {status}: {message}"),
    )
}

/// Collects a response that Lambda needs as a whole. Of a response above the limit only the size is
/// kept.
pub async fn take(body: ResponseBody) -> Result<Bytes, FunctionError> {
    take_up_to(LARGEST, body).await
}

/// Collects PHP's result of an event that is not HTTP. An error may exceed Lambda's limit, because
/// it can be shortened.
pub async fn take_result(parts: &Parts, body: ResponseBody) -> Result<Bytes, FunctionError> {
    let max = match error_kind(parts) {
        Some(_) => LARGEST_ERROR,
        None => LARGEST,
    };
    take_up_to(max, body).await
}

async fn take_up_to(max: usize, body: ResponseBody) -> Result<Bytes, FunctionError> {
    let collected = collect(body, max).await;
    collected
        .map_err(|failure| FunctionError::from_failure(&failure))?
        .map_err(|size| FunctionError::too_large(size as u64, LARGEST as u64))
}

/// Rejects a payload above Lambda's limit.
pub fn fitting(payload: Bytes) -> Result<Bytes, FunctionError> {
    match payload.len() > LARGEST {
        true => Err(FunctionError::too_large(
            payload.len() as u64,
            LARGEST as u64,
        )),
        false => Ok(payload),
    }
}
