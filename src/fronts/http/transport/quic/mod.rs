//! QUIC below HTTP/3: gives h3 the streams of a quinn connection.
//!
//! The crate h3-quinn does the same without limits: h3 keeps a header section and an unknown frame
//! in memory until they are complete, however long they are. Here the bytes of a stream that h3 has
//! not passed on are limited. Also, each stream records whether its client takes the
//! response, and a stream that Surus drops is reset, so that a truncated response does not look
//! complete.

pub mod streams;
mod unacknowledged;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming};
use quinn::{ConnectionError, StoppedError, VarInt};

use self::streams::{ReceiveStream, RequestStream, SendStream};
use self::unacknowledged::Unacknowledged;
use super::context::ConnectionContext;
use crate::budget::{self, Reservation};

pub use self::unacknowledged::WINDOW as SEND_WINDOW;

type Streams<T> = Pin<Box<dyn Stream<Item = Result<T, ConnectionError>> + Send>>;
type Bidirectional = (quinn::SendStream, quinn::RecvStream);

/// Added to the bytes of each read: the cost of keeping them.
const OVERHEAD: u64 = 64;

/// The most bytes of the client's unidirectional streams that h3 has not passed on.
const CONTROL_BUDGET: u64 = 64 << 10;

/// What a connection may keep although [`budget::MEMORY`] is used up: header sections, and a piece
/// of a body. Otherwise, clients that take no responses would stop the requests of all others.
const ALWAYS: u64 = 2 * streams::PIECE as u64;

/// How many requests may have used up their budgets at the same time.
const INCOMPLETE_REQUESTS: u64 = 4;

/// What each request refunds, because clients send a few bytes about each (RFC 9218).
const CONTROL_PER_REQUEST: u64 = 4 * OVERHEAD;

/// Bounds the bytes that h3 reads before it passes some on. They count in [`budget::MEMORY`].
struct ReadBudget {
    max: u64,
    spent: Mutex<Spent>,
    /// The budget of all requests of the connection.
    shared: Option<Arc<ReadBudget>>,
}

struct Spent {
    bytes: u64,
    memory: Reservation,
    /// Not all bytes fitted into the memory.
    is_refused: bool,
}

impl ReadBudget {
    fn new(max: u64, shared: Option<Arc<ReadBudget>>) -> Arc<ReadBudget> {
        Arc::new(ReadBudget {
            max,
            spent: Mutex::new(Spent {
                bytes: 0,
                memory: Reservation::none(&budget::MEMORY),
                is_refused: false,
            }),
            shared,
        })
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spend(&self, bytes: u64) {
        let mut spent = self.spent();
        spent.bytes += bytes;
        let of_connection = match &self.shared {
            Some(shared) => {
                let mut shared = shared.spent();
                shared.bytes += bytes;
                shared.bytes
            }
            None => spent.bytes,
        };
        if of_connection <= ALWAYS {
            spent.memory.join(budget::MEMORY.take(bytes));
        } else {
            spent.is_refused |= !spent.memory.try_grow(bytes);
        }
    }

    /// Refunds bytes, at most all that are spent.
    fn refund(&self, bytes: u64) {
        let mut spent = self.spent();
        let bytes = bytes.min(spent.bytes);
        spent.bytes -= bytes;
        spent.memory.shrink(bytes);
        if let Some(shared) = &self.shared {
            shared.spent().bytes -= bytes;
        }
    }

    fn refund_all(&self) {
        self.refund(u64::MAX);
    }

    fn is_spent(&self) -> bool {
        let spent = self.spent();
        let shared = || self.shared.as_ref().is_some_and(|it| it.is_spent());
        spent.is_refused || spent.bytes >= self.max || shared()
    }
}

impl Drop for ReadBudget {
    fn drop(&mut self) {
        self.refund_all();
    }
}

/// A connection as h3 needs it.
pub struct QuicTransport {
    connection: quinn::Connection,
    unacknowledged: Arc<Unacknowledged>,
    context: Arc<ConnectionContext>,
    bidirectional: Streams<Bidirectional>,
    unidirectional: Streams<quinn::RecvStream>,
    opened: Streams<quinn::SendStream>,
    control: Arc<ReadBudget>,
    requests: Arc<ReadBudget>,
    accepted: Arc<Accepted>,
}

/// The connection's newest request stream, for the task that answers it.
#[derive(Default)]
pub struct Accepted {
    newest: Mutex<Option<Exchange>>,
    rejects: AtomicBool,
}

impl Accepted {
    /// The stream of the request that h3 has accepted last.
    pub fn take(&self) -> Option<Exchange> {
        self.newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Rejects later requests, so that the client may repeat them elsewhere
    /// (`H3_REQUEST_REJECTED`).
    pub fn reject_more(&self) {
        self.rejects.store(true, Ordering::Relaxed);
    }
}

type Stopped = Pin<Box<dyn Future<Output = Result<Option<VarInt>, StoppedError>> + Send>>;

/// A request's stream, as the task that answers it sees and controls it.
pub struct Exchange {
    budget: Arc<ReadBudget>,
    unfinished: Arc<Unfinished>,
    stopped: Stopped,
}

/// The error code of HTTP/3 for a response that is dropped before its end. 0: h3 has answered.
#[derive(Default)]
pub struct Unfinished(AtomicU64);

impl Unfinished {
    /// The request is malformed and gets no response.
    pub fn is_malformed(&self) {
        self.set(Code::H3_MESSAGE_ERROR);
    }

