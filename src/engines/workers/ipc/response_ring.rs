//! Merges what a worker sends by socket and by response ring into one sequence.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use surus_sys::rings::{Damaged, First};
use tokio_util::io::poll_read_buf;

use super::responses::{Outbox, SMALL};
use crate::engines::cgi::fastcgi;
use crate::engines::workers::generation::deadlines::TICK;

/// How long another process's frame may be first in the ring before the worker counts as blocked.
const BLOCKED_FOR: Duration = Duration::from_millis(800);
const _: () = assert!(
    BLOCKED_FOR.as_millis() + 2 * TICK.as_millis() <= 1000
        && (MIN_SWEEPS as u128 + 3) * TICK.as_millis() <= 1000,
    "a frame of another process blocks a worker for at most a second"
);

/// How often that must have been seen: if the machine does not run this process, nothing else was
/// read either.
const MIN_SWEEPS: u32 = 15;

impl Outbox {
    /// Waits for socket input, which goes to `buffer`, or for a frame (None).
    pub(super) async fn more(&mut self, buffer: &mut BytesMut) -> io::Result<Option<usize>> {
        poll_fn(|cx| {
            if let Poll::Ready(read) = poll_read_buf(Pin::new(&mut self.stream), cx, buffer) {
                return Poll::Ready(read.map(Some));
            }
            self.reader.register(cx.waker());
            match self.first_frame() {
                Ok(First::None) => {
                    self.blocked = None;
                    Poll::Pending
                }
                // The sweep wakes this task again.
                Ok(First::Other(writer)) if !self.is_blocked_by(writer) => Poll::Pending,
                // The error is reported when the frame is read.
                Ok(_) | Err(Damaged) => Poll::Ready(Ok(None)),
            }
        })
        .await
    }

    /// Processes the records that came by the socket. Which event they belong to is known once
    /// everything about the previous events has been read, some of it in frames.
    pub(super) async fn take_records(
        &mut self,
        buffer: &mut BytesMut,
        frame: &mut BytesMut,
    ) -> Result<(), String> {
        loop {
            self.take_frames(frame).await?;
            match fastcgi::decode(buffer) {
                Ok(Some(record)) => self.take(record, false).await?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn first_frame(&self) -> Result<First, Damaged> {
        let rings = &self.shared.poller.rings;
        rings.first_frame(self.index, self.pid.get(), self.sequence.number())
    }

    /// Whether the ring's first frame is one that no task will read. Either it is about another
    /// event than the next one and no socket record explains it, or its process never had this
    /// worker slot. A correct worker never writes such a frame.
    fn is_blocked_by(&mut self, writer: u32) -> bool {
        if writer != self.pid.get() && self.shared.has_reader(self.index, writer) {
            // Its process had this slot before, and its last frames wait for a client.
            self.blocked = None;
            return false;
        }
        let (since, sweeps) = self.blocked.unwrap_or_else(|| (Instant::now(), 0));
        self.blocked = Some((since, sweeps.saturating_add(1)));
        self.is_blocked()
    }

    /// Whether no task will read the ring's first frame.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
            .is_some_and(|(since, sweeps)| sweeps > MIN_SWEEPS && since.elapsed() > BLOCKED_FOR)
    }

    /// Processes the frames about the next events. A frame consists of whole records, usually
    /// everything about one event.
    pub(super) async fn take_frames(&mut self, frame: &mut BytesMut) -> Result<(), String> {
        loop {
            // Let other tasks run.
            tokio::task::consume_budget().await;
            let (shared, pid, number) = (&self.shared, self.pid.get(), self.sequence.number());
            if self.is_blocked() && matches!(self.first_frame(), Ok(First::Other(_))) {
                return Err("a frame that no task reads blocks its own".into());
            }
            let is_there = shared
                .poller
                .rings
                .take_frame(self.index, pid, number, |len| {
                    frame.clear();
                    if frame.capacity() < len {
                        frame.reserve(SMALL);
                    }
                    frame.resize(len, 0);
                    frame
                });
            match is_there {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(Damaged) => return Err("a truncated frame".into()),
            }
            self.blocked = None;
            let mut is_empty = true;
            while let Some(record) = fastcgi::decode(frame).map_err(|error| error.to_string())? {
                self.take(record, true).await?;
                is_empty = false;
            }
            if is_empty || !frame.is_empty() {
                return Err("a frame with incomplete records".into());
            }
        }
    }
}
