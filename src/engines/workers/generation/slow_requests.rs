//! Reports requests that PHP has been running for `http.slow_request`.

use std::time::Instant;

use tracing::warn;

use super::in_flight::{Holder, Key};
use super::state::GenerationState;
use crate::observe::rate_limit::LineRate;

impl GenerationState {
    /// Counts and logs a slow request, and asks its worker for the backtrace.
    pub(super) fn report_slow(&self, key: Key, holder: &Holder) {
        let note = self.in_flight.with(key, |slot| {
            slot.is_slow = true;
            (slot.event, format!("{} {}", slot.method, slot.uri))
        });
        let Some((event, what)) = note else {
            return;
        };
        self.metrics.slow_requests(self.engine).inc();
        static REPORTED: LineRate = LineRate::new();
        REPORTED.log(Instant::now(), |left_out| {
            // The line may belong to its successor, whose events have other tickets.
            self.board.trace(holder.worker, key.ticket);
            let backtrace = match self.memories.interrupt(holder.pid.get()) {
                Ok(()) => "follows at PHP's next loop or call".to_owned(),
                Err(why) => format!("none: {why}"),
            };
            warn!(
                request_id = event,
                pid = holder.pid.get(),
                request = what,
                backtrace,
                left_out,
                "slow request (http.slow_request)"
            );
        });
    }
}
