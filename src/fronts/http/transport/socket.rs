//! A client's socket, TCP or unix.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, BytesMut};
use tokio::io::{Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A client's socket.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_write(bytes),
            Socket::Unix(stream) => stream.try_write(bytes),
        }
    }

    pub(super) fn try_write_vectored(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_write_vectored(bytes),
            Socket::Unix(stream) => stream.try_write_vectored(bytes),
        }
    }

    pub(super) fn try_send_file(&self, file: &File, offset: u64, max: usize) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_io(Interest::WRITABLE, || {
                surus_sys::seqpacket::send_file(stream.as_fd(), file.as_fd(), offset, max)
            }),
            Socket::Unix(stream) => stream.try_io(Interest::WRITABLE, || {
                surus_sys::seqpacket::send_file(stream.as_fd(), file.as_fd(), offset, max)
            }),
        }
    }

    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_write_ready(cx),
            Socket::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    /// Waits for bytes and appends them; returns 0 at the end.
    pub async fn read(&self, to: &mut BytesMut) -> io::Result<usize> {
        std::future::poll_fn(|cx| poll_append(to, |buffer| self.poll_read(cx, buffer))).await
    }

    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.try_read(to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.poll_read_ready(cx))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    /// Reads the available bytes. A read that leaves room has emptied the socket, so the next one
    /// should wait without trying; tokio learns that only from an attempt that would block.
    pub(super) fn try_read(&self, mut buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
        let room = buffer.remaining();
        let mut emptied = None;
        let read = match self {
            Socket::Tcp(stream) => stream.try_io(Interest::READABLE, || {
                last(stream.try_read_buf(&mut buffer)?, room, &mut emptied)
            }),
            Socket::Unix(stream) => stream.try_io(Interest::READABLE, || {
                last(stream.try_read_buf(&mut buffer)?, room, &mut emptied)
            }),
        };
        emptied.map_or(read, Ok)
    }

    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_read_ready(cx),
            Socket::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Closes the sending direction.
    pub(super) fn shut_down(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => shutdown(stream),
            Socket::Unix(stream) => shutdown(stream),
        }
    }
}

/// Appends what `read` reads.
pub(super) fn poll_append(
    to: &mut BytesMut,
    read: impl FnOnce(&mut ReadBuf<'_>) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<usize>> {
    let mut piece = [0; 4096];
    let mut buffer = ReadBuf::new(&mut piece);
    let n = ready!(read(&mut buffer))?;
    to.put_slice(buffer.filled());
    Poll::Ready(Ok(n))
}

/// `WouldBlock` if `read` bytes were all there were; `emptied` then contains the count.
fn last(read: usize, room: usize, emptied: &mut Option<usize>) -> io::Result<usize> {
    if read == 0 || read == room {
        return Ok(read);
    }
    *emptied = Some(read);
    Err(io::ErrorKind::WouldBlock.into())
}

fn shutdown(stream: &impl AsFd) -> io::Result<()> {
    match surus_sys::seqpacket::shutdown_write(stream.as_fd()) {
        // The client closed first.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        other => other,
    }
}
