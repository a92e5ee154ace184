//! HTTP services of a function: Function URL, API Gateway and load balancer.

mod answer;
mod binary;
mod event;
pub mod invoke_api;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::invoke_response::InvokeOutcome;
use super::{Emulator, identifier, invoke_request};
pub use binary::BinaryMediaTypes;
pub use event::ReceivedRequest;

/// The kind of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpService {
    /// A Function URL.
    Url,
    /// An HTTP API of API Gateway, payload format 2.0.
    Http,
    /// A REST API of API Gateway.
    Rest,
    /// An Application Load Balancer.
    Alb,
    /// An Application Load Balancer with multi-value headers.
    AlbMulti,
}

const NAMES: [(&str, HttpService); 5] = [
    ("url", HttpService::Url),
    ("http", HttpService::Http),
    ("rest", HttpService::Rest),
    ("alb", HttpService::Alb),
    ("alb-multi", HttpService::AlbMulti),
];

impl FromStr for HttpService {
    type Err = String;

    fn from_str(text: &str) -> Result<HttpService, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, service)| *service).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("`{text}` is not one of {}", names.join(", "))
        })
    }
}

impl HttpService {
    /// How long the service waits for a function. URLs and load balancers wait for the function's
    /// own timeout.
    pub fn timeout(self) -> Option<Duration> {
        match self {
            HttpService::Rest => Some(Duration::from_secs(29)),
            HttpService::Http => Some(Duration::from_secs(30)),
            HttpService::Url | HttpService::Alb | HttpService::AlbMulti => None,
        }
    }

    /// The largest request body.
    fn max_body(self) -> usize {
        self.max_answer().unwrap_or(MAX_BODY)
    }

    /// The largest answer of a function, if below Lambda's limit.
    fn max_answer(self) -> Option<usize> {
        match self {
            HttpService::Alb | HttpService::AlbMulti => Some(MAX_ALB),
            HttpService::Url | HttpService::Http | HttpService::Rest => None,
        }
    }

    /// The header limit in both directions; API Gateway counts the values.
    fn max_headers(self) -> usize {
        match self {
            HttpService::Http | HttpService::Rest => MAX_GATEWAY,
            HttpService::Url | HttpService::Alb | HttpService::AlbMulti => usize::MAX,
        }
    }

    /// Whether the service can stream an answer.
    pub fn streams(self) -> bool {
        matches!(self, HttpService::Url | HttpService::Rest)
    }
}

/// An HTTP service of a function.
#[derive(Clone)]
pub struct Gateway {
    pub emulator: Emulator,
    pub service: HttpService,
    /// `InvokeMode: RESPONSE_STREAM` of a URL, `responseTransferMode: STREAM` of a REST API.
    pub is_streamed: bool,
    /// Used by a REST API only.
    pub binary_media_types: BinaryMediaTypes,
    /// [`HttpService::timeout`] except in tests.
    pub timeout: Option<Duration>,
}

/// The largest event of a synchronous invocation.
const MAX_EVENT: usize = 6 * 1024 * 1024;
/// API Gateway's limit for a body; Lambda's limit for an event is lower.
const MAX_BODY: usize = 10 * 1024 * 1024;
/// A load balancer's limit for request bodies and for answers.
const MAX_ALB: usize = 1024 * 1024;
/// API Gateway's limit in bytes for header values.
const MAX_GATEWAY: usize = 10_240;

pub(super) type HttpReplyBody = UnsyncBoxBody<Bytes, std::io::Error>;
pub(super) type HttpReply = Response<HttpReplyBody>;

impl Gateway {
    /// Uses AWS's default configuration.
    pub fn new(emulator: Emulator, service: HttpService, is_streamed: bool) -> Gateway {
        Gateway {
            emulator,
            service,
            is_streamed: is_streamed && service.streams(),
            binary_media_types: BinaryMediaTypes::default(),
            timeout: service.timeout(),
        }
    }

    /// Serves until dropped.
    pub async fn serve(self, listener: TcpListener) {
        let gateway = Arc::new(self);
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    tokio::spawn(gateway.clone().connection(stream, peer));
                }
                // No descriptor left: wait until a connection closes.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    async fn connection(self: Arc<Gateway>, stream: TcpStream, peer: SocketAddr) {
        let _ = stream.set_nodelay(true);
        let port = stream.local_addr().map_or(80, |address| address.port());
        let service = service_fn(move |request| {
            let gateway = self.clone();
            async move { Ok::<_, Infallible>(gateway.answer(request, peer, port).await) }
        });
        let _ = hyper::server::conn::http1::Builder::new()
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn answer(&self, request: Request<Incoming>, peer: SocketAddr, port: u16) -> HttpReply {
        let (parts, body) = request.into_parts();
        // The request line counts too.
        let target = parts.uri.path_and_query();
        let line = parts.method.as_str().len() + target.map_or(0, |target| target.as_str().len());
        if line + length(&parts.headers) > self.service.max_headers() {
            return message(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "Request Header Fields Too Large",
            );
        }
        let limit = self.service.max_body();
        let Ok(body) = Limited::new(body, limit).collect().await else {
            return answer::too_long(self.service);
        };
        let received = ReceivedRequest {
            parts,
            body: body.to_bytes(),
            peer,
            port,
            id: identifier::uuid(),
            trace: identifier::trace(),
        };
        let types = &self.binary_media_types;
        let payload = event::from_request(self.service, self.emulator.function(), types, &received);
        let decodes = self.service != HttpService::Rest || types.decode(&received.parts.headers);
        if payload.len() > MAX_EVENT {
            return answer::too_long(self.service);
        }
        let mut running = self
            .emulator
            .begin(invoke_request::InvokeRequest {
                is_streamed: self.is_streamed,
                trace: Some(received.trace),
                ..invoke_request::InvokeRequest::from(payload)
            })
            .await;
        let outcome = match self.timeout {
            Some(timeout) => tokio::time::timeout(timeout, running.outcome()).await.ok(),
            None => Some(running.outcome().await),
        };
        let mut reply = match outcome {
            Some(InvokeOutcome::Answer(answer)) => {
                answer::reply(self.service, self.is_streamed, decodes, answer).await
            }
            Some(InvokeOutcome::Error(_)) => answer::failed(self.service),
            None => answer::timed_out(self.service),
        };
        if let Ok(id) = received.id.parse() {
            reply.headers_mut().insert("x-amzn-requestid", id);
        }
        reply
    }
}

/// The total length of the header values.
fn length(headers: &HeaderMap) -> usize {
    headers.values().map(|value| value.len()).sum()
}

/// An API Gateway error response.
pub(super) fn message(status: StatusCode, text: &str) -> HttpReply {
    let body = serde_json::json!({"message": text}).to_string();
    let mut reply = Response::new(full(body.into()));
    *reply.status_mut() = status;
    let kind = http::HeaderValue::from_static("application/json");
    reply.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    reply
}

pub(super) fn full(bytes: Bytes) -> HttpReplyBody {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}
