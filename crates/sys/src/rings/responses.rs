//! The response rings, one for each worker.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::{OUTBOX, Rings};
use crate::scoreboard::now_micros;

/// Bytes before each response frame: its length, its writer's process id, and its event's number.
const FRAME_HEADER: usize = 16;

/// A response ring contains what no worker writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

/// The first frame of a response ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// There is none.
    None,
    /// The expected frame.
    Awaited,
    /// Another frame, which names this process as its writer.
    Other(u32),
}

impl Rings {
    /// Calls `found` with each worker that has put a frame into its ring since the last call.
    pub fn written(&self, mut found: impl FnMut(usize)) {
        self.head().surus.0.polled_at.store(now_micros(), SeqCst);
        for (index, word) in self.written_words() {
            if word.load(SeqCst) == 0 {
                continue;
            }
            let mut bits = word.swap(0, SeqCst);
            while bits != 0 {
                let worker = index * 64 + bits.trailing_zeros() as usize;
                if worker < self.layout.workers {
                    found(worker);
                }
                bits &= bits - 1;
            }
        }
    }

    /// What the first frame of a response ring is, for a reader that expects that of the process
    /// `pid` about event `number`.
    pub fn first_frame(&self, worker: usize, pid: u32, number: u64) -> Result<First, Damaged> {
        Ok(match self.first(worker)? {
            None => First::None,
            Some((_, first)) if first.pid == pid && first.number == number => First::Awaited,
            Some((_, first)) => First::Other(first.pid),
        })
    }

    /// Copies the expected frame to the buffer that `room` returns for its length. False if it is
    /// not the first.
    pub fn take_frame<'a>(
        &self,
        worker: usize,
        pid: u32,
        number: u64,
        room: impl FnOnce(usize) -> &'a mut [u8],
    ) -> Result<bool, Damaged> {
        let Some((head, len)) = self.frame(worker, pid, number)? else {
            return Ok(false);
        };
        let to = room(len);
        self.copy_out(
            self.outbox(worker),
            head.wrapping_add(FRAME_HEADER as u64),
            to,
        );
        self.advance(worker, head, len);
        Ok(true)
    }

    /// Removes the unread frames of the process `pid`, which has exited.
    pub fn discard(&self, worker: usize, pid: u32) {
        // At most as many as fit; only a running process could add more.
        for _ in 0..OUTBOX / FRAME_HEADER {
            match self.first(worker) {
                Ok(Some((head, first))) if first.pid == pid => {
                    self.advance(worker, head, first.len);
                }
                _ => return,
            }
        }
    }

    /// Empties a ring that cannot be read, for a process that has not written to it yet.
    pub fn repair(&self, worker: usize) {
        if self.first(worker).is_err() {
            self.empty(worker);
        }
    }

    /// Empties a response ring.
    pub fn empty(&self, worker: usize) {
        let ends = self.ends(1 + worker);
        let tail = ends.tail.0.load(SeqCst);
        self.heads[worker].store(tail, SeqCst);
        ends.head.0.store(tail, SeqCst);
    }

    /// Calls `found` with each worker whose ring is not empty, even if no frame was announced.
    pub fn unread(&self, mut found: impl FnMut(usize)) {
        for (worker, head) in self.heads.iter().enumerate() {
            if self.ends(1 + worker).tail.0.load(SeqCst) != head.load(SeqCst) {
                found(worker);
            }
        }
    }

    /// The position and length of the expected frame.
    fn frame(&self, worker: usize, pid: u32, number: u64) -> Result<Option<(u64, usize)>, Damaged> {
        Ok(self.first(worker)?.and_then(|(head, first)| {
            (first.pid == pid && first.number == number).then_some((head, first.len))
        }))
    }

    /// The position and header of a ring's first frame.
    fn first(&self, worker: usize) -> Result<Option<(u64, FrameHeader)>, Damaged> {
        let ends = self.ends(1 + worker);
        let (head, tail) = (self.heads[worker].load(SeqCst), ends.tail.0.load(SeqCst));
        if head == tail {
            return Ok(None);
        }
        let mut bytes = [0; FRAME_HEADER];
        self.copy_out(self.outbox(worker), head, &mut bytes);
        let [a, b, c, d, e, f, g, h, number @ ..] = bytes;
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        let there = tail.wrapping_sub(head);
        if there > OUTBOX as u64 || size_of_frame(len) as u64 > there {
            return Err(Damaged);
        }
        let header = FrameHeader {
            len,
            pid: u32::from_ne_bytes([e, f, g, h]),
            number: u64::from_ne_bytes(number),
        };
        Ok(Some((head, header)))
    }

    fn advance(&self, worker: usize, head: u64, len: usize) {
        let next = head.wrapping_add(size_of_frame(len) as u64);
        self.heads[worker].store(next, SeqCst);
        self.ends(1 + worker).head.0.store(next, SeqCst);
    }

    /// The offset and size of a response ring.
    pub(super) fn outbox(&self, worker: usize) -> (usize, usize) {
        assert!(worker < self.layout.workers, "worker {worker}");
        (self.layout.outboxes + worker * OUTBOX, OUTBOX)
    }

    /// The words of the array with a bit for each worker that has put a frame into its ring.
    pub(super) fn written_words(&self) -> impl Iterator<Item = (usize, &AtomicU64)> {
        (0..self.layout.workers.div_ceil(64)).map(|index| {
            let at = self.layout.written + index * size_of::<AtomicU64>();
            // SAFETY: inside the mapping by the layout, which has room for a bit for each worker,
            // in whole cache lines; aligned as a cache line plus a multiple of 8.
            let word = unsafe { self.memory.base().add(at).cast::<AtomicU64>().as_ref() };
            (index, word)
        })
    }
}

/// The header of a frame.
struct FrameHeader {
    len: usize,
    pid: u32,
    number: u64,
}

/// The size with header and padding.
pub(super) fn size_of_frame(len: usize) -> usize {
    FRAME_HEADER + len.next_multiple_of(FRAME_HEADER)
}
