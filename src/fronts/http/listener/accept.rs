//! Accepts connections, each with the permits it needs; one task then serves each.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::Listener;
use super::connection_limit::{ConnectionLimiter, ConnectionPermit};
use crate::app::forwarded::Peer;
use crate::event::Address;
use crate::fronts::http::connection::handshake::Handshake;
use crate::fronts::http::connection::{Open, serve};
use crate::fronts::http::request::CurrentService;
use crate::fronts::http::tls::Tls;
use crate::fronts::http::transport::io::Io;
use crate::fronts::http::transport::socket::Socket;
use crate::observe::rate_limit::RateLimit;

/// Accepts connections until `draining`. Then accepts those that the kernel has already completed,
/// and returns. With `tls`, connections are encrypted.
pub async fn accept(
    listener: Listener,
    tls: Option<Arc<Tls>>,
    service: Arc<CurrentService>,
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
        let io = Box::new(Io::new(socket, service.load().settings.max_uri.0));
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
            let service = service.load();
            service.accounting.metrics.connections_refused.inc();
            continue;
        };
        let service = service.clone();
        let draining = draining.clone();
        let open = Open::new(&service.load().accounting.metrics.connections);
        connections.spawn(serve(io, peer, handshake, service, permit, draining, open));
    }
}

/// Waits for a permit of the limiter. None if there is none in time.
async fn enter(
    limiter: &Arc<ConnectionLimiter>,
    io: &Io,
    draining: &CancellationToken,
) -> Option<ConnectionPermit> {
    static NONE_IDLE: RateLimit = RateLimit::new();
    if let Some(permit) = limiter.enter(io.shared().context.clone()) {
        return Some(permit);
    }
    if NONE_IDLE.is_time(Instant::now()) {
        warn!(
            setting = limiter.setting,
            limit = limiter.limit,
            "limit reached and no connection is idle; new connections wait"
        );
    }
    limiter.wait(&io.shared().context, draining).await
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
