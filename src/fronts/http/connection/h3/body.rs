//! A request's body as it arrives over HTTP/3.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::StreamError;
use h3::server::RequestStream;
use http::header::{self, HeaderMap};
use http::{Request, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::reply::H3Reply;
use crate::fronts::http::connection::multiplexed::expects_continue;
use crate::fronts::http::transport::quic::streams::ReceiveStream;

/// A request's body as it arrives.
pub struct H3RequestBody {
    stream: RequestStream<ReceiveStream, Bytes>,
    /// Called for each piece that is passed on.
    taken: Box<dyn Fn(usize) + Send>,
    /// Answers `100 Continue` to a client that waits for it.
    asks: Option<Arc<H3Reply>>,
    /// How many bytes are left, if the client has announced a length.
    rest: Option<u64>,
    /// The first piece, if it has arrived together with the header section.
    first: Option<Bytes>,
    has_ended: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("{0}")]
    Stream(#[from] StreamError),
    #[error("the body is longer than its Content-Length")]
    TooLong,
    #[error("the body is shorter than its Content-Length")]
    TooShort,
}

impl H3RequestBody {
    /// The request with its body. Polls once for the first piece, because HTTP/3 does not announce
    /// whether there is a body.
    pub async fn body_of(
        request: Request<()>,
        stream: RequestStream<ReceiveStream, Bytes>,
        taken: impl Fn(usize) + Send + 'static,
        reply: &Arc<H3Reply>,
    ) -> Result<Request<H3RequestBody>, BodyError> {
        let length = request.headers().get(header::CONTENT_LENGTH);
        let mut body = H3RequestBody {
            stream,
            taken: Box::new(taken),
            asks: expects_continue(request.headers()).then(|| reply.clone()),
            rest: length.and_then(|value| value.to_str().ok()?.parse().ok()),
            first: None,
            has_ended: false,
        };
        let first = std::future::poll_fn(|cx| {
            Poll::Ready(match body.poll_piece(cx) {
                Poll::Ready(piece) => piece,
                Poll::Pending => Ok(None),
            })
        });
        body.first = first.await?;
        Ok(request.map(|()| body))
    }

    /// The next piece; None at the end. Never an empty one.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            let Some(mut piece) = ready!(self.stream.poll_recv_data(cx))? else {
                self.has_ended = true;
                return Poll::Ready(match self.rest {
                    Some(1..) => Err(BodyError::TooShort),
                    _ => Ok(None),
                });
            };
            let piece = piece.copy_to_bytes(piece.remaining());
            (self.taken)(piece.len());
            if let Some(rest) = &mut self.rest {
                let left = rest.checked_sub(piece.len() as u64);
                *rest = left.ok_or(BodyError::TooLong)?;
            }
            if !piece.is_empty() {
                return Poll::Ready(Ok(Some(piece)));
            }
        }
    }
}

impl Body for H3RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.has_ended {
            return Poll::Ready(None);
        }
        let piece = self.poll_piece(cx);
        if let Some(reply) = self.asks.take()
            && piece.is_pending()
        {
            reply.inform(StatusCode::CONTINUE, HeaderMap::new());
        }
        Poll::Ready(ready!(piece)?.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended && self.first.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, |first| first.len() as u64);
        self.rest
            .map_or_else(SizeHint::default, |rest| SizeHint::with_exact(rest + first))
    }
}
