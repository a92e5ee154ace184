//! Which of an engine's processes does what.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::event::Event;
use crate::observe::status::{WorkerState, WorkerStatus};

/// As many as events may run at once.
#[derive(Clone)]
pub struct Seats(Arc<Mutex<Vec<State>>>);

struct State {
    /// 0 when there is no process.
    pid: u32,
    is_taken: bool,
    event: Option<String>,
    since: Instant,
    served: u64,
}

/// One of them, until it is dropped.
pub struct Seat {
    seats: Seats,
    pub index: usize,
    /// The process at the seat is the one that has had the event, which counts when this is dropped.
    pub counts: bool,
}

impl Seats {
    pub fn new(count: usize) -> Seats {
        let free = || State {
            pid: 0,
            is_taken: false,
            event: None,
            since: Instant::now(),
            served: 0,
        };
        Seats(Arc::new(Mutex::new(
            std::iter::repeat_with(free).take(count).collect(),
        )))
    }

    /// A free one for the event. There is one for everybody who has a place of the queue.
    pub fn take(&self, event: &Event) -> Option<Seat> {
        let mut all = self.lock();
        let index = all.iter().position(|state| !state.is_taken)?;
        let state = &mut all[index];
        state.is_taken = true;
        state.event = Some(format!(
            "{} {}",
            event.request.method(),
            event.request.uri()
        ));
        state.since = Instant::now();
        Some(Seat {
            seats: self.clone(),
            index,
            counts: true,
        })
    }

    /// The process at a seat is now this one; 0 for none.
    pub fn set_pid(&self, index: usize, pid: u32) {
        let state = &mut self.lock()[index];
        if state.pid != pid {
            state.pid = pid;
            state.served = 0;
        }
    }

    /// Those that have a process.
    pub fn status(&self) -> Vec<WorkerStatus> {
        let all = self.lock();
        let present = all.iter().filter(|state| state.pid != 0);
        present
            .map(|state| WorkerStatus {
                pid: state.pid,
                state: match state.is_taken {
                    true => WorkerState::Busy,
                    false => WorkerState::Idle,
                },
                for_ms: u64::try_from(state.since.elapsed().as_millis()).unwrap_or(u64::MAX),
                served: state.served,
                memory: resident(state.pid),
                event: state.event.clone(),
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    pub fn set_pid(&self, pid: u32) {
        self.seats.set_pid(self.index, pid);
    }

    pub fn pid(&self) -> u32 {
        self.seats.lock()[self.index].pid
    }

    /// Events that its process has ended.
    pub fn served(&self) -> u64 {
        self.seats.lock()[self.index].served
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let state = &mut self.seats.lock()[self.index];
        state.is_taken = false;
        state.event = None;
        state.since = Instant::now();
        state.served += u64::from(self.counts);
    }
}

/// Bytes; 0 when it cannot be known.
fn resident(pid: u32) -> u64 {
    // In pages: size, resident, … (proc(5)).
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: Option<u64> = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * surus_sys::process::page_size()
}
