//! Fuzzes the header block of a script: nothing becomes what HTTP cannot carry.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use surus::engines::cgi::response::{find_end, parse};

fuzz_target!(|bytes: &[u8]| {
    let block = match find_end(bytes) {
        Some((end, empty)) => {
            assert!(end + empty <= bytes.len());
            &bytes[..end]
        }
        None => bytes,
    };
    let block = Bytes::copy_from_slice(block);
    let Ok((parts, _)) = parse(&block) else { return };
    assert!((200..1000).contains(&parts.status.as_u16()));
    for (name, value) in &parts.headers {
        assert!(!name.as_str().is_empty());
        assert!(value.as_bytes().iter().all(|c| *c >= 0x20 && *c != 0x7f || *c == b'\t'));
    }
});
