//! The bytes of a connection over TCP, TLS or a unix socket: records progress for timeouts, and
//! sends early hints and files.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::budget::{MEMORY, Reservation};
use crate::event::EarlyHints;

use super::context::ConnectionContext;
use super::early_hints;
use super::early_hints::PendingHints;
use super::file_queue::is_placeholder;
use super::request_line::RequestLineEncoder;
use super::socket::{Socket, poll_append};
use super::tls_session::TlsSession;

/// The stream that hyper reads from and writes to.
pub struct Io {
    shared: Arc<ConnectionState>,
    /// Bytes that were read before hyper started.
    first: Bytes,
    /// Bytes for which hyper had no room.
    ready: Bytes,
    request_line: RequestLineEncoder,
    line: FirstLine,
    max_uri: u64,
    /// The last read may have left bytes in the socket.
    may_have_more: bool,
    /// The end of the connection's pause.
    resumes: Option<Pin<Box<Sleep>>>,
}

/// The first line received since the last write.
#[derive(Default)]
struct FirstLine {
    len: u64,
    ended: bool,
}

impl FirstLine {
    fn read(&mut self, bytes: &[u8]) {
        if !self.ended {
            let end = memchr::memchr(b'\n', bytes);
            self.ended = end.is_some();
            self.len += end.unwrap_or(bytes.len()) as u64;
        }
    }
}

/// The part of a connection that its requests share.
pub struct ConnectionState {
    pub context: Arc<ConnectionContext>,
    pub socket: Socket,
    /// Set after the handshake of an encrypted connection.
    pub tls: OnceLock<Box<TlsSession>>,
    /// The client has closed its sending direction.
    ended: AtomicBool,
    /// hyper has nothing buffered, so what is written now does not split a response.
    between_responses: AtomicBool,
    /// The memory of the header sections that hyper or h2 writes.
    headers: Mutex<Reservation>,
    pending_hints: Mutex<PendingHints>,
    /// Surus has answered 414: bytes of the body, and of the whole response.
    pub uri_too_long: OnceLock<(u64, u64)>,
}

impl Deref for ConnectionState {
    type Target = ConnectionContext;

    fn deref(&self) -> &ConnectionContext {
        &self.context
    }
}

impl Io {
    pub fn new(socket: Socket, max_uri: u64) -> Io {
        let shared = ConnectionState {
            context: Arc::new(ConnectionContext::new()),
            socket,
            tls: OnceLock::new(),
            ended: AtomicBool::new(false),
            between_responses: AtomicBool::new(true),
            headers: Mutex::new(Reservation::none(&MEMORY)),
            pending_hints: Mutex::new(PendingHints::NONE),
            uri_too_long: OnceLock::new(),
        };
        Io {
            shared: Arc::new(shared),
            first: Bytes::new(),
            ready: Bytes::new(),
            request_line: RequestLineEncoder::default(),
            line: FirstLine::default(),
            max_uri,
            may_have_more: false,
            resumes: None,
        }
    }

    pub fn shared(&self) -> Arc<ConnectionState> {
        self.shared.clone()
    }

    /// Sets bytes that have been read from the socket already.
    pub fn begin_with(&mut self, first: Bytes) {
        self.first = first;
    }

    /// The same bytes, for a protocol below HTTP.
    pub fn first(&mut self) -> &mut Bytes {
        &mut self.first
    }

