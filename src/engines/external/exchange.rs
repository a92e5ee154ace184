//! Drives one event from start to end on any external engine: response, deadline and client
//! disconnect.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

use super::PhpBoot;
use crate::budget::{DISK_TOO_SLOW, HeldMemory, SMALL};
use crate::engine::Pending;
use crate::engines::cgi::response;
use crate::engines::cgi::response::{Block, CgiParts, Split, TooLarge};
use crate::engines::queue::Permit;
use crate::engines::response_spool::{self, ClientClosed, SpoolReader};
use crate::event::{Event, Failure, Response, ResponseBody};

/// A part of a response; the header section comes first.
pub enum ResponsePart {
    Headers(CgiParts),
    Data(Bytes),
}

/// One event in progress at PHP.
pub trait Exchange: Send {
    /// The next part; None at the end of a complete response. Dropping the future loses no data.
    fn next(&mut self) -> Pending<'_, Result<Option<ResponsePart>, Failure>>;

    /// The client has closed the request: PHP's next write must fail.
    fn leave(&mut self);

    /// Kills the process that runs the event.
    fn kill(&mut self);

    /// Waits until PHP has finished the event.
    fn over(&mut self) -> Pending<'_, ()>;
}

/// Runs the event and returns the response. If the future is dropped, the event continues as after
/// a client disconnect.
pub async fn answer(
    boot: Arc<PhpBoot>,
    event: Box<Event>,
    permit: Permit,
) -> Result<Response, Failure> {
    let (to, from) = oneshot::channel();
    tokio::spawn(run(boot, event, permit, to));
    from.await
        .unwrap_or_else(|_| Err(Failure::WorkerCrashed("the engine has stopped".into())))
}

type AnswerSender = oneshot::Sender<Result<Response, Failure>>;

/// How a response ended.
enum ExchangeEnd {
    Answered,
    /// The rest is unwanted: the client disconnected or the response is invalid.
    Left,
    /// The deadline passed.
    Late,
}

/// How long PHP may run beyond the event's deadline, without a client or after its response.
const LINGER: Duration = Duration::from_secs(1);

async fn run(boot: Arc<PhpBoot>, event: Box<Event>, permit: Permit, mut answer: AnswerSender) {
    let deadline = Instant::from_std(event.deadline);
    let begun = {
        let mut begin = pin!(timeout_at(deadline, boot.php.begin(&event)));
        tokio::select! {
            begun = &mut begin => begun.unwrap_or(Err(Failure::TimedOut)),
            () = answer.closed() => return,
        }
    };
    let mut exchange = match begun {
        Ok(exchange) => exchange,
        Err(failure) => {
            drop(permit);
            let _ = answer.send(Err(failure));
            return;
        }
    };
    let dropped = boot.dropped.clone();
    tokio::select! {
        () = live(&mut *exchange, &event, answer) => {}
        () = dropped.cancelled() => {
            exchange.kill();
            exchange.over().await;
        }
    }
    drop(exchange);
    // Drop the boot before the permit, so that a drained queue implies that the boot is released.
    drop(boot);
    drop(permit);
}

async fn live(exchange: &mut dyn Exchange, event: &Event, answer: AnswerSender) {
    let deadline = Instant::from_std(event.deadline);
    match drive(exchange, event, answer).await {
        ExchangeEnd::Answered => {}
        ExchangeEnd::Left => exchange.leave(),
        ExchangeEnd::Late => {
            warn!(
                request_id = event.id,
                request = what(event),
                "request timed out; process killed"
            );
            exchange.kill();
        }
    }
    let idle_timeout = event
        .idle_timeout
        .map(|idle_timeout| Instant::now() + idle_timeout);
    let last = idle_timeout.unwrap_or(deadline).max(deadline) + LINGER;
    if timeout_at(last, exchange.over()).await.is_err() {
        warn!(
            request_id = event.id,
            request = what(event),
            "script continued without a client after its deadline; process killed"
        );
        exchange.kill();
        exchange.over().await;
    }
}

fn what(event: &Event) -> String {
    format!("{} {}", event.request.method(), event.request.uri())
}

