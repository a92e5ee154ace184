//! Streamed response bodies, with errors reported in trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use tracing::error;

use super::error::FunctionError;
use crate::event::ResponseBody;

/// Lambda's limit for a streamed response.
pub const MAX: u64 = 200 << 20;

/// Tells Lambda that a prelude precedes the body.
pub const CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("application/vnd.awslambda.http-integration-response");

/// A response body after its prelude. If PHP fails midway, the error goes into the trailers, where
/// Lambda looks for it.
pub struct Streaming {
    request: String,
    first: Option<Bytes>,
    body: ResponseBody,
    max: u64,
    sent: u64,
    ended: bool,
}

impl Streaming {
    /// `prelude` includes its terminating NUL bytes. At most `most` bytes are sent.
    pub fn new(request: &str, prelude: Vec<u8>, body: ResponseBody, max: u64) -> Streaming {
        Streaming {
            request: request.to_string(),
            first: Some(prelude.into()),
            body,
            max,
            sent: 0,
            ended: false,
        }
    }

    fn end(&mut self, error: &FunctionError) -> Frame<Bytes> {
        self.ended = true;
        let request_id = &self.request[..];
        let message = &error.message[..];
        error!(request_id, kind = %error.kind, error = message, "the response failed midway");
        // Dropping the body tells a script that still writes that the response is no longer read.
        self.body = ResponseBody::empty();
        let mut trailers = HeaderMap::new();
        for (name, value) in [
            ("lambda-runtime-function-error-type", error.kind.to_string()),
            (
                "lambda-runtime-function-error-body",
                STANDARD.encode(error.body()),
            ),
        ] {
            if let Ok(value) = HeaderValue::try_from(value) {
                trailers.insert(name, value);
            }
        }
        Frame::trailers(trailers)
    }
}

impl Body for Streaming {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Some(first) = self.first.take() {
            self.sent = first.len() as u64;
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let frame = match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => {
                self.ended = true;
                return Poll::Ready(None);
            }
            Some(Ok(frame)) => {
                self.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
                match self.sent > self.max {
                    true => {
                        let error = FunctionError::too_long(self.max);
                        self.end(&error)
                    }
                    false => frame,
                }
            }
            Some(Err(failure)) => self.end(&FunctionError::from_failure(&failure)),
        };
        Poll::Ready(Some(Ok(frame)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;
    use crate::event::Failure;

    fn body(frames: Vec<Result<&'static str, Failure>>) -> ResponseBody {
        let frames = frames
            .into_iter()
            .map(|frame| frame.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))));
        ResponseBody::stream(StreamBody::new(futures_util::stream::iter(
            frames.collect::<Vec<_>>(),
        )))
    }

    async fn sent(streaming: Streaming) -> (String, Option<HeaderMap>) {
        let all = streaming.collect().await.unwrap();
        let trailers = all.trailers().cloned();
        (String::from_utf8(all.to_bytes().into()).unwrap(), trailers)
    }

    #[tokio::test]
    async fn complete_stream_has_no_trailers() {
        let body = body(vec![Ok("a"), Ok("b")]);
        let streaming = Streaming::new("r", b"{}".into(), body, MAX);
        assert_eq!(sent(streaming).await, ("{}ab".into(), None));
    }

    #[tokio::test]
    async fn failed_stream_has_its_error_in_trailers() {
        let body = body(vec![
            Ok("a"),
            Err(Failure::WorkerCrashed("SIGSEGV".into())),
            Ok("b"),
        ]);
        let (text, trailers) = sent(Streaming::new("r", b"{}".into(), body, MAX)).await;
        assert_eq!(text, "{}a");
        let trailers = trailers.unwrap();
        assert_eq!(
            trailers["lambda-runtime-function-error-type"],
            "Runtime.ExitError"
        );
        let error = STANDARD
            .decode(&trailers["lambda-runtime-function-error-body"])
            .unwrap();
        let error: serde_json::Value = serde_json::from_slice(&error).unwrap();
        assert!(error["errorMessage"].as_str().unwrap().contains("SIGSEGV"));
    }

    #[tokio::test]
    async fn stream_above_the_limit_is_cut() {
        let body = body(vec![Ok("12345"), Ok("678"), Ok("9")]);
        let (text, trailers) = sent(Streaming::new("r", b"{}".into(), body, 8)).await;
        assert_eq!(text, "{}12345");
        assert_eq!(
            trailers.unwrap()["lambda-runtime-function-error-type"],
            "Function.ResponseSizeTooLarge"
        );
    }
}
