//! Checks what a server sends, and takes bodies out that are too long.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{BufMut, Bytes, BytesMut};

use super::bodies::{Arriving, Bodies};
use super::fields::{self, Fields, MAX_DEPTH, Unread};
use super::frame::{self, BODY, Frame, HEADER, METHOD, Wrong};

/// Room in a content header for what is added to the message when it is buried.
const ROOM: usize = 4096;

/// How many channels may be within the content of a message.
const MAX_AT_ONCE: usize = 64;

/// Class and method.
const START: (u16, u16) = (10, 10);
const RETURN: (u16, u16) = (60, 50);
const DELIVER: (u16, u16) = (60, 60);
const GET_OK: (u16, u16) = (60, 71);

/// Methods of clients with tables, which lapin would parse.
const OF_CLIENTS: [(u16, u16); 8] = [
    (10, 11),
    (40, 10),
    (40, 30),
    (40, 40),
    (50, 10),
    (50, 20),
    (50, 50),
    (60, 20),
];

/// The bytes of a content header before its properties: class, weight and length of the body.
const BEFORE_PROPERTIES: usize = 12;

/// The frames that the server sends, on their way to lapin.
#[derive(Debug)]
pub struct Incoming {
    bodies: Arc<Bodies>,
    connection: u64,
    /// The longest frame that both sides have agreed on.
    frame_max: Arc<AtomicU32>,
    /// The longest body that lapin gets.
    max_body: u64,
    raw: BytesMut,
    /// What lapin may read.
    pub ready: BytesMut,
    contents: HashMap<u16, Content>,
}

/// What a channel must receive next.
#[derive(Debug)]
enum Content {
    /// A header, of a message that the server returns to its publisher or not.
    Header { is_returned: bool },
    /// So many bytes of a body that lapin gets.
    Body(u64),
    /// So many bytes of a body that lapin does not get.
    Long { left: u64, kept: Option<Kept> },
}

#[derive(Debug)]
struct Kept {
    properties: Bytes,
    body: Arriving,
}

impl Incoming {
    pub fn new(bodies: Arc<Bodies>, frame_max: Arc<AtomicU32>, max_body: u64) -> Incoming {
        Incoming {
            connection: bodies.connect(),
            bodies,
            frame_max,
            max_body,
            raw: BytesMut::new(),
            ready: BytesMut::new(),
            contents: HashMap::new(),
        }
    }

