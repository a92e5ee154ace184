//! Connects to servers, with TLS or without, and gives lapin the guarded stream.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_rs::traits::{Executor, Reactor, RuntimeKit};
use async_rs::util::Task;
use async_rs::{Runtime, Tokio};
use futures_io::{AsyncRead, AsyncWrite};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Connection, ConnectionProperties};
use rustls::pki_types::ServerName;

use super::Guard;
use super::bodies::Bodies;
use crate::connect;
use crate::fronts::queue::sources::tls;

/// Connects to a server. Bodies above `max_body` become files.
pub async fn connect(
    uri: AMQPUri,
    named: ConnectionProperties,
    bodies: Arc<Bodies>,
    max_body: u64,
) -> lapin::Result<Connection> {
    let runtime = Runtime::new(Guarded(Tokio::current()));
    let connect = async move |uri: AMQPUri, _: Runtime<Guarded>| {
        let guard = Guard::new(open(&uri).await?, &bodies, max_body);
        Ok(AsyncTcpStream::Plain(guard))
    };
    Connection::connector(uri, runtime, connect, named).await
}

/// A stream with TLS or without.
trait AmqpStream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> AmqpStream for S {}

async fn open(uri: &AMQPUri) -> io::Result<Box<dyn AmqpStream>> {
    let at = &uri.authority;
    let stream = connect::to_host(&at.host, at.port).await?;
    stream.set_nodelay(true)?;
    if uri.scheme == AMQPScheme::AMQP {
        return Ok(Box::new(stream));
    }
    let host = ServerName::try_from(at.host.clone()).map_err(io::Error::other)?;
    let stream = tls::connector()?.connect(host, stream).await?;
    Ok(Box::new(stream))
}

/// tokio, whose streams are guarded.
#[derive(Debug, Clone)]
struct Guarded(Tokio);

impl RuntimeKit for Guarded {}

impl Executor for Guarded {
    type Task<T: Send + 'static> = <Tokio as Executor>::Task<T>;

    fn block_on<T, F: Future<Output = T>>(&self, future: F) -> T {
        self.0.block_on(future)
    }

    fn spawn<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        future: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn(future)
    }

    fn spawn_blocking<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        run: F,
    ) -> Task<Self::Task<T>> {
        self.0.spawn_blocking(run)
    }
}

impl Reactor for Guarded {
    type TcpStream = Guard<Box<dyn AmqpStream>>;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, pause: Duration) -> Self::Sleep {
        self.0.sleep(pause)
    }

    fn interval(
        &self,
        pause: Duration,
    ) -> impl futures_util::Stream<Item = Instant> + Send + 'static {
        self.0.interval(pause)
    }

    fn tcp_connect_addr(
        &self,
        _: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        // `open` opens all streams, because TLS is below the guard.
        std::future::ready(Err(io::ErrorKind::Unsupported.into()))
    }
}
