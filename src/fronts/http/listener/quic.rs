//! Accepts connections of HTTP/3, each with the permits it needs; one task then serves each.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::connection_limit::ConnectionLimiter;
use crate::fronts::http::Settings;
use crate::fronts::http::connection::Open;
use crate::fronts::http::connection::h3::{Arriving, serve};
use crate::fronts::http::request::CurrentService;
use crate::fronts::http::tls::Tls;
use crate::fronts::http::transport::context::ConnectionContext;
use crate::fronts::http::transport::quic::SEND_WINDOW;

/// A port of HTTP/3.
pub struct QuicListener {
    pub endpoint: Endpoint,
    tls: Arc<Tls>,
    /// For new connections, except for their certificates.
    config: ServerConfig,
}

/// If this part of the permits for handshakes is in use, or every connection, clients must first
/// prove that their address is not forged, which takes a round trip (RFC 9000, 8.1.2).
const PROVEN_FROM: usize = 4;

/// The version of QUIC (RFC 9000).
const QUIC_1: u32 = 1;

impl QuicListener {
    /// Receives on the socket, in the caller's runtime.
    pub fn new(
        socket: UdpSocket,
        tls: Arc<Tls>,
        settings: &Settings,
    ) -> anyhow::Result<QuicListener> {
        let mut config = ServerConfig::with_crypto(crypto(&tls)?);
        config
            .transport_config(Arc::new(transport(settings)?))
            // Connections that wait to be accepted, which is only as long as this task is busy.
            .max_incoming(1024)
            .incoming_buffer_size(64 << 10)
            .incoming_buffer_size_total(8 << 20);
        let mut of_endpoint = EndpointConfig::default();
        of_endpoint.supported_versions(vec![QUIC_1]);
        let runtime = Arc::new(quinn::TokioRuntime);
        let endpoint = Endpoint::new(of_endpoint, Some(config.clone()), socket, runtime)
            .context("cannot receive QUIC (http.h3)")?;
        Ok(QuicListener {
            endpoint,
            tls,
            config,
        })
    }

    /// Accepts connections until `draining`.
    pub async fn accept(
        self: Arc<QuicListener>,
        service: Arc<CurrentService>,
        connections: TaskTracker,
        limiter: Arc<ConnectionLimiter>,
        draining: CancellationToken,
    ) {
        loop {
            let incoming = tokio::select! {
                biased;
                () = draining.cancelled() => break,
                incoming = self.endpoint.accept() => incoming,
            };
            let Some(incoming) = incoming else {
                break;
            };
            let is_proven = incoming.remote_address_validated();
            // A packet with a forged address must not close the connection of another client.
            let is_crowded = self.tls.handshakes.is_used_to(PROVEN_FROM) || limiter.is_used_to(1);
            if !is_proven && is_crowded {
                let client = incoming.remote_address();
                debug!(%client, "many connections or handshakes are open; a client must show that \
                    its address is not forged");
                let _ = incoming.retry();
                continue;
            }
            let context = Arc::new(ConnectionContext::new());
            let permit = limiter.enter(context.clone());
            let of_handshake = self.tls.handshakes.enter(context.clone());
            let (Some(permit), Some(of_handshake)) = (permit, of_handshake) else {
                let service = service.load();
                service.accounting.metrics.connections_refused.inc();
                incoming.refuse();
                continue;
            };
            let mut config = self.config.clone();
            match crypto(&self.tls) {
                Ok(crypto) => config.crypto = crypto,
                Err(error) => {
                    warn!(error = format!("{error:#}"), "cannot serve HTTP/3");
                    continue;
                }
            }
            // An error: the first packet was not valid.
            let Ok(connecting) = incoming.accept_with(Arc::new(config)) else {
                continue;
            };
            let arriving = Arriving {
                connecting,
                context,
                permit,
                of_handshake,
                tls: self.tls.clone(),
                port: self.endpoint.local_addr().map_or(0, |local| local.port()),
                open: Open::new(&service.load().accounting.metrics.connections),
            };
            connections.spawn(serve(arriving, service.clone(), draining.clone()));
        }
        // New clients are told that there is no server.
        self.endpoint.set_server_config(None);
    }

    /// Tells clients that their connections have ended, once no task serves them any more.
    pub async fn end(&self) {
        let code = crate::fronts::http::transport::quic::code(h3::error::Code::H3_NO_ERROR);
        self.endpoint.close(code, b"");
        let _ = tokio::time::timeout(END, self.endpoint.wait_idle()).await;
    }
}

/// How long clients may take to be told.
const END: Duration = Duration::from_millis(500);

/// The certificates at the moment.
fn crypto(tls: &Tls) -> anyhow::Result<Arc<QuicServerConfig>> {
    let config = QuicServerConfig::try_from(tls.quic_config());
    Ok(Arc::new(config.context("no cipher suite for QUIC")?))
}

/// The limits of a connection, like those of HTTP/2 over TCP.
fn transport(settings: &Settings) -> anyhow::Result<TransportConfig> {
    // A client that answers nothing for so long has left. The setting of idle connections is a
    // timer of its own, because PHP may take longer.
    let idle_limit = settings
        .keep_alive_timeout
        .0
        .clamp(Duration::from_secs(10), Duration::from_secs(60));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(128))
        // A client needs three: control, and two for header compression.
        .max_concurrent_uni_streams(VarInt::from_u32(8))
        .stream_receive_window(VarInt::from_u32(256 << 10))
        .receive_window(VarInt::from_u32(1 << 20))
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(IdleTimeout::try_from(idle_limit)?))
        // Keeps a connection whose request takes long, also for clients with shorter limits.
        .keep_alive_interval(Some(idle_limit / 4));
    Ok(transport)
}
