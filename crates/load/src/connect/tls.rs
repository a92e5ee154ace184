//! TLS for `https` URLs, with the certificates of Mozilla's list or with none checked.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore};
use tokio_rustls::rustls::{SignatureScheme, crypto};

use crate::plan::{Plan, Protocol};

/// Opens TLS over TCP connections.
pub struct Client(TlsConnector);

impl Client {
    pub fn new(plan: &Plan) -> io::Result<Client> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let mut config = if plan.accepts_any_certificate {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptsAny(provider)))
                .with_no_client_auth()
        } else {
            let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned();
            let roots = RootCertStore::from_iter(roots);
            builder.with_root_certificates(roots).with_no_client_auth()
        };
        let protocol = match plan.protocol {
            Protocol::Http1 => "http/1.1",
            Protocol::Http2 => "h2",
        };
        config.alpn_protocols = vec![protocol.into()];
        if !plan.keeps_alive {
            // Each connection is that of another client.
            config.resumption = Resumption::disabled();
        }
        Ok(Client(TlsConnector::from(Arc::new(config))))
    }

    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
        self.0.connect(name, stream).await.map_err(explain)
    }
}

/// Says what to do about a certificate that is not accepted.
fn explain(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(Error::InvalidCertificate(why)) => io::Error::new(
            error.kind(),
            format!(
                "certificate not accepted: {why:?}; only Mozilla's list of authorities is trusted, \
                 not the system's; --insecure accepts any certificate"
            ),
        ),
        _ => error,
    }
}

/// For `--insecure`: servers under development sign their certificates themselves.
#[derive(Debug)]
struct AcceptsAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptsAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
