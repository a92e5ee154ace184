//! Ends what takes too long: the wait in the inbox, and the event itself.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use surus_sys::scoreboard::{Line, State};
use tracing::warn;

use super::generation::Limits;
use super::inbox::Inbox;
use super::shared::Shared;
use super::slots::{Reached, Refusal, Stopping};
use super::why::Killed;
use crate::event::Failure;

/// How often all events in flight are looked at. Looking costs about a microsecond; timeouts are seconds.
const TICK: Duration = Duration::from_millis(50);

/// Between receiving an event and writing that down, a worker needs microseconds; on a machine that does not let it run,
/// longer.
const MISSED_AFTER: Duration = Duration::from_secs(1);

/// An event that no worker has any more may have been answered: then somebody of ours is about to read that.
const ANSWERED_WITHIN: Duration = TICK;

/// What a look at one slot has found.
enum Finding {
    WaitedTooLong,
    Over,
    NotEnding(Stopping),
}

/// Runs as long as the generation has processes.
pub async fn run(shared: Arc<Shared>, inbox: Weak<Inbox>, limits: Limits) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut hears = true;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            rung = shared.post.bell.rung(), if hears => {
                // Else the tick is left.
                hears = rung.is_ok();
                shared.post.look();
                if let Some(inbox) = inbox.upgrade() {
                    inbox.wake_if_needed();
                }
                continue;
            }
        }
        if shared.is_over() {
            return;
        }
        // What keeps our threads awake may be others' work.
        shared.post.look();
        if shared.is_anyone_idle()
            && let Some(inbox) = inbox.upgrade()
        {
            // Of a worker that is asleep it may not be known, where another was killed that had got the message to wake it.
            inbox.knock_if_needed();
        }
        look(&shared, limits);
    }
}

fn look(shared: &Shared, limits: Limits) {
    let now = Instant::now();
    let mut found = Vec::new();
    shared.slots.each(|request, slot| {
        let finding = if let Some(stopping) = &slot.stopping {
            (now >= stopping.kill_at).then(|| Finding::NotEnding(stopping.clone()))
        } else if slot.deadline.is_some_and(|deadline| now >= deadline) {
            Some(Finding::Over)
        } else {
            let waits =
                slot.answer.is_some() && now.duration_since(slot.entered) > limits.queue_wait;
            waits.then_some(Finding::WaitedTooLong)
        };
        if let Some(finding) = finding {
            found.push((request, slot.event, finding));
        }
    });
    let may_miss = shared.may_miss.load(Ordering::Acquire);
    if found.is_empty() && !may_miss {
        return;
    }
    let lines: Vec<_> = (0..shared.worker_count())
        .map(|worker| (worker, shared.line(worker)))
        .collect();
    // Whatever was found, the event may have ended since and its request id may be another's; so each is named by both.
    for (request, event, finding) in found {
        let holder = lines
            .iter()
            .find(|(_, line)| line.state.holds_event() && line.request == request);
        match (finding, holder) {
            (Finding::WaitedTooLong, Some(_)) => {
                shared.slots.with(request, |slot| slot.unheld = None);
            }
            (Finding::WaitedTooLong, None) => {
                let since = shared.slots.with(request, |slot| {
                    (slot.event == event).then(|| *slot.unheld.get_or_insert(now))
                });
                let Some(since) = since.flatten() else {
                    continue;
                };
                if now.duration_since(since) < ANSWERED_WITHIN {
                    continue;
                }
                let failure = Failure::Busy("no worker became free in time");
                give_up(shared, request, event, failure, Reached::Nobody);
            }
            (Finding::Over, None) => {
                // Still in the inbox; the worker that finds it there drops it.
                give_up(shared, request, event, Failure::TimedOut, Reached::Nobody);
            }
            (Finding::Over, Some((worker, line))) => {
                if !give_up(shared, request, event, Failure::TimedOut, Reached::Php) {
                    continue;
                }
                // If it has just died, the next look finds the event without a holder, or ended.
                let Some(pid) = shared.pid(*worker) else {
                    continue;
                };
                // Noted before it is asked: its answer may end at once, and must not look whole.
                let note = |stopping| {
                    let noted = shared.slots.with(request, |slot| {
                        (slot.event == event).then(|| {
                            slot.stopping = stopping;
                            format!("{} {}", slot.method, slot.uri)
                        })
                    });
                    noted.flatten()
                };
                let Some(what) = note(Some(Stopping {
                    worker: *worker,
                    pid: pid.clone(),
                    taken: line.taken,
                    kill_at: now + limits.kill_after,
                })) else {
                    continue;
                };
                if !shared.stop(*worker, &pid, line.taken) {
                    note(None);
                    continue;
                }
                warn!(
                    event,
                    worker,
                    request = what,
                    "over its deadline; PHP is asked to end it"
                );
            }
            (Finding::NotEnding(stopping), Some((worker, line)))
                if *worker == stopping.worker && line.taken == stopping.taken =>
            {
                warn!(event, worker, "did not end its event; killed");
                shared.kill(*worker, &stopping.pid, Killed::Late);
                // Once is enough; its end closes the slot.
                shared.slots.with(request, |slot| {
                    if let Some(stopping) = &mut slot.stopping {
                        stopping.kill_at = now + Duration::from_secs(3600);
                    }
                });
            }
            (Finding::NotEnding(_), _) => {}
        }
    }
    if may_miss {
        find_missed(shared, &lines, now);
    }
}

fn give_up(shared: &Shared, request: u16, event: u64, failure: Failure, reached: Reached) -> bool {
    let refusal = Refusal { failure, reached };
    shared.give_up(request, event, refusal, |_| ()).is_some()
}

/// Gives up events that a worker has taken along when it died at the inbox. Nobody can say whether a message is in the
/// inbox; but whoever is idle would take it. The request id stays reserved, so that a worker that comes to it after all answers
/// nobody instead of somebody else.
fn find_missed(shared: &Shared, lines: &[(usize, Line)], now: Instant) {
    let held: Vec<_> = lines
        .iter()
        .filter(|(_, line)| line.state.holds_event())
        .map(|(_, line)| line.request)
        .collect();
    let anyone_idle = lines.iter().any(|(_, line)| line.state == State::Idle);
    let mut missed = Vec::new();
    shared.slots.each(|request, slot| {
        let out_of_sight = anyone_idle && slot.place.is_some() && !held.contains(&request);
        slot.missed = out_of_sight.then(|| slot.missed.unwrap_or(now));
        if slot
            .missed
            .is_some_and(|since| now.duration_since(since) > MISSED_AFTER)
        {
            missed.push((request, slot.event));
        }
    });
    for (request, event) in missed {
        let refusal = Refusal {
            failure: Failure::Died("killed as it received the event".into()),
            reached: Reached::Worker,
        };
        shared.give_up(request, event, refusal, |slot| {
            slot.place = None;
            slot.hold = None;
            slot.deadline = None;
            warn!(event, request = %slot.uri, "an event was lost with an idle worker");
        });
    }
}
