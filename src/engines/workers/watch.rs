//! Looks at everything in flight now and then: ends what takes too long, and has done again what got lost on the way to a worker.
//!
//! What workers have written is used here only where a lie does no more than cost the liar (docs/shared-memory.md).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use surus_sys::scoreboard::State;
use tracing::{debug, warn};

use super::generation::Limits;
use super::inbox::Inbox;
use super::shared::Shared;
use super::slots::{Holder, Reached, Refusal, Slot, Stopping, Way};
use super::stopped::Stopped;
use super::why::Killed;
use crate::event::Failure;

/// How often all events in flight are looked at. Looking costs about a microsecond; timeouts are seconds.
const TICK: Duration = Duration::from_millis(50);

/// Looks that have to have found the same. Where the machine does not let us run, time passes in which we do not hear what workers say:
/// between two looks, all has been heard that was said before.
const LOOKS: u32 = 20;

/// After so many looks all workers that may have an event are asked whether they have it.
const ASKED_AT: u32 = 8;

/// Between claiming an event and writing that down, a worker needs microseconds; on a machine that does not let it run, longer.
const MISSED_AFTER: Duration = Duration::from_secs(1);

/// An event whose message no worker can find any more is sent again after this time. One that has just received it may be about to
/// claim it; if it comes too late, it drops it.
const LOST_AFTER: Duration = Duration::from_millis(500);

/// When events have waited for so long, and no worker has anything to do, none can be served, and something is wrong with the workers
/// that there are. After the longer time, which no busy machine makes a worker wait, others take their places.
const STUCK_AFTER: Duration = Duration::from_secs(1);
const STUCK_FOR_GOOD: Duration = Duration::from_secs(3);

/// Looks at each of which somebody is woken for what is in the ring; then at each of so many, for all may be busy.
const EAGER: u32 = 10;

/// What a look at one slot has found.
enum Finding {
    WaitedTooLong,
    Over(Option<Holder>),
    NotEnding(Stopping),
    /// It was sent, and no worker will find it.
    Lost,
    /// A worker has claimed it, and none says that it has it.
    Hidden,
    /// Nor has one when asked.
    Missed,
}

/// Runs as long as the generation has processes.
pub async fn run(shared: Arc<Shared>, inbox: Weak<Inbox>, limits: Limits) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut hears = true;
    let mut watch = Watch {
        shared: shared.clone(),
        limits,
        head: 0,
        unmoved: 0,
        stuck: None,
        suspicions: Vec::new(),
        stopped: Stopped::default(),
    };
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
        watch.look(inbox.upgrade().as_deref());
    }
}

/// What is remembered from one look to the next.
struct Watch {
    shared: Arc<Shared>,
    limits: Limits,
    /// Where the inbox was read.
    head: u64,
    /// Looks since it was last seen to move.
    unmoved: u32,
    /// Since when no worker takes anything, and how often that was seen.
    stuck: Option<(Instant, u32)>,
    stopped: Stopped,
    /// When a worker has to have ended what it may be doing although nobody knows of it.
    suspicions: Vec<Instant>,
}

/// What is in flight.
#[derive(Default)]
struct InFlight {
    /// Since when the first has been waiting for a worker.
    waiting_since: Option<Instant>,
    /// Events that workers hold.
    claimed: usize,
    found: Vec<(u16, u64, Finding)>,
}

/// Looks at an event that a worker has claimed.
fn claimed(slot: &mut Slot, now: Instant, is_over: bool) -> Option<Finding> {
    if let Some(stopping) = &slot.stopping {
        return (now >= stopping.kill_at).then(|| Finding::NotEnding(stopping.clone()));
    }
    if slot.holder.is_some() {
        slot.hidden = None;
    } else {
        slot.looks = slot.hidden.map_or(0, |_| slot.looks.saturating_add(1));
        let hidden = now.duration_since(*slot.hidden.get_or_insert(now));
        if slot.looks == ASKED_AT {
            return Some(Finding::Hidden);
        }
        if slot.looks > LOOKS && hidden > MISSED_AFTER {
            return Some(Finding::Missed);
        }
    }
    is_over.then(|| Finding::Over(slot.holder.clone()))
}

impl Watch {
    fn look(&mut self, inbox: Option<&Inbox>) {
        let shared = self.shared.clone();
        // What keeps our threads awake may be others' work, and what was said of letters need not be true.
        shared.post.look_at_all();
        shared.post.bell.reset();
        if shared.post.rings.rewrite() {
            warn!("a script has written to the request ring's memory; put right");
            shared.repaired("ring");
        }
        if let Some(inbox) = inbox {
            self.wake(inbox);
            if shared.is_inbox_suspect.swap(false, Ordering::AcqRel)
                && !shared.is_retiring()
                && inbox.is_shut_down()
            {
                shared.inbox_was_closed();
            }
        }
        self.note_holders();
        let in_flight = self.in_flight(inbox);
        // Whatever was found, the event may have ended since and its request id may be another's; so each is named by both.
        for (request, event, finding) in in_flight.found {
            self.act(request, event, finding);
        }
        self.end_suspects();
        self.note_stuck(in_flight.waiting_since, in_flight.claimed);
        self.stopped.look_at_template(&shared);
    }

