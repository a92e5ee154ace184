//! Accepts connections and serves each until it ends.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::activity::{Limits, Overdue};
use super::io::{Io, Socket};
use super::listen::Listener;
use super::proxy_protocol::{self, Header};
use super::service::{Peer, Service};
use super::{Settings, forwarded, unreadable};
use crate::observe::rarely::Rarely;

/// Accepts until `draining`; then takes the connections that the kernel has already completed, and returns.
pub async fn accept(
    listener: Listener,
    service: Arc<Service>,
    connections: TaskTracker,
    draining: CancellationToken,
) {
    static SAID: Rarely = Rarely::new();
    let mut full = false;
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = accept_one(&listener) => accepted,
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
        let limit = service.settings.max_connections;
        if connections.len() >= limit {
            if !full {
                warn!(
                    limit,
                    "http.max_connections are open; more are closed at once"
                );
            }
            full = true;
            service.application.metrics.connections_refused.inc();
            continue;
        }
        full = false;
        let service = service.clone();
        let draining = draining.clone();
        connections.spawn(async move {
            service.application.metrics.connections.inc();
            serve(socket, peer, &service, draining).await;
            service.application.metrics.connections.dec();
        });
    }
}

async fn accept_one(listener: &Listener) -> io::Result<(Socket, Peer)> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, client) = listener.accept().await?;
            // hyper does not; without it every second small write waits for the client's delayed acknowledgement.
            stream.set_nodelay(true)?;
            let server = stream.local_addr()?;
            Ok((
                Socket::Tcp(stream),
                Peer {
                    client: Some(unmapped(client).into()),
                    server: Some(unmapped(server).into()),
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
    socket: Socket,
    mut peer: Peer,
    service: &Arc<Service>,
    draining: CancellationToken,
) {
    let settings = &service.settings;
    let mut first = BytesMut::new();
    if settings.proxy_protocol {
        let introduced = tokio::select! {
            introduced = introduced(&socket, &mut first, peer.clone(), settings) => introduced,
            () = draining.cancelled() => None,
        };
        let Some(client) = introduced else { return };
        peer = client;
    }
    let limits = Limits {
        head: settings.head_timeout.0,
        keep_alive: settings.keep_alive.0,
        write: settings.write_timeout.0,
    };
    let io = Io::new(socket, first.freeze(), settings.max_uri.0);
    let shared = io.shared();
    let answer = service_fn(|request: hyper::Request<Incoming>| {
        service.clone().answer(request, &peer, shared.clone())
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(settings.max_head.0 as usize)
        .max_headers(settings.max_headers)
        // A closed sending direction looks the same whether the client waits for its answer or has left. Like nginx we take
        // it for the latter: work for clients who have left is what an overloaded service can least afford.
        .half_close(false)
        .writev(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(128)
        .max_header_list_size(u32::try_from(settings.max_head.0).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(Some(20))
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024);
    let connection = builder.serve_connection(TokioIo::new(io), answer);
    tokio::pin!(connection);
    // Polled when it wakes, not whenever the connection does: that is several times for every request.
    let mut interruptions = FuturesUnordered::new();
    interruptions.push(interrupted(limits, Some(draining.clone())));
    let (mut drained, mut told) = (false, false);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    debug!(client = ?peer.client, error = %error, "connection ended");
                    unreadable::note(error.as_ref(), &peer, service, &shared);
                }
                break;
            }
            Some(interruption) = interruptions.next() => {
                match interruption {
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
                        None => {}
                    }
                    Interruption::Drain => {
                        drained = true;
                        connection.as_mut().graceful_shutdown();
                    }
                }
                let draining = (!drained).then(|| draining.clone());
                interruptions.push(interrupted(limits, draining));
            }
        }
    }
    if !drained {
        shared.linger().await;
    }
}

/// Why something else than the connection itself is to be attended to.
enum Interruption {
    /// It is time to see whether a timeout is over.
    Look,
    Drain,
}

async fn interrupted(limits: Limits, draining: Option<CancellationToken>) -> Interruption {
    let look = tokio::time::sleep(limits.look());
    match draining {
        Some(draining) => tokio::select! {
            biased;
            () = draining.cancelled() => Interruption::Drain,
            () = look => Interruption::Look,
        },
        None => {
            look.await;
            Interruption::Look
        }
    }
}
