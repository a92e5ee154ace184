//! What a caller of the function asks.

use bytes::Bytes;

/// An event for the function, as the Invoke API takes it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub payload: Bytes,
    /// The caller takes the answer while it comes (`InvokeWithResponseStream`). It can be longer than 6 MB then.
    pub is_streamed: bool,
    /// A caller may choose it; else it is made.
    pub id: Option<String>,
    /// `X-Amzn-Trace-Id`.
    pub trace: Option<String>,
    /// JSON.
    pub client_context: Option<String>,
    /// JSON.
    pub cognito_identity: Option<String>,
    pub tenant_id: Option<String>,
}

impl<T: Into<Bytes>> From<T> for Request {
    fn from(payload: T) -> Request {
        Request {
            payload: payload.into(),
            ..Request::default()
        }
    }
}