    /// Wakes a worker for what is in the ring and has not been taken since the last look, whatever is known of who sleeps: one that
    /// was woken may have been killed, and a script may have written anything there.
    fn wake(&mut self, inbox: &Inbox) {
        let (head, tail) = self.shared.post.rings.inbox_ends();
        let has_moved = std::mem::replace(&mut self.head, head) != head;
        if head == tail || has_moved {
            self.unmoved = 0;
            return;
        }
        if self.unmoved < EAGER || self.unmoved.is_multiple_of(EAGER) {
            inbox.knock_anyone();
        }
        self.unmoved = self.unmoved.wrapping_add(1);
    }

    /// Remembers who holds what, as long as the scoreboard says it.
    fn note_holders(&self) {
        for worker in 0..self.shared.worker_count() {
            let line = self.shared.line(worker);
            let Some((request, ticket)) = line.held() else {
                continue;
            };
            let is_news = self.shared.slots.with(request, |slot| {
                slot.holder.is_none() && slot.ticket == ticket
            });
            if is_news != Some(true) || self.shared.board.is_offered(request, ticket) {
                continue;
            }
            // The line may be that of a process of which we have not heard yet.
            let pid = self.shared.pid(worker);
            if let Some(pid) = pid.filter(|pid| pid.get() == line.pid) {
                let holder = Holder { worker, pid };
                self.shared.claimed(request, ticket, &holder);
            }
        }
    }

    fn in_flight(&self, inbox: Option<&Inbox>) -> InFlight {
        let shared = &self.shared;
        let now = Instant::now();
        let (head, _) = shared.post.rings.inbox_ends();
        let mut is_socket_empty = None;
        let mut seen = InFlight::default();
        shared.slots.each(|request, slot| {
            let is_over = slot.deadline.is_some_and(|deadline| now >= deadline);
            let finding = if shared.board.is_offered(request, slot.ticket) {
                let since = slot.sent.map_or(now, |(sent, _)| sent);
                seen.waiting_since =
                    Some(seen.waiting_since.map_or(since, |first| first.min(since)));
                let waits = slot.answer.is_some()
                    && now.duration_since(slot.entered) > self.limits.queue_wait;
                let mut is_lost = || match slot.sent {
                    Some((sent, way)) if now.duration_since(sent) > LOST_AFTER => match way {
                        Way::Ring(at) => head.wrapping_sub(at).cast_signed() > 0,
                        Way::Socket => *is_socket_empty
                            .get_or_insert_with(|| inbox.is_some_and(Inbox::is_socket_empty)),
                    },
                    _ => false,
                };
                match () {
                    () if is_over => Some(Finding::Over(None)),
                    () if waits => Some(Finding::WaitedTooLong),
                    () if is_lost() => Some(Finding::Lost),
                    () => None,
                }
            } else {
                seen.claimed += 1;
                claimed(slot, now, is_over)
            };
            if let Some(finding) = finding {
                seen.found.push((request, slot.event, finding));
            }
        });
        seen
    }

    fn act(&mut self, request: u16, event: u64, finding: Finding) {
        let shared = &self.shared;
        let refuse =
            |failure, reached| shared.withdraw(request, event, Some(Refusal { failure, reached }));
        match finding {
            Finding::WaitedTooLong => {
                // One that has been claimed meanwhile has not waited too long.
                shared.take_back_for(
                    request,
                    event,
                    Failure::Busy("no worker became free in time"),
                );
            }
            Finding::Over(holder) => {
                // Where nobody has begun it, its message is dropped by whoever finds it.
                if refuse(Failure::TimedOut, Reached::Php) == Some(false)
                    && let Some(holder) = holder
                {
                    self.stop(request, event, holder);
                }
            }
            Finding::NotEnding(stopping) => self.kill(request, event, stopping),
            Finding::Lost => {
                if shared.take_back(
                    request,
                    event,
                    "its message was lost on the way to a worker",
                ) {
                    warn!(
                        event,
                        "a request was lost on the way to a worker; it is sent again"
                    );
                    shared.repaired("request");
                }
            }
            Finding::Hidden => {
                // Its line may have been overwritten. A script that sleeps meanwhile sleeps less.
                for (worker, pid) in self.idle() {
                    if let Err(error) = pid.stop() {
                        debug!(worker, %error, "cannot signal the worker");
                    }
                }
            }
            Finding::Missed => {
                let deadline = shared.slots.with(request, |slot| slot.deadline).flatten();
                let why = "the worker that has received it has ended, or cannot be found".into();
                if refuse(Failure::Died(why), Reached::Worker) == Some(false) {
                    warn!(event, "an event was lost with an idle worker");
                    // If a worker has it after all, its answer is thrown away, and it has as long as it would have had.
                    shared.slots.close_of(request, event);
                    let until = deadline.unwrap_or_else(Instant::now) + self.limits.kill_after;
                    self.suspicions.push(until);
                }
            }
        }
    }

