//! FastCGI records, the protocol of php-fpm and of surus-php's workers.
//!
//! See <https://fastcgi-archives.github.io/FastCGI_Specification.html>, sections 3.3 and 3.4. Surus
//! adds three record types (`sapi/ipc/fastcgi.h`), which it never sends to php-fpm.

use bytes::{Buf, Bytes, BytesMut};

pub const HEADER_LEN: usize = 8;
/// The largest content of a record.
pub const MAX_CONTENT: usize = 65535;

pub const BEGIN_REQUEST: u8 = 1;
pub const END_REQUEST: u8 = 3;
pub const PARAMS: u8 = 4;
pub const STDIN: u8 = 5;
pub const STDOUT: u8 = 6;
pub const STDERR: u8 = 7;
pub const GET_VALUES: u8 = 9;
pub const GET_VALUES_RESULT: u8 = 10;
/// Surus's own: the first record of every request in the inbox (`struct surus_request_record`).
pub const EVENT: u8 = 128;
/// Surus's own: header lines of a 103 response.
pub const EARLY_HINTS: u8 = 129;
/// Surus's own: a worker's first record for an event, which proves that it has claimed the event.
pub const TICKET: u8 = 130;

/// `role` of BEGIN_REQUEST.
pub const RESPONDER: u8 = 1;
/// `flags` of BEGIN_REQUEST: the connection stays open.
pub const KEEP_CONN: u8 = 1;

/// `protocolStatus` of END_REQUEST: the request was dropped before it began (`FCGI_OVERLOADED`).
pub const OVERLOADED: u8 = 2;

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub kind: u8,
    pub request: u16,
    pub content: Bytes,
}

/// The data is not FastCGI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsupported FastCGI version {0}")]
pub struct WrongVersion(pub u8);

/// Takes the next complete record from `buffer`; `None` if more bytes are needed.
pub fn decode(buffer: &mut BytesMut) -> Result<Option<Record>, WrongVersion> {
    let Some(header) = buffer.first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    if header[0] != 1 {
        return Err(WrongVersion(header[0]));
    }
    let kind = header[1];
    let request = u16::from_be_bytes([header[2], header[3]]);
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let padding = usize::from(header[6]);
    if buffer.len() < HEADER_LEN + len + padding {
        buffer.reserve(HEADER_LEN + len + padding - buffer.len());
        return Ok(None);
    }
    buffer.advance(HEADER_LEN);
    let content = match len {
        0 => Bytes::new(),
        len => buffer.split_to(len).freeze(),
    };
    buffer.advance(padding);
    Ok(Some(Record {
        kind,
        request,
        content,
    }))
}

/// The eight header bytes of a record.
///
/// # Panics
/// If `len` exceeds [`MAX_CONTENT`], which the header cannot express.
pub fn header(kind: u8, request: u16, len: usize) -> [u8; HEADER_LEN] {
    assert!(len <= MAX_CONTENT, "a record of {len} bytes");
    let id = request.to_be_bytes();
    let len = (len as u16).to_be_bytes();
    [1, kind, id[0], id[1], len[0], len[1], 0, 0]
}

/// Appends a name-value pair (section 3.4).
#[inline(always)]
pub fn put_pair(to: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if name.len() < 0x80 && value.len() < 0x80 {
        to.extend_from_slice(&[name.len() as u8, value.len() as u8]);
    } else {
        put_length(to, name.len());
        put_length(to, value.len());
    }
    to.extend_from_slice(name);
    to.extend_from_slice(value);
}

fn put_length(to: &mut Vec<u8>, len: usize) {
    if len < 0x80 {
        to.push(len as u8);
    } else {
        to.extend_from_slice(&(len as u32 | 0x8000_0000).to_be_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn incomplete_record_is_not_decoded() {
        let mut bytes = header(STDOUT, 7, 3).to_vec();
        bytes.extend_from_slice(b"abc");
        for cut in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..cut]);
            assert_eq!(decode(&mut buffer), Ok(None));
            assert_eq!(buffer.len(), cut);
        }
        let mut buffer = BytesMut::from(&bytes[..]);
        let record = decode(&mut buffer).unwrap().unwrap();
        assert_eq!(
            (record.kind, record.request, &record.content[..]),
            (STDOUT, 7, &b"abc"[..])
        );
        assert!(buffer.is_empty());
    }

    #[test]
    fn padding_is_skipped() {
        let mut buffer = BytesMut::from(&[1, STDERR, 0, 1, 0, 1, 3, 0, b'x', 0, 0, 0, 1][..]);
        assert_eq!(&decode(&mut buffer).unwrap().unwrap().content[..], b"x");
        assert_eq!(&buffer[..], [1]);
    }

    #[test]
    fn unknown_version_is_rejected() {
        assert_eq!(
            decode(&mut BytesMut::from(&b"HTTP/1.1 200 OK"[..])),
            Err(WrongVersion(b'H'))
        );
    }

    #[test]
    fn pair_lengths_take_one_or_four_bytes() {
        let mut pair = Vec::new();
        put_pair(&mut pair, b"A", &[b'v'; 127]);
        assert_eq!(&pair[..3], [1, 127, b'A']);
        pair.clear();
        put_pair(&mut pair, b"A", &[b'v'; 128]);
        assert_eq!(&pair[..6], [1, 0x80, 0, 0, 128, b'A']);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_decoded_or_rejected(bytes: Vec<u8>) {
            let mut buffer = BytesMut::from(&bytes[..]);
            let mut consumed = 0;
            while let Ok(Some(record)) = decode(&mut buffer) {
                consumed += HEADER_LEN + record.content.len();
            }
            prop_assert!(consumed + buffer.len() <= bytes.len());
        }

        #[test]
        fn encoded_records_decode_to_the_same_records(records: Vec<(u8, u16, Vec<u8>)>) {
            let mut buffer = BytesMut::new();
            for (kind, request, content) in &records {
                buffer.extend_from_slice(&header(*kind, *request, content.len()));
                buffer.extend_from_slice(content);
            }
            for (kind, request, content) in records {
                let expected = Record { kind, request, content: content.into() };
                prop_assert_eq!(decode(&mut buffer).unwrap().unwrap(), expected);
            }
            prop_assert_eq!(decode(&mut buffer), Ok(None));
        }
    }
}
