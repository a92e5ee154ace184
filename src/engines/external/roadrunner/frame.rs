//! Parses and writes the frames of RoadRunner workers (docs/internals/roadrunner.md), and separates
//! them from other output on the same pipe.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// The length of a header without options.
pub const HEADER: usize = 12;

/// Bits of the second byte.
pub const CONTROL: u8 = 0x01;
pub const RAW: u8 = 0x04;
pub const JSON: u8 = 0x08;
pub const ERROR: u8 = 0x40;
pub const PROTOBUF: u8 = 0x80;

/// Bits of the eleventh byte.
pub const STREAM: u8 = 0x01;
pub const STOP: u8 = 0x02;
pub const PING: u8 = 0x04;
pub const PONG: u8 = 0x08;

/// The longest context (status and headers) of a response, like [`MAX_BLOCK`] of CGI.
///
/// [`MAX_BLOCK`]: crate::engines::cgi::response::MAX_BLOCK
const MAX_CONTEXT: u32 = 256 * 1024;

/// The longest control message or error. Stack traces can be long.
const MAX_MESSAGE: u32 = 1024 * 1024;

/// A part of a worker's output.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// Bytes that belong to no frame.
    Noise(Bytes),
    /// A complete control frame.
    Control(Bytes),
    /// A complete error frame.
    Error(Bytes),
    /// A payload frame begins. Its body follows, then [`Item::End`].
    Payload(Payload),
    /// A piece of a payload's body.
    Body(Bytes),
    /// The payload frame is complete.
    End,
}

/// The beginning of a payload frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    pub flags: u8,
    pub stream: u8,
    pub context: Bytes,
    pub body_len: u32,
}

/// Why the output cannot be a worker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    Checksum,
    HeaderLength(u8),
    Options(u8),
    ContextBeyondPayload { context: u32, payload: u32 },
    ContextLength(u32),
    MessageLength(u32),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Checksum => f.write_str("a frame header has a wrong checksum"),
            FrameError::HeaderLength(words) => {
                write!(f, "a frame header of {words} words; expected 3 or 4")
            }
            FrameError::Options(count) => {
                write!(f, "a payload frame has {count} options; expected 1")
            }
            FrameError::ContextBeyondPayload { context, payload } => write!(
                f,
                "a frame of {payload} bytes says that {context} of them are its context"
            ),
            FrameError::ContextLength(len) => write!(
                f,
                "a frame has a context of {len} bytes; at most {MAX_CONTEXT} are allowed"
            ),
            FrameError::MessageLength(len) => write!(
                f,
                "a control or error frame has {len} bytes; at most {MAX_MESSAGE} are allowed"
            ),
        }
    }
}

/// Splits a worker's output into items. Holds at most one header, context or message, and what was
/// added at once.
#[derive(Debug, Default)]
pub struct Parser {
    buffer: BytesMut,
    state: State,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Between,
    /// The header is complete.
    Header(Header),
    /// So many bytes of a body are missing.
    Body(u32),
}

#[derive(Debug, Clone, Copy)]
struct Header {
    flags: u8,
    stream: u8,
    options: u8,
    payload: u32,
}

