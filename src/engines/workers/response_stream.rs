//! The body of a response that is still arriving from a worker.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::generation::in_flight::Key;
use super::generation::state::GenerationState;
use crate::engines::response_spool::SpoolReader;
use crate::event::Failure;

/// Dropped before its end, it tells the worker that the client has disconnected.
pub struct ResponseStream {
    body: SpoolReader,
    shared: Arc<GenerationState>,
    key: Key,
    ended: bool,
}

impl ResponseStream {
    pub fn new(body: SpoolReader, shared: Arc<GenerationState>, key: Key) -> ResponseStream {
        ResponseStream {
            body,
            shared,
            key,
            ended: false,
        }
    }
}

impl Body for ResponseStream {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let taken = ready!(self.body.poll_read(cx));
        self.ended = !matches!(taken, Some(Ok(_)));
        Poll::Ready(taken.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.abandon(self.key);
        }
    }
}
