//! Accepts connections and serves each until it ends.

mod alarm;
mod h2;
pub mod handshake;
mod parse_error;
mod protocol;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use self::alarm::Alarm;
use self::handshake::Handshake;
use self::protocol::ServerConnection;
use super::Settings;
use super::listener::Listener;
use super::listener::connection_limit::{ConnectionLimiter, ConnectionPermit};
use super::listener::proxy_protocol;
use super::listener::proxy_protocol::Header;
use super::request::Service;
use super::tls::Tls;
use super::transport::io::{ConnectionState, Io};
use super::transport::socket::Socket;
use super::transport::timeouts::{ConnectionLimits, Timeout};
use crate::app::forwarded::{self, Peer};
use crate::event::Address;
use crate::observe::rate_limit::RateLimit;

/// Accepts connections until `draining`. Then accepts those that the kernel has already completed,
/// and returns. With `tls`, connections are encrypted.
pub async fn accept(
    listener: Listener,
    tls: Option<Arc<Tls>>,
    service: Arc<Service>,
    connections: TaskTracker,
    limiter: Arc<ConnectionLimiter>,
    draining: CancellationToken,
) {
    static REPORTED: RateLimit = RateLimit::new();
    let mut server = None;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = accept_one(&listener, &mut server) => accepted,
            () = draining.cancelled() => return,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Probably too many open files; others must close first.
                if REPORTED.is_time(Instant::now()) {
                    warn!(%error, "cannot accept connections; if too many files are open, \
                        raise their limit (LimitNOFILE= of systemd, ulimit -n), or lower \
                        http.max_connections");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Boxed, because a future keeps the space of its arguments for its whole life.
        let io = Box::new(Io::new(socket, service.settings.max_uri.0));
        let permits = async {
            let permit = enter(&limiter, &io, &draining).await?;
            let Some(tls) = tls.clone() else {
                return Some((permit, None));
            };
            let of_handshake = enter(&tls.handshakes, &io, &draining).await?;
            Some((
                permit,
                Some(Box::new(Handshake {
                    tls,
                    permit: of_handshake,
                })),
            ))
        };
        let Some((permit, handshake)) = permits.await else {
            service.application.metrics.connections_refused.inc();
            continue;
        };
        let service = service.clone();
        let draining = draining.clone();
        let open = Open::new(&service.application.metrics.connections);
        connections.spawn(serve(io, peer, handshake, service, permit, draining, open));
    }
}

/// Waits for a place among the limiter's connections. None if there is none in time.
async fn enter(
    limiter: &Arc<ConnectionLimiter>,
    io: &Io,
    draining: &CancellationToken,
) -> Option<ConnectionPermit> {
    static NONE_IDLE: RateLimit = RateLimit::new();
    if let Some(permit) = limiter.enter(io.shared()) {
        return Some(permit);
    }
    if NONE_IDLE.is_time(Instant::now()) {
        warn!(
            setting = limiter.setting,
            limit = limiter.limit,
            "limit reached and no connection is idle; new connections wait"
        );
    }
    limiter.wait(&io.shared(), draining).await
}

/// Counts a connection until it is dropped.
struct Open(Gauge);

impl Open {
    fn new(connections: &Gauge) -> Open {
        connections.inc();
        Open(connections.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// `last` is the server's address of the previous connection, which nearly all connections share.
async fn accept_one(listener: &Listener, last: &mut Option<Address>) -> io::Result<(Socket, Peer)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, client) = listener.accept().await?;
            // hyper does not set it. Without it, every second small write waits for the client's
            // delayed acknowledgement.
            stream.set_nodelay(true)?;
            let server = unmapped(stream.local_addr()?);
            if !last.as_ref().is_some_and(|last| last.is(server)) {
                *last = Some(server.into());
            }
            Ok((
                Socket::Tcp(stream),
                Peer {
                    client: Some(unmapped(client).into()),
                    server: last.clone(),
                    https: false,
                },
            ))
        }
        Listener::Unix(listener, _) => {
            let (stream, _) = listener.accept().await?;
            Ok((
                Socket::Unix(stream),
                Peer {
                    client: None,
                    server: None,
                    https: false,
                },
            ))
        }
    }
}

/// A listener at `[::]` sees IPv4 clients as `::ffff:192.0.2.1`; PHP gets 192.0.2.1.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Reads the PROXY header. None closes the connection.
async fn read_proxy_header(
    socket: &Socket,
    buffer: &mut BytesMut,
    peer: Peer,
    settings: &Settings,
) -> Option<Peer> {
    if !forwarded::is_trusted(&peer, &settings.trusted_proxies) {
        warn!(
            client = ?peer.client,
            "connection closed: PROXY headers are accepted only from http.trusted_proxies"
        );
        return None;
    }
    let header = proxy_protocol::read(socket, buffer);
    match tokio::time::timeout(settings.header_timeout.0, header).await {
        Ok(Ok(Header::Own)) => Some(peer),
        Ok(Ok(Header::Relayed {
            client,
            server,
            https,
        })) => Some(Peer {
            client: Some(client.into()),
            server: Some(server.into()),
            https,
        }),
        Ok(Err(error)) => {
            warn!(proxy = ?peer.client, %error, "connection closed");
            None
        }
        Err(_) => {
            debug!(proxy = ?peer.client, "no PROXY header in time; connection closed");
            None
        }
    }
}

