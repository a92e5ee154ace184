//! HTTP/2: many requests on one connection.
//!
//! hyper would lead h2 for us, but has no way to send informational responses yet
//! (hyperium/hyper#4114), and browsers heed early hints in HTTP/2 alone.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use h2::server::{self, Handshake, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tracing::debug;

use crate::app::forwarded::Peer;
use crate::budget::{MEMORY, Taken};
use crate::event::EarlyHints;
use crate::fronts::http::Settings;
use crate::fronts::http::request::Service;
use crate::fronts::http::request::response_body::Outgoing;
use crate::fronts::http::request::response_memory;
use crate::fronts::http::transport::io::{Io, Shared};

/// A connection, to be polled to its end. Dropped, it ends its requests.
pub struct Multiplexed {
    state: State,
    /// The client is to be told that it has to ask elsewhere.
    leaves: bool,
    /// Led by the task of the connection, so that what they have to say at a time leaves in one
    /// piece.
    answers: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    service: Arc<Service>,
    peer: Peer,
    shared: Arc<Shared>,
}

enum State {
    Greeting(Handshake<Io, Bytes>),
    Open(server::Connection<Io, Bytes>),
}

impl Multiplexed {
    pub fn new(io: Io, service: Arc<Service>, peer: Peer) -> Multiplexed {
        let shared = io.shared();
        Multiplexed {
            state: State::Greeting(builder(&service.settings).handshake(io)),
            leaves: false,
            answers: FuturesUnordered::new(),
            service,
            peer,
            shared,
        }
    }

    /// Answers what the client has asked by now, and ends then.
    pub fn graceful_shutdown(&mut self) {
        self.leaves = true;
        if let State::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
    }

    fn answer(&mut self, request: Request<RecvStream>, reply: SendResponse<Bytes>) {
        let reply = Arc::new(Reply {
            way: Mutex::new(Some(reply)),
            hints: Mutex::new(Taken::none(&MEMORY)),
        });
        let is_head = request.method() == Method::HEAD;
        let service = self.service.clone();
        let answer = service.answer(
            Received::body_of(request, &reply),
            &self.peer,
            self.shared.clone(),
            Some(Arc::downgrade(&reply) as _),
        );
        self.answers.push(Box::pin(async move {
            let answered = async {
                if let Some(Ok(response)) = reply.unless_reset(answer).await
                    && let Err(error) = send(response, is_head, &reply).await
                {
                    debug!(%error, "a response broke off");
                }
            };
            // The other requests of the connection go on.
            if AssertUnwindSafe(answered).catch_unwind().await.is_err()
                && let Some(mut reply) = reply.lock().take()
            {
                reply.send_reset(Reason::INTERNAL_ERROR);
            }
        }));
    }
}

fn builder(settings: &Settings) -> server::Builder {
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(128)
        .max_header_list_size(u32::try_from(settings.max_head.0).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(20)
        // For each of those streams, what its client does not take.
        .max_send_buffer_size(64 * 1024)
        .initial_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024);
    builder
}

impl Future for Multiplexed {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Greeting(handshake) => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                    if this.leaves {
                        connection.graceful_shutdown();
                    }
                    this.state = State::Open(connection);
                }
                State::Open(connection) => match connection.poll_accept(cx) {
                    Poll::Ready(Some(accepted)) => {
                        let (request, reply) = accepted?;
                        this.answer(request, reply);
                    }
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending => {
                        let mut any = false;
                        while let Poll::Ready(Some(())) = this.answers.poll_next_unpin(cx) {
                            any = true;
                        }
                        // Once more, so that it writes what they have said.
                        if !any {
                            return Poll::Pending;
                        }
                    }
                },
            }
        }
    }
}

/// The way back to who has asked, until its response begins.
struct Reply {
    way: Mutex<Option<SendResponse<Bytes>>>,
    /// What its early hints may still take: h2 keeps them until the client reads.
    hints: Mutex<Taken>,
}

impl Reply {
    fn lock(&self) -> MutexGuard<'_, Option<SendResponse<Bytes>>> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an informational response.
    fn inform(&self, status: StatusCode, headers: HeaderMap) {
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        if let Some(reply) = &mut *self.lock()
            && let Err(error) = reply.send_informational(response)
        {
            debug!(%error, status = status.as_u16(), "an informational response is left out");
        }
    }

