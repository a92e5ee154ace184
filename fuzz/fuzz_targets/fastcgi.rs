//! Fuzzes the record decoder with streams of bytes: no panic, no more bytes than it got.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use surus::engines::cgi::fastcgi::{HEADER_LEN, decode};

fuzz_target!(|bytes: &[u8]| {
    let mut buffer = BytesMut::from(bytes);
    let mut used = 0;
    while let Ok(Some(record)) = decode(&mut buffer) {
        used += HEADER_LEN + record.content.len();
    }
    assert!(used + buffer.len() <= bytes.len());
});
