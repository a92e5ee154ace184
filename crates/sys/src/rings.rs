//! The inbox and the outboxes of a pool as rings in memory that its workers share with surus: as
//! long as who is to hear of an event or an answer is awake, neither side needs a system call.
//!
//! The layout is `sapi/ipc/rings.h`; both sides assert the sizes. Whatever a worker may have
//! written there, nothing here reads or writes outside of the memory, and no position that surus
//! writes is ever read back: it has its own copy.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::scoreboard::now_micros;
use crate::shared_memory::Shared;

const LINE: usize = 64;
const OUTBOX: usize = 64 * 1024;
const INBOX_LEAST: usize = 64 * 1024;
const INBOX_MOST: usize = 4 * 1024 * 1024;
const INBOX_EACH: usize = 32 * 1024;
/// The longest event that goes into a ring, so that there is room for several.
const EVENT_MOST: usize = 16 * 1024;
/// Bytes before each event: its length, and half of its position.
const EVENT_HEAD: usize = 8;
/// Bytes before each letter: its length, who writes it and which event it is about.
const LETTER_HEAD: usize = 16;

#[repr(C, align(64))]
struct Line<T>(T);

#[repr(C)]
struct Head {
    surus: Line<Surus>,
    sockets: Line<Sockets>,
}

#[repr(C)]
struct Surus {
    sleeps: AtomicU32,
    looked: AtomicU64,
}

#[repr(C)]
struct Sockets {
    by_socket: AtomicU64,
    received: AtomicU64,
}

#[repr(C)]
struct Ends {
    head: Line<AtomicU64>,
    tail: Line<AtomicU64>,
}

const _: () = assert!(size_of::<Head>() == 128 && size_of::<Ends>() == 128);

/// What is known of the sleep of surus (`enum surus_sleep`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Sleep {
    /// It looks for letters before it sleeps.
    Awake = 0,
    /// Until a worker wakes it.
    Asleep = 1,
    /// Nothing.
    Unknown = 2,
}

/// The rings of one pool generation.
#[derive(Debug)]
pub struct Rings {
    memory: Shared,
    layout: Layout,
    /// Held by who writes into the inbox: where the next event goes. What stands in the memory is a
    /// copy for the workers.
    tail: Mutex<u64>,
    /// Where the next letter of each outbox begins; what stands in the memory is a copy, too.
    heads: Vec<AtomicU64>,
    /// Messages that have gone by the socket to wake nobody.
    by_socket: AtomicU64,
}

/// Where in the memory what is, in bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    workers: usize,
    sleeping: usize,
    spinning: usize,
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
        let spinning = sleeping + words;
        let posted = spinning + words;
        let ends = posted + words;
        let inbox = ends + (1 + workers) * size_of::<Ends>();
        let outboxes = inbox + inbox_size;
        Layout {
            workers,
            sleeping,
            spinning,
            posted,
            ends,
            inbox,
            inbox_size,
            outboxes,
            size: outboxes + workers * OUTBOX,
        }
    }
}

// SAFETY: the mapping lives until drop and is used through atomics and by copying; what is copied
// while others write is checked before it is believed.
unsafe impl Send for Rings {}
// SAFETY: as above.
unsafe impl Sync for Rings {}

/// An outbox has in it what no worker of ours writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

/// What lies first in an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// Nothing.
    None,
    /// The letter that is waited for.
    Awaited,
    /// Another, which says that this process has written it.
    Other(u32),
}

impl Rings {
    /// For so many workers, all empty. Until somebody says otherwise, each letter wakes surus.
    pub fn new(workers: usize) -> io::Result<Rings> {
        let layout = Layout::new(workers);
        let rings = Rings {
            memory: Shared::new(c"surus-rings", layout.size)?,
            layout,
            tail: Mutex::new(0),
            heads: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            by_socket: AtomicU64::new(0),
        };
        rings.set_asleep(Sleep::Unknown);
        Ok(rings)
    }

    /// Bytes of the memory for so many.
    pub fn size(workers: usize) -> usize {
        Layout::new(workers).size
    }

    /// The memory, to be passed to the template.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// Says whether surus has to be woken for a letter. Who says that it sleeps looks for letters
    /// [once more](Rings::posted).
    pub fn set_asleep(&self, asleep: Sleep) {
        self.head().surus.0.sleeps.store(asleep as u32, SeqCst);
    }

    /// A worker that sleeps. Who is told of it sends a message that [wakes](Rings::wakes) it, or
    /// [gives it back](Rings::give_back).
    pub fn claim_sleeper(&self) -> Option<usize> {
        self.claim(self.layout.sleeping)
    }

    /// Is there a worker that spins until there is an event in the inbox?
    pub fn has_spinner(&self) -> bool {
        let mut words = self.words(self.layout.spinning);
        words.any(|(_, word)| word.load(SeqCst) != 0)
    }

    /// Is an event that has just been put into the inbox seen by a worker that spins? Each of them
    /// is good for one.
    pub fn claim_spinner(&self) -> bool {
        self.claim(self.layout.spinning).is_some()
    }

