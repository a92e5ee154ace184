//! Hands a worker's response to the caller: its headers, then its body, whole or as a stream.

use std::time::Instant;

use bytes::Bytes;
use tracing::warn;

use super::responses::{ArrivingResponse, Outbox};
use crate::budget::{self, DISK_TOO_SLOW, HeldMemory, SMALL};
use crate::engines::cgi::response;
use crate::engines::cgi::response::{Block, CgiParts, Split, TooLarge};
use crate::engines::response_spool::{self, ClientClosed, WriteError};
use crate::engines::workers::generation::in_flight::{InFlightRequest, Key, RequestProgress};
use crate::engines::workers::response_stream::ResponseStream;
use crate::event::{Failure, Response, ResponseBody};

/// How many pieces may be collected before the response is streamed.
const AT_ONCE: usize = 16;

/// Bytes of early hints that one event may send.
const MAX_HINTS: usize = 64 * 1024;

impl Outbox {
    pub(super) async fn output(&mut self, key: Key, content: Bytes) {
        if let ArrivingResponse::None = self.reply {
            self.reply = ArrivingResponse::Headers {
                key,
                block: Block::default(),
            };
        }
        match &mut self.reply {
            ArrivingResponse::Headers { block, .. } => match block.add(content) {
                Ok(Some(Split { block, rest })) => self.headers_complete(key, &block, rest),
                Ok(None) => {}
                Err(TooLarge) => {
                    self.fail(
                        key,
                        Failure::Malformed("the response's headers are too large".into()),
                    );
                }
            },
            ArrivingResponse::Ready { first, .. } if first.is_empty() => *first = content,
            ArrivingResponse::Ready { more, .. } => {
                more.push(content);
                // A worker that sends without pause would keep this loop from its end.
                if more.len() >= AT_ONCE {
                    self.begin_stream().await;
                }
            }
            ArrivingResponse::Streaming { .. } => self.forward(content).await,
            ArrivingResponse::None | ArrivingResponse::Done => {}
        }
    }

    fn headers_complete(&mut self, key: Key, block: &Bytes, first: Bytes) {
        match response::parse(block) {
            Ok((parts, invalid)) => {
                for header in invalid {
                    let request_id = self.shared.in_flight.with(key, |slot| slot.event);
                    let pid = self.pid.get();
                    warn!(pid, request_id, header, "invalid response header removed");
                }
                self.reply = ArrivingResponse::Ready {
                    key,
                    parts,
                    first,
                    more: Vec::new(),
                };
            }
            Err(wrong) => self.fail(key, Failure::Malformed(wrong)),
        }
    }

    fn fail(&mut self, key: Key, failure: Failure) {
        self.shared.fail(key, failure, RequestProgress::Started);
        self.reply = ArrivingResponse::Done;
    }

    /// The response is complete.
    pub(super) async fn end_response(&mut self) {
        match std::mem::replace(&mut self.reply, ArrivingResponse::Done) {
            ArrivingResponse::Ready {
                key,
                parts,
                first,
                mut more,
            } => {
                let body = if more.is_empty() {
                    budget::apart(first)
                } else {
                    more.insert(0, first);
                    more.concat().into()
                };
                let length = body.len();
                let mut response = response(parts, ResponseBody::Full(body));
                if length >= SMALL {
                    let held = match HeldMemory::in_memory(length) {
                        Some(held) => Some(held),
                        None => self.wait_for_disk(key, length).await,
                    };
                    let Some(held) = held else {
                        return self.fail(key, Failure::Busy(DISK_TOO_SLOW));
                    };
                    response.extensions_mut().insert(held);
                }
                self.shared.answer(key, response);
            }
            ArrivingResponse::Streaming { key, spool } => {
                let stopped = self
                    .shared
                    .in_flight
                    .with(key, |slot| slot.stopping.is_some());
                // A truncated response must not look complete.
                spool.end(match stopped {
                    Some(true) => Err(Failure::TimedOut),
                    _ => Ok(()),
                });
            }
            ArrivingResponse::Headers { key, .. } => {
                self.fail(
                    key,
                    Failure::Malformed("the response's headers are incomplete".into()),
                );
            }
            ArrivingResponse::None | ArrivingResponse::Done => {}
        }
    }

