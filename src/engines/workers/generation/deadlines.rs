//! Sweeps all events in flight: enforces time limits, and resends what was lost on the way to a
//! worker.
//!
//! Shared memory that workers write is used here only where a forged value harms its writer alone
//! (docs/internals/shared-memory.md).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::RequestLimits;
use super::in_flight::{
    DispatchError, Holder, InFlightRequest, Key, RequestProgress, Sent, Stopping,
};
use super::losses::Losses;
use super::state::GenerationState;
use super::stopped::Stopped;
use super::stuck::{ExitWatch, LOST_AFTER, MIN_SWEEPS, Oldest, StallDetector};
use super::suspects::Suspects;
use crate::engines::workers::exit_reason::Killed;
use crate::engines::workers::ipc::requests::Inbox;
use crate::event::Failure;
use crate::observe::rate_limit::LineRate;

/// The interval of sweeps. A sweep costs about a microsecond; timeouts are seconds.
pub const TICK: Duration = Duration::from_millis(50);

/// After this many sweeps without a known holder, all workers that may hold the event get the stop
/// signal, so that they write their lines again.
const SIGNALLED_AT: u32 = 8;

/// A worker records its claim within microseconds, or later on a busy machine.
const MISSING_AFTER: Duration = Duration::from_millis(800);

/// After this many sweeps without anything to do, the sweeper parks. With fewer, each of several
/// consecutive events would wake it.
const PARKED_AFTER: u32 = 20;

/// OPcache is checked after this number of sweeps while requests run, and before the sweeper parks.
const OPCACHE_CHECKED_AT: u32 = 40;

/// The first sweeps wake a worker each time for what is in the ring; later ones only every so
/// often, since all workers may be busy.
const EAGER: u32 = 10;

/// What a sweep has found about one event.
enum Finding {
    QueueTimeout,
    RequestTimeout(Option<Holder>),
    Slow(Holder),
    KillTimeout(Stopping),
    /// No worker will find it.
    Lost(Sent),
    /// A worker has claimed it, and it is not known which.
    HolderUnknown,
    /// No line names it, although the workers have written theirs again.
    HolderMissing,
}

