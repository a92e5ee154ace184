//! The request ring, the doorbells and the response rings of a pool, in memory that its workers
//! share with Surus. While the receiver is unparked, neither side needs a system call.
//!
//! The layout is that of `sapi/ipc/rings.h`; both sides assert the sizes. Whatever a worker writes
//! there, this module never reads or writes outside the memory, and it keeps its own copy of every
//! position that Surus writes.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::shared_memory::SharedMemory;

mod requests;
mod responses;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use requests::MAX_EVENT;
pub use responses::{Damaged, First};

const LINE: usize = 64;
const OUTBOX: usize = 64 * 1024;
const INBOX_LEAST: usize = 64 * 1024;
const MAX_INBOX: usize = 4 * 1024 * 1024;
const INBOX_EACH: usize = 32 * 1024;

#[repr(C, align(64))]
struct CacheLine<T>(T);

#[repr(C)]
struct RingsHeader {
    surus: CacheLine<Surus>,
    idle: CacheLine<Idle>,
}

/// What an idle worker reads.
#[repr(C)]
struct Idle {
    /// Microseconds for which workers poll before they block.
    poll_budget: AtomicU32,
}

#[repr(C)]
struct Surus {
    need_wakeup: AtomicU32,
    polled_at: AtomicU64,
}

#[repr(C)]
struct Ends {
    head: CacheLine<AtomicU64>,
    tail: CacheLine<AtomicU64>,
}

const _: () = assert!(size_of::<RingsHeader>() == 128 && size_of::<Ends>() == 128);

/// Whether workers must wake Surus for a frame (`enum surus_wakeup`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NeedWakeup {
    /// Surus polls the rings before it parks.
    Suppressed = 0,
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
    /// How many workers there should be. It is not in the memory, where a script could end workers
    /// with it.
    target: AtomicUsize,
}

/// Offsets in the memory, in bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    workers: usize,
    doorbells: usize,
    written: usize,
    ends: usize,
    inbox: usize,
    inbox_size: usize,
    outboxes: usize,
    size: usize,
}

impl Layout {
    fn new(workers: usize) -> Layout {
        let inbox_size = (workers * INBOX_EACH)
            .next_power_of_two()
            .clamp(INBOX_LEAST, MAX_INBOX);
        let doorbells = size_of::<RingsHeader>();
        let written = doorbells + (workers * size_of::<AtomicU32>()).next_multiple_of(LINE);
        let ends = written + workers.div_ceil(8).next_multiple_of(LINE);
        let inbox = ends + (1 + workers) * size_of::<Ends>();
        let outboxes = inbox + inbox_size;
        Layout {
            workers,
            doorbells,
            written,
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
            target: AtomicUsize::new(workers),
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
    /// more](Rings::written).
    pub fn set_need_wakeup(&self, need: NeedWakeup) {
        self.head().surus.0.need_wakeup.store(need as u32, SeqCst);
    }

    /// Sets how many workers there should be, at most as many as there are rings for. Only those
    /// are [notified](Rings::notify_one) of events.
    pub fn set_target(&self, workers: usize) {
        let target = workers.clamp(1, self.layout.workers);
        self.target.store(target, SeqCst);
    }

    /// How many workers there should be.
    pub fn target(&self) -> usize {
        self.target.load(SeqCst)
    }

    /// Rewrites what belongs to Surus, in case a worker has changed it. Returns whether the
    /// position of the request ring had changed.
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

    fn head(&self) -> &RingsHeader {
        // SAFETY: at the page-aligned beginning of the mapping, which is longer; its fields are
        // atomics, for which every bit pattern is valid.
        unsafe { self.memory.base().cast::<RingsHeader>().as_ref() }
    }

    /// The positions of the request ring (0) and of each response ring.
    fn ends(&self, ring: usize) -> &Ends {
        assert!(ring <= self.layout.workers, "ring {ring}");
        let at = self.layout.ends + ring * size_of::<Ends>();
        // SAFETY: inside the mapping by the assertion and the layout, whose parts are all multiples
        // of a cache line; the fields are atomics.
        unsafe { self.memory.base().add(at).cast::<Ends>().as_ref() }
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
