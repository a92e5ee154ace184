//! Ends what takes too long: the wait in the inbox, and the event itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::warn;

use super::generation::{Limits, Shared};
use super::slots::Stopping;
use crate::event::Failure;

/// How often all events in flight are looked at. Looking costs about a microsecond; timeouts are seconds.
const TICK: Duration = Duration::from_millis(50);

/// What a look at one slot has found.
enum Finding {
    WaitedTooLong,
    Over,
    NotEnding(Stopping),
}

/// Runs as long as the generation has processes.
pub async fn run(shared: Arc<Shared>, limits: Limits) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if shared.is_over() {
            return;
        }
        look(&shared, limits);
    }
}

fn look(shared: &Shared, limits: Limits) {
    let now = Instant::now();
    let mut found = Vec::new();
    shared.slots.each(|request, slot| {
        if let Some(stopping) = slot.stopping {
            if now >= stopping.kill_at {
                found.push((request, Finding::NotEnding(stopping)));
            }
        } else if slot.deadline.is_some_and(|deadline| now >= deadline) {
            found.push((request, Finding::Over));
        } else if slot.answer.is_some() && now.duration_since(slot.sent) > limits.queue_wait {
            found.push((request, Finding::WaitedTooLong));
        }
    });
    if found.is_empty() {
        return;
    }
    let lines: Vec<_> = (0..shared.worker_count())
        .map(|worker| (worker, shared.line(worker)))
        .collect();
    for (request, finding) in found {
        let holder = lines
            .iter()
            .find(|(_, line)| line.state.holds_event() && line.request == request);
        match (finding, holder) {
            (Finding::WaitedTooLong, Some(_)) => {}
            (Finding::WaitedTooLong, None) => {
                shared.board.set_gone(request, true);
                shared.refuse(
                    request,
                    Failure::Busy("no worker became free in time"),
                    false,
                );
            }
            (Finding::Over, None) => {
                // Still in the inbox; the worker that finds it there drops it.
                shared.board.set_gone(request, true);
                shared.refuse(request, Failure::TimedOut, false);
            }
            (Finding::Over, Some((worker, line))) => {
                let what = shared.slots.with(request, |slot| {
                    slot.stopping = Some(Stopping {
                        worker: *worker,
                        taken: line.taken,
                        kill_at: now + limits.kill_after,
                    });
                    format!("{} {}", slot.method, slot.uri)
                });
                warn!(
                    worker,
                    request = what,
                    "over its deadline; PHP is asked to end it"
                );
                shared.board.set_gone(request, true);
                shared.refuse(request, Failure::TimedOut, true);
                shared.stop(*worker, line.taken);
            }
            (Finding::NotEnding(stopping), Some((worker, line)))
                if *worker == stopping.worker && line.taken == stopping.taken =>
            {
                warn!(worker, "did not end its event; killed");
                shared.kill(*worker);
                // Once is enough; its end closes the slot.
                shared.slots.with(request, |slot| {
                    slot.stopping = Some(Stopping {
                        kill_at: now + Duration::from_secs(3600),
                        ..stopping
                    });
                });
            }
            (Finding::NotEnding(_), _) => {}
        }
    }
}
