//! How a file gets into a connection without being read: hyper is given bytes that only stand for it, and where they are to
//! be written, the file is sent instead.
//!
//! hyper hands a body's bytes to the socket where they lie, in order and untouched, as long as it writes vectored and
//! unencrypted HTTP/1; only there this is used.

use std::fs::File;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::file_queue::PLACEHOLDER;
use super::io::Shared;
use crate::app::static_files::FileRange;
use crate::event::Failure;

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
