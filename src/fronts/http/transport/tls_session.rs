//! TLS between a socket and HTTP: decrypts what is read and encrypts what is written.

use std::borrow::Cow;
use std::io::{self, IoSlice, Read, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use rustls::ServerConnection;
use tokio::io::ReadBuf;

use super::socket::Socket;
use super::timeouts::ConnectionTimers;

/// Names and values of a connection's variables for PHP.
pub type TlsVariables = Arc<[(Cow<'static, str>, String)]>;

/// An encrypted connection whose handshake is complete.
pub struct TlsSession {
    connection: Mutex<ServerConnection>,
    /// The client has selected HTTP/2 (ALPN).
    pub is_http_2: bool,
}

impl TlsSession {
    pub fn new(connection: ServerConnection) -> TlsSession {
        TlsSession {
            is_http_2: connection.alpn_protocol() == Some(b"h2"),
            connection: Mutex::new(connection),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ServerConnection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Decrypts bytes into the buffer; returns 0 at the end.
    pub fn poll_read(
        &self,
        socket: &Socket,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut connection = self.lock();
            match connection.reader().read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The client has closed without saying so. HTTP notices if something is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(0));
                }
                result => {
                    let n = result?;
                    buffer.advance(n);
                    return Poll::Ready(Ok(n));
                }
            }
            match connection.read_tls(&mut Wire::new(socket)) {
                Ok(_) => process(&mut connection, socket)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    drop(connection);
                    ready!(socket.poll_read_ready(cx))?;
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            drop(connection);
            // A client can send records without content all the time.
            ready!(pin!(tokio::task::coop::consume_budget()).poll(cx));
        }
    }

    /// Encrypts some of the bytes. [`poll_flush`](Self::poll_flush) sends those that the socket
    /// does not take now.
    pub fn poll_write(
        &self,
        socket: &Socket,
        timers: &ConnectionTimers,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut connection = self.lock();
        loop {
            // Records that wait, such as session tickets, leave together with these.
            let n = connection.writer().write_vectored(bytes)?;
            if n > 0 || bytes.iter().all(|bytes| bytes.is_empty()) {
                send(&mut connection, socket)?;
                return Poll::Ready(Ok(n));
            }
            // Too many bytes wait already.
            ready!(poll_send(&mut connection, socket, timers, cx))?;
        }
    }

    /// Encrypts the bytes unless others wait, for messages that may be omitted.
    pub fn try_write(&self, socket: &Socket, bytes: &[u8]) -> io::Result<()> {
        let mut connection = self.lock();
        if !connection.wants_write() {
            connection.writer().write_all(bytes)?;
        }
        send(&mut connection, socket)
    }

    /// Sends everything that was encrypted.
    pub fn poll_flush(
        &self,
        socket: &Socket,
        timers: &ConnectionTimers,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        poll_send(&mut self.lock(), socket, timers, cx)
    }

    /// Announces the end of what is sent, without waiting.
    pub fn close(&self, socket: &Socket) {
        let mut connection = self.lock();
        connection.send_close_notify();
        // The client may have left.
        let _ = send(&mut connection, socket);
    }

    /// Whether a read finds bytes that have been decrypted already.
    pub fn has_decrypted(&self) -> bool {
        let mut connection = self.lock();
        // An empty batch of packets only counts what is there.
        connection
            .process_new_packets()
            .is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }
}

/// The bytes of a connection as the client sends and reads them.
pub struct Wire<'a> {
    socket: &'a Socket,
    /// Bytes that were read before TLS began.
    first: Option<&'a mut Bytes>,
    /// The connection's first byte.
    pub begins_with: Option<u8>,
}

impl<'a> Wire<'a> {
    fn new(socket: &'a Socket) -> Wire<'a> {
        Wire {
            socket,
            first: None,
            begins_with: None,
        }
    }

    pub fn beginning_with(first: &'a mut Bytes, socket: &'a Socket) -> Wire<'a> {
        Wire {
            socket,
            first: Some(first),
            begins_with: None,
        }
    }
}

impl Read for Wire<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = match &mut self.first {
            Some(first) if !first.is_empty() => {
                let n = first.len().min(to.len());
                first.copy_to_slice(&mut to[..n]);
                n
            }
            _ => self.socket.try_read(&mut ReadBuf::new(to))?,
        };
        if n > 0 {
            self.begins_with.get_or_insert(to[0]);
        }
        Ok(n)
    }
}

/// The sending side.
struct Out<'a>(&'a Socket);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Processes the records that were read. Sends what TLS itself answers, such as the alert that says
/// what is wrong with them.
pub fn process(connection: &mut ServerConnection, socket: &Socket) -> io::Result<()> {
    let processed = connection.process_new_packets();
    // Bytes that the socket does not take now are sent later.
    let _ = send(connection, socket);
    let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    processed.map(drop).map_err(malformed)
}

/// Sends what is encrypted, as far as the socket takes it now.
fn send(connection: &mut ServerConnection, socket: &Socket) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(&mut Out(socket)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            result => result?,
        };
    }
    Ok(())
}

/// Sends what is encrypted, and records whether the client takes it.
pub fn poll_send(
    connection: &mut ServerConnection,
    socket: &Socket,
    timers: &ConnectionTimers,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while connection.wants_write() {
        match connection.write_tls(&mut Out(socket)) {
            Ok(_) => timers.written(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if socket.poll_write_ready(cx)?.is_pending() {
                    timers.write_blocked();
                    return Poll::Pending;
                }
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}
