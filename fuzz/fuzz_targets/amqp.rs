//! Fuzzes the guard before lapin with the frames of a server: no panic, nothing that lapin's parser
//! rejects, and few bytes kept.

#![no_main]

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use amq_protocol::frame::parse_frame;
use libfuzzer_sys::fuzz_target;
use surus::fronts::queue::sources::amqp::guard::bodies::Bodies;
use surus::fronts::queue::sources::amqp::guard::frame::MAX_FRAME;
use surus::fronts::queue::sources::amqp::guard::incoming::Incoming;

fuzz_target!(|bytes: &[u8]| {
    // The first byte says how much arrives at once.
    let Some((at_once, sent)) = bytes.split_first() else {
        return;
    };
    let frame_max = Arc::new(AtomicU32::new(MAX_FRAME));
    let mut incoming = Incoming::new(Arc::<Bodies>::default(), frame_max, 1000);
    for piece in sent.chunks(usize::from(*at_once).max(1)) {
        if incoming.feed(piece).is_err() {
            return;
        }
        let passed = incoming.ready.split();
        // A token and a header with a reason can take the place of shorter frames.
        assert!(passed.len() <= sent.len() + 512 * (1 + sent.len() / 8));
        let mut rest = &passed[..];
        while !rest.is_empty() {
            match parse_frame(rest) {
                Ok((after, _)) => rest = after,
                // Methods other than those that bring a message come from the server alone.
                Err(_) if rest[0] == 1 => return,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
});
