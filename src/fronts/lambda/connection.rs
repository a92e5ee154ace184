//! A keep-alive HTTP/1.1 connection to Lambda's APIs that reconnects after a failure.

use std::convert::Infallible;
use std::pin::Pin;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tracing::debug;

/// A request body that is sent while it is produced.
pub type BodyStream = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;
type Outbound = Either<Full<Bytes>, BodyStream>;

/// Why a request to Lambda got no response.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach Lambda's API at {address}: {why}")]
pub struct Unreachable {
    address: String,
    why: String,
}

/// A request to Lambda that can be repeated if the connection turns out to be broken.
pub struct ApiRequest {
    pub method: Method,
    pub uri: Uri,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

impl ApiRequest {
    pub fn get(uri: Uri) -> ApiRequest {
        ApiRequest {
            method: Method::GET,
            uri,
            headers: http::HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    pub fn post(uri: Uri, body: Bytes) -> ApiRequest {
        ApiRequest {
            method: Method::POST,
            body,
            ..ApiRequest::get(uri)
        }
    }

    fn request(&self, body: Outbound) -> Request<Outbound> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// The connection. It carries one request at a time.
pub struct RuntimeConnection {
    address: String,
    host: HeaderValue,
    sender: Option<SendRequest<Outbound>>,
}

impl RuntimeConnection {
    /// Prepares a connection to `host:port`. It connects on the first request.
    pub fn new(address: &str) -> anyhow::Result<RuntimeConnection> {
        let host = HeaderValue::from_str(address).map_err(|_| {
            anyhow::anyhow!("AWS_LAMBDA_RUNTIME_API is `{address}`, expected host:port")
        })?;
        Ok(RuntimeConnection {
            address: address.to_string(),
            host,
            sender: None,
        })
    }

    /// Prepares another connection to the same address.
    pub fn another(&self) -> RuntimeConnection {
        RuntimeConnection {
            address: self.address.clone(),
            host: self.host.clone(),
            sender: None,
        }
    }

    /// Sends a request and waits for the response's header. A kept connection may have broken since
    /// its last use, so a request that fails is sent once more on a new connection.
    pub async fn ask(&mut self, ask: &ApiRequest) -> Result<http::Response<Incoming>, Unreachable> {
        let was_kept = self.sender.is_some();
        match self.attempt(ask).await {
            Err(error) if was_kept => {
                debug!(%error, "retrying on a new connection");
                self.attempt(ask).await
            }
            result => result,
        }
    }

    async fn attempt(&mut self, ask: &ApiRequest) -> Result<http::Response<Incoming>, Unreachable> {
        let body = Either::Left(Full::new(ask.body.clone()));
        self.send(ask.request(body)).await
    }

    /// Sends a body that is still being produced. There is no second attempt because the bytes
    /// already sent are not kept.
    pub async fn stream(
        &mut self,
        ask: &ApiRequest,
        body: BodyStream,
    ) -> Result<http::Response<Incoming>, Unreachable> {
        self.send(ask.request(Either::Right(body))).await
    }

    async fn send(
        &mut self,
        mut request: Request<Outbound>,
    ) -> Result<http::Response<Incoming>, Unreachable> {
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host.clone());
        headers.insert(header::USER_AGENT, AGENT);
        let mut sender = match self.sender.take() {
            Some(sender) if sender.is_ready() => sender,
            // The previous response may not have been read to its end yet.
            Some(mut sender) => match sender.ready().await {
                Ok(()) => sender,
                Err(_) => self.connect().await?,
            },
            None => self.connect().await?,
        };
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| self.unreachable(error))?;
        self.sender = Some(sender);
        Ok(response)
    }

    async fn connect(&self) -> Result<SendRequest<Outbound>, Unreachable> {
        let stream = TcpStream::connect(&self.address)
            .await
            .map_err(|error| self.unreachable(error))?;
        stream
            .set_nodelay(true)
            .map_err(|error| self.unreachable(error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "connection to Lambda closed");
            }
        });
        sender
            .ready()
            .await
            .map_err(|error| self.unreachable(error))?;
        Ok(sender)
    }

    fn unreachable(&self, error: impl std::error::Error) -> Unreachable {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            why = format!("{why}: {error}");
            cause = error.source();
        }
        Unreachable {
            address: self.address.clone(),
            why,
        }
    }
}

const AGENT: HeaderValue = HeaderValue::from_static(concat!("surus/", env!("CARGO_PKG_VERSION")));