    /// Takes back bytes that hyper has read and not used.
    pub fn take_back(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.ready = [&bytes[..], &self.ready].concat().into();
        }
    }

    /// Waits until a read would find bytes, the end of the stream or an error.
    pub fn poll_wake(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let decrypted = self.shared.tls.get().is_some_and(|tls| tls.has_decrypted());
        if self.ready.is_empty() && self.first.is_empty() && !decrypted {
            let _ = ready!(self.shared.socket.poll_read_ready(cx));
        }
        Poll::Ready(())
    }

    /// Waits while the connection pauses. Bytes that its client sends meanwhile stay in the kernel.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(until) = self.shared.timers.paused_until() {
            let until = tokio::time::Instant::from_std(until);
            let sleep = || Box::pin(tokio::time::sleep_until(until));
            let resumes = self.resumes.get_or_insert_with(sleep);
            if resumes.deadline() != until {
                resumes.as_mut().reset(until);
            }
            ready!(resumes.as_mut().poll(cx));
            self.shared.timers.resume();
        }
        Poll::Ready(())
    }

    /// Passes what was read since the buffer had `before` bytes to the request line encoder.
    fn follow(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        if self.shared.timers.is_multiplexed() {
            return;
        }
        if let Some(encoded) = self.request_line.read(&buffer.filled()[before..]) {
            buffer.set_filled(before);
            self.ready = encoded.into();
            let n = self.ready.len().min(buffer.remaining());
            buffer.put_slice(&self.ready.split_to(n));
        }
    }

    /// Whether the client speaks HTTP/2. The bytes read to find out are read again.
    pub fn poll_recognize(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let selected = self.shared.tls.get().map(|tls| tls.is_http_2);
            let len = self.first.len().min(PREFACE.len());
            if self.first[..len] != PREFACE[..len] {
                // A client that has selected HTTP/2 must speak it.
                return Poll::Ready(match selected {
                    Some(true) => Err(io::ErrorKind::InvalidData.into()),
                    _ => Ok(false),
                });
            }
            // HTTP/2 over TLS must be selected (RFC 9113, 3.2).
            if selected == Some(false) && len > 0 {
                return Poll::Ready(Ok(false));
            }
            if len == PREFACE.len() {
                self.shared.timers.multiplexes();
                return Poll::Ready(Ok(true));
            }
            let mut come = BytesMut::new();
            let n = ready!(poll_append(&mut come, |to| self.shared.poll_read(cx, to)))?;
            if n == 0 {
                return Poll::Ready(Ok(false));
            }
            self.shared.timers.read();
            self.first = match self.first.is_empty() {
                true => come.freeze(),
                false => [&self.first[..], &come].concat().into(),
            };
        }
    }

    /// hyper answers 431 to every header section that is too large. If the request line alone is
    /// too long, RFC 9112, 3 requires 414; hyper has parsed nothing then, so the bytes are counted
    /// here.
    fn is_request_line_too_long(&mut self, bytes: &[u8]) -> bool {
        let line = std::mem::take(&mut self.line);
        !line.ended && line.len > self.max_uri && bytes.starts_with(b"HTTP/1.1 431 ")
    }

    fn answer_uri_too_long(&self) {
        let text = "414 URI Too Long: the request target is too long\n";
        let headers = "HTTP/1.1 414 URI Too Long\r\nconnection: close\r\ncontent-type: text/plain; \
            charset=utf-8";
        let response = format!("{headers}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        let mut pending = self.shared.pending_hints();
        pending.rest.extend_from_slice(response.as_bytes());
        let sent = (text.len() as u64, response.len() as u64);
        let _ = self.shared.uri_too_long.set(sent);
    }

    /// Writes the bytes up to the first placeholder, or sends the file part for it.
    fn poll_write_parts(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(tls) = self.shared.tls.get() {
            return tls.poll_write(&self.shared.socket, &self.shared.timers, cx, parts);
        }
        let is_file = |part: &IoSlice<'_>| !part.is_empty() && is_placeholder(part);
        let Some(at) = parts.iter().position(is_file) else {
            return poll_write(&self.shared, cx, |socket| socket.try_write_vectored(parts));
        };
        if parts[..at].iter().any(|part| !part.is_empty()) {
            let bytes = &parts[..at];
            return poll_write(&self.shared, cx, |socket| socket.try_write_vectored(bytes));
        }
        let max = parts[at].len();
        poll_write(&self.shared, cx, |socket| {
            let send = |file: &File, offset, max| socket.try_send_file(file, offset, max);
            match self.shared.files.send(max, send) {
                Some(Ok(0)) => Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "a file became shorter while it was sent",
                )),
                Some(result) => result,
                None => Err(io::Error::other("a placeholder without a file")),
            }
        })
    }

    /// Writes the rest of early hints.
    fn poll_pending_hints(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pending = self.shared.pending_hints();
        if pending.rest.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while !pending.rest.is_empty() {
            let n = ready!(self.poll_write_parts(cx, &[IoSlice::new(&pending.rest)]))?;
            pending.rest.drain(..n);
        }
        *pending = PendingHints::NONE;
        Poll::Ready(Ok(()))
    }
}

/// The first bytes of an HTTP/2 client (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a client that sends nothing has to notice the close.
const LINGER: Duration = Duration::from_secs(2);

/// The same during a shutdown.
const LINGER_DRAINING: Duration = Duration::from_millis(500);

/// A client that is still sending gets this many times as long.
const LINGER_SENDING: u32 = 5;

impl ConnectionState {
    fn poll_read(&self, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        match self.tls.get() {
            None => self.socket.poll_read(cx, to),
            Some(tls) => tls.poll_read(&self.socket, cx, to),
        }
    }

    fn pending_hints(&self) -> MutexGuard<'_, PendingHints> {
        self.pending_hints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the memory of a header section until hyper or h2 has written everything.
    pub fn keep_until_written(&self, section: Reservation) {
        self.headers().join(section);
    }

