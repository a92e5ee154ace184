//! Sends the requests of the ACME client: one connection each, over TLS only, bounded in time and
//! size.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The limit of a response. A chain has a few kilobytes.
const LARGEST: usize = 1 << 20;

#[derive(Clone)]
pub struct Https(TlsConnector);

impl Https {
    /// Trusts these roots, or without them those that browsers trust.
    pub fn new(roots: Option<RootCertStore>) -> anyhow::Result<Https> {
        let roots = roots.unwrap_or_else(|| RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        });
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Https(TlsConnector::from(Arc::new(config))))
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let connector = self.0.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let sent = tokio::time::timeout(TIMEOUT, send(connector, request)).await;
            sent.map_err(|_| anyhow!("no response within {TIMEOUT:?}"))
                .and_then(|sent| sent)
                .with_context(|| format!("cannot reach {host}"))
                .map_err(|error| Error::Other(error.into()))
        })
    }
}

async fn send(
    connector: TlsConnector,
    request: Request<BodyWrapper<Bytes>>,
) -> anyhow::Result<BytesResponse> {
    let (mut head, body) = request.into_parts();
    let uri = std::mem::take(&mut head.uri);
    let authority = uri.authority().context("the URL has no host")?;
    if uri.scheme_str() != Some("https") {
        anyhow::bail!("{uri} is not an https URL");
    }
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let value = HeaderValue::from_str(authority.as_str())?;
    head.headers.insert(header::HOST, value);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = Uri::try_from(path)?;
    let stream = TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(443))).await?;
    let stream = connector.connect(ServerName::try_from(host)?, stream).await;
    let stream =
        stream.context("the TLS handshake failed; check the clock of this machine, too")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driven = tokio::spawn(connection);
    let body = body.collect().await?.to_bytes();
    let response = sender
        .send_request(Request::from_parts(head, Full::new(body)))
        .await?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LARGEST).collect().await;
    driven.abort();
    let body = body.map_err(|error| anyhow!(error))?.to_bytes();
    Ok(BytesResponse {
        parts: head,
        body: Box::new(body),
    })
}