async fn drive(
    exchange: &mut dyn Exchange,
    event: &Event,
    mut answer: AnswerSender,
) -> ExchangeEnd {
    let mut deadline = Instant::from_std(event.deadline);
    let first = tokio::select! {
        biased;
        () = answer.closed() => return ExchangeEnd::Left,
        first = timeout_at(deadline, exchange.next()) => first,
    };
    let parts = match first {
        Ok(Ok(Some(ResponsePart::Headers(parts)))) => parts,
        Ok(Ok(_)) => {
            let why = "the script ended without a response".into();
            let _ = answer.send(Err(Failure::Malformed(why)));
            return ExchangeEnd::Left;
        }
        Ok(Err(failure)) => {
            let _ = answer.send(Err(failure));
            return ExchangeEnd::Left;
        }
        Err(_) => {
            let _ = answer.send(Err(Failure::TimedOut));
            return ExchangeEnd::Late;
        }
    };
    // A response that is already complete needs no stream.
    let mut there = Vec::new();
    let mut size = 0;
    while size < AT_ONCE {
        match exchange.next().now_or_never() {
            Some(Ok(Some(ResponsePart::Data(data)))) => {
                size += data.len();
                there.push(data);
            }
            Some(Ok(_)) => {
                let mut response = response(parts, ResponseBody::Full(there.concat().into()));
                if size >= SMALL {
                    let held = match HeldMemory::in_memory(size) {
                        Some(held) => Some(held),
                        None => HeldMemory::until_moved(size).await,
                    };
                    let Some(held) = held else {
                        let _ = answer.send(Err(Failure::Busy(DISK_TOO_SLOW)));
                        return ExchangeEnd::Answered;
                    };
                    response.extensions_mut().insert(held);
                }
                return match answer.send(Ok(response)) {
                    Ok(()) => ExchangeEnd::Answered,
                    Err(_) => ExchangeEnd::Left,
                };
            }
            // The error repeats at the next call.
            Some(Err(failure)) => {
                let _ = answer.send(Err(failure));
                return ExchangeEnd::Left;
            }
            None => break,
        }
    }
    let (mut body, arriving) = response_spool::pair(event.spool.clone());
    if answer
        .send(Ok(response(parts, stream_body(arriving))))
        .is_err()
    {
        return ExchangeEnd::Left;
    }
    let mut there = there.into_iter();
    loop {
        let part = match there.next() {
            Some(data) => Ok(Ok(Some(ResponsePart::Data(data)))),
            None => tokio::select! {
                biased;
                () = body.client_closed() => return ExchangeEnd::Left,
                part = timeout_at(deadline, exchange.next()) => part,
            },
        };
        let data = match part {
            Ok(Ok(Some(ResponsePart::Data(data)))) => data,
            Ok(Ok(_)) => {
                body.end(Ok(()));
                return ExchangeEnd::Answered;
            }
            Ok(Err(failure)) => {
                body.end(Err(failure));
                return ExchangeEnd::Left;
            }
            Err(_) => {
                body.end(Err(Failure::TimedOut));
                return ExchangeEnd::Late;
            }
        };
        let writing = body.write_waiting(data, || false);
        // PHP waits for a slow client, unless the complete response is due at the deadline.
        let written = match event.idle_timeout {
            Some(_) => Ok(writing.await),
            None => timeout_at(deadline, writing).await,
        };
        match written {
            Ok(Ok(())) => {}
            Ok(Err(ClientClosed)) => return ExchangeEnd::Left,
            Err(_) => {
                body.end(Err(Failure::TimedOut));
                return ExchangeEnd::Late;
            }
        }
        if let Some(idle_timeout) = event.idle_timeout {
            deadline = Instant::now() + idle_timeout;
        }
    }
}

/// A response up to this size in bytes is sent in one piece if it is already complete.
const AT_ONCE: usize = 256 * 1024;

fn stream_body(arriving: SpoolReader) -> ResponseBody {
    let pieces = stream::unfold(Some(arriving), |arriving| async {
        let mut arriving = arriving?;
        match poll_fn(|cx| arriving.poll_read(cx)).await? {
            Ok(data) => Some((Ok(Frame::data(data)), Some(arriving))),
            Err(failure) => Some((Err(failure), None)),
        }
    });
    ResponseBody::stream(StreamBody::new(pieces))
}

fn response(parts: CgiParts, body: ResponseBody) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    if let Some(reason) = parts.reason {
        response.extensions_mut().insert(reason);
    }
    response
}

/// Separates the header section from the body in a CGI script's output.
#[derive(Default)]
pub struct CgiOutput {
    buffer: BytesMut,
    block: Block,
    /// The first piece of the body, if it arrived with the header section.
    rest: Bytes,
    has_headers: bool,
}

impl CgiOutput {
    /// The buffer for new output.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.buffer.reserve(ROOM);
        &mut self.buffer
    }

    /// The next complete part.
    pub fn next(&mut self) -> Result<Option<ResponsePart>, Failure> {
        if !self.rest.is_empty() {
            return Ok(Some(ResponsePart::Data(std::mem::take(&mut self.rest))));
        }
        let data = self.buffer.split().freeze();
        if data.is_empty() {
            return Ok(None);
        }
        if self.has_headers {
            return Ok(Some(ResponsePart::Data(data)));
        }
        match self.block.add(data) {
            Ok(None) => Ok(None),
            Ok(Some(Split { block, rest })) => {
                self.has_headers = true;
                self.rest = rest;
                parse(&block).map(|parts| Some(ResponsePart::Headers(parts)))
            }
            Err(TooLarge) => Err(Failure::Malformed(
                "the response's headers are too large".into(),
            )),
        }
    }

    pub fn has_headers(&self) -> bool {
        self.has_headers
    }
}

/// How many bytes to read at once.
const ROOM: usize = 64 * 1024;

/// Parses a header section and logs rejected lines.
pub fn parse(block: &Bytes) -> Result<CgiParts, Failure> {
    let (parts, invalid) = response::parse(block).map_err(Failure::Malformed)?;
    for header in invalid {
        warn!(header, "invalid response header removed");
    }
    debug!(status = parts.status.as_u16(), "PHP answers");
    Ok(parts)
}
