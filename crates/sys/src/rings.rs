//! The request ring and the response rings of a pool, in memory that its workers share with Surus.
//! While the receiver is awake, neither side needs a system call.
//!
//! The layout is that of `sapi/ipc/rings.h`; both sides assert the sizes. Whatever a worker writes
//! there, this module never reads or writes outside the memory, and it keeps its own copy of every
//! position that Surus writes.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::scoreboard::now_micros;
use crate::shared_memory::SharedMemory;

const LINE: usize = 64;
const OUTBOX: usize = 64 * 1024;
const INBOX_LEAST: usize = 64 * 1024;
const INBOX_MOST: usize = 4 * 1024 * 1024;
const INBOX_EACH: usize = 32 * 1024;
/// The longest event that goes into the ring, which thus has room for several.
const EVENT_MOST: usize = 16 * 1024;
/// Bytes before each event: its length, and half of its position.
const EVENT_HEADER: usize = 8;
/// Bytes before each response frame: its length, its writer's process id, and its event's number.
const FRAME_HEADER: usize = 16;

#[repr(C, align(64))]
struct CacheLine<T>(T);

#[repr(C)]
struct Head {
    surus: CacheLine<Surus>,
    sockets: CacheLine<Sockets>,
}

#[repr(C)]
struct Surus {
    need_wakeup: AtomicU32,
    looked: AtomicU64,
}

#[repr(C)]
struct Sockets {
    by_socket: AtomicU64,
    received: AtomicU64,
}

#[repr(C)]
struct Ends {
    head: CacheLine<AtomicU64>,
    tail: CacheLine<AtomicU64>,
}

const _: () = assert!(size_of::<Head>() == 128 && size_of::<Ends>() == 128);

/// Whether workers must wake Surus for a frame (`enum surus_sleep`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NeedWakeup {
    /// Surus polls the rings before it parks.
    Never = 0,
    /// One worker must wake Surus.
    Needed = 1,
    /// Every frame must wake Surus.
    Always = 2,
}

/// The rings of one pool generation.
#[derive(Debug)]
pub struct Rings {
    memory: SharedMemory,
    layout: Layout,
    /// Locked by the writer of the request ring: the position of the next event. The memory
    /// contains a copy for the workers.
    tail: Mutex<u64>,
    /// The position of each response ring's next frame. The memory contains a copy.
    heads: Vec<AtomicU64>,
    /// How many messages to no particular worker were sent by the socket.
    by_socket: AtomicU64,
}

/// Offsets in the memory, in bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    workers: usize,
    sleeping: usize,
    polling: usize,
    posted: usize,
    ends: usize,
    inbox: usize,
    inbox_size: usize,
    outboxes: usize,
    size: usize,
}

impl Layout {
    fn new(workers: usize) -> Layout {
        let words = workers.div_ceil(LINE * 8) * LINE;
        let inbox_size = (workers * INBOX_EACH)
            .next_power_of_two()
            .clamp(INBOX_LEAST, INBOX_MOST);
        let sleeping = size_of::<Head>();
        let polling = sleeping + words;
        let posted = polling + words;
        let ends = posted + words;
        let inbox = ends + (1 + workers) * size_of::<Ends>();
        let outboxes = inbox + inbox_size;
        Layout {
            workers,
            sleeping,
            polling,
            posted,
            ends,
            inbox,
            inbox_size,
            outboxes,
            size: outboxes + workers * OUTBOX,
        }
    }
}

