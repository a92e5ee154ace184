//! The little of protobuf that http.v1 needs: length-delimited fields, varints and maps.

/// Field 1 of an entry of a map, and field 2.
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;
const FIXED32: u64 = 5;

/// Appends a string, bytes or a message.
pub fn put_bytes(into: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(into, u64::from(field) << 3 | LENGTH);
    put_varint(into, bytes.len() as u64);
    into.extend_from_slice(bytes);
}

/// Appends a bool, if it is true.
pub fn put_bool(into: &mut Vec<u8>, field: u32, value: bool) {
    if value {
        put_varint(into, u64::from(field) << 3 | VARINT);
        into.push(1);
    }
}

/// Appends an entry of a `map<string, HeaderValue>`.
pub fn put_values<'a>(
    into: &mut Vec<u8>,
    field: u32,
    name: &str,
    values: impl Iterator<Item = &'a [u8]>,
) {
    let mut list = Vec::new();
    for value in values {
        put_bytes(&mut list, 1, value);
    }
    let mut entry = Vec::with_capacity(name.len() + list.len() + 8);
    put_bytes(&mut entry, KEY, name.as_bytes());
    put_bytes(&mut entry, VALUE, &list);
    put_bytes(into, field, &entry);
}

fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValue<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A value of a type that http.v1 does not use.
    Other,
}

/// The fields of a message in their order. Ends with `Err` at bytes that are not a message.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Fields<'a> {
        Fields(message)
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u32, FieldValue<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            VARINT => FieldValue::Varint(self.varint()?),
            LENGTH => {
                let len = self.varint()?;
                FieldValue::Bytes(self.take(len)?)
            }
            FIXED64 => self.take(8).map(|_| FieldValue::Other)?,
            FIXED32 => self.take(4).map(|_| FieldValue::Other)?,
            _ => return None,
        };
        let field = u32::try_from(tag >> 3).ok().filter(|field| *field > 0)?;
        Some((field, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, FieldValue<'a>), Invalid>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(Invalid);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Bytes that are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid;

/// The key and the values of an entry of a `map<string, HeaderValue>`.
pub fn values(entry: &[u8]) -> Result<(&[u8], Vec<&[u8]>), Invalid> {
    let (mut name, mut list) = (&[][..], Vec::new());
    for field in Fields::new(entry) {
        match field? {
            (KEY, FieldValue::Bytes(bytes)) => name = bytes,
            (VALUE, FieldValue::Bytes(message)) => {
                list.clear();
                for field in Fields::new(message) {
                    if let (1, FieldValue::Bytes(bytes)) = field? {
                        list.push(bytes);
                    }
                }
            }
            _ => {}
        }
    }
    Ok((name, list))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_have_the_bytes_of_the_specification() {
        // "Encoding" of protobuf.dev: field 1 is 150, field 2 is "testing".
        let fields: Vec<_> = Fields::new(b"\x08\x96\x01\x12\x07testing")
            .map(Result::unwrap)
            .collect();
        assert_eq!(
            fields,
            [
                (1, FieldValue::Varint(150)),
                (2, FieldValue::Bytes(b"testing"))
            ]
        );
        let mut text = Vec::new();
        put_bytes(&mut text, 2, b"testing");
        assert_eq!(text, b"\x12\x07testing");
    }

    #[test]
    fn truncated_message_is_invalid() {
        for message in [
            &b"\x12\x07test"[..],
            b"\x08",
            b"\x08\xff",
            b"\x0b",
            b"\x00\x01",
        ] {
            assert!(
                Fields::new(message).any(|field| field.is_err()),
                "{message:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn map_entry_survives_encoding_and_decoding(
            name in "[a-zA-Z-]{0,300}",
            list in prop::collection::vec(any::<Vec<u8>>(), 0..5),
        ) {
            let mut message = Vec::new();
            put_values(&mut message, 5, &name, list.iter().map(Vec::as_slice));
            let fields: Vec<_> = Fields::new(&message).map(Result::unwrap).collect();
            let [(5, FieldValue::Bytes(entry))] = fields[..] else { panic!("{fields:?}") };
            let (found, values) = values(entry).unwrap();
            prop_assert_eq!(found, name.as_bytes());
            prop_assert_eq!(values, list.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }

        #[test]
        fn arbitrary_message_ends(message: Vec<u8>) {
            for field in Fields::new(&message) {
                if let Ok((_, FieldValue::Bytes(entry))) = field {
                    let _ = values(entry);
                }
            }
        }
    }
}
