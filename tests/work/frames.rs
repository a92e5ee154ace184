//! Frames of AMQP 0-9-1, for a client and a server that send what others do not.

use std::io::{self, Read};
use std::net::TcpStream;

pub const METHOD: u8 = 1;
pub const HEADER: u8 = 2;
pub const BODY: u8 = 3;

pub struct Frame {
    pub kind: u8,
    pub channel: u16,
    pub payload: Vec<u8>,
}

impl Frame {
    /// Class and method, and the arguments.
    pub fn method(&self) -> ([u8; 2], &[u8]) {
        match (&self.payload[..], self.kind) {
            ([0, class, 0, method, args @ ..], METHOD) => ([*class, *method], args),
            _ => ([0, 0], &[]),
        }
    }
}

pub fn read(stream: &mut TcpStream) -> io::Result<Frame> {
    let mut head = [0; 7];
    stream.read_exact(&mut head)?;
    let [kind, high, low, len @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes(len) as usize + 1];
    stream.read_exact(&mut payload)?;
    assert_eq!(payload.pop(), Some(0xce));
    Ok(Frame {
        kind,
        channel: u16::from_be_bytes([high, low]),
        payload,
    })
}

pub fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(channel.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes.push(0xce);
    bytes
}

pub fn method(channel: u16, [class, method]: [u8; 2], args: &[u8]) -> Vec<u8> {
    frame(METHOD, channel, &[&[0, class, 0, method], args].concat())
}

pub fn header(channel: u16, len: u64, properties: &[u8]) -> Vec<u8> {
    let payload = [&[0, 60, 0, 0], &len.to_be_bytes()[..], properties].concat();
    frame(HEADER, channel, &payload)
}

pub fn short(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

pub fn long(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// The text at the beginning of arguments.
pub fn first_text(args: &[u8]) -> String {
    let len = usize::from(args[0]);
    String::from_utf8(args[1..1 + len].to_vec()).unwrap()
}

/// Properties with a header of nested arrays, this many levels deep.
pub fn nested(levels: u32) -> Vec<u8> {
    let mut value = Vec::new();
    for level in (0..levels).rev() {
        value.push(b'A');
        value.extend((5 * level).to_be_bytes());
    }
    let table = [short("deep"), value].concat();
    [&[0x20, 0][..], &long(&table)].concat()
}
