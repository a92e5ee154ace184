//! Reports the state of each worker and how many events wait, for `surus status` and metrics.

use surus_sys::scoreboard::{State, now_micros};

use super::GenerationState;
use crate::engines::workers::generation::in_flight::InFlightRequest;
use crate::observe::slowest;
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
                    let what = |slot: &mut InFlightRequest| {
                        let what = format!("{} {}", slot.method, slot.uri);
                        (what, slot.is_slow.then_some(slot.event))
                    };
                    self.in_flight.named(held, what)
                });
                let (request, slow) = request.unzip();
                Some(WorkerStatus {
                    pid: pid?,
                    state,
                    for_ms: now.saturating_sub(line.since) / 1000,
                    served: line
                        .taken
                        .saturating_sub(u64::from(line.state.holds_event())),
                    memory: line.memory,
                    request,
                    backtrace: slow.flatten().and_then(slowest::backtrace),
                })
            })
            .collect()
    }

    /// Events that no worker has claimed at this instant. Lines of workers cannot tell: a worker is
    /// idle again before the front end has read its response.
    pub fn waiting(&self) -> usize {
        let mut waiting = 0;
        self.in_flight.each(|key, slot| {
            waiting += usize::from(slot.is_offered(&self.board, key.slot));
        });
        waiting
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engines::workers::generation::in_flight::tests::slot;

    #[tokio::test]
    async fn event_does_not_wait_once_a_worker_has_claimed_it() {
        let state = GenerationState::with_workers(2, Duration::ZERO);
        let [first, second] = [0, 1].map(|_| state.in_flight.open(&state.board, slot).unwrap());
        assert_eq!(state.waiting(), 2);
        // As a worker does. Its line still says that it is not running a script.
        assert!(state.board.revoke(first.slot, first.ticket));
        assert_eq!(state.waiting(), 1);
        state.in_flight.close(second);
        assert_eq!(state.waiting(), 0);
    }
}
