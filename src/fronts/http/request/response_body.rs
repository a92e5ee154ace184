//! The body of a response on its way to the client, and what happens at its end: metrics, access
//! log, poller.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::{Frame, SizeHint};
use tracing::warn;

use super::access_log::kept::BegunRequest;
use super::access_log::wire_bytes::WireBytes;
use super::access_log::{AccessLog, AccessLogEntry, LoggedRequest};
use super::accounting::Accounting;
use crate::app::STATIC;
use crate::budget::{MEMORY, Reservation};
use crate::event::{Failure, Response, ResponseBody};
use crate::fronts::http::transport::context::ConnectionContext;
use crate::fronts::http::transport::timeouts::WriteStall;
use crate::observe::slowest::{Backtrace, Slow};
use crate::observe::traces::Trace;

/// A response body that ends its request when dropped.
pub struct TrackedBody {
    /// The memory of the header section.
    headers: Reservation,
    body: ResponseBody,
    /// The failure that truncates the body here.
    failure: Option<Failure>,
    guard: RequestGuard,
}

impl TrackedBody {
    pub fn new(headers: Reservation, body: ResponseBody, guard: RequestGuard) -> TrackedBody {
        TrackedBody {
            headers,
            body,
            failure: None,
            guard,
        }
    }

    /// Takes what the header section has taken of the memory. Keep it until that is written.
    pub fn take_headers(&mut self) -> Reservation {
        std::mem::replace(&mut self.headers, Reservation::none(&MEMORY))
    }

    /// The client does not take this response, on a connection with other requests.
    pub fn wait(&self) -> WriteStall {
        self.guard.connection.timers.wait()
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let this = self.get_mut();
        if let Some(failure) = this.failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        let Poll::Ready(polled) = Pin::new(&mut this.body).poll_frame(cx) else {
            return Poll::Pending;
        };
        match polled {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                this.guard.bytes += length;
                if let Some(counted) = this.guard.counted() {
                    counted.sends(length, this.body.is_end_stream());
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(failure)) => {
                warn!(request_id = this.guard.request_id, error = %failure, "response truncated");
                // hyper drops unsent bytes together with the connection. When it polls again, it
                // has sent them.
                this.failure = Some(failure);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => {
                if let Some(counted) = this.guard.counted() {
                    counted.ends();
                }
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.failure.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Ends a request when hyper drops the response's body, for whatever reason.
pub struct RequestGuard {
    accounting: Arc<Accounting>,
    connection: Arc<ConnectionContext>,
    pub request_id: u64,
    pub began: Instant,
    pub engine: &'static str,
    /// Whether an engine runs PHP for it.
    runs: bool,
    /// None if the client disconnected before there was one.
    status: Option<StatusCode>,
    bytes: u64,
    /// None if the request is not traced.
    pub trace: Option<Arc<Trace>>,
    /// What the access log needs; None if it is off.
    line: Option<Box<Line>>,
}

struct Line {
    log: Arc<AccessLog>,
    client: Option<IpAddr>,
    request: LoggedRequest,
    /// The time until PHP's response began.
    answered: Option<Duration>,
    /// None if the format does not ask for them.
    counted: Option<WireBytes>,
}

impl RequestGuard {
    /// `begun` determines the client, if there is an access log.
    pub fn new<'a, B>(
        accounting: Arc<Accounting>,
        log: Option<Arc<AccessLog>>,
        connection: Arc<ConnectionContext>,
        request: &Request<B>,
        begun: impl FnOnce() -> BegunRequest<'a>,
    ) -> RequestGuard {
        let line = log.map(|log| {
            let begun = begun();
            Box::new(Line {
                client: begun.client,
                request: LoggedRequest::new(&log, request, &begun),
                answered: None,
                counted: log.counts_bytes.then(|| WireBytes::of_request(request)),
                log,
            })
        });
        let request_id = accounting.next_id();
        let began = Instant::now();
        RequestGuard {
            accounting,
            connection,
            request_id,
            began,
            engine: STATIC,
            runs: false,
            status: None,
            bytes: 0,
            trace: None,
            line,
        }
    }

    /// An engine runs PHP for the request.
    pub fn runs(&mut self, engine: &'static str) {
        self.engine = engine;
        self.runs = true;
    }

    /// The request's body has this many bytes.
    pub fn receives(&mut self, bytes: u64) {
        if let Some(counted) = self.counted() {
            counted.received += bytes;
        }
    }

    fn counted(&mut self) -> Option<&mut WireBytes> {
        self.line.as_mut()?.counted.as_mut()
    }

    /// The response begins.
    pub fn responds(&mut self, response: &Response, took: Duration) {
        self.status = Some(response.status());
        if let Some(line) = &mut self.line {
            line.answered = self.runs.then_some(took);
            line.request.add_response(&line.log, response.headers());
            if let Some(counted) = &mut line.counted {
                counted.begins(response, &line.request.method, line.request.version);
            }
        }
        if let Some(trace) = &self.trace {
            trace.responded();
        }
        self.record_if_slow(took);
    }

    /// Remembers the request if it is one of the slowest. Its target is known if there is an access
    /// log.
    fn record_if_slow(&self, took: Duration) {
        let slowest = &self.accounting.metrics.slowest;
        let ended = self.began + took;
        if !self.runs || !slowest.is_one(ended, took) {
            return;
        }
        let Some(Line { request, .. }) = self.line.as_deref() else {
            return;
        };
        slowest.add(Slow {
            request_id: self.request_id,
            method: request.method.to_string(),
            target: request.target.to_string(),
            status: self.status().as_u16(),
            engine: self.engine,
            took,
            ended,
            backtrace: Backtrace::default(),
        });
    }

    fn status(&self) -> StatusCode {
        self.status.unwrap_or_else(client_closed_request)
    }
}

/// nginx's status for a client that disconnected before the response.
fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.connection.timers.request_ends();
        if self.status.is_none() {
            let (metrics, took) = (&self.accounting.metrics, self.began.elapsed());
            metrics.answered(self.engine, "client_closed", took);
            self.record_if_slow(took);
        }
        if let Some(trace) = &self.trace {
            trace.ended(self.status(), self.bytes, self.engine);
        }
        if let Some(line) = self.line.take() {
            let Line {
                log,
                client,
                request,
                answered,
                counted,
            } = *line;
            let counted = counted.unwrap_or_default();
            log.log(AccessLogEntry {
                request_id: self.request_id,
                client,
                request: Some(request),
                status: self.status(),
                bytes: self.bytes,
                received: counted.received,
                sent: counted.sent,
                took: self.began.elapsed(),
                answered,
                engine: self.engine,
            });
        }
    }
}
