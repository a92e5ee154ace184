//! Whether a text has arrived yet, while the rest of the answer is still to come: for who waits for it, or then leaves.

use std::io::{self, Read};
use std::path::PathBuf;

/// Makes `file` once `text` has arrived.
#[derive(Clone)]
pub struct Watch {
    pub text: String,
    pub file: PathBuf,
    /// Reads no more from there on.
    pub leaves: bool,
}

/// A reader that keeps an eye on what passes through it.
pub struct Watched<R> {
    reader: R,
    watch: Option<Watch>,
    seen: Vec<u8>,
}

impl<R> Watched<R> {
    pub fn new(reader: R, watch: Option<Watch>) -> Self {
        Watched {
            reader,
            watch,
            seen: Vec::new(),
        }
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if let Some(watch) = &self.watch {
            self.seen.extend_from_slice(&buffer[..read]);
            let text = watch.text.as_bytes();
            if self.seen.windows(text.len()).any(|window| window == text) {
                std::fs::write(&watch.file, "")?;
                if watch.leaves {
                    return Err(io::Error::other("the client leaves"));
                }
                self.watch = None;
            }
        }
        Ok(read)
    }
}
