//! Opens connections: TCP, Unix sockets, TLS.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::plan::Plan;
use crate::target::Origin;

mod source;
#[cfg(feature = "tls")]
mod tls;

/// A connection that carries bytes.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// Opens connections to the origins of a plan.
pub struct Connector {
    origins: Vec<ConnectorOrigin>,
    sources: source::Sources,
    #[cfg(feature = "tls")]
    tls: tls::Client,
}

struct ConnectorOrigin {
    origin: Origin,
    addresses: Vec<SocketAddr>,
    /// The address that has worked. `localhost` often has one that does not.
    best: AtomicUsize,
}

impl Connector {
    /// Resolves all names once.
    pub fn new(plan: &Plan) -> io::Result<Connector> {
        let place = |origin: &Origin| {
            if origin.is_tls && cfg!(not(feature = "tls")) {
                return Err(io::Error::other(
                    "this surus was built without TLS for `bench`",
                ));
            }
            let addresses = match origin.unix {
                Some(_) => Vec::new(),
                None => (origin.host.as_str(), origin.port)
                    .to_socket_addrs()
                    .map_err(|error| {
                        let text = format!("cannot resolve {}: {error}", origin.host);
                        io::Error::new(error.kind(), text)
                    })?
                    .collect(),
            };
            Ok(ConnectorOrigin {
                origin: origin.clone(),
                addresses,
                best: AtomicUsize::new(0),
            })
        };
        Ok(Connector {
            origins: plan
                .mix
                .origins
                .iter()
                .map(place)
                .collect::<io::Result<_>>()?,
            sources: source::Sources::new(plan),
            #[cfg(feature = "tls")]
            tls: tls::Client::new(plan)?,
        })
    }

    /// Opens a connection to an origin.
    pub async fn open(&self, origin: usize) -> io::Result<Stream> {
        let place = &self.origins[origin];
        if let Some(socket) = &place.origin.unix {
            let stream = UnixStream::connect(socket).await;
            return stream.map(Stream::Unix).map_err(refused_if_full);
        }
        let stream = place.tcp(&self.sources).await?;
        stream.set_nodelay(true)?;
        #[cfg(feature = "tls")]
        if place.origin.is_tls {
            let stream = self.tls.connect(&place.origin.host, stream).await?;
            return Ok(Stream::Tls(Box::new(stream)));
        }
        Ok(Stream::Tcp(stream))
    }
}

/// A Unix socket does not wait for a place in the queue of its listener: connect() fails with
/// EAGAIN.
fn refused_if_full(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            let text = "the queue of the listener is full";
            io::Error::new(io::ErrorKind::ConnectionRefused, text)
        }
        _ => error,
    }
}

impl ConnectorOrigin {
    async fn tcp(&self, sources: &source::Sources) -> io::Result<TcpStream> {
        let best = self.best.load(Ordering::Relaxed);
        let mut failed = io::Error::other("the name has no address");
        for attempt in 0..self.addresses.len() {
            let index = (best + attempt) % self.addresses.len();
            match sources.connect(self.addresses[index]).await {
                Ok(stream) => {
                    self.best.store(index, Ordering::Relaxed);
                    return Ok(stream);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
