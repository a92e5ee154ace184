//! HTTP/1.1 connections to AWS's services and to the metadata services of machines.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::connect;

pub type AwsConnection = SendRequest<Full<Bytes>>;

/// Limit of a response. SQS sends at most ten messages of 1 MiB, some of whose bytes take six in
/// JSON.
const LARGEST: usize = 64 << 20;

/// Connects to the host of a URI.
pub async fn open(uri: &Uri) -> anyhow::Result<AwsConnection> {
    let host = uri.host().context("the endpoint has no host")?;
    let host = host.trim_matches(['[', ']']);
    let is_https = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let name = is_https.then(|| ServerName::try_from(host.to_string()));
    let name = name.transpose()?;
    let stream = connect::to_host(host, port).await?;
    stream.set_nodelay(true)?;
    match name {
        Some(name) => start(tls()?.connect(name, stream).await?).await,
        None => start(stream).await,
    }
}

async fn start(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> anyhow::Result<AwsConnection> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with its sender.
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends a request and reads the whole response.
pub async fn exchange(
    connection: &mut AwsConnection,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    connection.ready().await?;
    let response = connection.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST);
    let body = body.collect().await.map_err(|error| anyhow!(error))?;
    Ok((status, body.to_bytes()))
}

/// Trusts the authorities that browsers trust, which include AWS's.
fn tls() -> anyhow::Result<TlsConnector> {
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
