//! Fuzzes the parser of multipart bodies: no panic, no invented bytes.

#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use surus::engines::external::roadrunner::multipart::{PartHeaders, Parts, boundary, parse};

#[derive(Default)]
struct Counted {
    bytes: usize,
    is_open: bool,
}

impl Parts for Counted {
    fn begin(&mut self, headers: PartHeaders) -> io::Result<()> {
        assert!(!self.is_open && !headers.name.is_empty());
        assert!(headers.file_name.is_none_or(|name| !name.contains(['/', '\\'])));
        self.is_open = true;
        Ok(())
    }

    fn data(&mut self, piece: &[u8]) -> io::Result<()> {
        assert!(self.is_open);
        self.bytes += piece.len();
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        assert!(self.is_open);
        self.is_open = false;
        Ok(())
    }
}

fuzz_target!(|body: &[u8]| {
    let _ = std::str::from_utf8(body).map(boundary);
    let mut counted = Counted::default();
    if let Err(error) = parse(body, "b", &mut counted) {
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
    assert!(counted.bytes <= body.len());
});