    /// Waits until the disk has taken enough of other responses. The worker waits, too, as in
    /// [`forward`](Outbox::forward).
    async fn wait_for_disk(&self, key: Key, length: usize) -> Option<HeldMemory> {
        self.shared.in_flight.with(key, begin_wait);
        let held = HeldMemory::until_moved(length).await;
        let end_wait = |slot: &mut InFlightRequest| slot.waits_for_client = false;
        self.shared.in_flight.with(key, end_wait);
        held
    }

    /// Answers the caller before the body is complete.
    pub(super) async fn begin_stream(&mut self) {
        if !matches!(self.reply, ArrivingResponse::Ready { .. }) {
            return;
        }
        let ArrivingResponse::Ready {
            key,
            parts,
            first,
            more,
        } = std::mem::replace(&mut self.reply, ArrivingResponse::Done)
        else {
            return;
        };
        let spool = |slot: &mut InFlightRequest| slot.spool.clone();
        let Some(spool) = self.shared.in_flight.with(key, spool) else {
            return;
        };
        let (writer, reader) = response_spool::pair(spool);
        let stream = ResponseStream::new(reader, self.shared.clone(), key);
        if !self
            .shared
            .answer(key, response(parts, ResponseBody::stream(stream)))
        {
            return;
        }
        self.reply = ArrivingResponse::Streaming { key, spool: writer };
        let pieces = std::iter::once(first).chain(more);
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            self.forward(piece).await;
        }
    }

    /// Waits until there is room for a piece. The worker waits, too, and its deadline is suspended,
    /// because neither the client nor the disk is its fault.
    async fn forward(&mut self, piece: Bytes) {
        let ArrivingResponse::Streaming { key, spool } = &mut self.reply else {
            return;
        };
        let key = *key;
        let written = match spool.try_write(piece) {
            Ok(()) => Ok(()),
            Err(WriteError::ClientClosed) => Err(ClientClosed),
            Err(WriteError::Full(piece)) => {
                self.shared.in_flight.with(key, begin_wait);
                let (shared, index, pid) = (&self.shared, self.index, &self.pid);
                let is_done = || !shared.is_named(index, pid, key);
                let written = spool.write_waiting(piece, is_done).await;
                self.shared
                    .in_flight
                    .with(key, |slot| slot.waits_for_client = false);
                written
            }
        };
        if written.is_err() {
            // The drop of `ResponseStream` has told the worker.
            self.reply = ArrivingResponse::Done;
        }
        self.shared.in_flight.with(key, |slot| {
            if let Some(idle_timeout) = slot.idle_timeout {
                slot.deadline = Some(Instant::now() + idle_timeout);
            }
        });
    }

    pub(super) fn hints(&mut self, key: Key, block: &Bytes) {
        // A client that reads nothing keeps all of them in memory.
        self.hinted = self.hinted.saturating_add(block.len() + 256);
        if self.hinted > MAX_HINTS {
            self.shared.metrics.early_hints_dropped.inc();
            return;
        }
        let hints = self
            .shared
            .in_flight
            .with(key, |slot| slot.hints.as_ref()?.upgrade())
            .flatten();
        if let (Some(hints), Ok((parts, _))) = (hints, response::parse(block))
            && !hints.send(&parts.headers)
        {
            self.shared.metrics.early_hints_dropped.inc();
        }
    }
}

/// Neither the client nor the disk is the worker's fault.
fn begin_wait(slot: &mut InFlightRequest) {
    if slot.idle_timeout.is_some() {
        slot.deadline = None;
    }
    slot.waits_for_client = true;
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
