//! Serves one connection until it ends.

mod alarm;
mod h2;
pub(super) mod h3;
pub mod handshake;
mod multiplexed;
mod parse_error;
mod protocol;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::alarm::Alarm;
use self::handshake::Handshake;
use self::protocol::ServerConnection;
use super::Settings;
use super::listener::connection_limit::ConnectionPermit;
use super::listener::proxy_protocol;
use super::listener::proxy_protocol::Header;
use super::request::CurrentService;
use super::transport::context::ConnectionContext;
use super::transport::io::Io;
use super::transport::socket::Socket;
use super::transport::timeouts::{ConnectionLimits, Timeout};
use crate::app::forwarded::{self, Peer};
use crate::observe::activity;

/// Counts a connection until it is dropped.
pub(super) struct Open(Gauge);

impl Open {
    pub(super) fn new(connections: &Gauge) -> Open {
        connections.inc();
        Open(connections.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
        activity::ENDS.record();
    }
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
            warn!(proxy = ?peer.client, %error, "invalid PROXY header; connection closed");
            None
        }
        Err(_) => {
            debug!(proxy = ?peer.client, "no PROXY header in time; connection closed");
            None
        }
    }
}

/// Serves a connection until it ends, or until `draining` and its last request is answered.
pub(super) async fn serve(
    mut io: Box<Io>,
    mut peer: Peer,
    handshake: Option<Box<Handshake>>,
    service: Arc<CurrentService>,
    permit: ConnectionPermit,
    draining: CancellationToken,
    _open: Open,
) {
    let (has_proxy_header, mut limits) = {
        let service = service.load();
        let settings = &service.settings;
        (settings.proxy_protocol, limits_of(settings))
    };
    let shared = io.shared();
    if has_proxy_header {
        let mut first = BytesMut::new();
        let service = service.load_full();
        let settings = &service.settings;
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
        let metrics = service.load().accounting.metrics.clone();
        // Boxed, so that an idle connection does not have its size.
        if !Box::pin(handshake::run(
            *handshake, &mut io, &peer, &draining, &metrics,
        ))
        .await
        {
            return;
        }
        peer.https = true;
    }
    let answer = service_fn(|request: Request<Incoming>| {
        let hints = (request.version() == Version::HTTP_11).then(|| Arc::downgrade(&shared) as _);
        let service = service.load_full();
        let answered = service.answer(request, &peer, shared.context.clone(), hints);
        let shared = shared.clone();
        async move {
            let mut response = answered.await?;
            shared.keep_until_written(response.body_mut().take_headers());
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = Box::pin(ServerConnection::new(
        io,
        service.clone(),
        peer.clone(),
        answer,
    ));
    // Polled only when it wakes, not whenever the connection is polled, which happens several times
    // per request.
    let alarm = Alarm::new();
    let mut interruption = Box::pin(interrupted(
        limits.check_interval(),
        Some(&draining),
        &shared,
    ));
    let (mut drained, mut is_closing, mut is_evicted) = (false, false, false);
    loop {
        let was_resting = shared.timers.is_resting();
        let wakes = std::future::poll_fn(|_| match was_resting && !shared.timers.is_resting() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        let interrupted = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    debug!(client = ?peer.client, error = %error, "connection ended");
                    let accounting = service.load().accounting.clone();
                    parse_error::record(error.as_ref(), &peer, &accounting, &shared);
                }
                break;
            }
            interrupted = alarm.wait(interruption.as_mut()) => Some(interrupted),
            () = wakes => None,
        };
        match interrupted {
            Some(Interruption::CheckTimeouts) => match shared.timers.overdue(limits) {
                // Shut down gracefully first: with HTTP/2 the client then knows that requests it
                // sends meanwhile need another connection.
                Some(Timeout::Idle) if !is_closing => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                Some(why) => {
                    debug!(client = ?peer.client, reason = ?why, "connection closed");
                    return;
                }
                None if shared.may_rest() => {
                    shared.timers.rest();
                    connection.as_mut().rest();
                }
                None => {}
            },
            // Bytes have arrived while the connection rested, so that other timeouts count.
            None => {}
            Some(Interruption::Evict) if shared.timers.idle_since().is_some() => {
                (is_evicted, is_closing) = (true, true);
                limits.keep_alive = limits.keep_alive.min(EVICTION_GRACE);
                connection.as_mut().graceful_shutdown();
            }
            Some(Interruption::Evict) => permit.keep(),
            Some(Interruption::Drain) => {
                drained = true;
                limits.keep_alive = limits.keep_alive.min(DRAIN_GRACE);
                shared.timers.drain();
            }
        }
        // With HTTP/2, the client can be told before the close which requests will still be
        // answered.
        if drained && !is_closing && shared.timers.is_multiplexed() {
            is_closing = true;
            connection.as_mut().graceful_shutdown();
        }
        if is_closing {
            // The client may need a moment to close it.
            shared.timers.wake();
        }
        let draining = (!drained).then_some(&draining);
        let check = shared.timers.until_check(limits);
        interruption.set(self::interrupted(check, draining, &shared));
        alarm.ring();
    }
    // Drops what the connection was still doing. A lingering connection must receive its eviction,
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

/// The time limits of a new connection.
fn limits_of(settings: &Settings) -> ConnectionLimits {
    ConnectionLimits {
        headers: settings.header_timeout.0,
        keep_alive: settings.keep_alive_timeout.0,
        write: settings.send_timeout.0,
    }
}

/// How long an idle HTTP/2 client may take to close its connection when another one needs the
/// permit.
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
    /// Another connection needs the permit.
    Evict,
}

async fn interrupted(
    check: Duration,
    draining: Option<&CancellationToken>,
    connection: &ConnectionContext,
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
        () = tokio::time::sleep(check) => Interruption::CheckTimeouts,
    }
}
