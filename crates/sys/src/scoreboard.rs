//! The memory that a pool's workers share with surus: who does what, read without a system call.
//!
//! The layout is `sapi/scoreboard.h`; both sides assert the sizes.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use crate::shared::Shared;

/// One worker's line. All fields are written by the worker, except for `stop`.
#[repr(C)]
struct RawLine {
    state: AtomicU32,
    request: AtomicU32,
    since: AtomicU64,
    taken: AtomicU64,
    memory: AtomicU64,
    stop: AtomicU64,
    pid: AtomicU32,
    unused: [AtomicU32; 5],
}

/// The request ids of a worker's last events, each at its number modulo their count.
#[repr(C)]
struct RawTook([AtomicU16; REMEMBERED as usize]);

/// Events of which a worker's line has the request ids: the last ones.
pub const REMEMBERED: u64 = 2048;

/// Bytes that each worker has.
const EACH: usize = size_of::<RawLine>() + size_of::<RawTook>();

const _: () = assert!(size_of::<RawLine>() == 64 && align_of::<RawLine>() == 8);

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
    /// From the number that `sapi/scoreboard.h` gives it.
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

/// A worker's line, read at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// What it does.
    pub state: State,
    /// The request id in its hands, while it is `Received`, `Running` or `Finishing`.
    pub request: u16,
    /// When the state was entered, in microseconds of `CLOCK_MONOTONIC`.
    pub since: u64,
    /// Events taken so far; this number names the event in its hands.
    pub taken: u64,
    /// Resident memory in bytes, as last seen between two events.
    pub memory: u64,
}

/// What a worker has taken from the inbox as its event of some number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// The event with this request id.
    Request(u16),
    /// It has not taken that many.
    Nothing,
    /// It is not remembered.
    LongAgo,
    /// The line is another process's, so that one has ended.
    Another,
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
        workers * EACH + requests
    }

    /// The memory, to be passed to the template.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    fn raw(&self, worker: usize) -> &RawLine {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        // SAFETY: inside the mapping by the assertion; page-aligned base plus a multiple of 64 is aligned for RawLine, whose
        // fields are atomics, for which every bit pattern is a value.
        unsafe {
            &*self
                .memory
                .base()
                .as_ptr()
                .add(worker * size_of::<RawLine>())
                .cast::<RawLine>()
        }
    }

    fn raw_took(&self, worker: usize) -> &RawTook {
        assert!(worker < self.workers, "worker {worker} of {}", self.workers);
        let at = self.workers * size_of::<RawLine>() + worker * size_of::<RawTook>();
        // SAFETY: inside the mapping by the assertion, behind the lines; a multiple of 64 is aligned for 16-bit atomics, for which
        // every bit pattern is a value.
        unsafe { &*self.memory.base().as_ptr().add(at).cast::<RawTook>() }
    }

    fn gone(&self, request: u16) -> &AtomicU8 {
        let request = usize::from(request);
        assert!(
            request < self.requests,
            "request {request} of {}",
            self.requests
        );
        // SAFETY: inside the mapping by the assertion and the size chosen in `new`; AtomicU8 needs no alignment.
        unsafe {
            &*self
                .memory
                .base()
                .as_ptr()
                .add(self.workers * EACH + request)
                .cast::<AtomicU8>()
        }
    }

    /// Reads a worker's line.
    pub fn line(&self, worker: usize) -> Line {
        let raw = self.raw(worker);
        Line {
            state: State::from_number(raw.state.load(Ordering::Acquire)),
            request: raw.request.load(Ordering::Relaxed) as u16,
            since: raw.since.load(Ordering::Relaxed),
            taken: raw.taken.load(Ordering::Relaxed),
            memory: raw.memory.load(Ordering::Relaxed),
        }
    }

    /// What the process `pid` has taken as its event `number`, if `worker` is that process.
    pub fn took(&self, worker: usize, pid: u32, number: u64) -> Took {
        let raw = self.raw(worker);
        let took = &self.raw_took(worker).0;
        let request = took[(number % REMEMBERED) as usize].load(Ordering::Acquire);
        // Read behind the request id, so that neither can belong to another event or process unseen.
        fence(Ordering::Acquire);
        let taken = raw.taken.load(Ordering::Acquire);
        fence(Ordering::Acquire);
        if raw.pid.load(Ordering::Acquire) != pid {
            return Took::Another;
        }
        match taken.checked_sub(number) {
            None => Took::Nothing,
            // One less than there are: the worker may be about to write the next.
            Some(since) if since + 1 < REMEMBERED => Took::Request(request),
            Some(_) => Took::LongAgo,
        }
    }

    /// Tells `worker` that its event number `taken` has to end; takes effect with [`crate::process::Pid::stop`].
    pub fn stop(&self, worker: usize, taken: u64) {
        self.raw(worker).stop.store(taken, Ordering::SeqCst);
    }

    /// Says whether nobody waits for `request` any more. A worker drops such an event, or sees an aborted connection.
    pub fn set_gone(&self, request: u16, gone: bool) {
        self.gone(request).store(u8::from(gone), Ordering::SeqCst);
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
    fn a_line_knows_what_its_process_took_last() {
        let board = Scoreboard::new(2, 10).unwrap();
        let line = board.raw(1);
        assert_eq!(board.took(1, 77, 1), Took::Another);
        line.pid.store(77, Ordering::SeqCst);
        for number in 1..5000_u64 {
            assert_eq!(board.took(1, 77, number), Took::Nothing);
            let at = (number % REMEMBERED) as usize;
            board.raw_took(1).0[at].store(100 + number as u16, Ordering::SeqCst);
            line.taken.store(number, Ordering::SeqCst);
            for back in [0, 1, 9, 1000, REMEMBERED - 2] {
                if back >= number {
                    break;
                }
                let request = 100 + (number - back) as u16;
                assert_eq!(board.took(1, 77, number - back), Took::Request(request));
            }
            assert_eq!(board.took(1, 78, number), Took::Another);
        }
        assert_eq!(board.took(1, 77, 4999 - 2047), Took::LongAgo);
        assert_eq!(board.took(1, 77, 1), Took::LongAgo);
    }

    #[test]
    fn lines_and_requests_do_not_overlap() {
        let board = Scoreboard::new(3, 10).unwrap();
        for request in 1..10 {
            board.set_gone(request, true);
        }
        for worker in 0..3 {
            assert_eq!(board.line(worker).state, State::Starting);
            assert_eq!(board.line(worker).taken, 0);
            board.stop(worker, u64::MAX);
        }
        board.set_gone(5, false);
        assert_eq!(board.gone(5).load(Ordering::SeqCst), 0);
        assert_eq!(board.gone(6).load(Ordering::SeqCst), 1);
    }
}
