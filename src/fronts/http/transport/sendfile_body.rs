//! How a file gets into a connection without being read: hyper is given bytes that only stand for
//! it, and where they are to be written, the file is sent instead.
//!
//! hyper hands a body's bytes to the socket where they lie, in order and untouched, as long as it
//! writes vectored and unencrypted HTTP/1; only there this is used.

use std::collections::VecDeque;
use std::fs::File;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::io::Shared;
use crate::app::static_files::FileRange;
use crate::event::Failure;

/// Never read or written, so it takes addresses and no memory.
static PLACEHOLDER: [u8; 8 << 20] = [0; 8 << 20];

/// Do these bytes stand for a file?
pub fn is_placeholder(bytes: &[u8]) -> bool {
    PLACEHOLDER.as_ptr_range().contains(&bytes.as_ptr())
}

/// The parts of files that a connection's placeholders stand for, in their order.
#[derive(Debug, Default)]
pub struct Files(Mutex<VecDeque<Part>>);

#[derive(Debug)]
struct Part {
    file: Arc<File>,
    offset: u64,
    left: usize,
}

impl Files {
    fn push(&self, file: Arc<File>, offset: u64, left: usize) {
        self.lock().push_back(Part { file, offset, left });
    }

    /// Has the first part sent: `send(file, offset, at most)` says how much of it went. None when
    /// no part is left.
    pub fn send<E>(
        &self,
        most: usize,
        send: impl FnOnce(&File, u64, usize) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        let mut parts = self.lock();
        let part = parts.front_mut()?;
        let sent = send(&part.file, part.offset, part.left.min(most));
        if let Ok(sent) = sent {
            part.offset += sent as u64;
            part.left -= sent;
            if part.left == 0 {
                parts.pop_front();
            }
        }
        Some(sent)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Part>> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A body of placeholders for a part of a file, to be sent over this very connection.
pub struct Placeholders {
    connection: Arc<Shared>,
    file: Arc<File>,
    offset: u64,
    left: u64,
}

impl Placeholders {
    pub fn new(file: FileRange, connection: Arc<Shared>) -> Placeholders {
        let FileRange { file, range } = file;
        Placeholders {
            connection,
            file,
            offset: range.start,
            left: range.end - range.start,
        }
    }
}

impl Body for Placeholders {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let length = self.left.min(PLACEHOLDER.len() as u64);
        self.connection
            .files
            .push(self.file.clone(), self.offset, length as usize);
        self.offset += length;
        self.left -= length;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(
            &PLACEHOLDER[..length as usize],
        )))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