/// Runs while the generation has processes.
pub async fn run(shared: Arc<GenerationState>, inbox: Weak<Inbox>, limits: RequestLimits) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut is_doorbell_open, mut is_parked) = (true, false);
    let mut sweeper = Sweeper::new(shared.clone(), limits);
    loop {
        let due = is_parked.then(|| shared.next_scaling()).flatten();
        tokio::select! {
            _ = tick.tick(), if !is_parked => {}
            () = at(due), if due.is_some() => {}
            () = shared.parking.notified(), if is_parked => {
                shared.parking.unpark();
                is_parked = false;
                tick.reset();
            }
            notified = shared.poller.doorbell.notified(), if is_doorbell_open => {
                // The timer remains.
                is_doorbell_open = notified.is_ok();
                shared.poller.poll();
                continue;
            }
        }
        if shared.is_over() {
            return;
        }
        sweeper.sweep(inbox.upgrade().as_deref(), Instant::now());
        if sweeper.quiet > PARKED_AFTER && is_doorbell_open {
            shared.parking.park();
            // Earlier notifications did not wake the sweeper.
            is_parked = sweeper.has_nothing_to_do();
            match is_parked {
                true => shared.check_opcache(),
                false => shared.parking.unpark(),
            }
        }
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// State between sweeps.
struct Sweeper {
    shared: Arc<GenerationState>,
    limits: RequestLimits,
    /// The ring's head at the last sweep.
    head: u64,
    /// Sweeps since the head last moved.
    unmoved: u32,
    /// Consecutive sweeps with nothing to do.
    quiet: u32,
    /// Sweeps so far.
    sweeps: u32,
    stuck: StallDetector,
    exits: ExitWatch,
    stopped: Stopped,
    suspects: Suspects,
    losses: Losses,
}

/// The events in flight at one sweep.
#[derive(Default)]
struct Survey {
    /// The event that has waited longest for a worker to claim it.
    oldest: Option<Oldest>,
    /// How many events workers hold.
    claimed: usize,
    /// How many of them looked unclaimed because a script had written their tickets back.
    written_back: usize,
    /// How many events wait for a worker to claim them.
    waiting: usize,
    found: Vec<(Key, u64, Finding)>,
}

/// Examines an event that a worker has claimed.
fn claimed(
    slot: &mut InFlightRequest,
    now: Instant,
    is_over: bool,
    slow: Option<Duration>,
) -> Option<Finding> {
    let becomes_slow = slot.becomes_slow(slow, now);
    if let Some(stopping) = &slot.stopping {
        return (now >= stopping.kill_at).then(|| Finding::KillTimeout(stopping.clone()));
    }
    if slot.holder.is_some() {
        slot.holder_unknown_since = None;
    } else {
        slot.sweeps = slot
            .holder_unknown_since
            .map_or(0, |_| slot.sweeps.saturating_add(1));
        let unknown_for = now.duration_since(*slot.holder_unknown_since.get_or_insert(now));
        if slot.sweeps == SIGNALLED_AT {
            return Some(Finding::HolderUnknown);
        }
        if slot.sweeps > MIN_SWEEPS && unknown_for > MISSING_AFTER {
            return Some(Finding::HolderMissing);
        }
    }
    match is_over {
        true => Some(Finding::RequestTimeout(slot.holder.clone())),
        false => slot
            .holder
            .clone()
            .filter(|_| becomes_slow)
            .map(Finding::Slow),
    }
}

impl Sweeper {
    fn new(shared: Arc<GenerationState>, limits: RequestLimits) -> Sweeper {
        Sweeper {
            shared,
            limits,
            head: 0,
            unmoved: 0,
            quiet: 0,
            sweeps: 0,
            stuck: StallDetector::default(),
            exits: ExitWatch::default(),
            stopped: Stopped::default(),
            suspects: Suspects::default(),
            losses: Losses::default(),
        }
    }

    /// Whether nothing is in flight, and nothing else needs several sweeps.
    fn has_nothing_to_do(&self) -> bool {
        let shared = &self.shared;
        shared.in_flight.is_empty()
            && self.suspects.is_empty()
            && !self.stopped.has_found_any()
            && !shared.is_inbox_suspect.load(Ordering::SeqCst)
            && !shared.is_draining()
            && !shared.is_over()
    }

    fn sweep(&mut self, inbox: Option<&Inbox>, now: Instant) {
        let shared = self.shared.clone();
        // Other work may keep the runtime's threads unparked, and announcements of frames may be
        // forged.
        shared.poller.poll_all();
        shared.poller.doorbell.reset();
        if shared.poller.rings.rewrite() {
            static REPORTED: LineRate = LineRate::new();
            REPORTED.log(Instant::now(), |left_out| {
                warn!(
                    left_out,
                    "a script has written to the request ring's memory; repaired"
                );
            });
            shared.repaired("ring");
        }
        if let Some(inbox) = inbox {
            self.wake();
            if shared.is_inbox_suspect.swap(false, Ordering::SeqCst)
                && !shared.is_draining()
                && inbox.is_shut_down()
            {
                shared.inbox_was_closed();
            }
        } else {
            // They exit once they see that the socket is closed.
            shared.poller.rings.wake_all();
            let ignoring = self.exits.sweep(&shared, now);
            match shared.in_flight.is_empty() && !ignoring.is_empty() {
                // Their successors may do the same.
                true => shared.dropped.cancel(),
                false => self.suspects.add(&shared, ignoring),
            }
        }
        shared.record_waiting();
        shared.record_holders();
        let survey = self.survey(now);
        if survey.written_back > 0 {
            shared.repaired("ticket");
        }
        // The event may have ended since, and its slot may have been reused; the ticket
        // identifies it.
        for (key, event, finding) in survey.found {
            if let Finding::Lost(sent) = finding
                && sent.by_socket
            {
                self.losses.record(&shared, sent.at, now);
            }
            self.act(key, event, finding, now);
        }
        self.suspects.sweep(&shared, now);
        let (oldest, claimed) = (survey.oldest, survey.claimed);
        shared.scale(claimed, survey.waiting, oldest.map(|oldest| oldest.since));
        let boot = self.limits.boot;
        let is_stuck = self.stuck.sweep(&shared, oldest, claimed, boot, now);
        let without_event = || {
            let mut free = shared.without_event();
            free.retain(|(_, pid)| !self.suspects.has_suspended(pid));
            free
        };
        // The generation does not end before its workers.
        if shared.is_draining() {
            self.stopped.kill_among(&shared, without_event(), now);
        } else if oldest.is_some() {
            let mut free = without_event();
            // Others may be about to take the request.
            free.retain(|(worker, _)| is_stuck || shared.boots(*worker, self.limits.boot));
            self.stopped.kill_among(&shared, free, now);
        }
        self.sweeps = self.sweeps.wrapping_add(1);
        if self.sweeps.is_multiple_of(OPCACHE_CHECKED_AT) {
            shared.check_opcache();
        }
        self.suspects.add(&shared, self.stuck.take_unresponsive());
        self.stopped.check_master(&shared, now);
        self.quiet = match self.has_nothing_to_do() {
            true => self.quiet.saturating_add(1),
            false => 0,
        };
    }

    /// Wakes the idle workers if the ring has events that were there at the last sweep, whatever
    /// their doorbells say. The worker that was woken may have been killed, and a script may have
    /// overwritten a doorbell.
    fn wake(&mut self) {
        let (head, tail) = self.shared.poller.rings.inbox_ends();
        let has_moved = std::mem::replace(&mut self.head, head) != head;
        if head == tail || has_moved {
            self.unmoved = 0;
            return;
        }
        if self.unmoved < EAGER || self.unmoved.is_multiple_of(EAGER) {
            self.shared.poller.rings.wake_all();
        }
        self.unmoved = self.unmoved.wrapping_add(1);
    }

    fn survey(&self, now: Instant) -> Survey {
        let shared = &self.shared;
        let (head, _) = shared.poller.rings.inbox_ends();
        let mut seen = Survey::default();
        shared.in_flight.each(|key, slot| {
            let is_over = slot.deadline.is_some_and(|deadline| now >= deadline);
            let finding = if slot.is_offered(&shared.board, key.slot) {
                let since = slot.sent.map_or(now, |sent| sent.at);
                let waits = Oldest { key, since };
                seen.waiting += 1;
                seen.oldest = Some(seen.oldest.map_or(waits, |oldest| oldest.or(waits)));
                let waits = slot.answer.is_some()
                    && now.duration_since(slot.entered) > self.limits.queue_wait;
                let is_lost = |sent: &Sent| {
                    now.duration_since(sent.at) > LOST_AFTER
                        && head.wrapping_sub(sent.position).cast_signed() > 0
                };
                match () {
                    () if is_over => Some(Finding::RequestTimeout(None)),
                    () if waits => Some(Finding::QueueTimeout),
                    () => slot.sent.filter(is_lost).map(Finding::Lost),
                }
            } else {
                seen.claimed += 1;
                if slot.revoke_again(&shared.board, key.slot) {
                    seen.written_back += 1;
                }
                claimed(slot, now, is_over, self.limits.slow_request)
            };
            if let Some(finding) = finding {
                seen.found.push((key, slot.event, finding));
            }
        });
        seen
    }

    fn act(&mut self, key: Key, event: u64, finding: Finding, now: Instant) {
        let shared = &self.shared;
        let fail =
            |failure, progress| shared.withdraw(key, Some(DispatchError { failure, progress }));
        match finding {
            Finding::QueueTimeout => {
                // An event that has been claimed meanwhile did not wait too long.
                shared.take_back_for(key, Failure::QueueTimeout("no worker became free in time"));
            }
            Finding::RequestTimeout(holder) => {
                // If no worker has begun it, the one that finds its message drops it.
                if fail(Failure::TimedOut, RequestProgress::Started) == Some(false)
                    && let Some(holder) = holder
                {
                    self.stop(key, event, holder, now);
                }
            }
            Finding::Slow(holder) => shared.report_slow(key, &holder),
            Finding::KillTimeout(stopping) => self.kill(key, event, stopping, now),
            Finding::Lost(..) => {
                if shared.take_back(key, "its message was lost on the way to a worker") {
                    static REPORTED: LineRate = LineRate::new();
                    REPORTED.log(Instant::now(), |left_out| {
                        warn!(
                            request_id = event,
                            left_out, "a request was lost on the way to a worker; resending it"
                        );
                    });
                    shared.repaired("request");
                }
            }
            Finding::HolderUnknown => {
                // The holder's line may have been overwritten. A signal cuts a script's sleep
                // short.
                for (worker, pid) in shared.without_shown_ticket() {
                    if shared.boots(worker, self.limits.boot) {
                        continue;
                    }
                    if let Err(error) = pid.stop() {
                        debug!(worker, %error, "cannot signal the worker");
                    }
                }
            }
            Finding::HolderMissing => {
                let until = |slot: &mut InFlightRequest| {
                    // A worker may have reported it since.
                    slot.holder.is_none().then_some(slot.deadline)
                };
                let Some(deadline) = shared.in_flight.with(key, until).flatten() else {
                    return;
                };
                let why = "the worker that received it has exited or cannot be found".into();
                if fail(Failure::WorkerCrashed(why), RequestProgress::Received) == Some(false) {
                    warn!(
                        request_id = event,
                        "request lost: a worker was killed while receiving it"
                    );
                    // If a worker holds it after all, its response is discarded. It has as long as
                    // it would have had.
                    shared.in_flight.close(key);
                    let until = deadline.unwrap_or(now) + self.limits.kill_timeout;
                    self.suspects.suspect(shared, until);
                }
            }
        }
    }

    /// Asks a worker to end an event.
    fn stop(&self, key: Key, event: u64, holder: Holder, now: Instant) {
        let shared = &self.shared;
        let stopping = Stopping {
            holder: holder.clone(),
            kill_at: now + self.limits.kill_timeout,
        };
        // Recorded before the worker is asked: its response may end at once, and must not look
        // complete. That holds for a worker that sees the request and exits before its signal.
        let note = shared.in_flight.with(key, |slot| {
            slot.stopping = Some(stopping);
            slot.sweeps = 0;
            format!("{} {}", slot.method, slot.uri)
        });
        let Some(what) = note else {
            return;
        };
        if !shared.stop(&holder, key) {
            // It has just exited; its reader is about to learn that.
            return;
        }
        warn!(
            request_id = event,
            pid = holder.pid.get(),
            request = what,
            "request timed out; interrupting the script"
        );
    }

    /// Kills a worker that has not ended its event.
    fn kill(&self, key: Key, event: u64, stopping: Stopping, now: Instant) {
        let shared = &self.shared;
        let Some(is_to_be_heard) = shared.in_flight.with(key, |slot| {
            slot.sweeps += 1;
            slot.waits_for_client || slot.sweeps <= MIN_SWEEPS
        }) else {
            return;
        };
        // The worker may say that it runs another event. Then its record that this one has ended
        // arrives soon, unless a client must be waited for.
        let holder = &stopping.holder;
        let names_another = !shared.is_named(holder.worker, &holder.pid, key);
        if names_another && is_to_be_heard {
            return;
        }
        warn!(
            request_id = event,
            pid = holder.pid.get(),
            "script did not stop; worker killed"
        );
        shared.kill(holder.worker, &holder.pid, Killed::Timeout);
        // Once is enough; the worker's exit closes the slot.
        shared.in_flight.with(key, |slot| {
            if let Some(stopping) = &mut slot.stopping {
                stopping.kill_at = now + Duration::from_secs(3600);
            }
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
