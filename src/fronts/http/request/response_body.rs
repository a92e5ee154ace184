//! A response on its way out, and what is done when it has ended, however it ends.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::{Frame, SizeHint};
use tracing::warn;

use super::access_log::{Entry, Head};
use super::accounting::Accounting;
use crate::app::STATIC;
use crate::event::{Failure, ResponseBody};
use crate::fronts::http::transport::io::Shared;
use crate::fronts::http::transport::timeouts::Wait;

/// A response's body on its way out, with what is to be done when it has ended.
pub struct TrackedBody {
    body: ResponseBody,
    /// Why the body breaks off here.
    failure: Option<Failure>,
    guard: RequestGuard,
}

impl TrackedBody {
    pub fn new(body: ResponseBody, guard: RequestGuard) -> TrackedBody {
        TrackedBody {
            body,
            failure: None,
            guard,
        }
    }

    /// The client has no room for it on a connection with others.
    pub fn wait(&self) -> Wait {
        self.guard.connection.activity.wait()
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if let Some(failure) = self.failure.take() {
            return Poll::Ready(Some(Err(failure)));
        }
        let Poll::Ready(polled) = Pin::new(&mut self.body).poll_frame(cx) else {
            return Poll::Pending;
        };
        match polled {
            Some(Ok(frame)) => {
                self.guard.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(failure)) => {
                warn!(event = self.guard.event, %failure, "a response broke off");
                // hyper drops what it has not sent yet together with the connection. ResponsePreferences again, it has sent it.
                self.failure = Some(failure);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.failure.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The end of a request, however it comes: dropped when hyper drops the response's body.
pub struct RequestGuard {
    accounting: Arc<Accounting>,
    connection: Arc<Shared>,
    pub event: u64,
    pub began: Instant,
    pub engine: &'static str,
    /// None: the client left before there was one.
    pub status: Option<StatusCode>,
    bytes: u64,
    /// What the access log needs; none when it is off.
    line: Option<Box<(Option<IpAddr>, Head)>>,
}

impl RequestGuard {
    /// `client` tells the client's address, if the access log needs it.
    pub fn new<B>(
        accounting: Arc<Accounting>,
        connection: Arc<Shared>,
        request: &Request<B>,
        client: impl FnOnce() -> Option<IpAddr>,
    ) -> RequestGuard {
        let line = accounting
            .access_log
            .is_some()
            .then(|| Box::new((client(), Head::of(request))));
        let event = accounting.next_id();
        let began = Instant::now();
        accounting.next_request.request_begins(began);
        RequestGuard {
            accounting,
            connection,
            event,
            began,
            engine: STATIC,
            status: None,
            bytes: 0,
            line,
        }
    }
}

/// What nginx writes where there was no status.
fn client_left() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.connection.activity.request_ends();
        self.accounting.next_request.request_ends(self.began);
        if self.status.is_none() {
            let metrics = &self.accounting.metrics;
            metrics.answered(self.engine, "gone", self.began.elapsed());
        }
        if let (Some(log), Some(line)) = (&self.accounting.access_log, self.line.take()) {
            let (client, head) = *line;
            log.log(Entry {
                event: self.event,
                client,
                head: Some(head),
                status: self.status.unwrap_or_else(client_left),
                bytes: self.bytes,
                took: self.began.elapsed(),
                engine: self.engine,
            });
        }
    }
}
