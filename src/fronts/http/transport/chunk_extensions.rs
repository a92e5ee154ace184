//! Finds malformed extensions of chunks, which hyper skips unread.
//!
//! Follows a chunked body from its first byte, as hyper does. Where a body is malformed otherwise,
//! hyper refuses it itself, and there is nothing more to follow.

/// Where in a chunked body (RFC 9112, 7.1), and what of the chunk is still to come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chunks {
    at: At,
    size: u64,
}

#[derive(Debug, Clone, Copy, Default)]
enum At {
    #[default]
    Size,
    /// Behind the size, where spaces may precede an extension.
    AfterSize,
    Extension(Part),
    Newline,
    Data,
    /// In the trailers, or in what hyper refuses.
    Done,
}

/// Where in `;name=value`.
#[derive(Debug, Clone, Copy)]
enum Part {
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    Value,
    Quoted,
    /// Behind a backslash.
    Escaped,
    AfterValue,
}

impl Chunks {
    /// Goes through more of the body. The position of the first byte that no extension has, after
    /// which the body counts as refused.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            self.at = match (self.at, byte) {
                (At::Size, b'\r') | (At::AfterSize, b'\r') => At::Newline,
                (At::Size | At::AfterSize, b';') => At::Extension(Part::BeforeName),
                (At::Size | At::AfterSize, b' ' | b'\t') => At::AfterSize,
                (At::Size, digit) => self.digit(*digit),
                (At::Extension(part), byte) => match part.next(*byte) {
                    Some(next) => next,
                    None => {
                        self.at = At::Done;
                        return Some(at);
                    }
                },
                (At::Newline, b'\n') if self.size > 0 => {
                    // With the line end behind it.
                    self.size = self.size.saturating_add(2);
                    At::Data
                }
                (At::Data, _) => {
                    let rest = (bytes.len() - at) as u64;
                    let skipped = rest.min(self.size);
                    self.size -= skipped;
                    at += skipped as usize;
                    if self.size == 0 {
                        self.at = At::Size;
                    }
                    continue;
                }
                (At::AfterSize | At::Newline | At::Done, _) => {
                    self.at = At::Done;
                    return None;
                }
            };
            at += 1;
        }
        None
    }

    fn digit(&mut self, byte: u8) -> At {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        let size = digit.and_then(|digit| self.size.checked_mul(16)?.checked_add(digit));
        match size {
            Some(size) => {
                self.size = size;
                At::Size
            }
            None => At::Done,
        }
    }
}

impl Part {
    /// What follows, or None where the byte cannot.
    fn next(self, byte: u8) -> Option<At> {
        use Part::*;
        let part = match (self, byte) {
            (Name | AfterName | Value | AfterValue, b'\r') => return Some(At::Newline),
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
        Some(At::Extension(part))
    }
}

/// RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The byte that is refused, whichever pieces the body comes in.
    fn refused(body: &str) -> Option<usize> {
        let mut results = (1..=body.len()).map(|size| {
            let mut chunks = Chunks::default();
            let mut pieces = body.as_bytes().chunks(size).enumerate();
            pieces.find_map(|(number, piece)| Some(number * size + chunks.read(piece)?))
        });
        let first = results.next().flatten();
        assert!(results.all(|result| result == first), "{body:?}");
        first
    }

    #[test]
    fn well_formed_extensions_are_left_alone() {
        for body in [
            "5\r\nhello\r\n0\r\n\r\n",
            "5;a\r\nhello\r\n0;b\r\n\r\n",
            "5 ; a = b ;c=\"d;\\\" \u{e9}\"\r\nhello\r\n0\r\nX: ;\0\r\n\r\n",
            "a\r\n5;\0\r\n67890\r\n0\r\n\r\n",
            // hyper refuses these itself.
            "5\0\r\n",
            "five;\0\r\n",
            "5;a\rb\0\r\n",
            "10000000000000000;\0\r\n",
        ] {
            assert_eq!(refused(body), None, "{body:?}");
        }
    }

    #[test]
    fn malformed_extensions_are_found() {
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
}
