//! HTTP/3: several requests on one connection of QUIC.

mod answer;
mod body;
mod handshake;
mod pseudo_headers;
mod reply;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h3::error::ConnectionError;
use h3::server;
use tracing::debug;

use super::{DRAIN_GRACE, EVICTION_GRACE, Interruption, Open, interrupted, limits_of};
use crate::app::forwarded::Peer;
use crate::event::Address;
use crate::fronts::http::listener::connection_limit::ConnectionPermit;
use crate::fronts::http::request::CurrentService;
use crate::fronts::http::tls::Tls;
use crate::fronts::http::transport::context::ConnectionContext;
use crate::fronts::http::transport::quic::{Accepted, QuicTransport};
use crate::fronts::http::transport::timeouts::{ConnectionLimits, Timeout};

/// A connection whose handshake has begun.
pub struct Arriving {
    pub connecting: quinn::Connecting,
    pub context: Arc<ConnectionContext>,
    pub permit: ConnectionPermit,
    /// Counts it among the handshakes in flight.
    pub of_handshake: ConnectionPermit,
    pub tls: Arc<Tls>,
    /// The server's port.
    pub port: u16,
    pub open: Open,
}

type H3Connection = server::Connection<QuicTransport, Bytes>;

/// How many more requests a client may send that does not know yet that the server stops.
const MORE_REQUESTS: usize = 1000;

/// How long a client may take to learn that its connection ends.
const GOAWAY_GRACE: Duration = Duration::from_millis(100);

/// Serves a connection until it ends, or until `draining` and its last request is answered.
pub async fn serve(
    arriving: Arriving,
    service: Arc<CurrentService>,
    draining: tokio_util::sync::CancellationToken,
) {
    let Arriving {
        connecting,
        context,
        permit,
        of_handshake,
        tls,
        port,
        open,
    } = arriving;
    let _open = open;
    let (limits, max_header_size, metrics) = {
        let service = service.load();
        let settings = &service.settings;
        let metrics = service.accounting.metrics.clone();
        (limits_of(settings), settings.max_header_size.0, metrics)
    };
    let client = connecting.remote_address();
    let quic = handshake::run(connecting, &context, &tls, &draining, &metrics).await;
    drop(of_handshake);
    let Some(quic) = quic else {
        return;
    };
    context.timers.multiplexes();
    let (transport, accepted) = QuicTransport::new(quic.clone(), context.clone(), max_header_size);
    let mut builder = server::builder();
    builder
        .max_field_section_size(max_header_size)
        .send_grease(false);
    let built = builder.build(transport);
    // Building waits for the client to permit control streams.
    let Ok(Ok(connection)) = tokio::time::timeout(limits.headers, built).await else {
        debug!(client = %quic.remote_address(), "no HTTP/3 in time");
        return;
    };
    let peer = ends(client, &quic, port);
    let mut served = ServedConnection {
        connection,
        quic,
        accepted,
        context,
        service,
        peer,
        limits,
        has_requests: false,
        is_ending: false,
    };
    served.run(&permit, &draining).await;
}

struct ServedConnection {
    connection: H3Connection,
    quic: quinn::Connection,
    accepted: Arc<Accepted>,
    context: Arc<ConnectionContext>,
    service: Arc<CurrentService>,
    peer: Peer,
    limits: ConnectionLimits,
    has_requests: bool,
    /// The client knows which request was the last one.
    is_ending: bool,
}

impl ServedConnection {
    async fn run(
        &mut self,
        permit: &ConnectionPermit,
        draining: &tokio_util::sync::CancellationToken,
    ) {
        let context = self.context.clone();
        // This task drives all responses, so that their output shares packets.
        let mut answers = FuturesUnordered::new();
        let mut drained = false;
        let interval = self.limits.check_interval();
        let mut interruption = Box::pin(interrupted(interval, Some(draining), &context));
        loop {
            let interrupted = tokio::select! {
                biased;
                accepted = self.connection.accept() => {
                    match accepted {
                        Ok(Some(resolver)) => {
                            if let Some(exchange) = self.accepted.take() {
                                self.has_requests = true;
                                let request = answer::Arrived {
                                    resolver,
                                    exchange,
                                    quic: self.quic.clone(),
                                    context: context.clone(),
                                    peer: self.peer.clone(),
                                };
                                let service = self.service.clone();
                                answers.push(Box::pin(answer::answer(request, service)));
                            }
                            if context.timers.is_resting() {
                                context.timers.wake();
                                let draining = (!drained).then_some(draining);
                                let check = self.limits.check_interval();
                                interruption.set(super::interrupted(check, draining, &context));
                            }
                            continue;
                        }
                        // The client wants no more, and has everything.
                        Ok(None) => return,
                        Err(error) => return self.ended(&error),
                    }
                }
                Some(()) = answers.next(), if !answers.is_empty() => continue,
                interrupted = interruption.as_mut() => interrupted,
            };
            let result = match interrupted {
                Interruption::CheckTimeouts => match context.timers.overdue(self.limits) {
                    // The client must know which of its requests will not be answered.
                    Some(Timeout::Idle) if !self.is_ending => self.end(GOAWAY_GRACE).await,
                    Some(why) => {
                        debug!(client = %self.quic.remote_address(), reason = ?why,
                            "connection closed");
                        return;
                    }
                    None => {
                        if answers.is_empty() && context.timers.idle_since().is_some() {
                            context.timers.rest();
                        }
                        Ok(())
                    }
                },
                Interruption::Evict if context.timers.idle_since().is_some() => {
                    self.end(EVICTION_GRACE).await
                }
                Interruption::Evict => {
                    permit.keep();
                    Ok(())
                }
                Interruption::Drain => {
                    drained = true;
                    self.limits.keep_alive = self.limits.keep_alive.min(DRAIN_GRACE);
                    context.timers.drain();
                    match self.has_requests {
                        true => self.connection.shutdown(MORE_REQUESTS).await,
                        // h3 would reject the first one.
                        false => Ok(()),
                    }
                }
            };
            if let Err(error) = result {
                return self.ended(&error);
            }
            let draining = (!drained).then_some(draining);
            let check = context.timers.until_check(self.limits);
            interruption.set(super::interrupted(check, draining, &context));
        }
    }

    /// Rejects further requests, and tells the client which one was the last.
    async fn end(&mut self, grace: Duration) -> Result<(), ConnectionError> {
        self.is_ending = true;
        self.limits.keep_alive = self.limits.keep_alive.min(grace);
        self.context.timers.acknowledged();
        self.accepted.reject_more();
        self.connection.shutdown(1).await
    }

    fn ended(&self, error: &ConnectionError) {
        debug!(client = %self.quic.remote_address(), %error, "connection ended");
    }
}

/// The two ends. The client's is where it was during the handshake, which has proven it. quinn
/// follows a client to another address before that one is proven, so it may be forged.
fn ends(handshake: SocketAddr, quic: &quinn::Connection, port: u16) -> Peer {
    let address = |ip: IpAddr, port| Address::from(SocketAddr::new(ip.to_canonical(), port));
    Peer {
        client: Some(address(handshake.ip(), handshake.port())),
        server: quic.local_ip().map(|ip| address(ip, port)),
        https: true,
    }
}
