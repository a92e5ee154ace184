//! Fuzzes the parser of frames with the output of a worker: no panic, no byte lost, few bytes kept.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use surus::engines::external::roadrunner::frame::{Item, Parser};
use surus::engines::external::roadrunner::response;

fuzz_target!(|bytes: &[u8]| {
    let mut parser = Parser::default();
    let mut body_len = 0_u64;
    let mut noise = 0;
    // The first byte says how much arrives at once.
    let Some((at_once, output)) = bytes.split_first() else {
        return;
    };
    for piece in output.chunks(usize::from(*at_once).max(1)) {
        parser.buffer().extend_from_slice(piece);
        loop {
            match parser.item() {
                Ok(Some(Item::Noise(piece))) => {
                    assert!(!piece.is_empty());
                    noise += piece.len();
                }
                Ok(Some(Item::Payload(payload))) => {
                    body_len = payload.body_len.into();
                    let _ = response::is_stop(&payload.context, payload.body_len);
                    read(payload.flags, payload.context);
                }
                Ok(Some(Item::Body(piece))) => {
                    assert!(!piece.is_empty());
                    body_len = body_len.checked_sub(piece.len() as u64).unwrap();
                }
                Ok(Some(Item::End)) => assert_eq!(body_len, 0),
                Ok(Some(Item::Control(_) | Item::Error(_))) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    assert!(noise <= output.len());
    read(bytes[0], Bytes::copy_from_slice(output));
});

fn read(flags: u8, context: Bytes) {
    let Ok(context) = response::parse(flags, &context) else {
        return;
    };
    assert!((100..600).contains(&context.parts.status.as_u16()));
    for (name, value) in &context.parts.headers {
        assert!(!name.as_str().is_empty());
        assert!(value.as_bytes().iter().all(|c| *c >= 0x20 && *c != 0x7f || *c == b'\t'));
    }
}
