//! An invocation request.

use bytes::Bytes;

/// An event with the parameters of the Invoke API.
#[derive(Debug, Clone, Default)]
pub struct InvokeRequest {
    pub payload: Bytes,
    /// The caller accepts a stream (`InvokeWithResponseStream`), which may exceed 6 MB.
    pub is_streamed: bool,
    /// The request id, if the caller chooses one.
    pub id: Option<String>,
    /// `X-Amzn-Trace-Id`.
    pub trace: Option<String>,
    /// JSON.
    pub client_context: Option<String>,
    /// JSON.
    pub cognito_identity: Option<String>,
    pub tenant_id: Option<String>,
}

impl<T: Into<Bytes>> From<T> for InvokeRequest {
    fn from(payload: T) -> InvokeRequest {
        InvokeRequest {
            payload: payload.into(),
            ..InvokeRequest::default()
        }
    }
}