    fn headers(&self) -> MutexGuard<'_, Reservation> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// hyper or h2 has written everything.
    fn all_written(&self) {
        if !self.between_responses.swap(true, Ordering::AcqRel) {
            *self.headers() = Reservation::none(&MEMORY);
        }
    }

    /// Whether the connection has nothing to do until bytes arrive. One of HTTP/1 is between two
    /// requests, or before the first.
    pub fn may_rest(&self) -> bool {
        let is_idle = self.timers.idle_since().is_some();
        is_idle && (self.timers.is_multiplexed() || self.body_framing.is_whole())
    }

    /// Lets the client finish after Surus has closed its direction. Closing a socket with unread
    /// bytes resets it, which would destroy the response that says why (RFC 9112, 9.6).
    pub async fn linger(&self) {
        // hyper has done so, unless it takes the connection for a tunnel.
        if self.shut_down().is_err() || self.ended.load(Ordering::Relaxed) {
            return;
        }
        let silence = match self.timers.is_draining() {
            true => LINGER_DRAINING,
            false => LINGER,
        };
        let silent = async {
            let mut ignored = BytesMut::new();
            while let Ok(Ok(1..)) =
                tokio::time::timeout(silence, self.socket.read(&mut ignored)).await
            {
                ignored.clear();
            }
        };
        let _ = tokio::time::timeout(silence * LINGER_SENDING, silent).await;
    }

    fn shut_down(&self) -> io::Result<()> {
        if let Some(tls) = self.tls.get() {
            tls.close(&self.socket);
        }
        self.socket.shut_down()
    }
}

impl EarlyHints for ConnectionState {
    /// Sends early hints over HTTP/1.1, which hyper cannot. Only between responses: hints may be
    /// omitted, responses must not be damaged.
    fn send(&self, headers: &HeaderMap) -> bool {
        if !self.between_responses.load(Ordering::Acquire) {
            return false;
        }
        let Some(hints) = early_hints::response(headers) else {
            return false;
        };
        match self.tls.get() {
            Some(tls) => tls.try_write(&self.socket, &hints.0).is_ok(),
            None => {
                let write = |text: &[u8]| self.socket.try_write(text);
                self.pending_hints().send(hints, write)
            }
        }
    }
}

fn poll_write(
    shared: &ConnectionState,
    cx: &mut Context<'_>,
    mut write: impl FnMut(&Socket) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        match write(&shared.socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if shared.socket.poll_write_ready(cx)?.is_pending() {
                    shared.timers.write_blocked();
                    return Poll::Pending;
                }
            }
            Ok(n) => {
                shared.timers.written();
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
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(this.poll_pause(cx));
        if !this.ready.is_empty() {
            let n = this.ready.len().min(buffer.remaining());
            buffer.put_slice(&this.ready.split_to(n));
        } else if this.first.is_empty() {
            // An endless reader must yield like other tasks; tokio counts only reads that find
            // nothing.
            if this.may_have_more {
                ready!(pin!(tokio::task::coop::consume_budget()).poll(cx));
            }
            let n = ready!(this.shared.poll_read(cx, buffer))?;
            this.may_have_more = buffer.remaining() == 0;
            if n == 0 {
                this.shared.ended.store(true, Ordering::Relaxed);
                return Poll::Ready(Ok(()));
            }
            this.follow(buffer, before);
        } else {
            let n = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first.split_to(n));
            this.follow(buffer, before);
        }
        this.shared.timers.read();
        if this.shared.timers.is_idle() {
            this.line.read(&buffer.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_request_line_too_long(bytes) {
            self.answer_uri_too_long();
            return Poll::Ready(Ok(bytes.len()));
        }
        self.shared
            .between_responses
            .store(false, Ordering::Release);
        ready!(self.poll_pending_hints(cx))?;
        self.poll_write_parts(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_request_line_too_long(bytes.first().map_or(&[], |first| first)) {
            self.answer_uri_too_long();
            return Poll::Ready(Ok(bytes.iter().map(|slice| slice.len()).sum()));
        }
        self.shared
            .between_responses
            .store(false, Ordering::Release);
        ready!(self.poll_pending_hints(cx))?;
        self.poll_write_parts(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending_hints(cx))?;
        if let Some(tls) = self.shared.tls.get() {
            ready!(tls.poll_flush(&self.shared.socket, &self.shared.timers, cx))?;
        }
        // hyper and h2 flush after they have written everything.
        self.shared.all_written();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(tls) = self.shared.tls.get() {
            ready!(tls.poll_flush(&self.shared.socket, &self.shared.timers, cx))?;
        }
        Poll::Ready(self.shared.shut_down())
    }
}
