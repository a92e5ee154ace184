//! HTTP/2: several requests on one connection.
//!
//! Surus drives the h2 crate itself, because hyper cannot send informational responses yet
//! (hyperium/hyper#4114), and browsers use early hints with HTTP/2 only.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use h2::server::{self, Handshake, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use tracing::debug;

use super::multiplexed::{OutgoingResponse, expects_continue, informational, links, outgoing};
use crate::app::forwarded::Peer;
use crate::budget::{MEMORY, Reservation};
use crate::event::EarlyHints;
use crate::fronts::http::Settings;
use crate::fronts::http::request::CurrentService;
use crate::fronts::http::request::response_body::TrackedBody;
use crate::fronts::http::transport::io::{ConnectionState, Io};

/// A connection, which must be polled until it ends. Dropping it ends its requests.
pub struct H2Connection {
    state: State,
    /// Whether the client must be told to use another connection.
    is_shutting_down: bool,
    /// The responses in progress. The connection's task drives all of them, so that their output
    /// leaves in one write.
    answers: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    service: Arc<CurrentService>,
    peer: Peer,
    shared: Arc<ConnectionState>,
}

enum State {
    Greeting(Handshake<Box<Io>, Bytes>),
    Open(server::Connection<Box<Io>, Bytes>),
}

impl H2Connection {
    pub fn new(io: Box<Io>, service: Arc<CurrentService>, peer: Peer) -> H2Connection {
        let shared = io.shared();
        H2Connection {
            state: State::Greeting(builder(&service.load().settings).handshake(io)),
            is_shutting_down: false,
            answers: FuturesUnordered::new(),
            service,
            peer,
            shared,
        }
    }

    /// Answers the requests received so far, and then closes the connection.
    pub fn graceful_shutdown(&mut self) {
        self.is_shutting_down = true;
        if let State::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
    }

    fn answer(&mut self, request: Request<RecvStream>, reply: SendResponse<Bytes>) {
        let reply = Arc::new(H2Reply {
            way: Mutex::new(Some(reply)),
            hints: Mutex::new(Reservation::none(&MEMORY)),
            connection: self.shared.clone(),
        });
        let is_head = request.method() == Method::HEAD;
        let service = self.service.load_full();
        let answer = service.answer(
            H2RequestBody::body_of(request, &reply),
            &self.peer,
            self.shared.context.clone(),
            Some(Arc::downgrade(&reply) as _),
        );
        self.answers.push(Box::pin(async move {
            let answered = async {
                if let Some(Ok(response)) = reply.unless_reset(answer).await
                    && let Err(error) = send(response, is_head, &reply).await
                {
                    debug!(%error, "response truncated");
                }
            };
            // The connection's other requests continue.
            if AssertUnwindSafe(answered).catch_unwind().await.is_err()
                && let Some(mut reply) = reply.lock().take()
            {
                reply.send_reset(Reason::INTERNAL_ERROR);
            }
        }));
    }
}

/// The most bytes of a stream that h2 keeps until they are written.
const SEND_BUFFER: usize = 64 * 1024;

fn builder(settings: &Settings) -> server::Builder {
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(128)
        .max_header_list_size(u32::try_from(settings.max_header_size.0).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(20)
        // Per stream: what its client has not taken yet.
        .max_send_buffer_size(SEND_BUFFER)
        .initial_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024);
    builder
}

impl Future for H2Connection {
    type Output = Result<(), h2::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Greeting(handshake) => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                    if this.is_shutting_down {
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
                        // Poll the connection once more to write their output.
                        if !any {
                            return Poll::Pending;
                        }
                    }
                },
            }
        }
    }
}

/// The way to send a response, until it begins.
struct H2Reply {
    way: Mutex<Option<SendResponse<Bytes>>>,
    /// The memory of early hints, until the response begins.
    hints: Mutex<Reservation>,
    connection: Arc<ConnectionState>,
}

impl H2Reply {
    fn lock(&self) -> MutexGuard<'_, Option<SendResponse<Bytes>>> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hints(&self) -> MutexGuard<'_, Reservation> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an informational response, unless the response has begun.
    fn inform(&self, status: StatusCode, headers: HeaderMap) -> bool {
        let mut way = self.lock();
        let Some(reply) = &mut *way else {
            return false;
        };
        let sent = reply.send_informational(informational(status, headers));
        if let Err(error) = &sent {
            debug!(%error, status = status.as_u16(), "informational response omitted");
        }
        sent.is_ok()
    }

