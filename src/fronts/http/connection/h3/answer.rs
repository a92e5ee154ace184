//! Answers one request of HTTP/3.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use h3::error::{Code, StreamError};
use h3::proto::frame::Frame;
use h3::server::{RequestResolver, RequestStream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tracing::debug;

use super::body::{BodyError, H3RequestBody};
use super::pseudo_headers;
use super::reply::H3Reply;
use crate::app::forwarded::Peer;
use crate::fronts::http::connection::multiplexed::{OutgoingResponse, outgoing};
use crate::fronts::http::connection::parse_error;
use crate::fronts::http::request::CurrentService;
use crate::fronts::http::request::response_body::TrackedBody;
use crate::fronts::http::transport::context::ConnectionContext;
use crate::fronts::http::transport::quic::streams::{self, ReceiveStream, SendStream};
use crate::fronts::http::transport::quic::{Exchange, QuicTransport, Unfinished};

/// A request whose first bytes have arrived.
pub struct Arrived {
    pub resolver: RequestResolver<QuicTransport, Bytes>,
    pub exchange: Exchange,
    pub quic: quinn::Connection,
    pub context: Arc<ConnectionContext>,
    pub peer: Peer,
}

type Sender = RequestStream<SendStream, Bytes>;
type Resolved = (Request<()>, RequestStream<streams::RequestStream, Bytes>);

/// How often Surus checks whether the client takes the rest of a response.
const REST_CHECK: Duration = Duration::from_secs(1);

/// Answers the request. The connection's other requests continue, also if this one panics.
pub async fn answer(request: Arrived, service: Arc<CurrentService>) {
    if let Err(error) = resolve_and_answer(request, service).await {
        debug!(%error, "request or response truncated");
    }
}

async fn resolve_and_answer(
    arrived: Arrived,
    service: Arc<CurrentService>,
) -> Result<(), AnswerError> {
    let Arrived {
        resolver,
        mut exchange,
        quic,
        context,
        peer,
    } = arrived;
    let began = Instant::now();
    let limit = service.load().settings.header_timeout.0;
    // Resets the stream at the end of this function, if it has not been resolved by then.
    let mut resolved = pin!(resolve(resolver, exchange.unfinished()));
    let (request, stream) = match tokio::time::timeout(limit, resolved.as_mut()).await {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            if let AnswerError::Stream(StreamError::HeaderTooBig { .. }) = error {
                let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                let accounting = service.load().accounting.clone();
                parse_error::record_status(status, None, began.elapsed(), &peer, &accounting);
            }
            return Err(error);
        }
        Err(_) => {
            exchange.mark_answered();
            return Err(AnswerError::HeaderTimeout);
        }
    };
    exchange.mark_answered();
    let (mut sender, receiver) = stream.split();
    let exchanged = exchange_messages(
        (request, receiver),
        &mut sender,
        &mut exchange,
        (&service, &context, &peer),
    );
    let rest = match AssertUnwindSafe(exchanged).catch_unwind().await {
        Ok(rest) => rest?,
        Err(_) => return Err(AnswerError::Panicked),
    };
    if rest {
        acknowledged(&mut exchange, &quic, &context).await;
    }
    Ok(())
}

/// Receives the header section and checks it.
async fn resolve(
    mut resolver: RequestResolver<QuicTransport, Bytes>,
    unfinished: Arc<Unfinished>,
) -> Result<Resolved, AnswerError> {
    let frame = std::future::poll_fn(|cx| resolver.frame_stream.poll_next(cx)).await;
    let section = match &frame {
        Ok(Some(Frame::Headers(section))) => section.clone(),
        _ => Bytes::new(), // h3 says what is wrong
    };
    let resolving = resolver.accept_with_frame(frame)?;
    if let Some(why) = pseudo_headers::malformed(&section) {
        unfinished.is_malformed();
        return Err(AnswerError::Malformed(why));
    }
    Ok(resolving.resolve().await?)
}

#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error("{0}")]
    Stream(#[from] StreamError),
    #[error("{0}")]
    Body(#[from] BodyError),
    #[error("malformed header section: {0}")]
    Malformed(&'static str),
    #[error("the header section did not arrive in time")]
    HeaderTimeout,
    #[error("panicked")]
    Panicked,
}

/// Receives the request and sends the response. False if the client has given up before.
async fn exchange_messages(
    (request, receiver): (Request<()>, RequestStream<ReceiveStream, Bytes>),
    sender: &mut Sender,
    exchange: &mut Exchange,
    (service, context, peer): (&CurrentService, &Arc<ConnectionContext>, &Peer),
) -> Result<bool, AnswerError> {
    let (reply, mut informational) = H3Reply::new();
    let is_head = request.method() == Method::HEAD;
    let request = H3RequestBody::body_of(request, receiver, exchange.taken(), &reply).await;
    let request = request.inspect_err(|_| sender.stop_stream(Code::H3_MESSAGE_ERROR))?;
    let hints = Arc::downgrade(&reply) as _;
    let service = service.load_full();
    let answer = service.answer(request, peer, context.clone(), Some(hints));
    let mut answer = pin!(answer);
    let response = loop {
        tokio::select! {
            biased;
            // Checked first, so that a request that was reset at once costs no work.
            _ = exchange.stopped() => return Ok(false),
            Some(response) = informational.recv() => sender.send_response(response).await?,
            answered = answer.as_mut() => match answered {
                Ok(response) => break response,
                Err(never) => match never {},
            },
        }
    };
    send(response, is_head, sender, exchange).await
}

/// Sends the response. False if the client has given it up.
async fn send(
    response: Response<TrackedBody>,
    is_head: bool,
    sender: &mut Sender,
    exchange: &mut Exchange,
) -> Result<bool, AnswerError> {
    let OutgoingResponse {
        parts,
        taken: _taken,
        body,
    } = outgoing(response, is_head);
    sender.send_response(parts).await?;
    if let Some(mut body) = body {
        loop {
            let frame = tokio::select! {
                biased;
                _ = exchange.stopped() => return Ok(false),
                frame = body.frame() => frame,
            };
            match frame {
                None => break,
                Some(Err(_)) => {
                    sender.stop_stream(Code::H3_INTERNAL_ERROR);
                    return Ok(false);
                }
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        sender.send_data(piece).await?;
                    }
                }
            }
        }
    }
    sender.finish().await?;
    Ok(true)
}

/// Waits until the client has the whole response: the end of the connection would discard what it
/// has not acknowledged.
async fn acknowledged(
    exchange: &mut Exchange,
    quic: &quinn::Connection,
    context: &ConnectionContext,
) {
    let sent = || quic.stats().frame_tx.stream;
    let mut before = sent();
    let mut stall = context.timers.wait();
    while tokio::time::timeout(REST_CHECK, exchange.stopped())
        .await
        .is_err()
    {
        let now = sent();
        // The client's window was open.
        if now != before {
            before = now;
            stall = context.timers.wait();
        }
    }
    drop(stall);
    context.timers.acknowledged();
}
