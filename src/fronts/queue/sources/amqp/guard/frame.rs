//! Splits a stream of AMQP 0-9-1 into frames.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Types of frames.
pub const METHOD: u8 = 1;
pub const HEADER: u8 = 2;
pub const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;

/// The bytes of a frame before and after its payload.
pub const HEAD: usize = 7;
pub const OVERHEAD: usize = HEAD + 1;

const END: u8 = 0xce;

/// The longest frame that a broker may ask for, with head and end; RabbitMQ's own default.
pub const MAX_FRAME: u32 = 128 << 10;
/// The longest frame before both sides have agreed on another length.
pub const MIN_FRAME: u32 = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub channel: u16,
    pub payload: Bytes,
}

/// Why bytes cannot be those of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// They begin as the answer of a server that speaks another protocol.
    Protocol,
    Type(u8),
    Length {
        len: usize,
        max: usize,
    },
    End(u8),
    /// A frame that may not follow those before it, or a method that is none.
    Frame(&'static str),
    /// The connection ends within a frame.
    Half,
    /// A body to publish cannot be read from its file.
    Lost(String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Wrong::Lost(why) = self {
            return write!(f, "a body cannot be sent: {why}");
        }
        f.write_str("the server does not keep to AMQP 0-9-1: ")?;
        match self {
            Wrong::Protocol => f.write_str("it speaks another version"),
            Wrong::Type(kind) => write!(f, "a frame of the type {kind}"),
            Wrong::Length { len, max } => {
                write!(f, "a frame of {len} bytes; at most {max} are agreed on")
            }
            Wrong::End(octet) => write!(f, "a frame ends with {octet:#04x} instead of {END:#04x}"),
            Wrong::Frame(what) => f.write_str(what),
            Wrong::Half => f.write_str("the connection has ended within a frame"),
            Wrong::Lost(_) => Ok(()),
        }
    }
}

impl std::error::Error for Wrong {}

/// The length of the first frame in `bytes`, with head and end, or of what is known of it. The
/// frame may be incomplete.
fn len(bytes: &[u8], max: usize) -> Result<Option<usize>, Wrong> {
    let [kind, _, _, size @ ..] = bytes else {
        return match bytes.first() {
            Some(kind) => known(*kind, bytes).map(|()| None),
            None => Ok(None),
        };
    };
    known(*kind, bytes)?;
    let Some(size) = size.first_chunk() else {
        return Ok(None);
    };
    let len = (u32::from_be_bytes(*size) as usize).saturating_add(OVERHEAD);
    // Brokers add headers to a message, so that its content header can exceed what its producer
    // was allowed.
    let max = if *kind == HEADER { 2 * max } else { max };
    if len > max {
        return Err(Wrong::Length { len, max });
    }
    Ok(Some(len))
}

fn known(kind: u8, bytes: &[u8]) -> Result<(), Wrong> {
    match kind {
        METHOD | HEADER | BODY | HEARTBEAT => Ok(()),
        b'A' if b"AMQP".starts_with(&bytes[..bytes.len().min(4)]) => Err(Wrong::Protocol),
        _ => Err(Wrong::Type(kind)),
    }
}

/// Takes the first frame out of `bytes`; `None` if it is incomplete. `max` is with head and end.
pub fn next(bytes: &mut BytesMut, max: usize) -> Result<Option<Frame>, Wrong> {
    let Some(len) = len(bytes, max)? else {
        return Ok(None);
    };
    if bytes.len() < len {
        return Ok(None);
    }
    let mut frame = bytes.split_to(len).freeze();
    let end = frame[len - 1];
    if end != END {
        return Err(Wrong::End(end));
    }
    let (kind, channel) = (frame[0], u16::from_be_bytes([frame[1], frame[2]]));
    frame.advance(HEAD);
    frame.truncate(len - OVERHEAD);
    Ok(Some(Frame {
        kind,
        channel,
        payload: frame,
    }))
}

/// Appends a frame to `to`.
pub fn write(to: &mut BytesMut, kind: u8, channel: u16, payload: &[u8]) {
    to.reserve(payload.len() + OVERHEAD);
    to.put_u8(kind);
    to.put_u16(channel);
    to.put_u32(payload.len() as u32);
    to.put_slice(payload);
    to.put_u8(END);
}

/// Appends a heartbeat to `to`.
pub fn write_heartbeat(to: &mut BytesMut) {
    write(to, HEARTBEAT, 0, &[]);
}