    fn set(&self, error: Code) {
        self.0.store(error.value(), Ordering::Relaxed);
    }

    fn code(&self) -> Option<VarInt> {
        let code = VarInt::from_u64(self.0.load(Ordering::Relaxed)).ok()?;
        (code.into_inner() != 0).then_some(code)
    }
}

impl Exchange {
    /// From now on Surus answers the request; until then h3 does, for example with 431.
    pub fn mark_answered(&self) {
        self.unfinished.set(Code::H3_INTERNAL_ERROR);
        self.budget.refund_all();
    }

    pub fn unfinished(&self) -> Arc<Unfinished> {
        self.unfinished.clone()
    }

    /// A piece of the body has been taken.
    pub fn taken(&self) -> impl Fn(usize) + Send + 'static {
        let budget = self.budget.clone();
        move |bytes| budget.refund(bytes as u64 + 2 * OVERHEAD)
    }

    /// Waits until the client has the whole response, has given it up, or has left.
    pub fn stopped(&mut self) -> &mut Stopped {
        &mut self.stopped
    }
}

impl QuicTransport {
    pub fn new(
        connection: quinn::Connection,
        context: Arc<ConnectionContext>,
        max_header_size: u64,
    ) -> (QuicTransport, Arc<Accepted>) {
        let accepted = Arc::new(Accepted::default());
        let of = || connection.clone();
        // The encoded section is hardly larger than the decoded one, and the body may follow it.
        let per_request = 2 * max_header_size + 4 * streams::PIECE as u64;
        let transport = QuicTransport {
            bidirectional: Box::pin(stream::unfold(of(), |connection| async {
                Some((connection.accept_bi().await, connection))
            })),
            unidirectional: Box::pin(stream::unfold(of(), |connection| async {
                Some((connection.accept_uni().await, connection))
            })),
            opened: Box::pin(stream::unfold(of(), |connection| async {
                Some((connection.open_uni().await, connection))
            })),
            unacknowledged: Arc::new(Unacknowledged::new(connection.clone())),
            connection,
            context,
            control: ReadBudget::new(CONTROL_BUDGET, None),
            requests: ReadBudget::new(INCOMPLETE_REQUESTS * per_request, None),
            accepted: accepted.clone(),
        };
        (transport, accepted)
    }

    fn send_stream(&self, stream: quinn::SendStream, unfinished: Arc<Unfinished>) -> SendStream {
        let unacknowledged = self.unacknowledged.clone();
        SendStream::new(stream, unacknowledged, self.context.clone(), unfinished)
    }

    /// A request's stream.
    fn exchange(&self, (send, receive): Bidirectional) -> RequestStream {
        let all = &self.requests;
        let budget = ReadBudget::new(all.max / INCOMPLETE_REQUESTS, Some(all.clone()));
        self.control.refund(CONTROL_PER_REQUEST);
        let unfinished = Arc::<Unfinished>::default();
        *(self.accepted.newest)
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Exchange {
            budget: budget.clone(),
            unfinished: unfinished.clone(),
            stopped: Box::pin(send.stopped()),
        });
        RequestStream::new(
            self.send_stream(send, unfinished),
            ReceiveStream::new(receive, budget),
        )
    }
}

