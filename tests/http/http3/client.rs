//! A client of HTTP/3.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3_quinn::OpenStreams;
use http::{Request, Response};
use quinn::crypto::rustls::QuicClientConfig;

use crate::tls::{Secure, serve};

pub type Stream = RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// Far more than anything should take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Serves the site with HTTP/3, and these environment variables.
pub fn serve_h3(dir: &Path, env: &[(&str, &str)]) -> Secure {
    serve(dir, &[&[("SURUS_HTTP_H3", "true")], env].concat())
}

/// An open connection.
pub struct Client {
    pub endpoint: quinn::Endpoint,
    pub quic: quinn::Connection,
    pub requests: SendRequest<OpenStreams, Bytes>,
}

/// A response with its whole body.
#[derive(Debug)]
pub struct Answer {
    pub head: Response<()>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.head.status().as_u16()
    }

    /// What PHP saw of the request.
    pub fn seen(&self, name: &str) -> String {
        let seen: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        match &seen[name] {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

type Connected = Result<(quinn::Endpoint, quinn::Connection), quinn::ConnectionError>;

/// A connection of QUIC whose handshake is complete.
pub async fn quic(secure: &Secure, config: rustls::ClientConfig) -> Connected {
    quic_at(secure.address.parse().unwrap(), config).await
}

pub async fn quic_at(address: SocketAddr, mut config: rustls::ClientConfig) -> Connected {
    config.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = Arc::new(QuicClientConfig::try_from(config).unwrap());
    let mut config = quinn::ClientConfig::new(crypto);
    // Only the server ends a connection whose other end is silent.
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(None);
    config.transport_config(Arc::new(transport));
    let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
    let connecting = endpoint.connect_with(config, address, "localhost");
    let connection = tokio::time::timeout(PATIENCE, connecting.unwrap());
    Ok((endpoint, connection.await.unwrap()?))
}

impl Client {
    pub async fn connect(secure: &Secure) -> Client {
        Client::connect_by(secure, secure.config(&[&rustls::version::TLS13]))
            .await
            .unwrap()
    }

    pub async fn connect_by(
        secure: &Secure,
        config: rustls::ClientConfig,
    ) -> Result<Client, String> {
        Client::connect_at(secure.address.parse().unwrap(), config).await
    }

    pub async fn connect_at(
        address: SocketAddr,
        config: rustls::ClientConfig,
    ) -> Result<Client, String> {
        let connected = quic_at(address, config).await;
        let (endpoint, quic) = connected.map_err(|error| error.to_string())?;
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(quic.clone()))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(async move { driver.wait_idle().await });
        Ok(Client {
            endpoint,
            quic,
            requests,
        })
    }

    /// Sends a request with this body.
    pub async fn send(
        &mut self,
        request: Request<()>,
        body: &[u8],
    ) -> Result<Stream, h3::error::StreamError> {
        let mut stream = self.requests.send_request(request).await?;
        if !body.is_empty() {
            // An early answer stops the rest.
            let _ = stream.send_data(Bytes::copy_from_slice(body)).await;
        }
        let _ = stream.finish().await;
        Ok(stream)
    }

    pub async fn ask(
        &mut self,
        request: Request<()>,
        body: &[u8],
    ) -> Result<Answer, h3::error::StreamError> {
        let stream = self.send(request, body).await?;
        tokio::time::timeout(PATIENCE, answer(stream))
            .await
            .unwrap()
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.ask(get(path), b"").await.unwrap()
    }
}

pub fn get(path: &str) -> Request<()> {
    request("GET", path).body(()).unwrap()
}

pub fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
}

/// The response, after informational ones.
pub async fn answer(mut stream: Stream) -> Result<Answer, h3::error::StreamError> {
    let head = stream.recv_response().await?;
    let mut body = Vec::new();
    while let Some(mut piece) = stream.recv_data().await? {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    Ok(Answer { head, body })
}
