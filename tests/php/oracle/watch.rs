//! Watches for a text in an answer that is still arriving, to signal the script or to disconnect.

use std::io::{self, Read};
use std::path::PathBuf;

/// Creates `file` when `text` has arrived.
#[derive(Clone)]
pub struct Watch {
    pub text: String,
    pub file: PathBuf,
    /// Whether to stop reading then.
    pub leaves: bool,
}

/// A reader that watches the data that passes through.
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