fn next<T>(
    streams: &mut Streams<T>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, ConnectionErrorIncoming>> {
    let next = ready!(streams.as_mut().poll_next(cx));
    let next = next.unwrap_or(Err(ConnectionError::LocallyClosed));
    Poll::Ready(next.map_err(connection_error))
}

impl quic::Connection<Bytes> for QuicTransport {
    type RecvStream = ReceiveStream;
    type OpenStreams = Opener;

    fn poll_accept_recv(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceiveStream, ConnectionErrorIncoming>> {
        let stream = ready!(next(&mut self.unidirectional, cx))?;
        Poll::Ready(Ok(ReceiveStream::new(stream, self.control.clone())))
    }

    fn poll_accept_bidi(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RequestStream, ConnectionErrorIncoming>> {
        loop {
            let (mut send, mut receive) = ready!(next(&mut self.bidirectional, cx))?;
            if !self.accepted.rejects.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(self.exchange((send, receive))));
            }
            let _ = send.reset(code(Code::H3_REQUEST_REJECTED));
            let _ = receive.stop(code(Code::H3_REQUEST_REJECTED));
        }
    }

    fn opener(&self) -> Opener {
        Opener(self.connection.clone())
    }
}

impl quic::OpenStreams<Bytes> for QuicTransport {
    type BidiStream = RequestStream;
    type SendStream = SendStream;

    fn poll_open_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<RequestStream, StreamErrorIncoming>> {
        Poll::Ready(Err(no_requests()))
    }

    fn poll_open_send(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<SendStream, StreamErrorIncoming>> {
        let opened = ready!(next(&mut self.opened, cx));
        let opened =
            opened.map_err(
                |connection_error| StreamErrorIncoming::ConnectionErrorIncoming {
                    connection_error,
                },
            )?;
        Poll::Ready(Ok(self.send_stream(opened, Arc::default())))
    }

    fn close(&mut self, why: Code, reason: &[u8]) {
        self.connection.close(code(why), reason);
    }
}

/// Closes a connection. A server opens no other streams than those of its start.
pub struct Opener(quinn::Connection);

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = RequestStream;
    type SendStream = SendStream;

    fn poll_open_bidi(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<RequestStream, StreamErrorIncoming>> {
        Poll::Ready(Err(no_requests()))
    }

    fn poll_open_send(
        &mut self,
        _: &mut Context<'_>,
    ) -> Poll<Result<SendStream, StreamErrorIncoming>> {
        Poll::Ready(Err(no_requests()))
    }

    fn close(&mut self, why: Code, reason: &[u8]) {
        self.0.close(code(why), reason);
    }
}

fn no_requests() -> StreamErrorIncoming {
    StreamErrorIncoming::Unknown("a server opens no such stream".into())
}

/// An error code of HTTP/3 for QUIC.
pub fn code(code: Code) -> VarInt {
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

fn connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => ConnectionErrorIncoming::ApplicationClose {
            error_code: close.error_code.into_inner(),
        },
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_connection_share_a_budget_that_ends_with_them() {
        let all = ReadBudget::new(100, None);
        let one = ReadBudget::new(80, Some(all.clone()));
        let other = ReadBudget::new(80, Some(all.clone()));
        one.spend(60);
        other.spend(39);
        assert!(!one.is_spent() && !other.is_spent());
        other.spend(1);
        assert!(one.is_spent() && other.is_spent());
        other.refund(30);
        assert!(!one.is_spent());
        drop(one);
        assert_eq!(all.spent().bytes, 10);
        other.refund_all();
        assert_eq!(all.spent().bytes, 0);
        other.refund(1);
        assert!(!all.is_spent());
    }

    #[test]
    fn bytes_count_in_the_memory_of_all_requests() {
        let budget = ReadBudget::new(u64::MAX, None);
        budget.spend(budget::DEFAULT_MEMORY + 1);
        assert!(budget.is_spent());
    }
}
