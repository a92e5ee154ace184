//! The streams of a QUIC connection, with limits for what h3 keeps of them.

use std::mem::MaybeUninit;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{ReadError, VarInt, WriteError};
use tokio::io::ReadBuf;

use super::unacknowledged::Unacknowledged;
use super::{OVERHEAD, ReadBudget, Unfinished, code, connection_error};
use crate::fronts::http::transport::context::ConnectionContext;
use crate::fronts::http::transport::timeouts::WriteStall;

/// The most that is read at a time.
pub const PIECE: usize = 16 << 10;

/// Both directions of a request's stream.
pub struct RequestStream {
    send: SendStream,
    receive: ReceiveStream,
}

impl RequestStream {
    pub fn new(send: SendStream, receive: ReceiveStream) -> RequestStream {
        RequestStream { send, receive }
    }
}

impl quic::BidiStream<Bytes> for RequestStream {
    type SendStream = SendStream;
    type RecvStream = ReceiveStream;

    fn split(self) -> (SendStream, ReceiveStream) {
        (self.send, self.receive)
    }
}

impl quic::RecvStream for RequestStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.receive.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.receive.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.receive.recv_id()
    }
}

impl quic::SendStream<Bytes> for RequestStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

/// The direction from the client.
pub struct ReceiveStream {
    stream: quinn::RecvStream,
    budget: Arc<ReadBudget>,
    has_ended: bool,
}

impl ReceiveStream {
    pub(super) fn new(stream: quinn::RecvStream, budget: Arc<ReadBudget>) -> ReceiveStream {
        ReceiveStream {
            stream,
            budget,
            has_ended: false,
        }
    }
}

impl quic::RecvStream for ReceiveStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if self.budget.is_spent() {
            self.stop_sending(Code::H3_EXCESSIVE_LOAD.value());
            let why = "too many bytes without a complete header section or frame";
            return Poll::Ready(Err(StreamErrorIncoming::Unknown(why.into())));
        }
        let mut piece = [const { MaybeUninit::uninit() }; PIECE];
        let mut buffer = ReadBuf::uninit(&mut piece);
        match ready!(self.stream.poll_read_buf(cx, &mut buffer)) {
            Ok(()) if buffer.filled().is_empty() => {
                self.has_ended = true;
                Poll::Ready(Ok(None))
            }
            Ok(()) => {
                // A copy, because a short piece must not keep the memory of a long one.
                let bytes = Bytes::copy_from_slice(buffer.filled());
                self.budget.spend(bytes.len() as u64 + OVERHEAD);
                Poll::Ready(Ok(Some(bytes)))
            }
            Err(error) => {
                self.has_ended = true;
                Poll::Ready(Err(read_error(error)))
            }
        }
    }

    fn stop_sending(&mut self, error_code: u64) {
        let error_code = VarInt::from_u64(error_code).unwrap_or(VarInt::MAX);
        let _ = self.stream.stop(error_code);
        self.has_ended = true;
    }

    fn recv_id(&self) -> StreamId {
        id(self.stream.id())
    }
}

impl Drop for ReceiveStream {
    fn drop(&mut self) {
        // The rest of a body that is not needed (RFC 9114, 4.1).
        if !self.has_ended {
            let _ = self.stream.stop(code(Code::H3_NO_ERROR));
        }
    }
}

/// The direction to the client.
pub struct SendStream {
    stream: quinn::SendStream,
    writing: Option<WriteBuf<Bytes>>,
    /// The bytes of `writing` that are counted and that quinn has not taken yet.
    counted: Bytes,
    unacknowledged: Arc<Unacknowledged>,
    context: Arc<ConnectionContext>,
    /// The client takes nothing at the moment.
    stall: Option<WriteStall>,
    /// A drop truncates a response, unless it has ended.
    unfinished: Arc<Unfinished>,
    has_ended: bool,
}

impl SendStream {
    pub(super) fn new(
        stream: quinn::SendStream,
        unacknowledged: Arc<Unacknowledged>,
        context: Arc<ConnectionContext>,
        unfinished: Arc<Unfinished>,
    ) -> SendStream {
        SendStream {
            stream,
            writing: None,
            counted: Bytes::new(),
            unacknowledged,
            context,
            stall: None,
            unfinished,
            has_ended: false,
        }
    }
}

impl quic::SendStream<Bytes> for SendStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        loop {
            if self.counted.is_empty() {
                let Some(data) = self.writing.as_mut().filter(|data| data.has_remaining()) else {
                    self.writing = None;
                    return Poll::Ready(Ok(()));
                };
                self.counted = self.unacknowledged.count(data);
            }
            // quinn keeps a reference to them until the client has acknowledged them. The future
            // has no state of its own.
            let mut pieces = [std::mem::take(&mut self.counted)];
            let written = pin!(self.stream.write_chunks(&mut pieces)).poll(cx);
            [self.counted] = pieces;
            if written.is_pending() {
                self.stall.get_or_insert_with(|| self.context.timers.wait());
            }
            ready!(written).map_err(write_error)?;
            self.stall = None;
        }
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            return Err(StreamErrorIncoming::Unknown("not ready".into()));
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.has_ended = true;
        let finished = self.stream.finish();
        Poll::Ready(finished.map_err(|error| StreamErrorIncoming::Unknown(error.into())))
    }

    fn reset(&mut self, reset_code: u64) {
        self.has_ended = true;
        let reset_code = VarInt::from_u64(reset_code).unwrap_or(VarInt::MAX);
        let _ = self.stream.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        id(self.stream.id())
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        // Otherwise quinn ends it, as after a whole response.
        if !self.has_ended
            && let Some(code) = self.unfinished.code()
        {
            let _ = self.stream.reset(code);
        }
    }
}

/// Numbers of QUIC's streams have 62 bits, as those of HTTP/3.
fn id(id: quinn::StreamId) -> StreamId {
    StreamId::try_from(u64::from(id)).expect("the number of a QUIC stream")
}

fn read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated {
            error_code: code.into_inner(),
        },
        ReadError::ConnectionLost(error) => StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: connection_error(error),
        },
        error => StreamErrorIncoming::Unknown(error.into()),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated {
            error_code: code.into_inner(),
        },
        WriteError::ConnectionLost(error) => StreamErrorIncoming::ConnectionErrorIncoming {
            connection_error: connection_error(error),
        },
        error => StreamErrorIncoming::Unknown(error.into()),
    }
}