// SAFETY: the mapping lives until drop and is used through atomics and by copying; bytes that
// others may write meanwhile are checked after they are copied.
unsafe impl Send for Rings {}
// SAFETY: as above.
unsafe impl Sync for Rings {}

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
    /// Empty rings for this many workers. Until [`set_need_wakeup`](Rings::set_need_wakeup), every
    /// frame wakes Surus.
    pub fn new(workers: usize) -> io::Result<Rings> {
        let layout = Layout::new(workers);
        let rings = Rings {
            memory: SharedMemory::new(c"surus-rings", layout.size)?,
            layout,
            tail: Mutex::new(0),
            heads: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            by_socket: AtomicU64::new(0),
        };
        rings.set_need_wakeup(NeedWakeup::Always);
        Ok(rings)
    }

    /// The size of the memory in bytes.
    pub fn size(workers: usize) -> usize {
        Layout::new(workers).size
    }

    /// The memory, for the master process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// Tells workers whether to wake Surus for a frame. Before it parks, Surus polls [once
    /// more](Rings::posted).
    pub fn set_need_wakeup(&self, need: NeedWakeup) {
        self.head().surus.0.need_wakeup.store(need as u32, SeqCst);
    }

    /// Claims a sleeping worker. The caller sends a message that [wakes](Rings::wakes) it, or
    /// [gives it back](Rings::give_back).
    pub fn claim_sleeping(&self) -> Option<usize> {
        self.claim(self.layout.sleeping)
    }

    /// Whether a worker polls the request ring.
    pub fn has_polling(&self) -> bool {
        let mut words = self.words(self.layout.polling);
        words.any(|(_, word)| word.load(SeqCst) != 0)
    }

    /// Claims a polling worker for an event that has just been put into the ring. Each one counts
    /// for one event.
    pub fn claim_polling(&self) -> bool {
        self.claim(self.layout.polling).is_some()
    }

    /// Called when a worker has exited. Its successor's bit may be cleared, too; then one worker
    /// too many is woken.
    pub fn clear_polling(&self, worker: usize) {
        if let Some((_, word)) = self.words(self.layout.polling).nth(worker / 64) {
            word.fetch_and(!(1 << (worker % 64)), SeqCst);
        }
    }

    /// Clears one worker's bit.
    fn claim(&self, from: usize) -> Option<usize> {
        self.words(from).find_map(|(index, word)| {
            let mut bits = word.load(SeqCst);
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                if word.fetch_and(!bit, SeqCst) & bit != 0 {
                    let worker = index * 64 + bit.trailing_zeros() as usize;
                    if worker < self.layout.workers {
                        return Some(worker);
                    }
                }
                bits &= !bit;
            }
            None
        })
    }

    /// The wake-up message to this worker has not been sent.
    pub fn give_back(&self, sleeper: usize) {
        if let Some((_, word)) = self.words(self.layout.sleeping).nth(sleeper / 64) {
            word.fetch_or(1 << (sleeper % 64), SeqCst);
        }
    }

    /// The field of a message that names the worker to wake, if any.
    pub fn wakes(sleeper: Option<usize>) -> [u8; 4] {
        sleeper.map_or(0, |worker| worker as u32 + 1).to_be_bytes()
    }

    /// Whether the request ring contains an event.
    pub fn has_event(&self) -> bool {
        let (head, tail) = self.inbox_ends();
        head != tail
    }

    /// The positions of the next event to take and of the next one to put. Workers write the first;
    /// callers must use it only if it is between the last value and the second.
    pub fn inbox_ends(&self) -> (u64, u64) {
        let tail = *self.lock_tail();
        (self.ends(0).head.0.load(SeqCst), tail)
    }

    /// Rewrites the positions that belong to Surus, in case a worker has changed them. Returns
    /// whether that of the request ring had changed.
    pub fn rewrite(&self) -> bool {
        let tail = self.lock_tail();
        let changed = self.ends(0).tail.0.swap(*tail, SeqCst) != *tail;
        drop(tail);
        for (worker, head) in self.heads.iter().enumerate() {
            let there = &self.ends(1 + worker).head.0;
            let seen = there.load(SeqCst);
            // The reader of the ring may be between its two stores.
            if seen != head.load(SeqCst) && seen == there.load(SeqCst) {
                there.store(head.load(SeqCst), SeqCst);
            }
        }
        changed
    }

    fn lock_tail(&self) -> MutexGuard<'_, u64> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message to no particular worker has been sent by the socket.
    pub fn sent_by_socket(&self) {
        let count = self.by_socket.fetch_add(1, SeqCst) + 1;
        self.head().sockets.0.by_socket.store(count, SeqCst);
    }

    /// Puts an event, gathered from `parts`, into the request ring. Returns its position; None if
    /// there is no room.
    pub fn put(&self, parts: &[IoSlice<'_>]) -> Option<u64> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let size = EVENT_HEADER + len.next_multiple_of(EVENT_HEADER);
        if len == 0 || len > EVENT_MOST {
            return None;
        }
        let mut tail = self.lock_tail();
        let ends = self.ends(0);
        // Workers move the head, and a faulty one may have moved it anywhere. Until another worker
        // corrects it, events are sent by the socket.
        let used = tail.wrapping_sub(ends.head.0.load(SeqCst));
        if used > self.layout.inbox_size as u64
            || size as u64 > self.layout.inbox_size as u64 - used
        {
            return None;
        }
        let ring = (self.layout.inbox, self.layout.inbox_size);
        let position = *tail;
        let mut at = position;
        let mut head = [0; EVENT_HEADER];
        head[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        head[4..].copy_from_slice(&(position as u32).to_ne_bytes());
        for part in std::iter::once(&head[..]).chain(parts.iter().map(|part| &part[..])) {
            self.copy_in(ring, at, part);
            at = at.wrapping_add(part.len() as u64);
        }
        *tail = position.wrapping_add(size as u64);
        ends.tail.0.store(*tail, SeqCst);
        Some(position)
    }

    /// Calls `found` with each worker that has put a frame into its ring since the last call.
    pub fn posted(&self, mut found: impl FnMut(usize)) {
        self.head().surus.0.looked.store(now_micros(), SeqCst);
        for (index, word) in self.words(self.layout.posted) {
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
    fn outbox(&self, worker: usize) -> (usize, usize) {
        assert!(worker < self.layout.workers, "worker {worker}");
        (self.layout.outboxes + worker * OUTBOX, OUTBOX)
    }

    fn head(&self) -> &Head {
        // SAFETY: at the page-aligned beginning of the mapping, which is longer; its fields are
        // atomics, for which every bit pattern is valid.
        unsafe { self.memory.base().cast::<Head>().as_ref() }
    }

    /// The positions of the request ring (0) and of each response ring.
    fn ends(&self, ring: usize) -> &Ends {
        assert!(ring <= self.layout.workers, "ring {ring}");
        let at = self.layout.ends + ring * size_of::<Ends>();
        // SAFETY: inside the mapping by the assertion and the layout, whose parts are all multiples
        // of a cache line; the fields are atomics.
        unsafe { self.memory.base().add(at).cast::<Ends>().as_ref() }
    }

    /// The words of an array with a bit for each worker.
    fn words(&self, from: usize) -> impl Iterator<Item = (usize, &AtomicU64)> {
        (0..self.layout.workers.div_ceil(64)).map(move |index| {
            // SAFETY: inside the mapping: `from` is one of the layout's three arrays, which have
            // room for a bit for each worker; aligned as a cache line plus a multiple of 8.
            let word = unsafe {
                self.memory
                    .base()
                    .add(from + index * 8)
                    .cast::<AtomicU64>()
                    .as_ref()
            };
            (index, word)
        })
    }

    /// Copies into a ring, wrapping at its end.
    fn copy_in(&self, (ring, size): (usize, usize), to: u64, from: &[u8]) {
        let at = (to % size as u64) as usize;
        let (first, second) = from.split_at(from.len().min(size - at));
        assert!(
            second.len() <= at,
            "{} bytes into a ring of {size}",
            from.len()
        );
        // SAFETY: both pieces are inside the ring, by the split and the assertion, and the ring is
        // inside the mapping by the layout; `from` is not part of the shared memory.
        unsafe {
            let ring = self.memory.base().add(ring).as_ptr();
            ring.add(at)
                .copy_from_nonoverlapping(first.as_ptr(), first.len());
            ring.copy_from_nonoverlapping(second.as_ptr(), second.len());
        }
    }

    /// Copies out of a ring, wrapping at its end.
    fn copy_out(&self, (ring, size): (usize, usize), from: u64, to: &mut [u8]) {
        let at = (from % size as u64) as usize;
        let (first, second) = to.split_at_mut(to.len().min(size - at));
        assert!(second.len() <= at, "more bytes than a ring of {size} has");
        // SAFETY: as in `copy_in`. A worker that writes at the same time corrupts only its own
        // frame, of which any bytes are valid.
        unsafe {
            let ring = self.memory.base().add(ring).as_ptr();
            first
                .as_mut_ptr()
                .copy_from_nonoverlapping(ring.add(at), first.len());
            second
                .as_mut_ptr()
                .copy_from_nonoverlapping(ring, second.len());
        }
    }
}

/// The header of a frame.
struct FrameHeader {
    len: usize,
    pid: u32,
    number: u64,
}

/// The size with header and padding.
fn size_of_frame(len: usize) -> usize {
    FRAME_HEADER + len.next_multiple_of(FRAME_HEADER)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
