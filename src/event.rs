//! The request and response types that front ends and engines share.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::spool::{Spool, TempFile};

/// One request for PHP. Every front end, AWS Lambda's too, turns its input into an HTTP request.
pub struct Event {
    /// Unique within this process; the log lines of one request carry it.
    pub id: u64,
    /// The request as the client sent it. Its URI is never rewritten because `REQUEST_URI` is made
    /// from it.
    pub request: http::Request<Body>,
    /// The PHP file that answers.
    pub script: Script,
    /// The addresses of client and server.
    pub origin: Origin,
    /// CGI variables in addition to those made from the request, such as AWS Lambda's context. No
    /// name occurs in both.
    pub variables: Vec<(Cow<'static, str>, String)>,
    /// No front end waits for the response after this instant.
    pub deadline: Instant,
    /// The idle timeout between two chunks of a streamed response; the client may read as slowly as
    /// it likes. `None` if the whole response is due at the deadline, however slow the client is.
    pub idle_timeout: Option<Duration>,
    /// Where to buffer what the client of a streamed response does not read yet, so that PHP need
    /// not wait. `None` if PHP waits for its client: on Lambda no other event needs the worker, and
    /// the disk belongs to the function.
    pub spool: Option<Arc<Spool>>,
    /// Kept until no worker has work left for the request: PHP may continue after it has answered.
    /// Set by front ends that need to know.
    pub completion_token: Option<TaskTrackerToken>,
    /// `None` if the front end cannot send them. Weak, so that a request does not keep the
    /// connection of a client that has disconnected.
    pub early_hints: Option<Weak<dyn EarlyHints>>,
}

/// A request's body. It has been received completely, so that an uploading client does not occupy
/// a worker, unless the configuration wants it to be streamed.
#[derive(Debug, Clone, Default)]
pub enum Body {
    #[default]
    Empty,
    Memory(Bytes),
    /// Too large for memory: an unlinked temporary file of `len` bytes, read from its beginning.
    Spooled {
        file: Arc<TempFile>,
        len: u64,
    },
    /// Still arriving: a pipe with `len` bytes, or fewer if the client sends no more. It can be
    /// read once.
    Streamed {
        reader: Arc<OwnedFd>,
        len: u64,
    },
}

/// Context that a RoadRunner worker gets ahead of a job's body, as JSON. It is an extension of
/// requests that are jobs for such workers.
#[derive(Debug, Clone)]
pub struct JobContext(pub Bytes);

impl Body {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Memory(bytes) => bytes.len() as u64,
            Body::Spooled { len, .. } | Body::Streamed { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The PHP file that answers a request, with the CGI names of its parts (RFC 3875, 4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// `DOCUMENT_ROOT`: absolute, without a trailing slash.
    pub root: Arc<str>,
    /// `SCRIPT_FILENAME`: absolute path of the file.
    pub filename: Arc<Path>,
    /// `SCRIPT_NAME`: the URL path that names the script, decoded, beginning with `/`.
    pub name: Arc<str>,
    /// `PATH_INFO`: the decoded rest of the URL path after the script's name; any bytes, possibly
    /// none.
    pub path_info: OsString,
    /// `QUERY_STRING` if a rewrite rule has replaced the request's.
    pub query: Option<Arc<str>>,
    /// The URL that the last rewrite rule has left, if one has led to the script.
    pub rewritten: Option<Arc<RewrittenUrl>>,
}

/// A URL that a rewrite rule has replaced by that of another file.
#[derive(Debug, PartialEq, Eq)]
pub struct RewrittenUrl {
    /// `REDIRECT_URL`: the decoded path; any bytes.
    pub path: OsString,
    /// `REDIRECT_QUERY_STRING`: the query with which the rule has continued, as in Apache.
    pub query: Option<String>,
}

/// The addresses of client and server, after trusted proxies have been applied.
#[derive(Debug, Clone)]
pub struct Origin {
    /// `REMOTE_ADDR` and `REMOTE_PORT`; none for a unix socket if the proxy named no client.
    pub client: Option<Address>,
    /// The address the request arrived at; none for a unix socket.
    pub server: Option<Address>,
    /// The client's own connection is encrypted: `HTTPS` is `on`.
    pub https: bool,
}

impl Origin {
    /// `SERVER_PORT`. With HTTPS it is the port that the client sees, because a proxy may have
    /// encrypted the connection. `host` is the requested one, with its port if it has one.
    pub fn server_port(&self, host: &str) -> Cow<'_, str> {
        match &self.server {
            Some(server) if !self.https => server.port_text().into(),
            _ => {
                let usual = if self.https { 443 } else { 80 };
                let port = split_port(host).1.parse::<u16>().unwrap_or(usual);
                port.to_string().into()
            }
        }
    }
}

/// `[::1]:8080` → `[::1]`, `8080`.
pub fn split_port(host: &str) -> (&str, &str) {
    match host.bytes().rposition(|byte| byte == b':') {
        Some(at) if !host[at..].contains(']') => (&host[..at], &host[at + 1..]),
        _ => (host, ""),
    }
}

/// A socket address with its text, which every request of a connection needs.
#[derive(Clone)]
pub struct Address(Arc<AddressText>);

struct AddressText {
    address: SocketAddr,
    /// Where in the text the port begins.
    port: u8,
    text: Box<str>,
}

impl Address {
    pub fn is(&self, address: SocketAddr) -> bool {
        self.0.address == address
    }

