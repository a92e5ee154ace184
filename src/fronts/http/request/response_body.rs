//! A response on its way out, and what is done when it has ended, however it ends.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::{Frame, SizeHint};
use tracing::warn;

use super::Service;
use super::access_log::{Entry, Head};
use crate::app::STATIC;
use crate::app::forwarded::{self, Peer};
use crate::event::{Failure, ResponseBody};
use crate::fronts::http::transport::io::Shared;
use crate::fronts::http::transport::timeouts::Wait;

/// A response's body on its way out, with what is to be done when it has ended.
pub struct Outgoing {
    body: ResponseBody,
    /// Why the body breaks off here.
    failure: Option<Failure>,
    end: End,
}

impl Outgoing {
    pub fn new(body: ResponseBody, end: End) -> Outgoing {
        Outgoing {
            body,
            failure: None,
            end,
        }
    }

    /// The client has no room for it on a connection with others.
    pub fn wait(&self) -> Wait {
        self.end.connection.activity.wait()
    }
}

impl http_body::Body for Outgoing {
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
                self.end.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(failure)) => {
                warn!(event = self.end.event, %failure, "a response broke off");
                // hyper drops what it has not sent yet together with the connection. Asked again,
                // it has sent it.
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
pub struct End {
    service: Arc<Service>,
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

impl End {
    pub fn new<B>(
        service: Arc<Service>,
        connection: Arc<Shared>,
        request: &Request<B>,
        peer: &Peer,
    ) -> End {
        let line = service.access_log.is_some().then(|| {
            let proxies = &service.settings.trusted_proxies;
            let origin = forwarded::origin(peer, request.headers(), proxies).origin;
            Box::new((origin.client.map(|client| client.ip()), Head::of(request)))
        });
        let event = service.next_event.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        service.lookout.request_begins(began);
        End {
            service,
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

impl Drop for End {
    fn drop(&mut self) {
        self.connection.activity.request_ends();
        self.service.lookout.request_ends(self.began);
        if self.status.is_none() {
            let metrics = &self.service.application.metrics;
            metrics.answered(self.engine, "gone", self.began.elapsed());
        }
        if let (Some(log), Some(line)) = (&self.service.access_log, self.line.take()) {
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