async fn serve(
    mut io: Box<Io>,
    mut peer: Peer,
    handshake: Option<Box<Handshake>>,
    service: Arc<Service>,
    permit: ConnectionPermit,
    draining: CancellationToken,
    _open: Open,
) {
    let settings = &service.settings;
    let shared = io.shared();
    if settings.proxy_protocol {
        let mut first = BytesMut::new();
        let header = read_proxy_header(&shared.socket, &mut first, peer.clone(), settings);
        let read = async {
            tokio::select! {
                biased;
                read = header => read,
                () = drain_grace(&draining) => None,
                () = shared.evict.notified() => None,
            }
        };
        // Boxed, so that an idle connection does not have its size.
        let Some(client) = Box::pin(read).await else {
            return;
        };
        peer = client;
        io.begin_with(first.freeze());
    }
    if let Some(handshake) = handshake {
        let metrics = &service.application.metrics;
        // Boxed, so that an idle connection does not have its size.
        if !Box::pin(handshake::run(
            *handshake, &mut io, &peer, &draining, metrics,
        ))
        .await
        {
            return;
        }
        peer.https = true;
    }
    let mut limits = ConnectionLimits {
        head: settings.header_timeout.0,
        keep_alive: settings.keep_alive_timeout.0,
        write: settings.send_timeout.0,
    };
    let answer = service_fn(|request: Request<Incoming>| {
        let hints = (request.version() == Version::HTTP_11).then(|| Arc::downgrade(&shared) as _);
        let service = service.clone();
        service.answer(request, &peer, shared.clone(), hints)
    });
    let mut connection = Box::pin(ServerConnection::new(
        *io,
        service.clone(),
        peer.clone(),
        answer,
    ));
    // Polled only when it wakes, not whenever the connection is polled, which happens several times
    // per request.
    let alarm = Alarm::new();
    let mut interruption = Box::pin(interrupted(limits.look(), Some(&draining), &shared));
    let (mut drained, mut told, mut is_evicted) = (false, false, false);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    debug!(client = ?peer.client, error = %error, "connection ended");
                    parse_error::record(error.as_ref(), &peer, &service.accounting, &shared);
                }
                break;
            }
            interrupted = alarm.wait(interruption.as_mut()) => {
                match interrupted {
                    Interruption::CheckTimeouts => match shared.timers.overdue(limits) {
                        // Shut down gracefully first: with HTTP/2 the client then knows that
                        // requests it sends meanwhile need another connection.
                        Some(Timeout::Idle) if !told => {
                            told = true;
                            connection.as_mut().graceful_shutdown();
                        }
                        Some(why) => {
                            debug!(client = ?peer.client, ?why, "connection closed");
                            return;
                        }
                        None if shared.is_between_requests() => connection.as_mut().rest(),
                        None => {}
                    }
                    Interruption::Evict if shared.timers.idle_since().is_some() => {
                        (is_evicted, told) = (true, true);
                        limits.keep_alive = limits.keep_alive.min(EVICTION_GRACE);
                        connection.as_mut().graceful_shutdown();
                    }
                    Interruption::Evict => permit.keep(),
                    Interruption::Drain => {
                        drained = true;
                        limits.keep_alive = limits.keep_alive.min(DRAIN_GRACE);
                        shared.timers.drain();
                    }
                }
                // With HTTP/2, the client can be told before the close which requests will still be
                // answered.
                if drained && !told && shared.timers.is_multiplexed() {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
                let draining = (!drained).then_some(&draining);
                interruption.set(self::interrupted(limits.look(), draining, &shared));
                alarm.ring();
            }
        }
    }
    // Drops what the connection was still doing. A lingering connection must hear of its eviction,
    // which the other future would consume.
    drop(connection);
    drop(interruption);
    if !is_evicted {
        let lingers = async {
            tokio::select! {
                () = shared.linger() => {}
                () = shared.evict.notified() => {}
            }
        };
        // Boxed, so that an idle connection does not have its size.
        Box::pin(lingers).await;
    }
}

/// How long an idle HTTP/2 client may take to close its connection when another one needs the
/// place.
const EVICTION_GRACE: Duration = Duration::from_millis(100);

/// How long a connection stays open after its last response during a shutdown. Its client does not
/// know about the shutdown, and may already have sent another request.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

async fn drain_grace(draining: &CancellationToken) {
    draining.cancelled().await;
    tokio::time::sleep(DRAIN_GRACE).await;
}

/// An event other than progress of the connection itself.
enum Interruption {
    /// It is time to check the timeouts.
    CheckTimeouts,
    Drain,
    /// Another connection needs the place.
    Evict,
}

async fn interrupted(
    look: Duration,
    draining: Option<&CancellationToken>,
    connection: &ConnectionState,
) -> Interruption {
    let drain = async {
        match draining {
            Some(draining) => draining.cancelled().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = drain => Interruption::Drain,
        () = connection.evict.notified() => Interruption::Evict,
        () = tokio::time::sleep(look) => Interruption::CheckTimeouts,
    }
}