    pub fn ip(&self) -> IpAddr {
        self.0.address.ip()
    }

    pub fn ip_text(&self) -> &str {
        &self.0.text[..usize::from(self.0.port)]
    }

    pub fn port_text(&self) -> &str {
        &self.0.text[usize::from(self.0.port)..]
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.address.fmt(f)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        let mut text = address.ip().to_string();
        let port = text.len() as u8;
        text += &address.port().to_string();
        Address(Arc::new(AddressText {
            address,
            port,
            text: text.into(),
        }))
    }
}

/// PHP's response. The body may still be arriving.
pub type Response = http::Response<ResponseBody>;

/// How a front end sends `103 Early Hints` before the response.
pub trait EarlyHints: Send + Sync {
    /// Sends the `Link` headers among `headers`. False if they are dropped, because too many wait
    /// for the client or the response has begun.
    fn send(&self, headers: &HeaderMap) -> bool;
}

impl<F: Fn(&HeaderMap) + Send + Sync> EarlyHints for F {
    fn send(&self, headers: &HeaderMap) -> bool {
        self(headers);
        true
    }
}

/// The bytes of a response.
pub enum ResponseBody {
    /// The complete body.
    Full(Bytes),
    /// A body that is still arriving. An error means that it is incomplete, which the client must
    /// be able to see.
    Stream(Pin<Box<dyn http_body::Body<Data = Bytes, Error = Failure> + Send>>),
}

impl ResponseBody {
    pub fn empty() -> Self {
        ResponseBody::Full(Bytes::new())
    }

    pub fn stream(
        body: impl http_body::Body<Data = Bytes, Error = Failure> + Send + 'static,
    ) -> Self {
        ResponseBody::Stream(Box::pin(body))
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResponseBody::Full(bytes) => write!(f, "Full({} bytes)", bytes.len()),
            ResponseBody::Stream(_) => f.write_str("Stream"),
        }
    }
}

impl<T: Into<Bytes>> From<T> for ResponseBody {
    fn from(bytes: T) -> Self {
        ResponseBody::Full(bytes.into())
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        match self.get_mut() {
            ResponseBody::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            ResponseBody::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            ResponseBody::Stream(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Full(bytes) => bytes.is_empty(),
            ResponseBody::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            ResponseBody::Stream(body) => body.size_hint(),
        }
    }
}

/// Why there is no response, or no more of it. Each front end translates it for its caller.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// An uncaught exception of the application that no response carries.
    #[error("PHP threw: {0}")]
    Thrown(String),
    /// The process that held the request exited before it answered.
    #[error("the PHP process exited: {0}")]
    WorkerCrashed(String),
    /// The deadline passed first.
    #[error("no response before the deadline")]
    TimedOut,
    /// The queue has no room (`engine.max_queue`).
    #[error("too busy: {0}")]
    QueueFull(&'static str),
    /// The request waited in the queue for too long (`engine.queue_timeout`,
    /// `engine.queue_target`).
    #[error("too busy: {0}")]
    QueueTimeout(&'static str),
    /// No worker can take the request now.
    #[error("too busy: {0}")]
    Busy(&'static str),
    /// PHP sent something that is not a response.
    #[error("invalid response from PHP: {0}")]
    Malformed(String),
    /// The request's headers are too large for PHP.
    #[error("{0}")]
    TooLarge(&'static str),
    /// The request's body is too large for the engine.
    #[error("{0}")]
    BodyTooLarge(&'static str),
}

impl Failure {
    /// Whether the same request may succeed later: 503, or a retry by the caller.
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Failure::QueueFull(_) | Failure::QueueTimeout(_) | Failure::Busy(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_port_is_the_one_that_the_client_sees() {
        let server = Address::from(SocketAddr::from(([127, 0, 0, 1], 8080)));
        for (server, https, host, port) in [
            (Some(&server), false, "a.test", "8080"),
            (Some(&server), false, "a.test:81", "8080"),
            (Some(&server), true, "a.test", "443"),
            (Some(&server), true, "a.test:8443", "8443"),
            // A unix socket, or Lambda.
            (None, false, "a.test", "80"),
            (None, false, "[::1]:81", "81"),
            (None, true, "[::1]", "443"),
            (None, true, "a.test:x", "443"),
            (None, true, "", "443"),
        ] {
            let origin = Origin {
                client: None,
                server: server.cloned(),
                https,
            };
            assert_eq!(origin.server_port(host), port, "{server:?} {https} {host}");
        }
    }
}
