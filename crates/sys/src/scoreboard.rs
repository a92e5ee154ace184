//! The scoreboard, which a pool's workers share with Surus: what each worker does, and which
//! requests are claimed, readable without a system call.
//!
//! The layout is that of `sapi/base/scoreboard_layout.h`; both sides assert the sizes. Every worker
//! can write to all of it, so any value may be forged. docs/internals/shared-memory.md says what
//! each is used for, and why a wrong one does no harm.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::shared_memory::SharedMemory;

/// One worker's line. The worker writes all fields except `stop` and `slow`.
#[repr(C)]
struct RawLine {
    state: AtomicU32,
    slot: AtomicU32,
    since: AtomicU64,
    tag: AtomicU64,
    taken: AtomicU64,
    memory: AtomicU64,
    stop: AtomicU64,
    pid: AtomicU32,
    slow: AtomicU32,
    unused: [AtomicU32; 2],
}

const _: () = assert!(size_of::<RawLine>() == 64 && align_of::<RawLine>() == 8);

/// A number that no other request of this generation has; half of it is secret. The worker that
/// claims a request removes the ticket from the shared memory, and no correct process writes it
/// back.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket of the request number `number`, with 32 secret bits.
    pub fn new(number: u32, secret: u32) -> Ticket {
        Ticket(u64::from(secret) << 32 | u64::from(number.max(1)))
    }

    /// The public half, which the request's message and its holder's line contain.
    pub fn tag(self) -> u32 {
        self.0 as u32
    }

    /// As a worker sends it.
    pub fn from_bytes(bytes: [u8; 8]) -> Ticket {
        Ticket(u64::from_be_bytes(bytes))
    }

    /// The word that tells the request's holder to end it (`surus_scoreboard_ticket_end`). The
    /// ticket cannot be derived from it.
    fn end(self) -> u64 {
        let mut mixed = self.0;
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53_u64] {
            mixed = (mixed ^ mixed >> 33).wrapping_mul(factor);
        }
        (mixed ^ mixed >> 33) >> 32 << 32 | u64::from(!self.tag())
    }
}

impl std::fmt::Debug for Ticket {
    /// Without the secret half.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({})", self.tag())
    }
}

/// A request's word after a worker has claimed it (`SURUS_CLAIMED`).
const CLAIMED: u64 = 0;

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Forked, not waiting yet.
    Starting,
    /// Waits for events.
    Idle,
    /// Holds an event, but has run no PHP code for it.
    Received,
    /// Runs the script.
    Running,
    /// Has answered, but is not done.
    Finishing,
    /// Takes no more events.
    Exiting,
}

impl State {
    /// Converts the number from `sapi/base/scoreboard_layout.h`.
    pub fn from_number(number: u32) -> State {
        match number {
            1 => State::Idle,
            2 => State::Received,
            3 => State::Running,
            4 => State::Finishing,
            5 => State::Exiting,
            _ => State::Starting,
        }
    }

    /// Whether a worker in this state holds an event.
    pub fn holds_event(self) -> bool {
        matches!(self, State::Received | State::Running | State::Finishing)
    }
}

/// A snapshot of a worker's line, which may be forged.
#[derive(Debug, Clone, Copy)]
pub struct WorkerLine {
    /// What it does.
    pub state: State,
    /// The slot of its request while it is `Received`, `Running` or `Finishing`. None if no slot
    /// has this number.
    pub slot: Option<u16>,
    /// The tag of that request's ticket.
    pub tag: u64,
    /// The process that writes the line.
    pub pid: u32,
    /// When the state was entered, in microseconds of `CLOCK_MONOTONIC`.
    pub since: u64,
    /// How many requests it has taken.
    pub taken: u64,
    /// Resident memory in bytes, measured between requests.
    pub memory: u64,
}

impl WorkerLine {
    /// The slot and ticket tag of the request that it claims to hold.
    pub fn held(&self) -> Option<(u16, u64)> {
        let slot = self.slot.filter(|_| self.state.holds_event());
        slot.map(|slot| (slot, self.tag))
    }
}

/// The shared memory of one pool generation.
#[derive(Debug)]
pub struct Scoreboard {
    memory: SharedMemory,
    workers: usize,
    slots: usize,
}

// SAFETY: the mapping is used through atomics only, and lives until drop.
unsafe impl Send for Scoreboard {}
// SAFETY: as above; atomics may be used from several threads at once.
unsafe impl Sync for Scoreboard {}

impl Scoreboard {
    /// Zeroed memory for `workers` lines and the tickets in `slots` slots; slot 0 is never used.
    pub fn new(workers: usize, slots: usize) -> io::Result<Scoreboard> {
        Ok(Scoreboard {
            memory: SharedMemory::new(c"surus-scoreboard", Self::size(workers, slots))?,
            workers,
            slots,
        })
    }

    /// The size of the memory in bytes.
    pub fn size(workers: usize, slots: usize) -> usize {
        workers * size_of::<RawLine>() + slots * size_of::<AtomicU64>()
    }

