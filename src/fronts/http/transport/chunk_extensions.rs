//! Finds malformed chunk extensions, which hyper skips unread.
//!
//! Follows a chunked body from its first byte to its end, as hyper does. If the body is malformed
//! in another way, hyper rejects it itself, and following it ends.

/// The position in a chunked body (RFC 9112, 7.1), and how much of the chunk is left.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chunks {
    at: ChunkPosition,
    size: u64,
}

#[derive(Debug, Clone, Copy, Default)]
enum ChunkPosition {
    #[default]
    Size,
    /// After the size, where spaces may precede an extension.
    AfterSize,
    Extension(ExtensionPart),
    Newline,
    Data,
    /// After the last chunk.
    LastCr,
    LastNewline,
    /// In trailers, after which Surus closes the connection, or after what hyper rejects.
    Done,
}

/// What bytes of a body are.
pub(super) enum ChunksRead {
    /// All are of the body.
    All,
    /// The body ends before this one.
    End(usize),
    /// No extension may contain this one. The body counts as rejected from there.
    Rejected(usize),
}

/// The position in `;name=value`.
#[derive(Debug, Clone, Copy)]
enum ExtensionPart {
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted,
    /// After a backslash.
    Escaped,
    AfterValue,
}

impl Chunks {
    /// Follows further bytes.
    pub(super) fn read(&mut self, bytes: &[u8]) -> ChunksRead {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            self.at = match (self.at, byte) {
                (ChunkPosition::Size, b'\r') | (ChunkPosition::AfterSize, b'\r') => {
                    ChunkPosition::Newline
                }
                (ChunkPosition::Size | ChunkPosition::AfterSize, b';') => {
                    ChunkPosition::Extension(ExtensionPart::BeforeName)
                }
                (ChunkPosition::Size | ChunkPosition::AfterSize, b' ' | b'\t') => {
                    ChunkPosition::AfterSize
                }
                (ChunkPosition::Size, digit) => self.digit(*digit),
                (ChunkPosition::Extension(part), byte) => match part.next(*byte) {
                    Some(next) => next,
                    None => {
                        self.at = ChunkPosition::Done;
                        return ChunksRead::Rejected(at);
                    }
                },
                (ChunkPosition::Newline, b'\n') if self.size > 0 => {
                    // Including the line end after the chunk.
                    self.size = self.size.saturating_add(2);
                    ChunkPosition::Data
                }
                (ChunkPosition::Newline, b'\n') => ChunkPosition::LastCr,
                (ChunkPosition::LastCr, b'\r') => ChunkPosition::LastNewline,
                (ChunkPosition::LastNewline, b'\n') => return ChunksRead::End(at + 1),
                (ChunkPosition::Data, _) => {
                    let rest = (bytes.len() - at) as u64;
                    let skipped = rest.min(self.size);
                    self.size -= skipped;
                    at += skipped as usize;
                    if self.size == 0 {
                        self.at = ChunkPosition::Size;
                    }
                    continue;
                }
                _ => {
                    self.at = ChunkPosition::Done;
                    return ChunksRead::All;
                }
            };
            at += 1;
        }
        ChunksRead::All
    }

    fn digit(&mut self, byte: u8) -> ChunkPosition {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        let size = digit.and_then(|digit| self.size.checked_mul(16)?.checked_add(digit));
        match size {
            Some(size) => {
                self.size = size;
                ChunkPosition::Size
            }
            None => ChunkPosition::Done,
        }
    }
}

impl ExtensionPart {
    /// The next position, or None if the byte is invalid.
    fn next(self, byte: u8) -> Option<ChunkPosition> {
        use ExtensionPart::*;
        let part = match (self, byte) {
            (Name | AfterName | Value | AfterValue, b'\r') => return Some(ChunkPosition::Newline),
            (Name | AfterName | Value | AfterValue, b';') => BeforeName,
            (Name | AfterName, b'=') => BeforeValue,
            (BeforeName | AfterName | BeforeValue | AfterValue, b' ' | b'\t') => self,
            (Name, b' ' | b'\t') => AfterName,
            (Value, b' ' | b'\t') => AfterValue,
            (BeforeValue, b'"') => Quoted,
            (BeforeName | Name, byte) if is_token(byte) => Name,
            (BeforeValue | Value, byte) if is_token(byte) => Value,
            (Quoted, b'"') => AfterValue,
            (Quoted, b'\\') => Escaped,
            (Quoted | Escaped, b'\t' | b' '..=b'~' | 0x80..) => Quoted,
            _ => return None,
        };
        Some(ChunkPosition::Extension(part))
    }
}

/// RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte that is rejected, however the body is split.
    fn refused(body: &str) -> Option<usize> {
        found(body, |read| match read {
            ChunksRead::Rejected(at) => Some(at),
            _ => None,
        })
    }

    fn found(body: &str, looked_for: fn(ChunksRead) -> Option<usize>) -> Option<usize> {
        let mut results = (1..=body.len()).map(|size| {
            let mut chunks = Chunks::default();
            let mut pieces = body.as_bytes().chunks(size).enumerate();
            pieces.find_map(|(number, piece)| Some(number * size + looked_for(chunks.read(piece))?))
        });
        let first = results.next().flatten();
        assert!(results.all(|result| result == first), "{body:?}");
        first
    }

    #[test]
    fn well_formed_extension_is_unchanged() {
        for body in [
            "5\r\nhello\r\n0\r\n\r\n",
            "5;a\r\nhello\r\n0;b\r\n\r\n",
            "5 ; a = b ;c=\"d;\\\" \u{e9}\"\r\nhello\r\n0\r\nX: ;\0\r\n\r\n",
            "a\r\n5;\0\r\n67890\r\n0\r\n\r\n",
            // hyper rejects these itself.
            "5\0\r\n",
            "five;\0\r\n",
            "5;a\rb\0\r\n",
            "10000000000000000;\0\r\n",
        ] {
            assert_eq!(refused(body), None, "{body:?}");
        }
    }

    #[test]
    fn malformed_extension_is_found() {
        for (body, at) in [
            ("5;a\0\r\nhello\r\n0\r\n\r\n", 3),
            ("5;\r\nhello\r\n", 2),
            ("5;=b\r\n", 2),
            ("5;a=\r\n", 4),
            ("5;a b\r\n", 4),
            ("5;a=b c\r\n", 6),
            ("5;a(b\r\n", 3),
            ("5;a=\"b\r\n", 6),
            ("5;a=\"b\x01\"\r\n", 6),
            ("5;a=\"b\"c\r\n", 7),
            ("5\r\nhello\r\n0;a\x7f\r\n\r\n", 13),
        ] {
            assert_eq!(refused(body), Some(at), "{body:?}");
        }
    }
    #[test]
    fn end_is_found_unless_there_are_trailers() {
        let end = |body: &str| {
            found(body, |read| match read {
                ChunksRead::End(at) => Some(at),
                _ => None,
            })
        };
        for body in [
            "0\r\n\r\n",
            "5;a\r\nhello\r\n0;b\r\n\r\n",
            "5\r\n0\r\n\r\n\r\n00\r\n\r\n",
        ] {
            assert_eq!(end(&format!("{body}GET")), Some(body.len()), "{body:?}");
        }
        for body in ["0\r\nX: y\r\n\r\nGET", "0\r\n\n\r\n", "0\n\r\n\r\n"] {
            assert_eq!(end(body), None, "{body:?}");
        }
    }
}
