//! `multipart/byteranges`: several parts of a file, each with its own headers.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::HeaderValue;
use http_body::{Body, Frame, SizeHint};

use super::body::FileBody;
use super::ranges::content_range;
use crate::event::Failure;

/// The parts that are still to be sent.
pub struct Parts {
    parts: VecDeque<RangePart>,
    pub boundary: String,
    /// The number of bytes left.
    pub left: u64,
}

enum RangePart {
    /// A boundary, with the headers of the part that follows it.
    Boundary(Bytes),
    Bytes(FileBody),
}

impl Parts {
    pub fn new(
        file: Arc<File>,
        ranges: Vec<Range<u64>>,
        length: u64,
        content_type: &HeaderValue,
    ) -> Self {
        // Random, so that no one can put it into the file.
        let random = || RandomState::new().hash_one(length);
        let boundary = format!("{:016x}{:016x}", random(), random());
        let content_type = content_type.to_str().unwrap_or_default();
        let mut parts = VecDeque::with_capacity(2 * ranges.len() + 1);
        for range in ranges {
            let content_range = content_range(&range, length);
            let line = format!(
                "\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: \
                 {content_range}\r\n\r\n"
            );
            parts.push_back(RangePart::Boundary(line.into()));
            parts.push_back(RangePart::Bytes(FileBody::new(
                file.clone(),
                range.start,
                range.end - range.start,
            )));
        }
        parts.push_back(RangePart::Boundary(
            format!("\r\n--{boundary}--\r\n").into(),
        ));
        let left = parts.iter().map(|part| match part {
            RangePart::Boundary(line) => line.len() as u64,
            RangePart::Bytes(bytes) => bytes.left(),
        });
        Self {
            left: left.sum(),
            parts,
            boundary,
        }
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let bytes = loop {
            match self.parts.front_mut() {
                None => return Poll::Ready(None),
                Some(RangePart::Boundary(line)) => {
                    let line = std::mem::take(line);
                    self.parts.pop_front();
                    break line;
                }
                Some(RangePart::Bytes(body)) => match ready!(Pin::new(body).poll_frame(cx)) {
                    None => {
                        self.parts.pop_front();
                    }
                    Some(Ok(frame)) => break frame.into_data().unwrap_or_default(),
                    Some(Err(failure)) => {
                        self.parts.clear();
                        return Poll::Ready(Some(Err(failure)));
                    }
                },
            }
        };
        self.left -= bytes.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