    /// The memory, for the master process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    fn raw(&self, worker: usize) -> &RawLine {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        // SAFETY: inside the mapping by the assertion; a page-aligned base plus a multiple of 64 is
        // aligned for RawLine, whose fields are atomics, for which every bit pattern is valid.
        unsafe {
            &*self
                .memory
                .base()
                .as_ptr()
                .add(worker * size_of::<RawLine>())
                .cast::<RawLine>()
        }
    }

    fn word(&self, slot: u16) -> &AtomicU64 {
        let slot = usize::from(slot);
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        let at = self.workers * size_of::<RawLine>() + slot * size_of::<AtomicU64>();
        // SAFETY: inside the mapping by the assertion and the size chosen in `new`, behind the
        // lines; a page-aligned base plus a multiple of 8 is aligned for a 64-bit atomic, for which
        // every bit pattern is valid.
        unsafe { &*self.memory.base().as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Reads a worker's line.
    pub fn line(&self, worker: usize) -> WorkerLine {
        let raw = self.raw(worker);
        let state = State::from_number(raw.state.load(Ordering::Acquire));
        WorkerLine {
            state,
            slot: self.slot_from(raw.slot.load(Ordering::Relaxed)),
            tag: raw.tag.load(Ordering::Relaxed),
            pid: raw.pid.load(Ordering::Acquire),
            since: raw.since.load(Ordering::Relaxed),
            taken: raw.taken.load(Ordering::Relaxed),
            memory: raw.memory.load(Ordering::Relaxed),
        }
    }

    /// The number as that of a slot, if it can be one.
    pub fn slot_from(&self, number: u32) -> Option<u16> {
        let slot = u16::try_from(number).ok()?;
        (slot > 0 && usize::from(slot) < self.slots).then_some(slot)
    }

    /// Tells `worker` to end this request; takes effect with [`crate::process::Pid::stop`].
    pub fn stop(&self, worker: usize, ticket: Ticket) {
        self.raw(worker).stop.store(ticket.end(), Ordering::SeqCst);
    }

    /// Asks `worker` for the backtrace of this request, which goes on. Takes effect when PHP's
    /// interrupt flag is set.
    pub fn trace(&self, worker: usize, ticket: Ticket) {
        self.raw(worker).slow.store(ticket.tag(), Ordering::SeqCst);
    }

    /// Lets one worker claim the request. Called before it is sent.
    pub fn offer(&self, slot: u16, ticket: Ticket) {
        self.word(slot).store(ticket.0, Ordering::SeqCst);
    }

    /// Whether the word says that the request is unclaimed. The word of a claimed request may have
    /// been written back.
    pub fn is_offered(&self, slot: u16, ticket: Ticket) -> bool {
        self.word(slot).load(Ordering::SeqCst) == ticket.0
    }

    /// Revokes the request. True if no worker will begin it, wherever its message is, and none has,
    /// unless the word was written back. False if a worker has claimed it.
    pub fn revoke(&self, slot: u16, ticket: Ticket) -> bool {
        self.word(slot)
            .compare_exchange(ticket.0, CLAIMED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// The client has disconnected: the worker that has claimed this request sees an aborted
    /// connection.
    pub fn set_aborted(&self, slot: u16, ticket: Ticket) {
        self.word(slot).store(ticket.end(), Ordering::SeqCst);
    }
}

/// Microseconds of `CLOCK_MONOTONIC`, the clock of deadlines and of the scoreboard.
pub fn now_micros() -> u64 {
    match nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC) {
        Ok(now) => now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1000,
        Err(_) => 0, // clock_gettime(2) cannot fail for this clock
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn request_that_was_claimed_or_revoked_cannot_be_taken_again() {
        let board = Scoreboard::new(2, 10).unwrap();
        let (first, second) = (Ticket::new(1, 77), Ticket::new(2, 78));
        board.offer(5, first);
        assert!(board.is_offered(5, first) && !board.is_offered(5, second));
        assert!(!board.revoke(5, second), "another request's");
        assert!(board.revoke(5, first) && !board.revoke(5, first));
        board.offer(5, second);
        // As sapi/worker/worker.c claims it.
        board.word(5).store(CLAIMED, Ordering::SeqCst);
        assert!(!board.revoke(5, second) && !board.is_offered(5, second));
        board.set_aborted(5, second);
        assert!(!board.revoke(5, second) && !board.is_offered(5, second));
    }

    #[test]
    fn ticket_end_matches_the_worker_and_hides_the_secret_half() {
        let ticket = Ticket(0x0123_4567_89ab_cdef);
        // As surus_scoreboard_ticket_end() computes it.
        assert_eq!(ticket.end(), 0x87cb_fbfe_7654_3210);
        assert_ne!(ticket.end() >> 32, ticket.0 >> 32);
        assert_ne!(ticket.end() >> 32, !ticket.0 >> 32);
    }

    #[test]
    fn line_with_impossible_slot_holds_nothing() {
        let board = Scoreboard::new(2, 10).unwrap();
        let raw = board.raw(1);
        raw.state.store(3, Ordering::SeqCst);
        for (number, held) in [(5, true), (0, false), (10, false), (70_000, false)] {
            raw.slot.store(number, Ordering::SeqCst);
            assert_eq!(board.line(1).held().is_some(), held, "{number}");
        }
        raw.slot.store(0x1_0005, Ordering::SeqCst);
        assert!(board.line(1).held().is_none());
    }

    #[test]
    fn lines_and_requests_do_not_overlap() {
        let board = Scoreboard::new(3, 10).unwrap();
        for slot in 0..10 {
            board.offer(slot, Ticket::new(u32::from(slot) + 1, u32::MAX));
        }
        for worker in 0..3 {
            assert_eq!(board.line(worker).state, State::Starting);
            assert_eq!(board.line(worker).taken, 0);
            board.stop(worker, Ticket(u64::MAX));
        }
        for slot in 0..10 {
            let ticket = Ticket::new(u32::from(slot) + 1, u32::MAX);
            assert!(board.is_offered(slot, ticket));
        }
    }
}