    /// Asks a worker to end an event.
    fn stop(&self, request: u16, event: u64, holder: Holder) {
        let shared = &self.shared;
        let stopping = Stopping {
            holder: holder.clone(),
            kill_at: Instant::now() + self.limits.kill_after,
        };
        // Noted before it is asked: its answer may end at once, and must not look whole.
        let note = |stopping| {
            let noted = shared.slots.with(request, |slot| {
                (slot.event == event).then(|| {
                    slot.stopping = stopping;
                    slot.looks = 0;
                    (slot.ticket, format!("{} {}", slot.method, slot.uri))
                })
            });
            noted.flatten()
        };
        let Some((ticket, what)) = note(Some(stopping)) else {
            return;
        };
        if !shared.stop(&holder, ticket) {
            // It has just ended, which its outbox's reader is about to hear.
            note(None);
            return;
        }
        warn!(
            event,
            worker = holder.worker,
            request = what,
            "over its deadline; PHP is asked to end it"
        );
    }

    /// Ends a process that has not ended its event.
    fn kill(&self, request: u16, event: u64, stopping: Stopping) {
        let shared = &self.shared;
        let now = Instant::now();
        let Some((ticket, is_to_be_heard)) = shared
            .slots
            .with(request, |slot| {
                (slot.event == event).then(|| {
                    slot.looks += 1;
                    (slot.ticket, slot.waits_for_client || slot.looks <= LOOKS)
                })
            })
            .flatten()
        else {
            return;
        };
        // It may say that it has gone on to another. Then its word that this one has ended is on its way to us, and soon here,
        // unless a client is waited for.
        let holder = &stopping.holder;
        let says_so = shared.line(holder.worker).held().map(|(_, held)| held) != Some(ticket);
        if says_so && is_to_be_heard {
            return;
        }
        warn!(
            event,
            worker = holder.worker,
            "did not end its event; killed"
        );
        shared.kill(holder.worker, &holder.pid, Killed::Late);
        // Once is enough; its end closes the slot.
        shared.slots.with(request, |slot| {
            if let Some(stopping) = &mut slot.stopping {
                stopping.kill_at = now + Duration::from_secs(3600);
            }
        });
    }

    /// Ends all workers of which it is not known that they hold an event, when one may be running an event that nobody knows of any more,
    /// beyond its deadline. Whoever of them runs none loses nothing.
    fn end_suspects(&mut self) {
        let now = Instant::now();
        let before = self.suspicions.len();
        self.suspicions.retain(|until| now < *until);
        if self.suspicions.len() == before {
            return;
        }
        self.shared.repaired("hidden");
        for (worker, pid) in self.idle() {
            debug!(worker, "may run what nobody knows of; killed");
            self.shared.kill(worker, &pid, Killed::Late);
        }
    }

    /// The workers of which it is not known that they hold an event.
    fn idle(&self) -> Vec<(usize, Arc<crate::launcher::Pid>)> {
        let mut holders = Vec::new();
        self.shared.slots.each(|_, slot| {
            if let Some(holder) = &slot.holder {
                holders.push(holder.pid.clone());
            }
        });
        (0..self.shared.worker_count())
            .filter_map(|worker| Some((worker, self.shared.pid(worker)?)))
            .filter(|(_, pid)| !holders.iter().any(|holder| Arc::ptr_eq(holder, pid)))
            .collect()
    }

    /// Where events wait and no worker has any, those that there are cannot take any: somebody has stopped them, or worse. Others come
    /// in their place.
    fn note_stuck(&mut self, waiting_since: Option<Instant>, claimed: usize) {
        let now = Instant::now();
        let waits_long = waiting_since.is_some_and(|since| now.duration_since(since) > LOST_AFTER);
        if waits_long {
            for (worker, pid) in self.stopped.of(self.idle()) {
                warn!(
                    pid = pid.get(),
                    "a worker was stopped (SIGSTOP) while requests wait; killed"
                );
                self.shared.repaired("worker_stopped");
                self.shared.kill(worker, &pid, Killed::Suspended);
            }
        }
        // One that boots takes as long as it takes.
        let boots = || {
            (0..self.shared.worker_count()).all(|i| self.shared.line(i).state == State::Starting)
        };
        if !waits_long || claimed > 0 || boots() {
            self.stuck = None;
            self.shared.is_stuck.store(false, Ordering::Release);
            return;
        }
        let (since, looks) = *self.stuck.insert(
            self.stuck
                .map_or((now, 0), |(since, looks)| (since, looks + 1)),
        );
        let stuck = now.duration_since(since);
        if looks > LOOKS && stuck > STUCK_AFTER {
            self.shared.is_stuck.store(true, Ordering::Release);
        }
        if looks < 3 * LOOKS || stuck < STUCK_FOR_GOOD {
            return;
        }
        if self
            .shared
            .is_to_be_replaced("requests wait, and no worker takes any")
        {
            self.shared.repaired("stuck");
        }
        for (worker, pid) in self.idle() {
            self.shared.kill(worker, &pid, Killed::Broken);
        }
        self.stuck = None;
    }
}
