//! Does any beginning of a connection make the PROXY header's length or completeness a lie?

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
