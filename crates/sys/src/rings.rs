//! The inbox and the outboxes of a pool as rings in memory that its workers share with surus: as long as who is to hear of an
//! event or an answer is awake, neither side needs a system call.
//!
//! The layout is `sapi/rings.h`; both sides assert the sizes. Whatever a worker may have written there, nothing here reads or
//! writes outside of the memory.

use std::io::{self, IoSlice};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::scoreboard::now_micros;

const LINE: usize = 64;
const OUTBOX: usize = 64 * 1024;
const INBOX_LEAST: usize = 64 * 1024;
const INBOX_MOST: usize = 4 * 1024 * 1024;
const INBOX_EACH: usize = 32 * 1024;
/// The longest event that goes into a ring, so that there is room for several.
const EVENT_MOST: usize = 16 * 1024;
/// Bytes before each event: its length.
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
    base: NonNull<u8>,
    layout: Layout,
    memory: OwnedFd,
    /// Held by who writes into the inbox.
    putting: Mutex<()>,
}

/// Where in the memory what is, in bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    workers: usize,
    sleeping: usize,
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
        let posted = sleeping + words;
        let ends = posted + words;
        let inbox = ends + (1 + workers) * size_of::<Ends>();
        let outboxes = inbox + inbox_size;
        Layout {
            workers,
            sleeping,
            posted,
            ends,
            inbox,
            inbox_size,
            outboxes,
            size: outboxes + workers * OUTBOX,
        }
    }
}

// SAFETY: the mapping lives until drop and is used through atomics and by copying; what is copied while others write is either
// protected by `putting` or checked before it is believed.
unsafe impl Send for Rings {}
// SAFETY: as above.
unsafe impl Sync for Rings {}

