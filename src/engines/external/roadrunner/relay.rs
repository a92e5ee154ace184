//! The connection with a worker: pipes or a socket.

use std::fs::Permissions;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use bytes::BytesMut;
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Mutex;

use super::form::{BodyContent, Directory};

/// How workers connect: RoadRunner's `server.relay`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RelayKind {
    Pipes,
    #[default]
    Unix,
    Tcp,
}

/// Where workers connect.
pub enum RelayListener {
    Pipes,
    Socket {
        /// Workers start one after another, so that Surus knows whose connection is accepted next.
        socket: Mutex<Socket>,
        /// The value of `RR_RELAY`.
        address: String,
    },
}

pub enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl RelayListener {
    /// Creates a unix socket in `directory`, which PHP's user can enter.
    pub async fn open(kind: RelayKind, directory: &Directory) -> anyhow::Result<RelayListener> {
        let (socket, address) = match kind {
            RelayKind::Pipes => return Ok(RelayListener::Pipes),
            RelayKind::Unix => {
                let path = directory.path.join("relay.sock");
                let socket = open_unix(&path, directory.is_shared)
                    .with_context(|| format!("cannot listen on {}", path.display()))?;
                (Socket::Unix(socket), format!("unix://{}", path.display()))
            }
            RelayKind::Tcp => {
                let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
                let socket = socket.context("cannot listen on 127.0.0.1 (engine.relay)")?;
                let address = format!("tcp://{}", socket.local_addr()?);
                (Socket::Tcp(socket), address)
            }
        };
        Ok(RelayListener::Socket {
            socket: Mutex::new(socket),
            address,
        })
    }
}

fn open_unix(path: &Path, is_shared: bool) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    let mode = if is_shared { 0o770 } else { 0o700 };
    if path.metadata()?.permissions().mode() & 0o777 != mode {
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(listener)
}

impl Socket {
    /// The next connection; `None` if it is not that of process `pid`.
    pub async fn accept(&self, pid: u32) -> io::Result<Option<Relay>> {
        match self {
            Socket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred()?.pid();
                let is_worker = peer.is_none_or(|peer| u32::try_from(peer) == Ok(pid));
                Ok(is_worker.then_some(Relay::Unix(stream)))
            }
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Some(Relay::Tcp(stream)))
            }
        }
    }
}

/// A connection that can be read and written concurrently.
pub enum Relay {
    /// The worker's stdin and stdout.
    Pipes(pipe::Sender, pipe::Receiver),
    Unix(UnixStream),
    Tcp(TcpStream),
    /// Not connected yet.
    None,
}

impl Relay {
    /// Reads something; 0 at the end. Dropping the future loses nothing.
    pub async fn read(&self, into: &mut BytesMut) -> io::Result<usize> {
        loop {
            let read = match self {
                Relay::Pipes(_, from) => {
                    from.readable().await?;
                    from.try_read_buf(into)
                }
                Relay::Unix(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
                Relay::Tcp(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
                Relay::None => Ok(0),
            };
            match read {
                Err(error) if is_temporary(&error) => {}
                read => return read,
            }
        }
    }

    /// Writes the beginning of `bytes`.
    async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let written = match self {
                Relay::Pipes(to, _) => {
                    to.writable().await?;
                    to.try_write(bytes)
                }
                Relay::Unix(stream) => {
                    stream.writable().await?;
                    stream.try_write(bytes)
                }
                Relay::Tcp(stream) => {
                    stream.writable().await?;
                    stream.try_write(bytes)
                }
                Relay::None => Err(io::ErrorKind::NotConnected.into()),
            };
            match written {
                Err(error) if is_temporary(&error) => {}
                written => return written,
            }
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    [Interrupted, WouldBlock].contains(&error.kind())
}

/// What is still to be written to a worker.
#[derive(Default)]
pub struct OutgoingBytes {
    bytes: Vec<u8>,
    /// How many of them are written.
    at: usize,
    /// The rest of a request's body.
    body: Option<BodyContent>,
}

/// How much of a body is read at once.
const PIECE: usize = 64 * 1024;

impl OutgoingBytes {
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len() && self.body.is_none()
    }

    /// Where to append frames.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Sets what follows the bytes. Nothing may be appended before it is written.
    pub fn follow_with(&mut self, body: BodyContent) {
        self.body = Some(body);
    }

    /// Writes a part. Dropping the future loses nothing.
    pub async fn write(&mut self, relay: &Relay) -> io::Result<()> {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
            if let Some(body) = &mut self.body {
                self.bytes.resize(PIECE, 0);
                let read = body.read(&mut self.bytes)?;
                self.bytes.truncate(read);
                if read == 0 {
                    self.body = None;
                    return Ok(());
                }
            }
        }
        self.at += relay.write(&self.bytes[self.at..]).await?;
        Ok(())
    }
}