    /// This worker has ended. That its successor spins may be forgotten with it: then one is woken
    /// too many.
    pub fn forget_spinner(&self, worker: usize) {
        if let Some((_, word)) = self.words(self.layout.spinning).nth(worker / 64) {
            word.fetch_and(!(1 << (worker % 64)), SeqCst);
        }
    }

    /// Takes a worker's bit away.
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

    /// The message that was to wake this worker has not been sent.
    pub fn give_back(&self, sleeper: usize) {
        if let Some((_, word)) = self.words(self.layout.sleeping).nth(sleeper / 64) {
            word.fetch_or(1 << (sleeper % 64), SeqCst);
        }
    }

    /// What a message has in it that is to wake this worker, or none.
    pub fn wakes(sleeper: Option<usize>) -> [u8; 4] {
        sleeper.map_or(0, |worker| worker as u32 + 1).to_be_bytes()
    }

    /// Is there an event in the inbox?
    pub fn has_event(&self) -> bool {
        let (head, tail) = self.inbox_ends();
        head != tail
    }

    /// Where workers take the next event, and where the next will be put. The first is what the
    /// workers say: it is believed only where it can be, between what was read last and the second.
    pub fn inbox_ends(&self) -> (u64, u64) {
        let tail = *self.lock_tail();
        (self.ends(0).head.0.load(SeqCst), tail)
    }

    /// Writes the positions that are surus's to write once more: a worker that has changed them is
    /// undone by this. True: that of the inbox was another.
    pub fn rewrite(&self) -> bool {
        let tail = self.lock_tail();
        let changed = self.ends(0).tail.0.swap(*tail, SeqCst) != *tail;
        drop(tail);
        for (worker, head) in self.heads.iter().enumerate() {
            let there = &self.ends(1 + worker).head.0;
            let seen = there.load(SeqCst);
            // Whoever reads the outbox may be between the two.
            if seen != head.load(SeqCst) && seen == there.load(SeqCst) {
                there.store(head.load(SeqCst), SeqCst);
            }
        }
        changed
    }

    fn lock_tail(&self) -> MutexGuard<'_, u64> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message that is to wake nobody has gone by the socket.
    pub fn sent_by_socket(&self) {
        let count = self.by_socket.fetch_add(1, SeqCst) + 1;
        self.head().sockets.0.by_socket.store(count, SeqCst);
    }

