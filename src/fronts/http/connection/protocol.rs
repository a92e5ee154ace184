//! Selects HTTP/1 or HTTP/2 by a connection's first bytes.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;

use super::h2::H2Connection;
use crate::app::forwarded::Peer;
use crate::fronts::http::Settings;
use crate::fronts::http::request::CurrentService;
use crate::fronts::http::request::response_body::TrackedBody;
use crate::fronts::http::transport::io::Io;

/// A connection, which must be polled until it ends. `S` answers requests of HTTP/1.
pub struct ServerConnection<S: HttpService<Incoming>> {
    service: Arc<CurrentService>,
    peer: Peer,
    protocol: Protocol<S>,
}

enum Protocol<S: HttpService<Incoming>> {
    /// None if the connection ends before the protocol is known.
    Unknown(Option<(Box<Io>, S)>),
    /// HTTP/1 between two requests, without hyper's state. None if the connection ends.
    Resting(Option<(Box<Io>, S)>),
    // Boxed, so that a connection without one does not have its size.
    Http1(Box<http1::Connection<TokioIo<Box<Io>>, S>>),
    Http2(Box<H2Connection>),
}

impl<S> ServerConnection<S>
where
    S: HttpService<Incoming, ResBody = TrackedBody> + Unpin,
{
    pub fn new(
        io: Box<Io>,
        service: Arc<CurrentService>,
        peer: Peer,
        answer: S,
    ) -> ServerConnection<S> {
        ServerConnection {
            service,
            peer,
            protocol: Protocol::Unknown(Some((io, answer))),
        }
    }

    fn http_1(&self, io: Box<Io>, answer: S) -> Protocol<S> {
        let builder = http_1(&self.service.load().settings);
        let connection = builder.serve_connection(TokioIo::new(io), answer);
        Protocol::Http1(Box::new(connection))
    }

    /// Frees hyper's buffers and state until the client sends something; HTTP/2 keeps its own. Keep
    /// polling. hyper must have read the last request to its end and sent its response.
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

    /// Answers the requests received so far, and then ends. Keep polling.
    pub fn graceful_shutdown(&mut self) {
        match &mut self.protocol {
            Protocol::Unknown(io) | Protocol::Resting(io) => *io = None,
            Protocol::Http1(connection) => Pin::new(&mut **connection).graceful_shutdown(),
            Protocol::Http2(connection) => connection.graceful_shutdown(),
        }
    }
}

impl<S> Future for ServerConnection<S>
where
    S: HttpService<Incoming, ResBody = TrackedBody> + Unpin,
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
                        true => Protocol::Http2(Box::new(H2Connection::new(
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
        .max_buf_size(settings.max_header_size.0 as usize)
        .max_headers(settings.max_headers)
        // A client that closes its sending direction may still wait for the response, or may have
        // disconnected. Like nginx, Surus assumes the latter, because an overloaded service must
        // not work for clients that have left.
        .half_close(false)
        .writev(true);
    builder
}
