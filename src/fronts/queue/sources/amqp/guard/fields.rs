//! Checks the properties and tables of AMQP 0-9-1 before lapin parses them.
//!
//! lapin parses nested tables by recursion without a limit, and ends the connection if it cannot
//! parse something. So what passes here must be parsed there.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

/// How deep tables and arrays may be nested. RabbitMQ's own headers have four levels.
pub const MAX_DEPTH: usize = 32;

/// The header with the reason of a message that is not read, or is buried.
pub const REASON: &str = "surus-reason";
/// The header with the properties that are not read, as bytes.
pub const UNREAD: &str = "surus-unread";

/// Why properties or a table are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    Depth,
    Text,
    Type(u8),
    /// A length goes beyond its table, or something follows the end.
    Length,
    /// The properties are longer than this.
    Long(usize),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Depth => write!(
                f,
                "its headers are nested more than {MAX_DEPTH} levels deep"
            ),
            Unread::Text => f.write_str("the text of a property or a header's name is not UTF-8"),
            Unread::Type(kind) => write!(f, "a header has the unknown type {kind:#04x}"),
            Unread::Length => f.write_str("its properties contradict their lengths"),
            Unread::Long(max) => write!(f, "its properties are longer than {max} bytes"),
        }
    }
}

/// Bytes that have not been read yet.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Unread> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Unread::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn u8(&mut self) -> Result<u8, Unread> {
        Ok(self.take(1)?[0])
    }

    pub fn u16(&mut self) -> Result<u16, Unread> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn long(&mut self) -> Result<Fields<'a>, Unread> {
        let len = self.take(4)?;
        let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]);
        Ok(Fields(self.take(len as usize)?))
    }

    /// A text of up to 255 bytes, which may not be UTF-8.
    pub fn short(&mut self) -> Result<&'a [u8], Unread> {
        let len = self.u8()?;
        self.take(len.into())
    }

    fn text(&mut self) -> Result<(), Unread> {
        let text = self.short()?;
        std::str::from_utf8(text).map_err(|_| Unread::Text)?;
        Ok(())
    }

    /// A table that may have this number of levels.
    pub fn table(&mut self, levels: usize) -> Result<(), Unread> {
        let levels = levels.checked_sub(1).ok_or(Unread::Depth)?;
        let mut table = self.long()?;
        while !table.0.is_empty() {
            table.text()?;
            table.value(levels)?;
        }
        Ok(())
    }

    fn value(&mut self, levels: usize) -> Result<(), Unread> {
        let fixed = match self.u8()? {
            b'V' => 0,
            b't' | b'b' | b'B' => 1,
            b's' | b'U' | b'u' => 2,
            b'I' | b'i' | b'f' => 4,
            b'D' => 5,
            b'L' | b'l' | b'd' | b'T' => 8,
            b'S' | b'x' => {
                self.long()?;
                0
            }
            b'F' => {
                self.table(levels)?;
                0
            }
            b'A' => {
                let levels = levels.checked_sub(1).ok_or(Unread::Depth)?;
                let mut array = self.long()?;
                while !array.0.is_empty() {
                    array.value(levels)?;
                }
                0
            }
            other => return Err(Unread::Type(other)),
        };
        self.take(fixed)?;
        Ok(())
    }
}

/// The kinds of the properties of a message, in their order.
#[derive(Clone, Copy)]
enum Property {
    Text,
    Table,
    Octet,
    Time,
}

const PROPERTIES: [Property; 14] = {
    use Property::{Octet, Table, Text, Time};
    [
        Text, Text, Table, Octet, Octet, Text, Text, Text, Text, Time, Text, Text, Text, Text,
    ]
};

/// Checks the properties of a message, from their flags on.
pub fn check(properties: &[u8]) -> Result<(), Unread> {
    let mut fields = Fields(properties);
    let flags = fields.u16()?;
    for (bit, property) in PROPERTIES.iter().enumerate() {
        if flags & (0x8000 >> bit) == 0 {
            continue;
        }
        match property {
            Property::Text => fields.text()?,
            Property::Table => fields.table(MAX_DEPTH)?,
            Property::Octet => fields.take(1).map(drop)?,
            Property::Time => fields.take(8).map(drop)?,
        }
    }
    // The last flag says that more follow, which AMQP 0-9-1 does not have.
    match fields.0.is_empty() && flags & 1 == 0 {
        true => Ok(()),
        false => Err(Unread::Length),
    }
}

/// Properties that keep unread ones as bytes in a header, as far as `max` allows, next to the
/// reason.
pub fn kept(unread: &[u8], why: Unread, max: usize) -> Bytes {
    let why = why.to_string();
    let mut table = BytesMut::new();
    let mut header = |name: &str, kind: u8, value: &[u8]| {
        table.put_u8(name.len() as u8);
        table.put_slice(name.as_bytes());
        table.put_u8(kind);
        table.put_u32(value.len() as u32);
        table.put_slice(value);
    };
    header(REASON, b'S', why.as_bytes());
    header(UNREAD, b'x', &unread[..unread.len().min(max)]);
    let mut properties = BytesMut::new();
    properties.put_u16(0x2000);
    properties.put_u32(table.len() as u32);
    properties.put_slice(&table);
    properties.freeze()
}
