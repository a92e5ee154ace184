//! Performs the handshake of a connection of QUIC, and counts clients that fail it.

use quinn::crypto::rustls::HandshakeData;
use quinn::{Connecting, Connection, ConnectionError};
use rustls::AlertDescription;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::fronts::http::connection::drain_grace;
use crate::fronts::http::tls::{Tls, variables};
use crate::fronts::http::transport::context::ConnectionContext;
use crate::observe::metrics::Metrics;

/// Waits for the handshake. None if it has failed or the server stops.
pub async fn run(
    connecting: Connecting,
    context: &ConnectionContext,
    tls: &Tls,
    draining: &CancellationToken,
    metrics: &Metrics,
) -> Option<Connection> {
    let client = connecting.remote_address();
    let limit = tls.settings.handshake_timeout.0;
    let outcome = tokio::select! {
        biased;
        ended = tokio::time::timeout(limit, connecting) => match ended {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err((reason(&error), Some(error))),
            Err(_) => Err(("timeout", None)),
        },
        () = drain_grace(draining) => return None,
        () = context.evict.notified() => Err(("evicted", None)),
    };
    match outcome {
        Ok(connection) => {
            // quinn does not say whether it resumed a session.
            metrics.tls_succeeded("TLSv1.3", "quic");
            let asks = tls.settings.client_ca.is_some();
            let _ = context.encryption.set(agreed(&connection, asks));
            Some(connection)
        }
        Err((reason, error)) => {
            metrics.tls_failed(reason);
            debug!(%client, reason, ?error, "QUIC handshake failed");
            None
        }
    }
}

/// What PHP sees of the connection's encryption.
fn agreed(
    connection: &Connection,
    asks_for_certificate: bool,
) -> crate::fronts::http::transport::tls_session::TlsVariables {
    let data = connection.handshake_data();
    let data = data.and_then(|data| data.downcast::<HandshakeData>().ok());
    let certificates = connection.peer_identity();
    let certificates =
        certificates.and_then(|it| it.downcast::<Vec<CertificateDer<'static>>>().ok());
    let agreed = variables::Agreed {
        version: "TLSv1.3",
        suite: None,
        is_resumed: None,
        server_name: data.as_ref().and_then(|data| data.server_name.as_deref()),
        certificate: certificates.as_ref().and_then(|chain| chain.first()),
    };
    variables::from_agreed(&agreed, asks_for_certificate)
}

/// The label in metrics.
fn reason(error: &ConnectionError) -> &'static str {
    const CERTIFICATE: [AlertDescription; 8] = [
        AlertDescription::CertificateRequired,
        AlertDescription::BadCertificate,
        AlertDescription::UnsupportedCertificate,
        AlertDescription::CertificateRevoked,
        AlertDescription::CertificateExpired,
        AlertDescription::CertificateUnknown,
        AlertDescription::UnknownCA,
        AlertDescription::DecryptError,
    ];
    const INCOMPATIBLE: [AlertDescription; 4] = [
        AlertDescription::NoApplicationProtocol,
        AlertDescription::HandshakeFailure,
        AlertDescription::ProtocolVersion,
        AlertDescription::UnrecognisedName,
    ];
    let alert = |code: quinn::TransportErrorCode| {
        // Alerts have a range of their own (RFC 9001, 4.8).
        let alert = u64::from(code).checked_sub(0x100)?;
        u8::try_from(alert).ok().map(AlertDescription::from)
    };
    match error {
        // Surus has sent the alert.
        ConnectionError::TransportError(error) => match alert(error.code) {
            Some(alert) if CERTIFICATE.contains(&alert) => "client_certificate",
            Some(alert) if INCOMPATIBLE.contains(&alert) => "incompatible",
            _ => "malformed",
        },
        ConnectionError::ConnectionClosed(close) if alert(close.error_code).is_some() => "alert",
        ConnectionError::TimedOut => "timeout",
        ConnectionError::VersionMismatch => "incompatible",
        _ => "closed",
    }
}
