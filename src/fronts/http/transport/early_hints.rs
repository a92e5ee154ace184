//! Early hints over HTTP/1.1, and the rest of them for which the socket has no room.

use std::io;

use http::{HeaderMap, header};

use crate::budget::{MEMORY, Reservation};

/// Bytes of early hints that may wait for a slow client.
const MAX_HINTS: usize = 16 << 10;

/// A `103 Early Hints` response (RFC 8297), and its memory. None if it is long, or has no room.
pub fn response(headers: &HeaderMap) -> Option<(Vec<u8>, Reservation)> {
    let mut text = b"HTTP/1.1 103 Early Hints\r\n".to_vec();
    for value in headers.get_all(header::LINK) {
        text.extend_from_slice(b"link: ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    let is_short = text.len() <= MAX_HINTS;
    let taken = is_short.then(|| MEMORY.try_take(text.len() as u64));
    Some((text, taken??))
}

/// The rest of early hints that the socket did not take; sent before anything else.
pub struct PendingHints {
    pub rest: Vec<u8>,
    /// The memory of the rest.
    _taken: Reservation,
}

impl PendingHints {
    pub const NONE: PendingHints = PendingHints {
        rest: Vec::new(),
        _taken: Reservation::none(&MEMORY),
    };

    /// Writes hints and keeps what is not taken. False if others wait.
    pub fn send(
        &mut self,
        (text, mut taken): (Vec<u8>, Reservation),
        write: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> bool {
        if !self.rest.is_empty() {
            return false;
        }
        let Ok(n) = write(&text) else {
            return false;
        };
        if n < text.len() {
            let rest = text[n..].to_vec();
            taken.shrink_to(rest.len() as u64);
            *self = PendingHints {
                rest,
                _taken: taken,
            };
        }
        true
    }
}
