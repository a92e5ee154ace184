//! Looks at everything in flight now and then: ends what takes too long, and has done again what
//! got lost on the way to a worker.
//!
//! What workers have written is used here only where a lie does no more than cost the liar
//! (docs/shared-memory.md).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::Limits;
use super::in_flight::{Holder, Key, Reached, Refusal, Slot, Stopping, Way};
use super::losses::Losses;
use super::state::Shared;
use super::stopped::Stopped;
use super::stuck::{Oldest, Stuck};
use super::suspects::Suspects;
use crate::engines::workers::exit_reason::Killed;
use crate::engines::workers::ipc::requests::Inbox;
use crate::event::Failure;

/// How often all events in flight are looked at. Looking costs about a microsecond; timeouts are
/// seconds.
const TICK: Duration = Duration::from_millis(50);

/// Looks that have to have found the same. Where the machine does not let us run, time passes in
/// which we do not hear what workers say: between two looks, all has been heard that was said
/// before.
pub const LOOKS: u32 = 20;

/// After so many looks all workers that may have an event are asked whether they have it.
const ASKED_AT: u32 = 8;

/// Between claiming an event and writing that down, a worker needs microseconds; on a machine that
/// does not let it run, longer.
const MISSED_AFTER: Duration = Duration::from_secs(1);

/// An event whose message no worker can find any more is sent again after this time. One that has
/// just received it may be about to claim it; if it comes too late, it drops it.
pub const LOST_AFTER: Duration = Duration::from_millis(500);

/// Looks that find nothing in flight before there are no more, until there is something: else each
/// of some events that come one after the other would wake the watch.
const AT_REST: u32 = 20;

/// Looks at each of which somebody is woken for what is in the ring; then at each of so many, for
/// all may be busy.
const EAGER: u32 = 10;

/// What a look at one slot has found.
enum Finding {
    WaitedTooLong,
    Over(Option<Holder>),
    NotEnding(Stopping),
    /// It was sent at this time and in this way, and no worker will find it.
    Lost(Instant, Way),
    /// A worker has claimed it, and none says that it has it.
    Hidden,
    /// Nor has one when asked.
    Missed,
}