    /// Puts an event, gathered from `parts`, into the inbox. Returns its position; None when there
    /// is no room for it.
    pub fn put(&self, parts: &[IoSlice<'_>]) -> Option<u64> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let size = EVENT_HEAD + len.next_multiple_of(EVENT_HEAD);
        if len == 0 || len > EVENT_MOST {
            return None;
        }
        let mut tail = self.lock_tail();
        let ends = self.ends(0);
        // Workers move the head; one that does not know what it does may have moved it anywhere.
        // Until another has put it right, events go by the socket.
        let used = tail.wrapping_sub(ends.head.0.load(SeqCst));
        if used > self.layout.inbox_size as u64
            || size as u64 > self.layout.inbox_size as u64 - used
        {
            return None;
        }
        let ring = (self.layout.inbox, self.layout.inbox_size);
        let position = *tail;
        let mut at = position;
        let mut head = [0; EVENT_HEAD];
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

    /// Calls `found` with each worker that has put a letter into its outbox since the last time.
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

    /// Whose letter is the first in an outbox, for who waits for that of the process `pid` about
    /// its event `number`?
    pub fn first_letter(&self, worker: usize, pid: u32, number: u64) -> Result<First, Damaged> {
        Ok(match self.first(worker)? {
            None => First::None,
            Some((_, first)) if first.pid == pid && first.number == number => First::Awaited,
            Some((_, first)) => First::Other(first.pid),
        })
    }

    /// Takes that letter: copies it to where `room` has as many bytes as it is told. False when
    /// there is none.
    pub fn take_letter<'a>(
        &self,
        worker: usize,
        pid: u32,
        number: u64,
        room: impl FnOnce(usize) -> &'a mut [u8],
    ) -> Result<bool, Damaged> {
        let Some((head, len)) = self.letter(worker, pid, number)? else {
            return Ok(false);
        };
        let to = room(len);
        self.copy_out(
            self.outbox(worker),
            head.wrapping_add(LETTER_HEAD as u64),
            to,
        );
        self.move_on(worker, head, len);
        Ok(true)
    }

    /// Removes what the process `pid`, which has ended, has left unread as `worker`.
    pub fn discard(&self, worker: usize, pid: u32) {
        // As many as there is room for; what goes on like that is not a process that has ended.
        for _ in 0..OUTBOX / LETTER_HEAD {
            match self.first(worker) {
                Ok(Some((head, first))) if first.pid == pid => {
                    self.move_on(worker, head, first.len);
                }
                _ => return,
            }
        }
    }

    /// Empties an outbox that cannot be read, for a process that has not written into it yet.
    pub fn repair(&self, worker: usize) {
        if self.first(worker).is_err() {
            self.empty(worker);
        }
    }

    /// Forgets what is in an outbox.
    pub fn empty(&self, worker: usize) {
        let ends = self.ends(1 + worker);
        let tail = ends.tail.0.load(SeqCst);
        self.heads[worker].store(tail, SeqCst);
        ends.head.0.store(tail, SeqCst);
    }

    /// Calls `found` with each worker in whose outbox there is something, whatever is said of it.
    pub fn unread(&self, mut found: impl FnMut(usize)) {
        for (worker, head) in self.heads.iter().enumerate() {
            if self.ends(1 + worker).tail.0.load(SeqCst) != head.load(SeqCst) {
                found(worker);
            }
        }
    }

    /// Where that letter lies, and how long it is.
    fn letter(
        &self,
        worker: usize,
        pid: u32,
        number: u64,
    ) -> Result<Option<(u64, usize)>, Damaged> {
        Ok(self.first(worker)?.and_then(|(head, first)| {
            (first.pid == pid && first.number == number).then_some((head, first.len))
        }))
    }

    /// The first letter in an outbox.
    fn first(&self, worker: usize) -> Result<Option<(u64, Letter)>, Damaged> {
        let ends = self.ends(1 + worker);
        let (head, tail) = (self.heads[worker].load(SeqCst), ends.tail.0.load(SeqCst));
        if head == tail {
            return Ok(None);
        }
        let mut bytes = [0; LETTER_HEAD];
        self.copy_out(self.outbox(worker), head, &mut bytes);
        let [a, b, c, d, e, f, g, h, number @ ..] = bytes;
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        let there = tail.wrapping_sub(head);
        if there > OUTBOX as u64 || size_of_letter(len) as u64 > there {
            return Err(Damaged);
        }
        let letter = Letter {
            len,
            pid: u32::from_ne_bytes([e, f, g, h]),
            number: u64::from_ne_bytes(number),
        };
        Ok(Some((head, letter)))
    }

    fn move_on(&self, worker: usize, head: u64, len: usize) {
        let next = head.wrapping_add(size_of_letter(len) as u64);
        self.heads[worker].store(next, SeqCst);
        self.ends(1 + worker).head.0.store(next, SeqCst);
    }

    /// Where an outbox lies, and its size.
    fn outbox(&self, worker: usize) -> (usize, usize) {
        assert!(worker < self.layout.workers, "worker {worker}");
        (self.layout.outboxes + worker * OUTBOX, OUTBOX)
    }

    fn head(&self) -> &Head {
        // SAFETY: at the page-aligned beginning of the mapping, which is longer; its fields are
        // atomics, for which every bit pattern is a value.
        unsafe { self.memory.base().cast::<Head>().as_ref() }
    }

    /// The inbox's ends at 0, each outbox's behind it.
    fn ends(&self, ring: usize) -> &Ends {
        assert!(ring <= self.layout.workers, "ring {ring}");
        let at = self.layout.ends + ring * size_of::<Ends>();
        // SAFETY: inside the mapping by the assertion and the layout, whose parts all are multiples
        // of a cache line; the fields are atomics.
        unsafe { self.memory.base().add(at).cast::<Ends>().as_ref() }
    }

    /// The words of an array that has a bit for each worker.
    fn words(&self, from: usize) -> impl Iterator<Item = (usize, &AtomicU64)> {
        (0..self.layout.workers.div_ceil(64)).map(move |index| {
            // SAFETY: inside the mapping: `from` is one of the three arrays of the layout that have
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

    /// Copies into a ring, across its end.
    fn copy_in(&self, (ring, size): (usize, usize), to: u64, from: &[u8]) {
        let at = (to % size as u64) as usize;
        let (first, second) = from.split_at(from.len().min(size - at));
        assert!(
            second.len() <= at,
            "{} bytes into a ring of {size}",
            from.len()
        );
        // SAFETY: both pieces lie inside the ring, by the split and the assertion, and the ring
        // inside the mapping by the layout; `from` is memory of ours, and no other.
        unsafe {
            let ring = self.memory.base().add(ring).as_ptr();
            ring.add(at)
                .copy_from_nonoverlapping(first.as_ptr(), first.len());
            ring.copy_from_nonoverlapping(second.as_ptr(), second.len());
        }
    }

    /// Copies out of a ring, across its end.
    fn copy_out(&self, (ring, size): (usize, usize), from: u64, to: &mut [u8]) {
        let at = (from % size as u64) as usize;
        let (first, second) = to.split_at_mut(to.len().min(size - at));
        assert!(second.len() <= at, "more bytes than a ring of {size} has");
        // SAFETY: as in `copy_in`. A worker that writes at the same time breaks its own letter, of
        // which any bytes are taken.
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

/// What stands before a letter.
struct Letter {
    len: usize,
    pid: u32,
    number: u64,
}

/// With what stands before it, and what it is filled up with.
fn size_of_letter(len: usize) -> usize {
    LETTER_HEAD + len.next_multiple_of(LETTER_HEAD)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
