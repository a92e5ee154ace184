//! Decodes the chunked transfer coding.

use std::ops::Range;

use super::{MAX_HEADER_SECTION, Malformed};

/// Where the decoder is.
#[derive(Debug, Clone, Copy)]
enum State {
    /// In a chunk's size, with the digits so far.
    Size {
        size: u64,
        digits: u8,
    },
    /// After the size, up to the end of the line.
    Extension {
        size: u64,
    },
    Data {
        rest: u64,
    },
    /// At the line end after the data.
    AfterData,
    /// In a line after the last chunk; empty so far or not.
    Trailer {
        is_empty: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct Chunks {
    state: State,
    /// Bytes of the current chunk's extension, or of all trailers.
    overhead: usize,
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks {
            state: State::Size { size: 0, digits: 0 },
            overhead: 0,
        }
    }
}

/// What was read: `used` bytes, of which `data` belong to the body.
pub struct Step {
    pub used: usize,
    pub data: Range<usize>,
    /// Whether the body is complete.
    pub is_last: bool,
}

impl Chunks {
    /// Reads up to the end of a piece of data, of the body or of the bytes.
    pub fn read(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        let mut used = 0;
        while let Some(byte) = bytes.get(used) {
            if let State::Data { rest } = &mut self.state {
                let here = (*rest).min((bytes.len() - used) as u64) as usize;
                *rest -= here as u64;
                if *rest == 0 {
                    self.state = State::AfterData;
                }
                let data = used..used + here;
                return Ok(Step {
                    used: data.end,
                    data,
                    is_last: false,
                });
            }
            used += 1;
            if self.line_byte(*byte)? {
                return Ok(Step {
                    used,
                    data: 0..0,
                    is_last: true,
                });
            }
        }
        Ok(Step {
            used,
            data: 0..0,
            is_last: false,
        })
    }

    /// Reads a byte outside of data. Whether it is the last one.
    fn line_byte(&mut self, byte: u8) -> Result<bool, Malformed> {
        self.overhead += 1;
        if self.overhead > MAX_HEADER_SECTION {
            return Err(Malformed("chunk extensions or trailers exceed 64 KiB"));
        }
        self.state = match (self.state, byte) {
            (State::Size { size, digits }, byte) if byte.is_ascii_hexdigit() => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                if digits == 16 {
                    return Err(Malformed("a chunk's size has more than 16 digits"));
                }
                State::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (State::Size { digits: 0, .. }, _) => return Err(Malformed("a chunk without a size")),
            (State::Size { size, .. } | State::Extension { size }, b'\n') => {
                self.overhead = 0;
                match size {
                    0 => State::Trailer { is_empty: true },
                    rest => State::Data { rest },
                }
            }
            (State::Size { size, .. }, b';' | b' ' | b'\t' | b'\r') => State::Extension { size },
            (State::Size { .. }, _) => return Err(Malformed("a chunk's size is no number")),
            (State::Extension { size }, _) => State::Extension { size },
            (State::AfterData, b'\r') => State::AfterData,
            (State::AfterData, b'\n') => State::Size { size: 0, digits: 0 },
            (State::AfterData, _) => return Err(Malformed("a chunk is longer than its size")),
            (State::Trailer { is_empty: true }, b'\n') => return Ok(true),
            (State::Trailer { .. }, b'\n') => State::Trailer { is_empty: true },
            (State::Trailer { is_empty }, b'\r') => State::Trailer { is_empty },
            (State::Trailer { .. }, _) => State::Trailer { is_empty: false },
            (State::Data { .. }, _) => unreachable!("data is read in pieces"),
        };
        Ok(false)
    }
}