/// Runs as long as the generation has processes.
pub async fn run(shared: Arc<Shared>, inbox: Weak<Inbox>, limits: Limits) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut hears, mut rests) = (true, false);
    let mut watch = Watch::new(shared.clone(), limits);
    loop {
        tokio::select! {
            _ = tick.tick(), if !rests => {}
            () = shared.attention.called(), if rests => {
                shared.attention.wake();
                rests = false;
                tick.reset();
            }
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
        if watch.quiet > AT_REST && hears {
            shared.attention.sleep();
            // What has come before that has called nobody.
            rests = watch.has_nothing_to_do();
            if !rests {
                shared.attention.wake();
            }
        }
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
    /// Looks that have found nothing to do.
    quiet: u32,
    stuck: Stuck,
    stopped: Stopped,
    suspects: Suspects,
    losses: Losses,
}

/// What is in flight.
#[derive(Default)]
struct InFlight {
    /// The event that has been waiting longest for a worker to claim it.
    oldest: Option<Oldest>,
    /// Events that workers hold.
    claimed: usize,
    /// Those of them that looked as if nobody had claimed them, whose tickets a script has written
    /// back.
    written_back: usize,
    found: Vec<(Key, u64, Finding)>,
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
    fn new(shared: Arc<Shared>, limits: Limits) -> Watch {
        Watch {
            shared,
            limits,
            head: 0,
            unmoved: 0,
            quiet: 0,
            stuck: Stuck::default(),
            stopped: Stopped::default(),
            suspects: Suspects::default(),
            losses: Losses::default(),
        }
    }

    /// Is nothing in flight, and nothing else under way that takes several looks?
    fn has_nothing_to_do(&self) -> bool {
        let shared = &self.shared;
        shared.slots.is_empty()
            && self.suspects.is_empty()
            && !self.stopped.has_found_any()
            && !shared.is_inbox_suspect.load(Ordering::SeqCst)
            && !shared.is_retiring()
            && !shared.is_over()
    }

    fn look(&mut self, inbox: Option<&Inbox>) {
        let shared = self.shared.clone();
        // What keeps our threads awake may be others' work, and what was said of letters need not
        // be true.
        shared.post.look_at_all();
        shared.post.bell.reset();
        if shared.post.rings.rewrite() {
            warn!("a script has written to the request ring's memory; put right");
            shared.repaired("ring");
        }
        if let Some(inbox) = inbox {
            self.wake(inbox);
            if shared.is_inbox_suspect.swap(false, Ordering::SeqCst)
                && !shared.is_retiring()
                && inbox.is_shut_down()
            {
                shared.inbox_was_closed();
            }
        }
        shared.note_waiting();
        shared.note_holders();
        let in_flight = self.in_flight(inbox);
        if in_flight.written_back > 0 {
            shared.repaired("ticket");
        }
        // Whatever was found, the event may have ended since and its request id may be another's;
        // so each is named by its ticket.
        for (key, event, finding) in in_flight.found {
            if let Finding::Lost(sent, Way::Socket) = finding {
                self.losses.note(&shared, sent);
            }
            self.act(key, event, finding);
        }
        self.suspects.look(&shared);
        let (oldest, claimed) = (in_flight.oldest, in_flight.claimed);
        if self.stuck.look(&shared, oldest, claimed, self.limits.boot) {
            for (worker, pid) in self.stopped.of(shared.without_event()) {
                warn!(
                    pid = pid.get(),
                    "a worker was stopped (SIGSTOP) while requests wait; killed"
                );
                shared.repaired("worker_stopped");
                shared.kill(worker, &pid, Killed::Suspended);
            }
        }
        self.suspects.add(&shared, self.stuck.take_doomed());
        self.stopped.look_at_template(&shared);
        self.quiet = match self.has_nothing_to_do() {
            true => self.quiet.saturating_add(1),
            false => 0,
        };
    }

    /// Wakes a worker for what is in the ring and has not been taken since the last look, whatever
    /// is known of who sleeps: one that was woken may have been killed, and a script may have
    /// written anything there.
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

    fn in_flight(&self, inbox: Option<&Inbox>) -> InFlight {
        let shared = &self.shared;
        let now = Instant::now();
        let (head, _) = shared.post.rings.inbox_ends();
        let mut is_socket_empty = None;
        let mut seen = InFlight::default();
        shared.slots.each(|key, slot| {
            let is_over = slot.deadline.is_some_and(|deadline| now >= deadline);
            let finding = if slot.is_offered(&shared.board, key.request) {
                let since = slot.sent.map_or(now, |(sent, _)| sent);
                let waits = Oldest { key, since };
                seen.oldest = Some(seen.oldest.map_or(waits, |oldest| oldest.or(waits)));
                let waits = slot.answer.is_some()
                    && now.duration_since(slot.entered) > self.limits.queue_wait;
                let mut lost = || {
                    let (sent, way) = slot.sent?;
                    let is_lost = now.duration_since(sent) > LOST_AFTER
                        && match way {
                            Way::Ring(at) => head.wrapping_sub(at).cast_signed() > 0,
                            Way::Socket => *is_socket_empty
                                .get_or_insert_with(|| inbox.is_some_and(Inbox::is_socket_empty)),
                        };
                    is_lost.then_some(Finding::Lost(sent, way))
                };
                match () {
                    () if is_over => Some(Finding::Over(None)),
                    () if waits => Some(Finding::WaitedTooLong),
                    () => lost(),
                }
            } else {
                seen.claimed += 1;
                if slot.revoke_again(&shared.board, key.request) {
                    seen.written_back += 1;
                }
                claimed(slot, now, is_over)
            };
            if let Some(finding) = finding {
                seen.found.push((key, slot.event, finding));
            }
        });
        seen
    }

    fn act(&mut self, key: Key, event: u64, finding: Finding) {
        let shared = &self.shared;
        let refuse = |failure, reached| shared.withdraw(key, Some(Refusal { failure, reached }));
        match finding {
            Finding::WaitedTooLong => {
                // One that has been claimed meanwhile has not waited too long.
                shared.take_back_for(key, Failure::Busy("no worker became free in time"));
            }
            Finding::Over(holder) => {
                // Where nobody has begun it, its message is dropped by whoever finds it.
                if refuse(Failure::TimedOut, Reached::Php) == Some(false)
                    && let Some(holder) = holder
                {
                    self.stop(key, event, holder);
                }
            }
            Finding::NotEnding(stopping) => self.kill(key, event, stopping),
            Finding::Lost(..) => {
                if shared.take_back(key, "its message was lost on the way to a worker") {
                    warn!(
                        event,
                        "a request was lost on the way to a worker; it is sent again"
                    );
                    shared.repaired("request");
                }
            }
            Finding::Hidden => {
                // Its line may have been overwritten. A script that sleeps meanwhile sleeps less.
                for (worker, pid) in shared.that_are_silent() {
                    if shared.boots(worker, self.limits.boot) {
                        continue;
                    }
                    if let Err(error) = pid.stop() {
                        debug!(worker, %error, "cannot signal the worker");
                    }
                }
            }
            Finding::Missed => {
                let until = |slot: &mut Slot| {
                    // It may have said so since.
                    slot.holder.is_none().then_some(slot.deadline)
                };
                let Some(deadline) = shared.slots.with(key, until).flatten() else {
                    return;
                };
                let why = "the worker that has received it has ended, or cannot be found".into();
                if refuse(Failure::Died(why), Reached::Worker) == Some(false) {
                    warn!(event, "an event was lost with an idle worker");
                    // If a worker has it after all, its answer is thrown away, and it has as long
                    // as it would have had.
                    shared.slots.close(key);
                    let until = deadline.unwrap_or_else(Instant::now) + self.limits.kill_after;
                    self.suspects.suspect(shared, until);
                }
            }
        }
    }

    /// Asks a worker to end an event.
    fn stop(&self, key: Key, event: u64, holder: Holder) {
        let shared = &self.shared;
        let stopping = Stopping {
            holder: holder.clone(),
            kill_at: Instant::now() + self.limits.kill_after,
        };
        // Noted before it is asked: its answer may end at once, and must not look whole.
        let note = |stopping| {
            shared.slots.with(key, |slot| {
                slot.stopping = stopping;
                slot.looks = 0;
                format!("{} {}", slot.method, slot.uri)
            })
        };
        let Some(what) = note(Some(stopping)) else {
            return;
        };
        if !shared.stop(&holder, key) {
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
    fn kill(&self, key: Key, event: u64, stopping: Stopping) {
        let shared = &self.shared;
        let now = Instant::now();
        let Some(is_to_be_heard) = shared.slots.with(key, |slot| {
            slot.looks += 1;
            slot.waits_for_client || slot.looks <= LOOKS
        }) else {
            return;
        };
        // It may say that it has gone on to another. Then its word that this one has ended is on
        // its way to us, and soon here, unless a client is waited for.
        let holder = &stopping.holder;
        let says_so = !shared.is_named(holder.worker, &holder.pid, key);
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
        shared.slots.with(key, |slot| {
            if let Some(stopping) = &mut slot.stopping {
                stopping.kill_at = now + Duration::from_secs(3600);
            }
        });
    }
}
