//! Decides by content whether a file is private, if its name is ambiguous.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use surus_sys::regular_file;

use super::{Class, PrivateFileRule, Purpose};

impl Class {
    /// Whether the content shows that the file is not private despite its name. `content` is read
    /// only if it matters.
    pub fn excuses(&self, content: impl Read, purpose: Purpose) -> bool {
        match (self.rule, purpose) {
            (
                PrivateFileRule::BothIfPrivateKey {
                    or_short,
                    or_packed,
                },
                _,
            ) => !is_private_key(content, or_short, or_packed),
            (PrivateFileRule::UnpackagedIfPrivateKey, _) => !is_private_key(content, false, false),
            (PrivateFileRule::BothIfCoreDump, _) => !is_core_dump(content),
            (PrivateFileRule::BothUnlessPublic, Purpose::Packaging) => {
                let text = beginning(content);
                is_public(&text) && !has_private_key(&text)
            }
            _ => false,
        }
    }
}

const PRIVATE_KEY: &str = "PRIVATE KEY";

fn is_public(text: &str) -> bool {
    text.contains("CERTIFICATE-----") || text.contains("PUBLIC KEY-----")
}

/// Whether a text contains a private key of OpenSSL, OpenSSH, GnuPG, age, PuTTY or WireGuard.
fn has_private_key(text: &str) -> bool {
    let marks = [PRIVATE_KEY, "AGE-SECRET-KEY-", "PuTTY-User-Key-File-"];
    let is_setting = |line: &str| {
        let value = line.trim_start().strip_prefix("PrivateKey");
        value.is_some_and(|value| value.trim_start().starts_with('='))
    };
    marks.iter().any(|mark| text.contains(mark)) || text.lines().any(is_setting)
}

/// A regular file that is opened when it is first read. Other files, such as pipes, could block the
/// reader.
pub struct Unopened<'a>(&'a Path, Option<File>);

impl Clone for Unopened<'_> {
    fn clone(&self) -> Self {
        Unopened::new(self.0)
    }
}

impl<'a> Unopened<'a> {
    pub fn new(path: &'a Path) -> Unopened<'a> {
        Unopened(path, None)
    }
}

impl Read for Unopened<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let file = match &mut self.1 {
            Some(file) => file,
            None => self.1.insert(regular_file::open(self.0)?),
        };
        file.read(buffer)
    }
}

/// A file that other code has open; its offset does not change.
#[derive(Clone)]
pub struct Shared<'a>(&'a File, u64);

impl<'a> Shared<'a> {
    pub fn new(file: &'a File) -> Shared<'a> {
        Shared(file, 0)
    }
}

impl Read for Shared<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read_at(buffer, self.1)?;
        self.1 += length as u64;
        Ok(length)
    }
}

/// The beginning of a file, long enough for keys and certificate bundles.
fn beginning(content: impl Read) -> String {
    let mut bytes = Vec::new();
    // A file that cannot be read counts as a key, so that an error exposes nothing.
    match content.take(1 << 19).read_to_end(&mut bytes) {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => PRIVATE_KEY.to_owned(),
    }
}

/// How much is read of a file with an ambiguous name. More is read only of a text file.
const HEAD: u64 = 1024;

/// A compressed file or archive from this size on holds more than a key, such as a Keynote document
/// or the certificates of many authorities.
const PACKED: u64 = 16 << 10;

fn is_private_key(mut content: impl Read, or_short: bool, or_packed: bool) -> bool {
    let mut head = Vec::new();
    let limit = if or_packed { PACKED } else { HEAD };
    // As in `beginning`, an error exposes nothing.
    match content.by_ref().take(limit).read_to_end(&mut head) {
        Ok(_) if is_key_in_der(&head) => true,
        Ok(_) if or_short && is_short_key(&head) => true,
        Ok(length) if or_packed && (length as u64) < PACKED && is_packed(&head) => true,
        Ok(_) if head.contains(&0) => false,
        Ok(_) => has_private_key(&beginning(head.as_slice().chain(content))),
        Err(_) => true,
    }
}

/// Whether a file begins like one of gzip, bzip2, xz, zstd, lz4, lzma, compress, zip, 7z or rar.
fn is_packed(bytes: &[u8]) -> bool {
    const BEGINNINGS: &[&[u8]] = &[
        b"\x1f\x8b",
        b"BZh",
        b"\xfd7zXZ",
        b"\x28\xb5\x2f\xfd",
        b"\x04\x22\x4d\x18",
        b"\x5d\0\0",
        b"\x1f\x9d",
        b"PK",
        b"7z\xbc\xaf",
        b"Rar!",
    ];
    BEGINNINGS
        .iter()
        .any(|beginning| bytes.starts_with(beginning))
}

/// Whether a file is in the format of Linux's core dumps. An error exposes nothing.
fn is_core_dump(content: impl Read) -> bool {
    let mut head = Vec::new();
    match content.take(4).read_to_end(&mut head) {
        Ok(_) => head == b"\x7fELF",
        Err(_) => true,
    }
}

/// Whether a `.key` file is as short as a raw key in binary, base64 or hexadecimal. HLS keys have
/// 16 bytes; players need them.
fn is_short_key(bytes: &[u8]) -> bool {
    !matches!(bytes.len(), 0 | 16 | 257..) && !is_public(&String::from_utf8_lossy(bytes))
}

/// Whether a file begins like binary PKCS #1, PKCS #8 or SEC 1: a sequence that starts with a
/// version, or with the encryption algorithm.
fn is_key_in_der(bytes: &[u8]) -> bool {
    let content = match bytes {
        // A shorter sequence is not a private key, but may be the raw bytes of another one, such as
        // for HLS.
        [0x30, 0x20..=0x7f, content @ ..]
        | [0x30, 0x81, _, content @ ..]
        | [0x30, 0x82, _, _, content @ ..] => content,
        _ => return false,
    };
    match content {
        [0x02, 0x01, version, ..] => *version <= 2,
        [0x30, 0x00..=0x7f, 0x06, ..] | [0x30, 0x81, _, 0x06, ..] => true,
        _ => false,
    }
}
