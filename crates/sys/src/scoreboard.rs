//! The memory that a pool's workers share with surus: who does what, read without a system call,
//! and who has claimed which request.
//!
//! The layout is `sapi/base/scoreboard_layout.h`; both sides assert the sizes. Every worker can
//! write to all of it, so whatever is read here may be any number: docs/shared-memory.md says what
//! each is used for, and why a wrong one does no harm.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::shared_memory::Shared;

/// One worker's line. All fields are written by the worker, except for `stop`.
#[repr(C)]
struct RawLine {
    state: AtomicU32,
    request: AtomicU32,
    since: AtomicU64,
    tag: AtomicU64,
    taken: AtomicU64,
    memory: AtomicU64,
    stop: AtomicU64,
    pid: AtomicU32,
    unused: [AtomicU32; 3],
}

const _: () = assert!(size_of::<RawLine>() == 64 && align_of::<RawLine>() == 8);

/// A number that no other request of this generation has; half of it is secret. The worker that
/// claims a request takes the ticket out of the shared memory, and nobody writes it there again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket of the request number `number`, which no other has, with 32 secret bits.
    pub fn new(number: u32, secret: u32) -> Ticket {
        Ticket(u64::from(secret) << 32 | u64::from(number.max(1)))
    }

    /// The half that is not secret: what the request's message and its holder's line say of it.
    pub fn tag(self) -> u32 {
        self.0 as u32
    }

    /// As a worker says it.
    pub fn from_bytes(bytes: [u8; 8]) -> Ticket {
        Ticket(u64::from_be_bytes(bytes))
    }

    /// Tells the holder of the request to end it (`surus_ticket_end`). The ticket does not follow
    /// from it.
    fn end(self) -> u64 {
        let mut mixed = self.0;
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53_u64] {
            mixed = (mixed ^ mixed >> 33).wrapping_mul(factor);
        }
        (mixed ^ mixed >> 33) >> 32 << 32 | u64::from(!self.tag())
    }
}

impl std::fmt::Debug for Ticket {
    /// Without what is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({})", self.tag())
    }
}

/// What a request's word holds once a worker has claimed the request (`SURUS_CLAIMED`).
const CLAIMED: u64 = 0;

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Forked, not yet waiting.
    Starting,
    /// Waits at the inbox.
    Idle,
    /// Holds an event of which no PHP has run.
    Received,
    /// Runs the script.
    Running,
    /// Has answered and goes on.
    Finishing,
    /// Takes no more events.
    Retired,
}

impl State {
    /// From the number that `sapi/base/scoreboard_layout.h` gives it.
    pub fn from_number(number: u32) -> State {
        match number {
            1 => State::Idle,
            2 => State::Received,
            3 => State::Running,
            4 => State::Finishing,
            5 => State::Retired,
            _ => State::Starting,
        }
    }

    /// Does a worker in this state hold an event?
    pub fn holds_event(self) -> bool {
        matches!(self, State::Received | State::Running | State::Finishing)
    }
}

/// A worker's line, read at one moment: what it says, which need not be true.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// What it does.
    pub state: State,
    /// The request id in its hands, while it is `Received`, `Running` or `Finishing`; None when no
    /// request can have it.
    pub request: Option<u16>,
    /// The tag of that request's ticket.
    pub tag: u64,
    /// The process whose line it is.
    pub pid: u32,
    /// When the state was entered, in microseconds of `CLOCK_MONOTONIC`.
    pub since: u64,
    /// Requests taken so far.
    pub taken: u64,
    /// Resident memory in bytes, as last seen between two requests.
    pub memory: u64,
}

impl Line {
    /// The request that it says to hold: its id, and the tag of its ticket.
    pub fn held(&self) -> Option<(u16, u64)> {
        let request = self.request.filter(|_| self.state.holds_event());
        request.map(|request| (request, self.tag))
    }
}

/// The shared memory of one pool generation.
#[derive(Debug)]
pub struct Scoreboard {
    memory: Shared,
    workers: usize,
    requests: usize,
}

// SAFETY: the mapping is used through atomics only, and lives until drop.
unsafe impl Send for Scoreboard {}
// SAFETY: as above; atomics may be used from several threads at once.
unsafe impl Sync for Scoreboard {}

impl Scoreboard {
    /// Memory for `workers` lines and `requests` request ids (of which 0 is never used), all zero.
    pub fn new(workers: usize, requests: usize) -> io::Result<Scoreboard> {
        Ok(Scoreboard {
            memory: Shared::new(c"surus-scoreboard", Self::size(workers, requests))?,
            workers,
            requests,
        })
    }

    /// Bytes of the memory for so many.
    pub fn size(workers: usize, requests: usize) -> usize {
        workers * size_of::<RawLine>() + requests * size_of::<AtomicU64>()
    }

