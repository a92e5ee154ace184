//! How the Runtime API and the Extensions API say no: status, type and message as AWS's own emulator has them.

use http::StatusCode;

/// A call that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub kind: &'static str,
    pub message: String,
}

/// Largest response of a buffered invocation, and error, in bytes.
pub const MAX_PAYLOAD: usize = 6 * 1024 * 1024 + 100;

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Refusal {
        Refusal {
            status,
            kind,
            message: message.into(),
        }
    }

    /// 400: no such event, or none any more.
    pub fn request_id() -> Refusal {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "InvalidRequestID",
            "Invalid request ID",
        )
    }

    /// 400: the body ended before its end.
    pub fn truncated() -> Refusal {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "TruncatedHTTPRequest",
            "HTTP request detected as truncated",
        )
    }

    /// 400: `Lambda-Runtime-Function-Response-Mode` is neither absent nor `streaming`.
    pub fn response_mode() -> Refusal {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            "InvalidFunctionResponseMode",
            "Invalid function response mode",
        )
    }

    /// 403: not a thing to do in this state.
    pub fn transition(from: &str, to: &str) -> Refusal {
        Refusal::new(
            StatusCode::FORBIDDEN,
            "InvalidStateTransition",
            format!(
                "State transition from {from} to {to} failed for runtime. Error: State transition is not allowed"
            ),
        )
    }

    /// 410: the event is over; what is answered here belongs to an attempt that timed out.
    pub fn gone() -> Refusal {
        Refusal::new(StatusCode::GONE, "InvokeTimeout", "Invoke timeout")
    }

    /// 413.
    pub fn too_large() -> Refusal {
        Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Exceeded maximum allowed payload size ({MAX_PAYLOAD} bytes)."),
        )
    }

    /// 500: Lambda itself is broken; a runtime is to end.
    pub fn internal() -> Refusal {
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalServerError",
            "Internal Server Error",
        )
    }

    /// 403, to an extension.
    pub fn extension(kind: &'static str, message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, kind, message)
    }

    /// 404: no such call.
    pub fn unknown() -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "NotFound", "404 page not found")
    }

    /// The JSON of the answer.
    pub fn body(&self) -> String {
        serde_json::json!({"errorMessage": self.message, "errorType": self.kind}).to_string()
    }
}
