//! The bytes of a connection: TCP or unix socket, with notes for its timeouts and a way for early hints.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::activity::Activity;
use super::placeholder::{Files, is_placeholder};

/// A client's socket.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_write(bytes),
            Socket::Unix(stream) => stream.try_write(bytes),
        }
    }

    fn try_write_vectored(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_write_vectored(bytes),
            Socket::Unix(stream) => stream.try_write_vectored(bytes),
        }
    }

    fn try_send_file(&self, file: &File, offset: u64, most: usize) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_io(Interest::WRITABLE, || {
                surus_sys::seqpacket::send_file(stream.as_fd(), file.as_fd(), offset, most)
            }),
            Socket::Unix(stream) => stream.try_io(Interest::WRITABLE, || {
                surus_sys::seqpacket::send_file(stream.as_fd(), file.as_fd(), offset, most)
            }),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_write_ready(cx),
            Socket::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    fn try_read(&self, mut buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_read_buf(&mut buffer),
            Socket::Unix(stream) => stream.try_read_buf(&mut buffer),
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(stream) => stream.poll_read_ready(cx),
            Socket::Unix(stream) => stream.poll_read_ready(cx),
        }
    }
}

/// What hyper reads from and writes to.
pub struct Io {
    shared: Arc<Shared>,
}

/// What is shared with the requests of the connection.
pub struct Shared {
    socket: Socket,
    pub activity: Activity,
    /// What the placeholders among the bytes to write stand for.
    pub files: Files,
    /// hyper has nothing buffered: what is written now does not cut a response in two.
    quiet: AtomicBool,
    /// The end of early hints that the socket did not take at once; goes out before anything else.
    rest: Mutex<Vec<u8>>,
}

impl Io {
    pub fn new(socket: Socket) -> Io {
        let shared = Shared {
            socket,
            activity: Activity::new(),
            files: Files::default(),
            quiet: AtomicBool::new(true),
            rest: Mutex::new(Vec::new()),
        };
        Io {
            shared: Arc::new(shared),
        }
    }

    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Writes the bytes up to the first placeholder, or the file that it stands for.
    fn poll_write_parts(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let is_file = |part: &IoSlice<'_>| !part.is_empty() && is_placeholder(part);
        let Some(at) = parts.iter().position(is_file) else {
            return poll_write(&self.shared, cx, |socket| socket.try_write_vectored(parts));
        };
        if parts[..at].iter().any(|part| !part.is_empty()) {
            let bytes = &parts[..at];
            return poll_write(&self.shared, cx, |socket| socket.try_write_vectored(bytes));
        }
        let most = parts[at].len();
        poll_write(&self.shared, cx, |socket| {
            let send = |file: &File, offset, most| socket.try_send_file(file, offset, most);
            match self.shared.files.send(most, send) {
                Some(Ok(0)) => Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "a file became shorter while it was sent",
                )),
                Some(result) => result,
                None => Err(io::Error::other("a placeholder without a file")),
            }
        })
    }

    /// Writes what early hints have left over.
    fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut rest = self
            .shared
            .rest
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        while !rest.is_empty() {
            let n = ready!(poll_write(&self.shared, cx, |socket| socket.try_write(&rest)))?;
            rest.drain(..n);
        }
        Poll::Ready(Ok(()))
    }
}

impl Shared {
    /// Sends a `103 Early Hints` response (RFC 8297), in HTTP/1.1 only and only where nothing else is being sent: hints may
    /// be left out, responses must not be damaged. hyper has no way of its own for this.
    pub fn early_hints(&self, headers: &HeaderMap) {
        if !self.quiet.load(Ordering::Acquire) {
            return;
        }
        let mut text = b"HTTP/1.1 103 Early Hints\r\n".to_vec();
        for value in headers.get_all(http::header::LINK) {
            text.extend_from_slice(b"link: ");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"\r\n");
        let mut rest = self
            .rest
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if !rest.is_empty() {
            return;
        }
        if let Ok(n) = self.socket.try_write(&text)
            && n < text.len()
        {
            rest.extend_from_slice(&text[n..]);
        }
    }
}

fn poll_write(
    shared: &Shared,
    cx: &mut Context<'_>,
    mut write: impl FnMut(&Socket) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        match write(&shared.socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if shared.socket.poll_write_ready(cx)?.is_pending() {
                    shared.activity.write_blocked();
                    return Poll::Pending;
                }
            }
            Ok(n) => {
                shared.activity.written();
                return Poll::Ready(Ok(n));
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.shared.socket.try_read(buffer) {
                Ok(n) => {
                    if n > 0 {
                        self.shared.activity.read();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.shared.socket.poll_read_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.quiet.store(false, Ordering::Release);
        ready!(self.poll_rest(cx))?;
        self.poll_write_parts(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.shared.quiet.store(false, Ordering::Release);
        ready!(self.poll_rest(cx))?;
        self.poll_write_parts(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_rest(cx))?;
        // hyper flushes when it has written all that it had.
        self.shared.quiet.store(true, Ordering::Release);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = match &self.shared.socket {
            Socket::Tcp(stream) => shutdown(stream),
            Socket::Unix(stream) => shutdown(stream),
        };
        Poll::Ready(result)
    }
}

/// Closes the sending direction.
fn shutdown(stream: &impl AsFd) -> io::Result<()> {
    match surus_sys::seqpacket::shutdown_write(stream.as_fd()) {
        // The client was faster.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        other => other,
    }
}
