//! Error responses of the Runtime API and the Extensions API, with status, type and message of
//! AWS's own emulator.

use http::StatusCode;

/// A rejected API call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    pub kind: &'static str,
    pub message: String,
}

/// The largest buffered response or error, in bytes.
pub const MAX_PAYLOAD: usize = 6 * 1024 * 1024 + 100;

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError {
            status,
            kind,
            message: message.into(),
        }
    }

    /// 400: the event does not exist or is over.
    pub fn request_id() -> ApiError {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "InvalidRequestID",
            "Invalid request ID",
        )
    }

    /// 400: the request body is truncated.
    pub fn truncated() -> ApiError {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "TruncatedHTTPRequest",
            "HTTP request detected as truncated",
        )
    }

    /// 400: `Lambda-Runtime-Function-Response-Mode` has a value other than `streaming`.
    pub fn response_mode() -> ApiError {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "InvalidFunctionResponseMode",
            "Invalid function response mode",
        )
    }

    /// 403: the call is not allowed in this state.
    pub fn transition(from: &str, to: &str) -> ApiError {
        ApiError::new(
            StatusCode::FORBIDDEN,
            "InvalidStateTransition",
            format!(
                "State transition from {from} to {to} failed for runtime. Error: State transition \
                 is not allowed"
            ),
        )
    }

    /// 410: the event is over; the response belongs to an attempt that timed out.
    pub fn invocation_over() -> ApiError {
        ApiError::new(StatusCode::GONE, "InvokeTimeout", "Invoke timeout")
    }

    /// 413.
    pub fn too_large() -> ApiError {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Exceeded maximum allowed payload size ({MAX_PAYLOAD} bytes)."),
        )
    }

    /// 500: Lambda itself failed; the runtime should exit.
    pub fn internal() -> ApiError {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalServerError",
            "Internal Server Error",
        )
    }

    /// 403, for an extension.
    pub fn extension(kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, kind, message)
    }

    /// 404: unknown call.
    pub fn unknown() -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "NotFound", "404 page not found")
    }

    /// The JSON body of the response.
    pub fn body(&self) -> String {
        serde_json::json!({"errorMessage": self.message, "errorType": self.kind}).to_string()
    }
}
