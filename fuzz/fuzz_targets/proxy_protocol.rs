//! Fuzzes the PROXY header: its length and completeness are those of the connection's first bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus::fronts::http::listener::proxy_protocol::{Parsed, parse};

fuzz_target!(|bytes: &[u8]| {
    match parse(bytes) {
        Parsed::Complete(header, len) => {
            assert!(len <= bytes.len());
            assert_eq!(parse(&bytes[..len]), Parsed::Complete(header, len));
            assert!((0..len).all(|part| parse(&bytes[..part]) == Parsed::Incomplete));
        }
        Parsed::Incomplete => assert!(bytes.len() < 4096),
        Parsed::Malformed(_) => {}
    }
});
