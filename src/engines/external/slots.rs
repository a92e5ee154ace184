//! Process slots: the state of each process of an external engine.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::event::Event;
use crate::observe::status::{WorkerState, WorkerStatus};

/// One slot per concurrent event.
#[derive(Clone)]
pub struct ProcessSlots(Arc<Mutex<Vec<State>>>);

struct State {
    /// 0 if there is no process.
    pid: u32,
    is_taken: bool,
    request: Option<String>,
    since: Instant,
    served: u64,
}

/// An occupied slot; free when dropped.
pub struct ProcessSlot {
    slots: ProcessSlots,
    pub index: usize,
    /// Whether the event counts for the slot's process; false if another process has replaced it.
    pub counts: bool,
}

impl ProcessSlots {
    pub fn new(count: usize) -> ProcessSlots {
        let free = || State {
            pid: 0,
            is_taken: false,
            request: None,
            since: Instant::now(),
            served: 0,
        };
        ProcessSlots(Arc::new(Mutex::new(
            std::iter::repeat_with(free).take(count).collect(),
        )))
    }

    /// Takes a free slot for the event. There is one for every permit of the queue.
    pub fn take(&self, event: &Event) -> Option<ProcessSlot> {
        let mut all = self.lock();
        let index = all.iter().position(|state| !state.is_taken)?;
        let state = &mut all[index];
        state.is_taken = true;
        state.request = Some(format!(
            "{} {}",
            event.request.method(),
            event.request.uri()
        ));
        state.since = Instant::now();
        Some(ProcessSlot {
            slots: self.clone(),
            index,
            counts: true,
        })
    }

    /// Sets the process of a slot; 0 for none.
    pub fn set_pid(&self, index: usize, pid: u32) {
        let state = &mut self.lock()[index];
        if state.pid != pid {
            state.pid = pid;
            state.served = 0;
        }
    }

    /// The status of the slots with a process.
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
                request: state.request.clone(),
                backtrace: None,
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProcessSlot {
    pub fn set_pid(&self, pid: u32) {
        self.slots.set_pid(self.index, pid);
    }

    pub fn pid(&self) -> u32 {
        self.slots.lock()[self.index].pid
    }

    /// How many events the process has served.
    pub fn served(&self) -> u64 {
        self.slots.lock()[self.index].served
    }
}

impl Drop for ProcessSlot {
    fn drop(&mut self) {
        let state = &mut self.slots.lock()[self.index];
        state.is_taken = false;
        state.request = None;
        state.since = Instant::now();
        state.served += u64::from(self.counts);
    }
}

/// The resident memory in bytes; 0 if unknown.
pub fn resident(pid: u32) -> u64 {
    // Pages: size, resident, … (proc(5)).
    let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: Option<u64> = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * surus_sys::process::page_size()
}
