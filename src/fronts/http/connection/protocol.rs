//! Which HTTP is spoken on a connection? The client's first bytes tell.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;

use super::h2::Multiplexed;
use crate::app::forwarded::Peer;
use crate::fronts::http::Settings;
use crate::fronts::http::request::Service;
use crate::fronts::http::request::response_body::Outgoing;
use crate::fronts::http::transport::io::Io;

/// A connection, to be polled to its end. `S` answers requests of HTTP/1.
pub struct Spoken<S: HttpService<Incoming>> {
    service: Arc<Service>,
    peer: Peer,
    protocol: Protocol<S>,
}

enum Protocol<S: HttpService<Incoming>> {
    /// None: the connection ends before its first byte.
    Unknown(Option<(Io, S)>),
    /// HTTP/1 between two requests, without the memory that they take. None: the connection ends.
    Resting(Option<(Io, S)>),
    // Boxed, so that a connection without one does not have its size.
    Http1(Box<http1::Connection<TokioIo<Io>, S>>),
    Http2(Box<Multiplexed>),
}

impl<S> Spoken<S>
where
    S: HttpService<Incoming, ResBody = Outgoing> + Unpin,
{
    pub fn new(io: Io, service: Arc<Service>, peer: Peer, answer: S) -> Spoken<S> {
        Spoken {
            service,
            peer,
            protocol: Protocol::Unknown(Some((io, answer))),
        }
    }

    fn http_1(&self, io: Io, answer: S) -> Protocol<S> {
        let connection = http_1(&self.service.settings).serve_connection(TokioIo::new(io), answer);
        Protocol::Http1(Box::new(connection))
    }

    /// Frees hyper's buffers and state until the client sends something. To be polled on. The last
    /// request must have been read to its end, and its response been sent.
    pub fn rest(&mut self) {
        match std::mem::replace(&mut self.protocol, Protocol::Resting(None)) {
            Protocol::Http1(connection) => {
                let parts = connection.into_parts();
                let mut io = parts.io.into_inner();
                io.take_back(parts.read_buf);
                self.protocol = Protocol::Resting(Some((io, parts.service)));
            }
            other => self.protocol = other,
        }
    }

    /// Answers what has been asked by now, and ends then. To be polled on.
    pub fn graceful_shutdown(&mut self) {
        match &mut self.protocol {
            Protocol::Unknown(io) | Protocol::Resting(io) => *io = None,
            Protocol::Http1(connection) => Pin::new(&mut **connection).graceful_shutdown(),
            Protocol::Http2(connection) => connection.graceful_shutdown(),
        }
    }
}

impl<S> Future for Spoken<S>
where
    S: HttpService<Incoming, ResBody = Outgoing> + Unpin,
{
    type Output = Result<(), Box<dyn Error + Send + Sync>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.protocol {
                Protocol::Unknown(unknown) => {
                    let Some((io, _)) = unknown else {
                        return Poll::Ready(Ok(()));
                    };
                    let is_http_2 = ready!(io.poll_recognize(cx))?;
                    let Some((io, answer)) = unknown.take() else {
                        return Poll::Ready(Ok(()));
                    };
                    this.protocol = match is_http_2 {
                        true => Protocol::Http2(Box::new(Multiplexed::new(
                            io,
                            this.service.clone(),
                            this.peer.clone(),
                        ))),
                        false => this.http_1(io, answer),
                    };
                }
                Protocol::Resting(resting) => {
                    if let Some((io, _)) = resting {
                        ready!(io.poll_wake(cx));
                    }
                    let Some((io, answer)) = resting.take() else {
                        return Poll::Ready(Ok(()));
                    };
                    this.protocol = this.http_1(io, answer);
                }
                Protocol::Http1(connection) => {
                    return Pin::new(connection).poll(cx).map_err(Into::into);
                }
                Protocol::Http2(connection) => {
                    return Pin::new(connection).poll(cx).map_err(Into::into);
                }
            }
        }
    }
}

fn http_1(settings: &Settings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .header_read_timeout(None)
        .max_buf_size(settings.max_head.0 as usize)
        .max_headers(settings.max_headers)
        // A closed sending direction looks the same whether the client waits for its answer or has left. Like nginx we take
        // it for the latter: work for clients who have left is what an overloaded service can least afford.
        .half_close(false)
        .writev(true);
    builder
}
