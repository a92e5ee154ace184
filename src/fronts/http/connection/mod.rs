//! Accepts connections and serves each until it ends.

mod alarm;
mod h2;
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
use self::protocol::Spoken;
use super::Settings;
use super::listener::Listener;
use super::listener::connection_limit::{Guest, Room};
use super::listener::proxy_protocol;
use super::listener::proxy_protocol::Header;
use super::request::Service;
use super::transport::io::{Io, Shared, Socket};
use super::transport::timeouts::{Limits, Overdue};
use crate::app::forwarded::{self, Peer};
use crate::event::Address;
use crate::observe::rate_limit::Rarely;

/// Accepts until `draining`; then takes the connections that the kernel has already completed, and returns.
pub async fn accept(
    listener: Listener,
    service: Arc<Service>,
    connections: TaskTracker,
    room: Arc<Room>,
    draining: CancellationToken,
) {
    static SAID: Rarely = Rarely::new();
    static NONE_IDLE: Rarely = Rarely::new();
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
                // Out of descriptors, most likely; those in use have to end first.
                if SAID.is_time(Instant::now()) {
                    warn!(%error, "cannot accept connections; where too many files are open, raise their limit (LimitNOFILE= of systemd, ulimit -n), or lower http.max_connections");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Boxed, because a future has room for its arguments as long as it lives.
        let io = Box::new(Io::new(socket, service.settings.max_uri.0));
        let mut guest = room.enter(io.shared());
        if guest.is_none() {
            if NONE_IDLE.is_time(Instant::now()) {
                warn!(
                    limit = service.settings.max_connections,
                    "http.max_connections are open and none of them is idle; more have to wait"
                );
            }
            guest = room.wait(&io.shared(), &draining).await;
        }
        let Some(guest) = guest else {
            service.application.metrics.connections_refused.inc();
            continue;
        };
        let service = service.clone();
        let draining = draining.clone();
        let open = Open::new(&service.application.metrics.connections);
        connections.spawn(serve(io, peer, service, guest, draining, open));
    }
}

/// A connection that is counted, however it ends.
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

/// `last` is the server's address of the connection before, which nearly all share.
async fn accept_one(listener: &Listener, last: &mut Option<Address>) -> io::Result<(Socket, Peer)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, client) = listener.accept().await?;
            // hyper does not; without it every second small write waits for the client's delayed acknowledgement.
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

/// `::ffff:192.0.2.1`, as a listener at `[::]` sees IPv4 clients, is 192.0.2.1 to PHP.
fn unmapped(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Reads the PROXY header. None closes the connection.
async fn introduced(
    socket: &Socket,
    buffer: &mut BytesMut,
    peer: Peer,
    settings: &Settings,
) -> Option<Peer> {
    if !forwarded::is_trusted(&peer, &settings.trusted_proxies) {
        warn!(client = ?peer.client, "not among http.trusted_proxies, whose PROXY headers are believed; closed");
        return None;
    }
    let header = proxy_protocol::read(socket, buffer);
    match tokio::time::timeout(settings.head_timeout.0, header).await {
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
    service: Arc<Service>,
    guest: Guest,
    draining: CancellationToken,
    _open: Open,
) {
    let settings = &service.settings;
    let shared = io.shared();
    if settings.proxy_protocol {
        let mut first = BytesMut::new();
        let introduced = async {
            tokio::select! {
                biased;
                introduced = introduced(&shared.socket, &mut first, peer.clone(), settings) => introduced,
                () = last_chance(&draining) => None,
                () = shared.leave.notified() => None,
            }
        };
        // Boxed, because its size would be that of every idle connection.
        let Some(client) = Box::pin(introduced).await else {
            return;
        };
        peer = client;
        io.begin_with(first.freeze());
    }
    let mut limits = Limits {
        head: settings.head_timeout.0,
        keep_alive: settings.keep_alive.0,
        write: settings.write_timeout.0,
    };
    let answer = service_fn(|request: Request<Incoming>| {
        let hints = (request.version() == Version::HTTP_11).then(|| Arc::downgrade(&shared) as _);
        let service = service.clone();
        service.answer(request, &peer, shared.clone(), hints)
    });
    let mut connection = Box::pin(Spoken::new(*io, service.clone(), peer.clone(), answer));
    let (mut drained, mut told, mut leaves) = (false, false, false);
    // Polled when it wakes, not whenever the connection does: that is several times for every request.
    let alarm = Alarm::new();
    let mut interruption = Box::pin(interrupted(limits.look(), Some(&draining), &shared));
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    debug!(client = ?peer.client, error = %error, "connection ended");
                    parse_error::note(error.as_ref(), &peer, &service, &shared);
                }
                break;
            }
            interrupted = alarm.wait(interruption.as_mut()) => {
                match interrupted {
                    Interruption::Look => match shared.activity.overdue(limits) {
                        // Told so first: with HTTP/2, what the client sends meanwhile is then known to be for another connection.
                        Some(Overdue::Idle) if !told => {
                            told = true;
                            connection.as_mut().graceful_shutdown();
                        }
                        Some(why) => {
                            debug!(client = ?peer.client, ?why, "connection closed");
                            return;
                        }
                        None if shared.rests() => connection.as_mut().rest(),
                        None => {}
                    }
                    Interruption::Leave if shared.activity.idle_since().is_some() => {
                        (leaves, told) = (true, true);
                        limits.keep_alive = limits.keep_alive.min(LEAVING);
                        connection.as_mut().graceful_shutdown();
                    }
                    Interruption::Leave => guest.stays(),
                    Interruption::Drain => {
                        drained = true;
                        limits.keep_alive = limits.keep_alive.min(LAST_CHANCE);
                        shared.activity.drain();
                    }
                }
                // With HTTP/2, the client can be told before we close that it has to ask elsewhere, and what will still be answered.
                if drained && !told && shared.activity.is_multiplexed() {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
                let draining = (!drained).then_some(&draining);
                interruption.set(self::interrupted(limits.look(), draining, &shared));
                alarm.ring();
            }
        }
    }
    // Whatever it was still doing is for nobody, and what follows is to be told when to leave.
    drop(connection);
    drop(interruption);
    if !leaves {
        let lingers = async {
            tokio::select! {
                () = shared.linger() => {}
                () = shared.leave.notified() => {}
            }
        };
        // Boxed, because its size would be that of every idle connection.
        Box::pin(lingers).await;
    }
}

/// How long an idle client that speaks HTTP/2 has for its part in ending the connection when another needs the room.
const LEAVING: Duration = Duration::from_millis(100);

/// How long a connection stays open after the last request when the service is about to end. Its client does not know of that,
/// and may have sent another by the time that it could learn it.
const LAST_CHANCE: Duration = Duration::from_secs(1);

async fn last_chance(draining: &CancellationToken) {
    draining.cancelled().await;
    tokio::time::sleep(LAST_CHANCE).await;
}

/// Why something else than the connection itself is to be attended to.
enum Interruption {
    /// It is time to see whether a timeout is over.
    Look,
    Drain,
    /// Another connection needs the room.
    Leave,
}

async fn interrupted(
    look: Duration,
    draining: Option<&CancellationToken>,
    connection: &Shared,
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
        () = connection.leave.notified() => Interruption::Leave,
        () = tokio::time::sleep(look) => Interruption::Look,
    }
}