    /// None if the client has reset the request or disconnected.
    async fn unless_reset<T>(&self, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        std::future::poll_fn(|cx| {
            // Checked first, so that a request that was reset at once costs no work.
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

impl EarlyHints for H2Reply {
    fn send(&self, headers: &HeaderMap) -> bool {
        let links = links(headers, &mut self.hints());
        links.is_some_and(|links| self.inform(StatusCode::EARLY_HINTS, links))
    }
}

async fn send(
    response: Response<TrackedBody>,
    is_head: bool,
    reply: &H2Reply,
) -> Result<(), h2::Error> {
    let OutgoingResponse {
        mut parts,
        mut taken,
        body,
    } = outgoing(response, is_head);
    let Some(mut way) = reply.lock().take() else {
        return Ok(());
    };
    // h2 writes the hints before the header section.
    let hints = std::mem::replace(&mut *reply.hints(), Reservation::none(&MEMORY));
    taken.join(hints);
    let connection = reply.connection.clone();
    hold(parts.headers_mut(), taken, connection);
    let mut stream = way
        .send_response(parts, body.is_none())
        .inspect_err(|_| way.send_reset(Reason::INTERNAL_ERROR))?;
    match body {
        None => Ok(()),
        Some(mut body) => send_body(&mut body, &mut stream).await,
    }
}

/// Makes one of the values hold what the header section has taken, until h2 drops it. h2 keeps
/// values in its compression table (HPACK), except lengths and sensitive ones.
fn hold(headers: &mut HeaderMap, taken: Reservation, connection: Arc<ConnectionState>) {
    let name = match headers.contains_key(header::CONTENT_LENGTH) {
        true => header::CONTENT_LENGTH,
        false => header::DATE,
    };
    let Some(value) = headers.get_mut(name) else {
        return;
    };
    let holder = MemoryHolder {
        value: Bytes::copy_from_slice(value.as_bytes()),
        taken,
        connection,
    };
    if let Ok(mut holder) = HeaderValue::from_maybe_shared(Bytes::from_owner(holder)) {
        holder.set_sensitive(true);
        *value = holder;
    }
}

/// A value that h2 drops when it encodes its section. The encoded bytes may wait for the socket, so
/// the connection keeps their memory.
struct MemoryHolder {
    value: Bytes,
    taken: Reservation,
    connection: Arc<ConnectionState>,
}

impl AsRef<[u8]> for MemoryHolder {
    fn as_ref(&self) -> &[u8] {
        &self.value
    }
}

impl Drop for MemoryHolder {
    fn drop(&mut self) {
        let taken = std::mem::replace(&mut self.taken, Reservation::none(&MEMORY));
        self.connection.keep_until_written(taken);
    }
}

async fn send_body(
    body: &mut TrackedBody,
    stream: &mut SendStream<Bytes>,
) -> Result<(), h2::Error> {
    loop {
        // Capacity is reserved only when there is data: what one stream reserves, no other can use.
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
                // At most what the client's window allows: h2 would buffer the rest, and the
                // timeouts would not see it.
                while !piece.is_empty() {
                    stream.reserve_capacity(piece.len());
                    if stream.capacity() == 0 {
                        let _wait = body.wait();
                        room(stream).await?;
                    }
                    let part = piece.split_to(stream.capacity().min(piece.len()));
                    let is_last = piece.is_empty() && body.is_end_stream();
                    if is_last {
                        return stream.send_data(part, true);
                    }
                    if MEMORY.has_room(SEND_BUFFER as u64) {
                        stream.send_data(part, false)?;
                    } else {
                        let _wait = body.wait();
                        send_until_written(part, stream).await?;
                    }
                }
            }
        }
    }
}

/// Sends a part of the body, and waits until it is in the socket: while memory is short, h2 keeps
/// one part of a stream.
async fn send_until_written(part: Bytes, stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    let (end, mut written) = oneshot::channel();
    let part = Unwritten { part, _end: end };
    stream.send_data(Bytes::from_owner(part), false)?;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(reset) = stream.poll_reset(cx) {
            return Poll::Ready(Err(reset?.into()));
        }
        Pin::new(&mut written).poll(cx).map(|_| Ok(()))
    })
    .await
}

/// Dropped by h2 once it is written.
struct Unwritten {
    part: Bytes,
    _end: oneshot::Sender<()>,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

type BodyPiece = Option<Result<Frame<Bytes>, <TrackedBody as Body>::Error>>;

/// The body's next piece; an error if the client has reset the stream.
async fn next(
    body: &mut TrackedBody,
    stream: &mut SendStream<Bytes>,
) -> Result<BodyPiece, h2::Error> {
    std::future::poll_fn(|cx| {
        if let Poll::Ready(reset) = stream.poll_reset(cx) {
            return Poll::Ready(Err(reset?.into()));
        }
        Pin::new(&mut *body).poll_frame(cx).map(Ok)
    })
    .await
}

/// Waits until the windows of the stream and the connection allow sending.
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
pub struct H2RequestBody {
    stream: RecvStream,
    /// Answers `100 Continue` to a client that waits for it.
    asks: Option<Arc<H2Reply>>,
    /// How many bytes are left, if the client has announced a length. h2 enforces it.
    rest: Option<u64>,
    /// Only trailers are left.
    ended: bool,
}

impl H2RequestBody {
    fn body_of(request: Request<RecvStream>, reply: &Arc<H2Reply>) -> Request<H2RequestBody> {
        let asks = expects_continue(request.headers()).then(|| reply.clone());
        let length = request.headers().get(header::CONTENT_LENGTH);
        let rest = length.and_then(|value| value.to_str().ok()?.parse().ok());
        request.map(|stream| H2RequestBody {
            stream,
            asks,
            rest,
            ended: false,
        })
    }
}

impl Body for H2RequestBody {
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
                    // Lets the client send as much again.
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