/// An outbox has in it what no worker of ours writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl Rings {
    /// For so many workers, all empty. Until somebody says otherwise, each letter wakes surus.
    pub fn new(workers: usize) -> io::Result<Rings> {
        let layout = Layout::new(workers);
        let size = NonZeroUsize::new(layout.size).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = memfd_create(c"surus-rings", MFdFlags::MFD_CLOEXEC)?;
        nix::unistd::ftruncate(&memory, size.get() as i64)?;
        // SAFETY: a fresh shared mapping of a file of exactly this size, which nobody can shrink: only we and the workers
        // hold it, and neither does.
        let base = unsafe {
            mmap(
                None,
                size,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                &memory,
                0,
            )?
        };
        let rings = Rings {
            base: base.cast(),
            layout,
            memory,
            putting: Mutex::new(()),
        };
        rings.set_asleep(Sleep::Unknown);
        Ok(rings)
    }

    /// The memory, to be passed to the template.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Says whether surus has to be woken for a letter. Who says that it sleeps looks for letters [once more](Rings::posted).
    pub fn set_asleep(&self, asleep: Sleep) {
        self.head().surus.0.sleeps.store(asleep as u32, SeqCst);
    }

    /// A worker that sleeps. Who is told of it sends a message that [wakes](Rings::wakes) it, or [gives it back](Rings::give_back).
    pub fn claim_sleeper(&self) -> Option<usize> {
        self.words(self.layout.sleeping).find_map(|(index, word)| {
            let mut bits = word.load(SeqCst);
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                if word.fetch_and(!bit, SeqCst) & bit != 0 {
                    let worker = index * 64 + bit.trailing_zeros() as usize;
                    return (worker < self.layout.workers).then_some(worker);
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
        let ends = self.ends(0);
        ends.head.0.load(SeqCst) != ends.tail.0.load(SeqCst)
    }

    /// A message that is to wake nobody has gone by the socket.
    pub fn sent_by_socket(&self) {
        self.head().sockets.0.by_socket.fetch_add(1, SeqCst);
    }

    /// Puts an event, gathered from `parts`, into the inbox. False when there is no room for it.
    pub fn put(&self, parts: &[IoSlice<'_>]) -> bool {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let size = EVENT_HEAD + len.next_multiple_of(EVENT_HEAD);
        if len == 0 || len > EVENT_MOST {
            return false;
        }
        let _putting = self.putting.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = self.ends(0);
        let (head, tail) = (ends.head.0.load(SeqCst), ends.tail.0.load(SeqCst));
        // Workers move the head; one that does not know what it does may have moved it anywhere.
        let used = tail.wrapping_sub(head);
        if used > self.layout.inbox_size as u64
            || size as u64 > self.layout.inbox_size as u64 - used
        {
            return false;
        }
        let ring = (self.layout.inbox, self.layout.inbox_size);
        let mut at = tail;
        let head = (len as u64).to_ne_bytes();
        for part in std::iter::once(&head[..]).chain(parts.iter().map(|part| &part[..])) {
            self.copy_in(ring, at, part);
            at = at.wrapping_add(part.len() as u64);
        }
        ends.tail.0.store(tail.wrapping_add(size as u64), SeqCst);
        true
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

    /// Has the process `pid` written a letter, as `worker`, about its event `number`?
    pub fn has_letter(&self, worker: usize, pid: u32, number: u64) -> Result<bool, Damaged> {
        Ok(self.letter(worker, pid, number)?.is_some())
    }

    /// Takes that letter: copies it to where `room` has as many bytes as it is told. False when there is none.
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
            let ends = self.ends(1 + worker);
            ends.head.0.store(ends.tail.0.load(SeqCst), SeqCst);
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
        let (head, tail) = (ends.head.0.load(SeqCst), ends.tail.0.load(SeqCst));
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
        self.ends(1 + worker).head.0.store(next, SeqCst);
    }

    /// Where an outbox lies, and its size.
    fn outbox(&self, worker: usize) -> (usize, usize) {
        assert!(worker < self.layout.workers, "worker {worker}");
        (self.layout.outboxes + worker * OUTBOX, OUTBOX)
    }

    fn head(&self) -> &Head {
        // SAFETY: at the page-aligned beginning of the mapping, which is longer; its fields are atomics, for which every bit
        // pattern is a value.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    /// The inbox's ends at 0, each outbox's behind it.
    fn ends(&self, ring: usize) -> &Ends {
        assert!(ring <= self.layout.workers, "ring {ring}");
        let at = self.layout.ends + ring * size_of::<Ends>();
        // SAFETY: inside the mapping by the assertion and the layout, whose parts all are multiples of a cache line; the
        // fields are atomics.
        unsafe { self.base.add(at).cast::<Ends>().as_ref() }
    }

    /// The words that have a bit for each worker.
    fn words(&self, from: usize) -> impl Iterator<Item = (usize, &AtomicU64)> {
        (0..self.layout.workers.div_ceil(64)).map(move |index| {
            // SAFETY: inside the mapping: `from` is one of the two arrays of the layout that have room for a bit for each worker;
            // aligned as a cache line plus a multiple of 8.
            let word = unsafe { self.base.add(from + index * 8).cast::<AtomicU64>().as_ref() };
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
        // SAFETY: both pieces lie inside the ring, by the split and the assertion, and the ring inside the mapping by the
        // layout; `from` is memory of ours, and no other.
        unsafe {
            let ring = self.base.add(ring).as_ptr();
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
        // SAFETY: as in `copy_in`. A worker that writes at the same time breaks its own letter, of which any bytes are taken.
        unsafe {
            let ring = self.base.add(ring).as_ptr();
            first
                .as_mut_ptr()
                .copy_from_nonoverlapping(ring.add(at), first.len());
            second
                .as_mut_ptr()
                .copy_from_nonoverlapping(ring, second.len());
        }
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), self.layout.size) };
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What `sapi/rings.c` does.
    impl Rings {
        fn take_event(&self) -> Option<Vec<u8>> {
            let ends = self.ends(0);
            loop {
                let (head, tail) = (ends.head.0.load(SeqCst), ends.tail.0.load(SeqCst));
                if head == tail {
                    return None;
                }
                let ring = (self.layout.inbox, self.layout.inbox_size);
                let mut len = [0; EVENT_HEAD];
                self.copy_out(ring, head, &mut len);
                let len = u64::from_ne_bytes(len) as usize;
                let mut event = vec![0; len.min(EVENT_MOST)];
                self.copy_out(ring, head + EVENT_HEAD as u64, &mut event);
                let next = head + (EVENT_HEAD + len.next_multiple_of(EVENT_HEAD)) as u64;
                let moved = ends.head.0.compare_exchange(head, next, SeqCst, SeqCst);
                if moved.is_ok() {
                    return Some(event);
                }
            }
        }

        fn post(&self, worker: usize, pid: u32, number: u64, content: &[u8]) -> bool {
            let ends = self.ends(1 + worker);
            let (head, tail) = (ends.head.0.load(SeqCst), ends.tail.0.load(SeqCst));
            let size = size_of_letter(content.len()) as u64;
            if size > OUTBOX as u64 - (tail - head) {
                return false;
            }
            let mut letter = (content.len() as u32).to_ne_bytes().to_vec();
            letter.extend(pid.to_ne_bytes());
            letter.extend(number.to_ne_bytes());
            letter.extend(content);
            self.copy_in(self.outbox(worker), tail, &letter);
            ends.tail.0.store(tail + size, SeqCst);
            let posted = self.layout.posted;
            let (_, word) = self.words(posted).nth(worker / 64).unwrap();
            word.fetch_or(1 << (worker % 64), SeqCst);
            true
        }

        fn letter_of(
            &self,
            worker: usize,
            pid: u32,
            number: u64,
        ) -> Result<Option<Vec<u8>>, Damaged> {
            let mut to = Vec::new();
            let is_there = self.take_letter(worker, pid, number, |len| {
                to.resize(len, 0);
                &mut to[..]
            })?;
            Ok(is_there.then_some(to))
        }

        fn found(&self) -> Vec<usize> {
            let mut found = Vec::new();
            self.posted(|worker| found.push(worker));
            found
        }
    }

    #[test]
    fn parts_do_not_overlap_whatever_the_number_of_workers() {
        for workers in [1, 2, 4, 5, 63, 64, 65, 200, 513] {
            let layout = Layout::new(workers);
            let bits = (
                layout.posted - size_of::<Head>(),
                layout.ends - layout.posted,
            );
            assert!(bits.0 == bits.1 && bits.0 * 8 >= workers, "{layout:?}");
            assert_eq!(layout.ends % LINE, 0);
            assert!(layout.inbox_size.is_power_of_two() && layout.inbox_size >= 2 * EVENT_MOST);
            let rings = Rings::new(workers).unwrap();
            for worker in 0..workers {
                let content = [worker as u8; 100];
                while rings.post(worker, 7, worker as u64, &content) {}
            }
            while rings.put(&[IoSlice::new(&[255; 1000])]) {}
            assert_eq!(rings.found(), (0..workers).collect::<Vec<_>>());
            assert_eq!(rings.found(), [0; 0]);
            for worker in 0..workers {
                let letter = rings.letter_of(worker, 7, worker as u64).unwrap();
                assert_eq!(letter.unwrap(), [worker as u8; 100]);
            }
            assert_eq!(rings.take_event().unwrap(), [255; 1000]);
        }
    }

    #[test]
    fn a_letter_is_for_who_waits_for_that_event_of_that_process() {
        let rings = Rings::new(1).unwrap();
        assert!(rings.post(0, 10, 5, b"five") && rings.post(0, 10, 6, b"six"));
        assert_eq!(rings.letter_of(0, 11, 5), Ok(None), "its successor");
        assert_eq!(rings.letter_of(0, 10, 4), Ok(None), "that comes by socket");
        assert_eq!(rings.letter_of(0, 10, 5), Ok(Some(b"five".to_vec())));
        rings.discard(0, 11);
        assert_eq!(rings.has_letter(0, 10, 6), Ok(true));
        rings.discard(0, 10);
        assert_eq!(rings.has_letter(0, 10, 6), Ok(false));
    }

    #[test]
    fn each_sleeper_is_woken_once() {
        let rings = Rings::new(100).unwrap();
        assert_eq!(rings.claim_sleeper(), None);
        for worker in [3, 70, 99] {
            rings.give_back(worker);
        }
        assert_eq!(rings.claim_sleeper(), Some(3));
        assert_eq!(rings.claim_sleeper(), Some(70));
        rings.give_back(3);
        assert_eq!(rings.claim_sleeper(), Some(3));
        assert_eq!(rings.claim_sleeper(), Some(99));
        assert_eq!(rings.claim_sleeper(), None);
    }

    #[test]
    fn several_readers_get_each_event_once_and_whole() {
        let rings = &Rings::new(4).unwrap();
        const EVENTS: u32 = 40_000;
        let mut seen = std::thread::scope(|scope| {
            let read = || {
                let mut seen = Vec::new();
                loop {
                    let Some(event) = rings.take_event() else {
                        std::thread::yield_now();
                        continue;
                    };
                    let number = u32::from_ne_bytes(*event.first_chunk().unwrap());
                    if number == EVENTS {
                        return seen;
                    }
                    let rest = &event[4..];
                    assert_eq!(rest.len(), number as usize % 3000);
                    assert!(rest.iter().all(|byte| *byte == number as u8));
                    seen.push(number);
                }
            };
            let readers = [scope.spawn(read), scope.spawn(read), scope.spawn(read)];
            for number in (0..EVENTS).chain([EVENTS; 3]) {
                let rest = vec![number as u8; number as usize % 3000];
                while !rings.put(&[IoSlice::new(&number.to_ne_bytes()), IoSlice::new(&rest)]) {
                    std::thread::yield_now();
                }
            }
            readers.map(|reader| reader.join().unwrap()).concat()
        });
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..EVENTS));
    }

    proptest! {
        #[test]
        fn what_is_put_is_taken_in_its_order(steps in prop::collection::vec((0..20_000_usize, any::<bool>()), 1..200)) {
            let rings = Rings::new(1).unwrap();
            let (mut waiting, mut number) = (std::collections::VecDeque::new(), 0_u8);
            for (len, puts) in steps {
                if puts {
                    number = number.wrapping_add(1);
                    let event = vec![number; len];
                    let (first, second) = event.split_at(len / 3);
                    if rings.put(&[IoSlice::new(first), IoSlice::new(second)]) {
                        prop_assert!((1..=EVENT_MOST).contains(&len));
                        waiting.push_back(event);
                    } else {
                        let used: usize = waiting.iter().map(|event: &Vec<u8>| event.len() + 16).sum();
                        prop_assert!(len == 0 || len > EVENT_MOST || used + len + 16 > INBOX_LEAST);
                    }
                } else {
                    prop_assert_eq!(rings.has_event(), !waiting.is_empty());
                    prop_assert_eq!(rings.take_event(), waiting.pop_front());
                }
            }
        }

        #[test]
        fn letters_arrive_as_they_are(lens in prop::collection::vec(0..40_000_usize, 1..60)) {
            let rings = Rings::new(3).unwrap();
            for (number, len) in lens.into_iter().enumerate() {
                let content = vec![number as u8; len];
                prop_assert!(rings.post(2, 9, number as u64, &content));
                prop_assert_eq!(rings.letter_of(2, 9, number as u64), Ok(Some(content)));
            }
        }

        /// A worker whose memory is not what it was may write anything.
        #[test]
        fn whatever_a_worker_writes_is_survived(
            head in any::<u64>(), ahead in prop_oneof![0..200_000_u64, any::<u64>()],
            len in prop_oneof![0..100_000_u32, any::<u32>()], bits in any::<u64>(),
        ) {
            let rings = Rings::new(2).unwrap();
            for ring in 0..3 {
                rings.ends(ring).head.0.store(head, SeqCst);
                rings.ends(ring).tail.0.store(head.wrapping_add(ahead), SeqCst);
            }
            let letter = [len.to_ne_bytes(), 7_u32.to_ne_bytes()].concat();
            rings.copy_in(rings.outbox(1), head, &letter);
            for words in [rings.layout.sleeping, rings.layout.posted] {
                rings.words(words).next().unwrap().1.store(bits, SeqCst);
            }
            prop_assert!(rings.found().iter().all(|worker| *worker < 2));
            for _ in 0..3 {
                if let Ok(Some(letter)) = rings.letter_of(1, 7, 0) {
                    prop_assert!(letter.len() <= OUTBOX);
                }
            }
            rings.put(&[IoSlice::new(&[1; 5000])]);
            prop_assert!(rings.claim_sleeper().is_none_or(|worker| worker < 2));
            rings.discard(1, 7);
            rings.discard(0, 7);
            rings.repair(0);
            rings.repair(1);
            prop_assert!(rings.has_letter(0, 1, 0).is_ok());
        }
    }
}