impl Parser {
    /// The buffer for new output.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.buffer.reserve(ROOM);
        &mut self.buffer
    }

    /// The next item; `None` if more output is needed. After an error the rest is meaningless.
    pub fn item(&mut self) -> Result<Option<Item>, FrameError> {
        loop {
            match self.state {
                State::Between => match self.find()? {
                    FoundFrame::Header(header) => self.state = State::Header(header),
                    FoundFrame::Noise(noise) => return Ok(Some(Item::Noise(noise))),
                    FoundFrame::Nothing => return Ok(None),
                },
                State::Header(header) => return self.begin(header),
                State::Body(0) => {
                    self.state = State::Between;
                    return Ok(Some(Item::End));
                }
                State::Body(missing) => {
                    if self.buffer.is_empty() {
                        return Ok(None);
                    }
                    let len = self.buffer.len().min(missing as usize);
                    self.state = State::Body(missing - len as u32);
                    return Ok(Some(Item::Body(self.buffer.split_to(len).freeze())));
                }
            }
        }
    }

    /// Whether a frame has begun and not ended.
    pub fn is_inside_frame(&self) -> bool {
        !matches!(self.state, State::Between) || matches!(self.buffer.first(), Some(0x13 | 0x14))
    }

    /// The rest of the output after its end, if it is noise.
    pub fn rest(&mut self) -> Bytes {
        match self.is_inside_frame() {
            true => Bytes::new(),
            false => self.buffer.split().freeze(),
        }
    }

    fn find(&mut self) -> Result<FoundFrame, FrameError> {
        let begin = self.buffer.iter().position(|byte| is_begin(*byte));
        match begin {
            None if self.buffer.is_empty() => return Ok(FoundFrame::Nothing),
            Some(0) => {}
            _ => {
                let len = begin.unwrap_or(self.buffer.len());
                return Ok(FoundFrame::Noise(self.buffer.split_to(len).freeze()));
            }
        }
        let Some(bytes) = self.buffer.first_chunk::<HEADER>() else {
            return Ok(FoundFrame::Nothing);
        };
        let [first, flags, a, b, c, d, e, f, g, h, stream, reserved] = *bytes;
        let words = first & 0x0f;
        let is_right = u32::from_le_bytes([e, f, g, h]) == checksum(&bytes[..6]);
        let header = Header {
            flags,
            stream,
            options: words.saturating_sub(3),
            payload: u32::from_le_bytes([a, b, c, d]),
        };
        match words {
            3 | 4 if is_right => {
                self.buffer.advance(HEADER);
                Ok(FoundFrame::Header(header))
            }
            3 | 4 if has_usual_bits(flags, stream, reserved) => Err(FrameError::Checksum),
            _ if is_right => Err(FrameError::HeaderLength(words)),
            _ => Ok(FoundFrame::Noise(self.buffer.split_to(1).freeze())),
        }
    }

    /// Reads what follows the header, up to the body.
    fn begin(&mut self, header: Header) -> Result<Option<Item>, FrameError> {
        let options = 4 * usize::from(header.options);
        if header.flags & (CONTROL | ERROR) != 0 {
            if header.payload > MAX_MESSAGE {
                return Err(FrameError::MessageLength(header.payload));
            }
            if self.buffer.len() < options + header.payload as usize {
                return Ok(None);
            }
            self.buffer.advance(options);
            self.state = State::Between;
            let message = self.buffer.split_to(header.payload as usize).freeze();
            return Ok(Some(match header.flags & CONTROL {
                0 => Item::Error(message),
                _ => Item::Control(message),
            }));
        }
        if header.options != 1 {
            return Err(FrameError::Options(header.options));
        }
        let Some(context) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let context = u32::from_le_bytes(*context);
        let Some(body_len) = header.payload.checked_sub(context) else {
            let payload = header.payload;
            return Err(FrameError::ContextBeyondPayload { context, payload });
        };
        if context > MAX_CONTEXT {
            return Err(FrameError::ContextLength(context));
        }
        if self.buffer.len() < options + context as usize {
            return Ok(None);
        }
        self.buffer.advance(options);
        self.state = State::Body(body_len);
        Ok(Some(Item::Payload(Payload {
            flags: header.flags,
            stream: header.stream,
            context: self.buffer.split_to(context as usize).freeze(),
            body_len,
        })))
    }
}

/// How many bytes to read at once.
const ROOM: usize = 64 * 1024;

enum FoundFrame {
    Header(Header),
    Noise(Bytes),
    Nothing,
}

/// Whether a frame may begin with this byte: version 1, and a header of 3 to 13 words.
fn is_begin(byte: u8) -> bool {
    (0x13..=0x1d).contains(&byte)
}

/// Whether these bytes are those of a frame that workers send. Text never has them all, so a wrong
/// checksum next to them is an error and not noise.
fn has_usual_bits(flags: u8, stream: u8, reserved: u8) -> bool {
    const FLAGS: [u8; 7] = [0, CONTROL, CONTROL | JSON, ERROR, RAW, JSON, PROTOBUF];
    FLAGS.contains(&flags) && stream < 0x10 && reserved == 0
}

/// Appends a frame with a context and the beginning of its body, which is `body_len` bytes long.
/// `None` if the frame would be too long.
pub fn put_payload(
    into: &mut Vec<u8>,
    flags: u8,
    context: &[u8],
    body: &[u8],
    body_len: u64,
) -> Option<()> {
    let payload = u32::try_from(context.len() as u64 + body_len).ok()?;
    let context_len = u32::try_from(context.len()).ok()?;
    put_header(into, 4, flags, payload, 0);
    into.extend_from_slice(&context_len.to_le_bytes());
    into.extend_from_slice(context);
    into.extend_from_slice(body);
    Some(())
}

/// Appends a control frame with a short JSON text.
pub fn put_control(into: &mut Vec<u8>, json: &str) {
    put_header(into, 3, CONTROL | JSON, json.len() as u32, 0);
    into.extend_from_slice(json.as_bytes());
}

/// Appends a frame that consists of bits of the eleventh byte: [`STOP`] or [`PONG`].
pub fn put_bits(into: &mut Vec<u8>, bits: u8) {
    put_header(into, 3, 0, 0, bits);
}

fn put_header(into: &mut Vec<u8>, words: u8, flags: u8, payload: u32, stream: u8) {
    let begin = into.len();
    into.extend_from_slice(&[0x10 | words, flags]);
    into.extend_from_slice(&payload.to_le_bytes());
    let checksum = checksum(&into[begin..]);
    into.extend_from_slice(&checksum.to_le_bytes());
    into.extend_from_slice(&[stream, 0]);
}

/// CRC-32 (ISO 3309), as PHP's `crc32()` computes it.
fn checksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    let step = |sum: u32, byte: &u8| TABLE[usize::from(sum as u8 ^ byte)] ^ (sum >> 8);
    !bytes.iter().fold(!0, step)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut value = at as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 {
                0xedb8_8320 ^ (value >> 1)
            } else {
                value >> 1
            };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