    /// None: the client has taken its request back, or has left.
    async fn unless_reset<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        std::future::poll_fn(|cx| {
            // First: what is taken back at once is nobody's work.
            if let Some(reply) = &mut *self.lock()
                && reply.poll_reset(cx).is_ready()
            {
                return Poll::Ready(None);
            }
            answer.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

impl EarlyHints for Reply {
    fn send(&self, headers: &HeaderMap) {
        let mut links = HeaderMap::new();
        let mut size = 0;
        for value in headers.get_all(header::LINK) {
            size += value.len() as u64 + 256;
            links.append(header::LINK, value.clone());
        }
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        if !hints.try_grow(size) {
            return;
        }
        drop(hints);
        self.inform(StatusCode::EARLY_HINTS, links);
    }
}

async fn send(response: Response<Outgoing>, is_head: bool, reply: &Reply) -> Result<(), h2::Error> {
    let _headers = response_memory::headers(&response);
    let (mut head, mut body) = response.into_parts();
    let is_empty = body.is_end_stream();
    let has_none = matches!(
        head.status,
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    );
    let is_all = is_empty || is_head || has_none;
    if !is_empty
        && !has_none
        && let Some(len) = body.size_hint().exact()
    {
        let len = || HeaderValue::from(len);
        head.headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(len);
    }
    if !head.headers.contains_key(header::DATE)
        && let Ok(now) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now()))
    {
        head.headers.insert(header::DATE, now);
    }
    // What is nobody else's business, like the name of a file to be sent, ends here.
    head.extensions.clear();
    let Some(mut reply) = reply.lock().take() else {
        return Ok(());
    };
    let mut stream = reply
        .send_response(Response::from_parts(head, ()), is_all)
        .inspect_err(|_| reply.send_reset(Reason::INTERNAL_ERROR))?;
    match is_all {
        true => Ok(()),
        false => send_body(&mut body, &mut stream).await,
    }
}

async fn send_body(body: &mut Outgoing, stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    loop {
        // Room is asked for when there is something to send: what is set aside for one stream, no
        // other has.
        match next(body, stream).await? {
            None => return stream.send_data(Bytes::new(), true),
            Some(Err(_)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
            Some(Ok(frame)) => {
                let Ok(mut piece) = frame.into_data() else {
                    continue;
                };
                // No more than the client has room for: what h2 were to keep beyond that, nobody
                // would know to be still there.
                while !piece.is_empty() {
                    stream.reserve_capacity(piece.len());
                    if stream.capacity() == 0 {
                        let _wait = body.wait();
                        room(stream).await?;
                    }
                    let part = piece.split_to(stream.capacity().min(piece.len()));
                    let is_last = piece.is_empty() && body.is_end_stream();
                    stream.send_data(part, is_last)?;
                    if is_last {
                        return Ok(());
                    }
                }
            }
        }
    }
}

type Piece = Option<Result<Frame<Bytes>, <Outgoing as Body>::Error>>;

/// The body's next piece; an error when the client wants none any more.
async fn next(body: &mut Outgoing, stream: &mut SendStream<Bytes>) -> Result<Piece, h2::Error> {
    std::future::poll_fn(|cx| {
        if let Poll::Ready(reset) = stream.poll_reset(cx) {
            return Poll::Ready(Err(reset?.into()));
        }
        Pin::new(&mut *body).poll_frame(cx).map(Ok)
    })
    .await
}

/// Waits until the client, and what it has not taken yet, let something be sent.
async fn room(stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    while stream.capacity() == 0 {
        match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(capacity) => {
                capacity?;
            }
            None => return Err(Reason::STREAM_CLOSED.into()),
        }
    }
    Ok(())
}

/// A request's body as it arrives.
pub struct Received {
    stream: RecvStream,
    /// A client that waits until it hears that the body is wanted.
    asks: Option<Arc<Reply>>,
    /// How much is still to come, where the client has said so. h2 holds it to that.
    rest: Option<u64>,
    /// All that is left are trailers.
    ended: bool,
}

impl Received {
    fn body_of(request: Request<RecvStream>, reply: &Arc<Reply>) -> Request<Received> {
        let expects = request.headers().get(header::EXPECT);
        let asks =
            expects.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let asks = asks.then(|| reply.clone());
        let length = request.headers().get(header::CONTENT_LENGTH);
        let rest = length.and_then(|value| value.to_str().ok()?.parse().ok());
        request.map(|stream| Received {
            stream,
            asks,
            rest,
            ended: false,
        })
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.ended {
            let data = self.stream.poll_data(cx);
            if let Some(reply) = self.asks.take()
                && data.is_pending()
            {
                reply.inform(StatusCode::CONTINUE, HeaderMap::new());
            }
            match ready!(data) {
                Some(Ok(piece)) => {
                    // The client may send as much again.
                    let _ = self.stream.flow_control().release_capacity(piece.len());
                    self.rest = self
                        .rest
                        .map(|rest| rest.saturating_sub(piece.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.ended = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(cx))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.rest
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
