//! Fuzzes what a compromised front end sends to the keeper and to the opener: it is one of their
//! messages, or rejected. The same holds for the list of pages in a message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus::app::site::file_opener;
use surus::engines::learned::{self, Learned};
use surus::keeper::message::{KeeperReply, KeeperRequest};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = KeeperRequest::decode(bytes) {
        assert_eq!(request.encode(), bytes);
        if let KeeperRequest::Pages { text, .. } = &request {
            check_pages(text);
        }
    }
    // Also without the head of a message, which few inputs have.
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_pages(text);
    }
    if let Ok(reply) = KeeperReply::decode(bytes) {
        assert_eq!(KeeperReply::decode(&reply.encode()), Ok(reply));
    }
    file_opener::is_question(bytes);
});

/// The keeper writes as root what it accepts as a list of pages, and reads it at the next start.
fn check_pages(text: &str) {
    let Ok(pages) = learned::parse(text) else {
        return;
    };
    assert!(pages.len() <= learned::MOST_PAGES);
    assert_eq!(learned::parse(&learned::text(&pages)).ok().as_ref(), Some(&pages));
    for hosts in [Vec::new(), vec!["a".to_owned()]] {
        let learned = Learned::of_hosts(hosts);
        let is_own = pages.iter().all(|page| learned.has_own_host(page));
        assert_eq!(learned.parse(text).ok().as_ref(), is_own.then_some(&pages));
    }
}
