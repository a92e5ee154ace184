//! Reports the state of each worker, for `surus status` and metrics.

use surus_sys::scoreboard::{State, now_micros};

use super::GenerationState;
use crate::engines::workers::generation::in_flight::InFlightRequest;
use crate::observe::status::{WorkerState, WorkerStatus};

impl GenerationState {
    /// The state of each worker.
    pub fn status(&self) -> Vec<WorkerStatus> {
        let pids: Vec<_> = self
            .lock_workers()
            .iter()
            .map(|w| w.as_ref().map(|w| w.pid.get()))
            .collect();
        let now = now_micros();
        pids.into_iter()
            .enumerate()
            .filter_map(|(index, pid)| {
                let line = self.board.line(index);
                let state = match line.state {
                    State::Starting => WorkerState::Starting,
                    State::Idle => WorkerState::Idle,
                    State::Received | State::Running => WorkerState::Busy,
                    State::Finishing => WorkerState::Finishing,
                    State::Exiting => return None,
                };
                let request = line.held().and_then(|held| {
                    let what = |slot: &mut InFlightRequest| format!("{} {}", slot.method, slot.uri);
                    self.in_flight.named(held, what)
                });
                Some(WorkerStatus {
                    pid: pid?,
                    state,
                    for_ms: now.saturating_sub(line.since) / 1000,
                    served: line
                        .taken
                        .saturating_sub(u64::from(line.state.holds_event())),
                    memory: line.memory,
                    request,
                })
            })
            .collect()
    }
}
