//! Fuzzes the load generator's response reader: no panic, no more bytes than it got, and the same
//! response however it is cut into pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use surus_load::response::{HeaderSection, ReadProgress, Reader};

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let whole = read(bytes, usize::MAX);
    let pieces = read(bytes, usize::from(size).max(1));
    assert_eq!(whole, pieces);
});

/// The head, the body and how many bytes were used; `None` for an invalid response.
fn read(bytes: &[u8], size: usize) -> Option<(Option<HeaderSection>, Vec<u8>, usize)> {
    let mut reader = Reader::new(true);
    reader.begin(false, true);
    let (mut head, mut used) = (None, 0);
    for piece in bytes.chunks(size) {
        let mut begin = 0;
        while begin < piece.len() && !reader.is_done() {
            let (count, progress) = reader.read(&piece[begin..]).ok()?;
            assert!(count <= piece.len() - begin);
            begin += count;
            if let ReadProgress::Header(new) = progress {
                head = Some(new);
            }
        }
        used += begin;
    }
    Some((head, reader.body.clone(), used))
}
