//! Decides how many workers a pool has: more as soon as requests wait, fewer slowly.
//!
//! Time is a parameter, so that tests need no clock. docs/internals/scaling.md has the reasons.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// A request that waits this long while all workers are busy makes the pool grow.
const LONG_WAIT: Duration = Duration::from_millis(10);
/// How long new workers may take until they wait for requests. Afterwards the pool grows although
/// they do not.
const SETTLES: Duration = Duration::from_secs(1);
/// How long the pool keeps workers that it does not need, at least and at most.
const MIN_HOLD: Duration = Duration::from_secs(10);
const MAX_HOLD: Duration = Duration::from_secs(320);
/// The share of unneeded workers that exits at a time: a quarter.
const SHARE: usize = 4;

/// What a pool does at one instant.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolLoad {
    /// Workers that hold a request.
    pub busy: usize,
    /// Started workers that do not wait for requests yet.
    pub starting: usize,
    /// Those of them that growth has added, and that replace no other worker.
    pub beginning: usize,
    /// Requests that no worker has taken.
    pub waiting: usize,
    /// How long the oldest of them has waited.
    pub longest_wait: Duration,
}

/// The size of a pool over time.
#[derive(Debug)]
pub struct Scaling {
    range: RangeInclusive<usize>,
    target: usize,
    /// How long the pool keeps workers that it does not need. Doubles if it has to grow soon after
    /// it has shrunk.
    hold: Duration,
    /// Since when `peak` is measured.
    since: Instant,
    /// The most busy workers since then.
    peak: usize,
    grew: Option<Instant>,
    shrank: Option<Instant>,
    /// Memory was short for the last growth, or the kernel has killed a worker since.
    is_limited: bool,
    /// When the pool was made smaller because memory had run out.
    ran_out: Option<Instant>,
    /// How long it does not grow after that. Doubles if memory runs out again soon.
    rest: Duration,
}

impl Scaling {
    pub fn new(range: RangeInclusive<usize>, first: usize, now: Instant) -> Scaling {
        Scaling {
            target: first,
            range,
            hold: MIN_HOLD,
            since: now,
            peak: 0,
            grew: None,
            shrank: None,
            is_limited: false,
            ran_out: None,
            rest: MIN_HOLD,
        }
    }

    /// How many workers there should be.
    pub fn target(&self) -> usize {
        self.target
    }

    /// Whether memory is short for more workers.
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Adapts the target to the load. `room` returns how many of that many more workers fit into
    /// memory. Returns whether the target has changed.
    pub fn observe(
        &mut self,
        now: Instant,
        load: PoolLoad,
        room: impl FnOnce(usize) -> usize,
    ) -> bool {
        self.peak = self.peak.max(load.busy);
        let wanted = self.growth(now, load);
        if wanted > 0 {
            let added = room(wanted).min(wanted);
            self.is_limited = added < wanted;
            self.grow(now, added);
            return added > 0;
        }
        match now.duration_since(self.since) >= self.hold {
            true => self.shrink(now, load),
            false => false,
        }
    }

    /// When to check again even if nothing happens. None at the smallest size.
    pub fn due(&self) -> Option<Instant> {
        (self.target > *self.range.start()).then(|| self.since + self.hold)
    }

    /// How many more workers there should be: one for each waiting request, at most as many as
    /// there are.
    fn growth(&self, now: Instant, load: PoolLoad) -> usize {
        let is_waiting = load.waiting > 0 && load.longest_wait >= LONG_WAIT;
        let are_all_busy = load.busy + load.starting >= self.target;
        let is_recent = |grew| now.duration_since(grew) < SETTLES;
        // Workers that serve one request are always starting somewhere; that is no reason to wait.
        let is_settling =
            (load.beginning > 0 || self.is_limited) && self.grew.is_some_and(is_recent);
        let is_resting = |ran_out| now.duration_since(ran_out) < self.rest;
        let may_grow = !is_settling && !self.ran_out.is_some_and(is_resting);
        match is_waiting && are_all_busy && may_grow {
            true => {
                let most = self.range.end().saturating_sub(self.target);
                load.waiting.min(self.target).min(most)
            }
            false => 0,
        }
    }

    /// Makes the pool a quarter smaller, because the kernel has killed a worker for lack of memory.
    /// Returns false if that has just been done: workers that hold a request exit after it.
    pub fn run_out(&mut self, now: Instant) -> bool {
        self.is_limited = true;
        let since = self.ran_out.map(|ran_out| now.duration_since(ran_out));
        if since.is_some_and(|since| since < SETTLES) {
            return false;
        }
        self.rest = match since.is_some_and(|since| since < self.rest * 2) {
            true => (self.rest * 2).min(MAX_HOLD),
            false => MIN_HOLD,
        };
        self.ran_out = Some(now);
        let least = *self.range.start();
        self.target = (self.target - self.target.div_ceil(SHARE)).max(least);
        (self.since, self.peak) = (now, self.target);
        true
    }

    fn grow(&mut self, now: Instant, added: usize) {
        if added > 0
            && let Some(shrank) = self.shrank.take()
            && now.duration_since(shrank) < self.hold * 2
        {
            self.hold = (self.hold * 2).min(MAX_HOLD);
        }
        self.target += added;
        self.grew = Some(now);
        (self.since, self.peak) = (now, self.target);
    }

    fn shrink(&mut self, now: Instant, load: PoolLoad) -> bool {
        // A quarter more than were needed.
        let needed = self.peak + self.peak.div_ceil(SHARE);
        let spare = self.target - needed.clamp(*self.range.start(), self.target);
        (self.since, self.peak) = (now, load.busy);
        if spare == 0 {
            return false;
        }
        self.target -= spare.div_ceil(SHARE);
        self.is_limited = false;
        let is_long_ago = |grew| now.duration_since(grew) >= MAX_HOLD;
        let has_been_calm = self.grew.is_none_or(is_long_ago);
        if self.shrank.replace(now).is_some() && has_been_calm {
            self.hold = (self.hold / 2).max(MIN_HOLD);
        }
        true
    }
}

#[cfg(test)]
#[path = "scaling/tests.rs"]
mod tests;
