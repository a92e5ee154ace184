//! What is asked of PHP and what comes back: the one vocabulary that fronts and engines share.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
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

/// One piece of work for PHP. Whatever the front, it is an HTTP request.
pub struct Event {
    /// Unique within this process; the log lines of one event carry it.
    pub id: u64,
    /// The request as the client sent it. Its URI is never rewritten: `REQUEST_URI` is made from it.
    pub request: http::Request<Body>,
    /// Which PHP file answers.
    pub script: Script,
    /// Who asks, and over what.
    pub origin: Origin,
    /// CGI variables beside those that the request makes, such as what AWS Lambda says of an event. None of them has a name
    /// that the request makes too.
    pub variables: Vec<(Cow<'static, str>, String)>,
    /// After this instant nobody waits for the answer.
    pub deadline: Instant,
    /// A response that streams may take so long for each of its pieces, and as long as the client likes. None where all of it is due
    /// at the deadline, whoever is slow.
    pub patience: Option<Duration>,
    /// Where what the client does not take yet of a response that streams may wait, so that PHP need not. None where PHP is to wait for its
    /// client: on Lambda, no other event is waiting for the worker, and the disk is the function's.
    pub spool: Option<Arc<Spool>>,
    /// Kept until no worker has anything left to do for the event: PHP may go on when it has answered. For fronts that have to know.
    pub hold: Option<TaskTrackerToken>,
    /// None where the front has no way of sending them. An event does not keep the connection of a client that has left.
    pub early_hints: Option<Weak<dyn EarlyHints>>,
}

/// A request body that has arrived completely, so that a worker is never lent to a client that is still uploading.
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
}

impl Body {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Memory(bytes) => bytes.len() as u64,
            Body::Spooled { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The PHP file that answers an event, with the CGI names of its parts (RFC 3875, 4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// `DOCUMENT_ROOT`: absolute, without a trailing slash.
    pub root: Arc<str>,
    /// `SCRIPT_FILENAME`: absolute path of the file.
    pub filename: Arc<Path>,
    /// `SCRIPT_NAME`: the URL path that names the script, decoded, beginning with `/`.
    pub name: Arc<str>,
    /// `PATH_INFO`: what follows the script's name in the URL path, decoded, any bytes; empty when nothing does.
    pub path_info: OsString,
}

/// Who asks, after trusted proxies have been believed.
#[derive(Debug, Clone)]
pub struct Origin {
    /// `REMOTE_ADDR` and `REMOTE_PORT`; none for a unix socket whose proxy named nobody.
    pub client: Option<Address>,
    /// The address the request arrived at; none for a unix socket.
    pub server: Option<Address>,
    /// The client's own connection is encrypted: `HTTPS` is `on`.
    pub https: bool,
}

/// A socket's address, with its text at hand: every event of a connection needs it.
#[derive(Clone)]
pub struct Address(Arc<(SocketAddr, String, String)>);

impl Address {
    pub fn ip(&self) -> IpAddr {
        self.0.0.ip()
    }

    pub fn ip_text(&self) -> &str {
        &self.0.1
    }

    pub fn port_text(&self) -> &str {
        &self.0.2
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.fmt(f)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        Address(Arc::new((address, ip, port)))
    }
}

/// What PHP answered. The body may still be arriving.
pub type Response = http::Response<ResponseBody>;

/// A front's way of sending `103 Early Hints` before the response.
pub trait EarlyHints: Send + Sync {
    /// Sends the `Link` headers among `headers`, or leaves it where that is not possible: hints may be lost.
    fn send(&self, headers: &HeaderMap);
}

impl<F: Fn(&HeaderMap) + Send + Sync> EarlyHints for F {
    fn send(&self, headers: &HeaderMap) {
        self(headers);
    }
}

/// The bytes of a response.
pub enum ResponseBody {
    /// All of it, already here.
    Full(Bytes),
    /// Still arriving. An error means that the answer is incomplete and the client must be able to tell.
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

/// Why there is no answer, or no more of it. Each front says it in its caller's language.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The application raised an error that nobody caught, and no response carries it.
    #[error("PHP threw: {0}")]
    Thrown(String),
    /// The process that held the event ended before it had answered.
    #[error("the PHP process died: {0}")]
    Died(String),
    /// The deadline came first.
    #[error("no answer before the deadline")]
    TimedOut,
    /// Every worker is taken and the queue is full, or the wait in it was too long.
    #[error("too busy: {0}")]
    Busy(&'static str),
    /// What came back is not a response.
    #[error("malformed answer from PHP: {0}")]
    Malformed(String),
    /// PHP cannot be given what was asked.
    #[error("{0}")]
    TooLarge(&'static str),
}