    /// Takes bytes of the server. After an error the connection is of no use.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Wrong> {
        self.raw.extend_from_slice(bytes);
        let max = self.max_frame();
        while let Some(frame) = frame::next(&mut self.raw, max)? {
            self.frame(&frame)?;
        }
        Ok(())
    }

    /// Checks that the stream may end here.
    pub fn end(&self) -> Result<(), Wrong> {
        match self.raw.is_empty() {
            true => Ok(()),
            false => Err(Wrong::Half),
        }
    }

    fn max_frame(&self) -> usize {
        self.frame_max.load(Ordering::Relaxed) as usize
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), Wrong> {
        match frame.kind {
            METHOD => self.method(frame),
            HEADER => self.header(frame),
            BODY => self.body(frame),
            _ if frame.payload.is_empty() => {
                self.pass(frame);
                Ok(())
            }
            _ => Err(Wrong::Frame("a heartbeat with a payload")),
        }
    }

    fn pass(&mut self, frame: &Frame) {
        frame::write(&mut self.ready, frame.kind, frame.channel, &frame.payload);
    }

    fn method(&mut self, frame: &Frame) -> Result<(), Wrong> {
        if self.contents.contains_key(&frame.channel) {
            return Err(Wrong::Frame("a method within the content of a message"));
        }
        let mut fields = Fields(&frame.payload);
        let method = (|| Ok::<_, Unread>((fields.u16()?, fields.u16()?)))();
        let method = method.map_err(|_| Wrong::Frame("a method without a number"))?;
        if OF_CLIENTS.contains(&method) {
            return Err(Wrong::Frame("a method that only clients send"));
        }
        if method == START {
            let start = fields.take(2).and_then(|_| fields.table(MAX_DEPTH));
            start.map_err(|_| Wrong::Frame("connection.start with malformed properties"))?;
        }
        if ![RETURN, DELIVER, GET_OK].contains(&method) {
            self.pass(frame);
            return Ok(());
        }
        let args = with_texts(method, &frame.payload)
            .map_err(|_| Wrong::Frame("a message without its routing key"))?;
        frame::write(&mut self.ready, frame.kind, frame.channel, &args);
        if self.contents.len() >= MAX_AT_ONCE {
            return Err(Wrong::Frame("too many messages at once"));
        }
        let is_returned = method == RETURN;
        self.contents
            .insert(frame.channel, Content::Header { is_returned });
        Ok(())
    }

    fn header(&mut self, frame: &Frame) -> Result<(), Wrong> {
        let Some(Content::Header { is_returned }) = self.contents.remove(&frame.channel) else {
            return Err(Wrong::Frame("a content header without its method"));
        };
        let payload = &frame.payload;
        let Some((head, properties)) = payload.split_at_checked(BEFORE_PROPERTIES) else {
            return Err(Wrong::Frame("a content header without a length"));
        };
        if head[..2] != [0, 60] {
            return Err(Wrong::Frame("a content header of another class"));
        }
        let len = head.last_chunk().map_or(0, |len| u64::from_be_bytes(*len));
        let max = self.max_frame();
        let max = max.saturating_sub(ROOM).max(max / 2);
        let checked = match properties.len() > max {
            true => Err(Unread::Long(max)),
            false => fields::check(properties),
        };
        let properties = match checked {
            Ok(()) => payload.slice(BEFORE_PROPERTIES..),
            Err(why) => fields::kept(properties, why, max),
        };
        if len <= self.max_body {
            self.write_header(frame.channel, len, &properties);
            if len > 0 {
                self.contents.insert(frame.channel, Content::Body(len));
            }
            return Ok(());
        }
        let kept = match is_returned {
            // Only the fact of its return is needed.
            true => {
                self.write_header(frame.channel, 0, &properties);
                None
            }
            false => Some(Kept {
                properties,
                body: Arriving::new(len),
            }),
        };
        let long = Content::Long { left: len, kept };
        self.contents.insert(frame.channel, long);
        Ok(())
    }

    fn write_header(&mut self, channel: u16, len: u64, properties: &[u8]) {
        let mut header = BytesMut::with_capacity(BEFORE_PROPERTIES + properties.len());
        header.put_u16(60);
        header.put_u16(0);
        header.put_u64(len);
        header.put_slice(properties);
        frame::write(&mut self.ready, HEADER, channel, &header);
    }

    fn body(&mut self, frame: &Frame) -> Result<(), Wrong> {
        const TOO_LONG: Wrong = Wrong::Frame("a body that is longer than its header says");
        let len = frame.payload.len() as u64;
        let channel = frame.channel;
        match self.contents.remove(&channel) {
            Some(Content::Body(left)) => {
                let left = left.checked_sub(len).ok_or(TOO_LONG)?;
                self.pass(frame);
                if left > 0 {
                    self.contents.insert(channel, Content::Body(left));
                }
            }
            Some(Content::Long { left, mut kept }) => {
                let left = left.checked_sub(len).ok_or(TOO_LONG)?;
                if let Some(kept) = &mut kept {
                    kept.body.push(&frame.payload);
                }
                // lapin must see that the server is alive.
                frame::write_heartbeat(&mut self.ready);
                if left > 0 {
                    self.contents.insert(channel, Content::Long { left, kept });
                } else if let Some(Kept { properties, body }) = kept {
                    let token = self.bodies.keep(self.connection, body);
                    self.write_header(channel, token.len() as u64, &properties);
                    frame::write(&mut self.ready, BODY, channel, &token);
                }
            }
            Some(Content::Header { .. }) | None => {
                return Err(Wrong::Frame("a body without its header"));
            }
        }
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.bodies.disconnect(self.connection);
    }
}

/// The arguments of a method that brings a message. Texts that are not UTF-8 have question marks in
/// the place of other bytes than ASCII's: lapin would end the connection.
fn with_texts(method: (u16, u16), payload: &[u8]) -> Result<Vec<u8>, Unread> {
    let mut fields = Fields(payload);
    let mut args = fields.take(4)?.to_vec();
    let text = |fields: &mut Fields, args: &mut Vec<u8>| {
        let text = fields.short()?;
        args.push(text.len() as u8);
        let is_utf8 = std::str::from_utf8(text).is_ok();
        let readable = |byte: u8| {
            if is_utf8 || byte.is_ascii() {
                byte
            } else {
                b'?'
            }
        };
        args.extend(text.iter().map(|byte| readable(*byte)));
        Ok::<_, Unread>(())
    };
    // Before the names of exchange and routing key.
    match method {
        RETURN => {
            args.extend(fields.take(2)?);
            text(&mut fields, &mut args)?;
        }
        DELIVER => {
            text(&mut fields, &mut args)?;
            args.extend(fields.take(9)?);
        }
        _ => args.extend(fields.take(9)?),
    }
    text(&mut fields, &mut args)?;
    text(&mut fields, &mut args)?;
    args.extend(fields.0);
    Ok(args)
}
