//! Checks the frames of a RabbitMQ server before lapin gets them.
//!
//! lapin parses nested headers by recursion without a limit, ends the connection if it cannot parse
//! a message, and has whole messages in memory. So a message could end the process, or every
//! connection that receives it. Here such a message gets properties that lapin can parse, and a
//! long body goes to a file ([`bodies`]); the source then buries it. A server that does not keep to
//! the protocol loses its connection.

pub mod bodies;
mod connector;
pub mod fields;
pub mod frame;
pub mod incoming;
pub mod outgoing;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::bodies::Bodies;
pub use self::connector::connect;
use self::incoming::Incoming;
use self::outgoing::Outgoing;

/// How much is read or written at once.
const AT_ONCE: usize = 64 << 10;
/// How often a stream is read in turn without bytes for lapin, which must also write.
const TURNS: usize = 32;

/// A stream to a server, as lapin sees it.
pub struct Guard<S> {
    stream: S,
    incoming: Incoming,
    outgoing: Outgoing,
    buffer: Box<[u8]>,
}

impl<S> Guard<S> {
    /// Bodies above `max_body` become files.
    pub fn new(stream: S, bodies: &Arc<Bodies>, max_body: u64) -> Guard<S> {
        let frame_max = Arc::new(AtomicU32::new(frame::MAX_FRAME));
        Guard {
            stream,
            incoming: Incoming::new(bodies.clone(), frame_max.clone(), max_body),
            outgoing: Outgoing::new(bodies.clone(), frame_max),
            buffer: vec![0; AT_ONCE].into(),
        }
    }
}

fn invalid(wrong: frame::Wrong) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, wrong)
}

impl<S: AsyncRead + Unpin> futures_io::AsyncRead for Guard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let guard = &mut *self;
        for _ in 0..TURNS {
            let ready = &mut guard.incoming.ready;
            if !ready.is_empty() {
                let count = ready.len().min(buf.len());
                ready.copy_to_slice(&mut buf[..count]);
                return Poll::Ready(Ok(count));
            }
            let mut read = ReadBuf::new(&mut guard.buffer);
            ready!(Pin::new(&mut guard.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                guard.incoming.end().map_err(invalid)?;
                return Poll::Ready(Ok(0));
            }
            let fed = guard.incoming.feed(read.filled());
            fed.map_err(invalid)?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> Guard<S> {
    /// Writes until there is nothing left of what lapin has sent.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.outgoing.advance().map_err(invalid)?;
            let ready = &mut self.outgoing.ready;
            if ready.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, ready))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            ready.advance(count);
        }
    }
}

impl<S: AsyncWrite + Unpin> futures_io::AsyncWrite for Guard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        let buf = &buf[..buf.len().min(AT_ONCE)];
        self.outgoing.feed(buf);
        // Bytes that cannot be written yet are written by the flush.
        if let Poll::Ready(Err(error)) = self.poll_drain(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
