//! Fuzzes what a compromised front end sends to the keeper and to the opener: it is one of their
//! messages, or rejected.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus::app::site::file_opener;
use surus::keeper::message::{KeeperReply, KeeperRequest};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = KeeperRequest::decode(bytes) {
        assert_eq!(request.encode(), bytes);
    }
    if let Ok(reply) = KeeperReply::decode(bytes) {
        assert_eq!(KeeperReply::decode(&reply.encode()), Ok(reply));
    }
    file_opener::is_question(bytes);
});
