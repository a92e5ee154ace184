//! The body of a response that is still arriving from a worker.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc;

use super::shared::Shared;
use crate::event::Failure;

/// What a worker's outbox hands on.
#[derive(Debug)]
pub enum Piece {
    Data(Bytes),
    /// All of the body has been handed on.
    End,
    Failed(Failure),
}

/// Pieces that may wait for a slow client before its worker has to: with 64 KiB records about half a MiB.
pub const PIECES: usize = 8;

/// Dropped before its end, it tells the worker that the client has gone.
pub struct Stream {
    pieces: mpsc::Receiver<Piece>,
    shared: Arc<Shared>,
    request: u16,
    event: u64,
    ended: bool,
}

impl Stream {
    pub fn new(
        pieces: mpsc::Receiver<Piece>,
        shared: Arc<Shared>,
        request: u16,
        event: u64,
    ) -> Stream {
        Stream {
            pieces,
            shared,
            request,
            event,
            ended: false,
        }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let piece = std::task::ready!(self.pieces.poll_recv(cx));
        match piece {
            Some(Piece::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Piece::End) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Some(Piece::Failed(failure)) => {
                self.ended = true;
                Poll::Ready(Some(Err(failure)))
            }
            None => {
                self.ended = true;
                Poll::Ready(Some(Err(Failure::Died("the answer broke off".into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.ended {
            self.shared.abandon(self.request, self.event);
        }
    }
}
