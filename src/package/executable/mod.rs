//! One executable that is a surus with an application and its PHP: how it is laid out.
//!
//! Behind the program is a zip. The program's record (`surus_sys::appended`) says where the zip is,
//! with its checksum.

pub mod unpack;
pub mod write;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ring::digest::{Context, SHA256};
use surus_sys::appended::{self, LENGTH, MARK_LENGTH};

/// The zip behind a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedZip {
    /// Where it begins, in bytes.
    start: u64,
    length: u64,
    sha256: [u8; 32],
}

impl AppendedZip {
    /// That of this program. None for a surus without an application.
    pub fn of_this_program() -> Option<AppendedZip> {
        AppendedZip::parse(&appended::record())
    }

    fn parse(record: &[u8; LENGTH]) -> Option<AppendedZip> {
        let (_, record) = record.split_at(MARK_LENGTH);
        let (start, record) = record.split_first_chunk()?;
        let (length, record) = record.split_first_chunk()?;
        let found = AppendedZip {
            start: u64::from_le_bytes(*start),
            length: u64::from_le_bytes(*length),
            sha256: record.try_into().ok()?,
        };
        (found.start > 0).then_some(found)
    }

    /// The record of a program with this zip.
    fn record(&self) -> [u8; LENGTH] {
        let mut record = appended::record();
        let (start, length) = (self.start.to_le_bytes(), self.length.to_le_bytes());
        let fields = [&start[..], &length, &self.sha256].concat();
        record[MARK_LENGTH..].copy_from_slice(&fields);
        record
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// The checksum of a part of a file.
fn sha256(file: &File, start: u64, length: u64) -> io::Result<[u8; 32]> {
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 1 << 18];
    let (mut at, end) = (start, start.saturating_add(length));
    while at < end {
        let most = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        match file.read_at(&mut buffer[..most], at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                context.update(&buffer[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    digest(context)
}

fn digest(context: Context) -> io::Result<[u8; 32]> {
    let digest = context.finish();
    digest.as_ref().try_into().map_err(io::Error::other)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_as_written() {
        assert_eq!(AppendedZip::of_this_program(), None);
        let zip = AppendedZip {
            start: 7,
            length: u64::MAX,
            sha256: [9; 32],
        };
        assert_eq!(AppendedZip::parse(&zip.record()), Some(zip.clone()));
        assert_eq!(zip.end(), u64::MAX);
    }

    #[test]
    fn checksum_is_that_of_the_part() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"--abc--", 0).unwrap();
        let expected = ring::digest::digest(&SHA256, b"abc");
        assert_eq!(sha256(&file, 2, 3).unwrap(), expected.as_ref());
        let error = sha256(&file, 2, 6).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
