//! The result of an event for its caller: an answer, possibly still streaming, or an error.

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

/// The result of an event for its caller.
#[derive(Debug)]
pub enum InvokeOutcome {
    Answer(FunctionAnswer),
    Error(FunctionError),
}

/// The function's answer.
#[derive(Debug)]
pub struct FunctionAnswer {
    pub content_type: Option<String>,
    /// Whether it had `Lambda-Runtime-Function-Response-Mode: streaming`.
    pub is_streamed: bool,
    pub body: AnswerBody,
}

#[derive(Debug)]
pub enum AnswerBody {
    Full(Bytes),
    /// Arrives while the function runs.
    Stream(mpsc::Receiver<AnswerPiece>),
}

/// A piece of a streamed answer. A stream without [`AnswerPiece::End`] or [`AnswerPiece::Failed`]
/// is truncated.
#[derive(Debug)]
pub enum AnswerPiece {
    Data(Bytes),
    End,
    /// The function failed during the stream and reported it in the trailers.
    Failed(FunctionError),
}

/// An error as the caller sees it, with `X-Amz-Function-Error: Unhandled`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionError {
    /// `Runtime.ExitError`, `Sandbox.Timedout`, or a type of the function's own.
    pub kind: String,
    /// The body for the caller; JSON unless the function sent something else.
    pub body: Bytes,
}

impl FunctionError {
    /// One of Lambda's own errors.
    pub fn from_platform(kind: &str, message: &str) -> FunctionError {
        let body = serde_json::json!({"errorType": kind, "errorMessage": message}).to_string();
        FunctionError {
            kind: kind.to_string(),
            body: body.into(),
        }
    }

    pub fn too_large() -> FunctionError {
        FunctionError::from_platform(
            "Function.ResponseSizeTooLarge",
            &format!(
                "Response payload size exceeded maximum allowed payload size ({} bytes).",
                super::api_error::MAX_PAYLOAD
            ),
        )
    }

    pub fn truncated() -> FunctionError {
        FunctionError::from_platform("Runtime.TruncatedResponse", "The response was truncated")
    }

    /// `errorMessage` of a JSON body.
    pub fn message(&self) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        Some(body.get("errorMessage")?.as_str()?.to_string())
    }
}

impl AnswerBody {
    /// Waits for the complete body.
    pub async fn collect(self) -> Result<Bytes, FunctionError> {
        match self {
            AnswerBody::Full(bytes) => Ok(bytes),
            AnswerBody::Stream(mut pieces) => {
                let mut all = BytesMut::new();
                loop {
                    match pieces.recv().await {
                        Some(AnswerPiece::Data(bytes)) => all.extend_from_slice(&bytes),
                        Some(AnswerPiece::End) => return Ok(all.freeze()),
                        Some(AnswerPiece::Failed(error)) => return Err(error),
                        None => return Err(FunctionError::truncated()),
                    }
                }
            }
        }
    }
}

impl InvokeOutcome {
    /// Waits for the complete answer or the error. A stream that fails is an error.
    pub async fn collect(self) -> Result<Bytes, FunctionError> {
        match self {
            InvokeOutcome::Answer(answer) => answer.body.collect().await,
            InvokeOutcome::Error(error) => Err(error),
        }
    }
}

/// Maps an error type to one that Lambda accepts: `Runtime.…` or `Function.…`.
pub fn error_kind(kind: Option<&str>) -> String {
    static VALID: std::sync::LazyLock<Option<regex::Regex>> =
        std::sync::LazyLock::new(|| regex::Regex::new(r"(Runtime|Function)\.[A-Z][a-zA-Z]+").ok());
    let kind = kind.unwrap_or_default();
    if VALID.as_ref().is_some_and(|valid| valid.is_match(kind)) {
        kind.to_string()
    } else if kind.starts_with("Function.") {
        "Function.Unknown".into()
    } else {
        "Runtime.Unknown".into()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn error_type_outside_lambdas_namespaces_becomes_unknown() {
        for (kind, accepted) in [
            (Some("Runtime.NoSuchHandler"), "Runtime.NoSuchHandler"),
            (Some("Function.Custom"), "Function.Custom"),
            (Some("Function.custom"), "Function.Unknown"),
            (Some("TypeError"), "Runtime.Unknown"),
            (Some(""), "Runtime.Unknown"),
            (None, "Runtime.Unknown"),
        ] {
            assert_eq!(error_kind(kind), accepted, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn stream_without_end_is_an_error() {
        let (pieces, body) = mpsc::channel(4);
        pieces.send(AnswerPiece::Data("half".into())).await.unwrap();
        drop(pieces);
        let error = AnswerBody::Stream(body).collect().await.unwrap_err();
        assert_eq!(error.kind, "Runtime.TruncatedResponse");
    }
}
