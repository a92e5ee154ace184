//! Fuzzes what a compromised front end sends to the keeper and to the opener: it is one of their
//! messages, or rejected.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus::app::site::file_opener;
use surus::keeper::message::{Reply, Request};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::decode(bytes) {
        assert_eq!(request.encode(), bytes);
    }
    if let Ok(reply) = Reply::decode(bytes) {
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
    file_opener::is_question(bytes);
});