    /// The memory, to be passed to the template.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    fn raw(&self, worker: usize) -> &RawLine {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        // SAFETY: inside the mapping by the assertion; page-aligned base plus a multiple of 64 is
        // aligned for RawLine, whose fields are atomics, for which every bit pattern is a value.
        unsafe {
            &*self
                .memory
                .base()
                .as_ptr()
                .add(worker * size_of::<RawLine>())
                .cast::<RawLine>()
        }
    }

    fn word(&self, request: u16) -> &AtomicU64 {
        let request = usize::from(request);
        assert!(
            request < self.requests,
            "request {request} of {}",
            self.requests
        );
        let at = self.workers * size_of::<RawLine>() + request * size_of::<AtomicU64>();
        // SAFETY: inside the mapping by the assertion and the size chosen in `new`, behind the
        // lines; a page-aligned base plus a multiple of 8 is aligned for a 64-bit atomic, for which
        // every bit pattern is a value.
        unsafe { &*self.memory.base().as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Reads a worker's line.
    pub fn line(&self, worker: usize) -> Line {
        let raw = self.raw(worker);
        let state = State::from_number(raw.state.load(Ordering::Acquire));
        Line {
            state,
            request: self.request_from(raw.request.load(Ordering::Relaxed)),
            tag: raw.tag.load(Ordering::Relaxed),
            pid: raw.pid.load(Ordering::Acquire),
            since: raw.since.load(Ordering::Relaxed),
            taken: raw.taken.load(Ordering::Relaxed),
            memory: raw.memory.load(Ordering::Relaxed),
        }
    }

    /// The request id, if there can be such a request.
    pub fn request_from(&self, number: u32) -> Option<u16> {
        let request = u16::try_from(number).ok()?;
        (request > 0 && usize::from(request) < self.requests).then_some(request)
    }

    /// Tells `worker` that this request of its has to end; takes effect with
    /// [`crate::process::Pid::stop`].
    pub fn stop(&self, worker: usize, ticket: Ticket) {
        self.raw(worker).stop.store(ticket.end(), Ordering::SeqCst);
    }

    /// From here on one worker can claim the request, before it is sent to any.
    pub fn offer(&self, request: u16, ticket: Ticket) {
        self.word(request).store(ticket.0, Ordering::SeqCst);
    }

    /// Does the word say that nobody has claimed the request yet? A claimed one's can be written
    /// back.
    pub fn is_offered(&self, request: u16, ticket: Ticket) -> bool {
        self.word(request).load(Ordering::SeqCst) == ticket.0
    }

    /// Takes the request back. True: no worker will begin it from here on, wherever its message
    /// still lies, nor has one begun it, unless the word was written back. False: a worker has
    /// claimed it.
    pub fn revoke(&self, request: u16, ticket: Ticket) -> bool {
        self.word(request)
            .compare_exchange(ticket.0, CLAIMED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Nobody waits for this request any more: the worker that has claimed it sees an aborted
    /// connection.
    pub fn set_gone(&self, request: u16, ticket: Ticket) {
        self.word(request).store(ticket.end(), Ordering::SeqCst);
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
        board.set_gone(5, second);
        assert!(!board.revoke(5, second) && !board.is_offered(5, second));
    }

    #[test]
    fn end_of_a_ticket_is_what_the_worker_computes_and_hides_the_secret_half() {
        let ticket = Ticket(0x0123_4567_89ab_cdef);
        // As surus_ticket_end() has it.
        assert_eq!(ticket.end(), 0x87cb_fbfe_7654_3210);
        assert_ne!(ticket.end() >> 32, ticket.0 >> 32);
        assert_ne!(ticket.end() >> 32, !ticket.0 >> 32);
    }

    #[test]
    fn line_with_impossible_request_id_holds_nothing() {
        let board = Scoreboard::new(2, 10).unwrap();
        let raw = board.raw(1);
        raw.state.store(3, Ordering::SeqCst);
        for (number, held) in [(5, true), (0, false), (10, false), (70_000, false)] {
            raw.request.store(number, Ordering::SeqCst);
            assert_eq!(board.line(1).held().is_some(), held, "{number}");
        }
        raw.request.store(0x1_0005, Ordering::SeqCst);
        assert!(board.line(1).held().is_none());
    }

    #[test]
    fn lines_and_requests_do_not_overlap() {
        let board = Scoreboard::new(3, 10).unwrap();
        for request in 0..10 {
            board.offer(request, Ticket::new(u32::from(request) + 1, u32::MAX));
        }
        for worker in 0..3 {
            assert_eq!(board.line(worker).state, State::Starting);
            assert_eq!(board.line(worker).taken, 0);
            board.stop(worker, Ticket(u64::MAX));
        }
        for request in 0..10 {
            let ticket = Ticket::new(u32::from(request) + 1, u32::MAX);
            assert!(board.is_offered(request, ticket));
        }
    }
}
