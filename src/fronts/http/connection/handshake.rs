//! Performs the TLS handshake of a connection, and answers and counts clients that fail it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use rustls::{Error, HandshakeKind, ServerConnection};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::drain_grace;
use crate::app::forwarded::Peer;
use crate::fronts::http::listener::connection_limit::ConnectionPermit;
use crate::fronts::http::tls::acme::answers::PROTOCOL;
use crate::fronts::http::tls::{Tls, variables};
use crate::fronts::http::transport::io::{ConnectionState, Io};
use crate::fronts::http::transport::tls_session::{TlsSession, Wire, poll_send, process};
use crate::observe::metrics::Metrics;

/// A handshake that may begin.
pub struct Handshake {
    pub tls: Arc<Tls>,
    /// Counts it among the handshakes in flight.
    pub permit: ConnectionPermit,
}

/// Why there is no encrypted connection.
#[derive(Debug, thiserror::Error)]
enum HandshakeFailure {
    #[error("the client speaks HTTP without TLS")]
    PlainHttp,
    #[error("the client has closed the connection")]
    Closed,
    #[error("not done in time (tls.handshake_timeout)")]
    TimedOut,
    #[error("another connection needed the permit")]
    Evicted,
    #[error("{0}")]
    Tls(#[from] Error),
    #[error("{0}")]
    Io(io::Error),
}

impl HandshakeFailure {
    /// The label in metrics.
    fn reason(&self) -> &'static str {
        match self {
            HandshakeFailure::PlainHttp => "plain_http",
            HandshakeFailure::Closed | HandshakeFailure::Io(_) => "closed",
            HandshakeFailure::TimedOut => "timeout",
            HandshakeFailure::Evicted => "evicted",
            HandshakeFailure::Tls(Error::PeerIncompatible(_) | Error::NoApplicationProtocol) => {
                "incompatible"
            }
            HandshakeFailure::Tls(
                Error::NoCertificatesPresented | Error::InvalidCertificate(_),
            ) => "client_certificate",
            // Such as `unknown_ca`: the client does not trust the certificate.
            HandshakeFailure::Tls(Error::AlertReceived(_)) => "alert",
            HandshakeFailure::Tls(_) => "malformed",
        }
    }
}

impl From<io::Error> for HandshakeFailure {
    fn from(error: io::Error) -> HandshakeFailure {
        match error.downcast::<Error>() {
            Ok(error) => HandshakeFailure::Tls(error),
            Err(error) => HandshakeFailure::Io(error),
        }
    }
}

/// All reasons, which are 0 in metrics from the start.
pub const REASONS: [&str; 8] = [
    "alert",
    "client_certificate",
    "closed",
    "evicted",
    "incompatible",
    "malformed",
    "plain_http",
    "timeout",
];

/// Encrypts the connection. False if it has ended.
pub async fn run(
    handshake: Handshake,
    io: &mut Io,
    peer: &Peer,
    draining: &CancellationToken,
    metrics: &Metrics,
) -> bool {
    let Handshake { tls, permit } = handshake;
    let shared = io.shared();
    let limit = tls.settings.handshake_timeout.0;
    let shaken = tokio::select! {
        biased;
        shaken = tokio::time::timeout(limit, shake(&tls, io, &shared)) => {
            shaken.unwrap_or(Err(HandshakeFailure::TimedOut))
        }
        () = drain_grace(draining) => return false,
        () = shared.evict.notified() => Err(HandshakeFailure::Evicted),
    };
    drop(permit);
    let connection = match shaken {
        Ok(connection) => connection,
        Err(failure) => {
            let reason = failure.reason();
            metrics.tls_failed(reason);
            debug!(client = ?peer.client, reason, error = %failure, "TLS handshake failed");
            refuse(&failure, &shared).await;
            return false;
        }
    };
    if connection.alpn_protocol() == Some(PROTOCOL) {
        debug!(client = ?peer.client, "an authority has validated a domain");
        return false;
    }
    let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    let version = variables::version(connection.protocol_version());
    metrics.tls_succeeded(version, if is_resumed { "resumed" } else { "full" });
    let variables = variables::from_connection(&connection, tls.settings.client_ca.is_some());
    let _ = shared.encryption.set(variables);
    let _ = shared.tls.set(Box::new(TlsSession::new(connection)));
    true
}

/// Performs the handshake.
async fn shake(
    tls: &Tls,
    io: &mut Io,
    shared: &ConnectionState,
) -> Result<ServerConnection, HandshakeFailure> {
    let mut connection = ServerConnection::new(tls.config())?;
    let mut is_first = true;
    std::future::poll_fn(|cx| {
        loop {
            ready!(poll_send(
                &mut connection,
                &shared.socket,
                &shared.timers,
                cx
            ))?;
            if !connection.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            let mut wire = Wire::beginning_with(io.first(), &shared.socket);
            match connection.read_tls(&mut wire) {
                Ok(0) => return Poll::Ready(Err(HandshakeFailure::Closed)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(shared.socket.poll_read_ready(cx))?;
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
            // Every method begins with a letter, and no record of TLS does.
            let begins_with = wire.begins_with.filter(|_| is_first);
            if begins_with.is_some_and(|byte| byte.is_ascii_uppercase()) {
                return Poll::Ready(Err(HandshakeFailure::PlainHttp));
            }
            is_first = false;
            process(&mut connection, &shared.socket)?;
            ready!(pin!(tokio::task::coop::consume_budget()).poll(cx));
        }
    })
    .await?;
    Ok(connection)
}

/// The answer to a request without TLS, as nginx gives it.
const PLAIN_HTTP: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    connection: close\r\ncontent-length: 61\r\n\r\n\
    400 Bad Request: this port speaks HTTPS; begin with https://\n";

/// Lets the client read why there is no connection.
async fn refuse(failure: &HandshakeFailure, shared: &ConnectionState) {
    match failure {
        HandshakeFailure::PlainHttp => {
            // A new connection has room for it.
            let _ = shared.socket.try_write(PLAIN_HTTP.as_bytes());
        }
        // The alert has been sent.
        HandshakeFailure::Tls(_) => {}
        HandshakeFailure::Closed
        | HandshakeFailure::Io(_)
        | HandshakeFailure::TimedOut
        | HandshakeFailure::Evicted => return,
    }
    tokio::select! {
        () = shared.linger() => {}
        () = shared.evict.notified() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_without_tls_has_its_declared_length() {
        let (headers, body) = PLAIN_HTTP.split_once("\r\n\r\n").unwrap_or_default();
        let length = headers.rsplit_once("content-length: ").map(|(_, len)| len);
        assert_eq!(length, Some(body.len().to_string().as_str()));
    }
}
