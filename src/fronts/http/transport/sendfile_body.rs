//! Response bodies that the kernel sends from a file. hyper gets placeholder bytes; when it writes
//! them, the connection sends the file part instead.
//!
//! With vectored, unencrypted HTTP/1, hyper passes a body's bytes to the socket in order and
//! without copying them. Only then is this used.

use std::fs::File;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::context::ConnectionContext;
use super::file_queue::PLACEHOLDER;
use crate::app::static_files::FileRange;
use crate::event::Failure;

/// A body of placeholders for a part of a file, to be sent over this connection.
pub struct SendfileBody {
    connection: Arc<ConnectionContext>,
    file: Arc<File>,
    offset: u64,
    left: u64,
}

impl SendfileBody {
    pub fn new(file: FileRange, connection: Arc<ConnectionContext>) -> SendfileBody {
        let FileRange { file, range } = file;
        SendfileBody {
            connection,
            file,
            offset: range.start,
            left: range.end - range.start,
        }
    }
}

impl Body for SendfileBody {
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
