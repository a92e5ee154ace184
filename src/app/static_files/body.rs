//! The bytes of a file as a response body.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use crate::budget::{self, MEMORY, SMALL};
use crate::event::{Failure, Response, ResponseBody};

/// A smaller file is read at once, which costs less than asking another thread. If memory is short,
/// it is not.
const AT_ONCE: u64 = 64 << 10;

/// How much of a larger file is read at a time.
pub(super) const CHUNK: u64 = 256 << 10;

/// How much is read at a time if memory is short.
const SMALL_CHUNK: u64 = 16 << 10;

/// The part of a file that is the response's body, in the response's extensions. A front end that
/// can send it without reading it does so. Code that changes the body removes it.
#[derive(Debug, Clone)]
pub struct FileRange {
    pub file: Arc<File>,
    pub range: Range<u64>,
}

pub fn body(response: &mut Response, file: Arc<File>, range: Range<u64>) -> ResponseBody {
    let length = range.end - range.start;
    if length <= AT_ONCE
        && (length < SMALL as u64 || MEMORY.has_room(length))
        && let Ok(bytes) = read(&file, range.start, length)
    {
        return ResponseBody::Full(bytes);
    }
    // Also if the read fails: the headers are complete, and the client sees that the body fails.
    let whole = FileBody::new(file.clone(), range.start, length);
    response.extensions_mut().insert(FileRange { file, range });
    ResponseBody::stream(whole)
}

fn read(file: &File, offset: u64, length: u64) -> io::Result<Bytes> {
    // At most one chunk.
    let mut buffer = vec![0; length as usize];
    file.read_exact_at(&mut buffer, offset)?;
    Ok(buffer.into())
}

/// A part of a file, which another thread reads one chunk ahead of the client. A file that has
/// become shorter meanwhile is an error, not a shorter body.
#[derive(Debug)]
pub struct FileBody {
    file: Arc<File>,
    offset: u64,
    length: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl FileBody {
    pub fn new(file: Arc<File>, offset: u64, length: u64) -> Self {
        Self {
            file,
            offset,
            length,
            reading: None,
        }
    }

    /// The number of bytes left.
    pub fn left(&self) -> u64 {
        self.length
    }

    fn read(&self) -> JoinHandle<io::Result<Bytes>> {
        let chunk = match MEMORY.has_room(CHUNK) {
            true => CHUNK,
            false => SMALL_CHUNK,
        };
        let (file, offset, length) = (self.file.clone(), self.offset, self.length.min(chunk));
        tokio::task::spawn_blocking(move || Ok(budget::charge_anyway(read(&file, offset, length)?)))
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.length == 0 {
            return Poll::Ready(None);
        }
        let mut reading = self.reading.take().unwrap_or_else(|| self.read());
        let Poll::Ready(read) = Pin::new(&mut reading).poll(cx) else {
            self.reading = Some(reading);
            return Poll::Pending;
        };
        match read.unwrap_or_else(|error| Err(error.into())) {
            Ok(bytes) => {
                self.offset += bytes.len() as u64;
                self.length -= bytes.len() as u64;
                if self.length > 0 && MEMORY.has_room(CHUNK) {
                    self.reading = Some(self.read());
                }
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Err(error) => {
                self.length = 0;
                let why = match error.kind() {
                    io::ErrorKind::UnexpectedEof => {
                        "a file became shorter while it was sent".to_owned()
                    }
                    _ => format!("a file could not be read: {error}"),
                };
                Poll::Ready(Some(Err(Failure::Malformed(why))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.length == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
