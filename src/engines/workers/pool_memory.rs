//! Measures the memory of growing pools, and says how many more workers fit into it.
//!
//! Sizes come from `/proc`, never from what a worker says. docs/internals/scaling.md has the
//! reasons.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::observe::system::{self, Memory};

/// In this time, a maximum that is not reached again halves.
const HALF_LIFE: Duration = Duration::from_secs(300);

/// Sweeps under load, and ended requests, until the pool trusts what it has measured.
const TRUSTED_AFTER: (u32, u64) = (100, 16);

/// What a worker counts as at least until then: PHP's default `memory_limit`.
const ASSUMED: u64 = 128 << 20;

/// Workers whose size one sweep reads. Reading one costs about 5 us.
const READ_PER_SWEEP: usize = 32;

/// For how long after its start a worker is expected to become as large as the largest. Memory is
/// kept as long for workers of a pool that has become idle.
const YOUNG: Duration = Duration::from_secs(10);

/// What the workers of each growing pool are expected to need beyond what they use, and when that
/// was determined.
type Reservations = BTreeMap<u64, (u64, Instant)>;

static RESERVATIONS: Mutex<Reservations> = Mutex::new(Reservations::new());

/// A maximum that falls slowly.
#[derive(Debug, Clone, Copy, Default)]
pub struct FallingMaximum {
    bytes: u64,
    since: Option<Instant>,
}

impl FallingMaximum {
    fn observe(&mut self, now: Instant, bytes: u64) {
        if bytes >= self.at(now) {
            (self.bytes, self.since) = (bytes, Some(now));
        }
    }

    fn at(&self, now: Instant) -> u64 {
        let age = self.since.map(|since| now.duration_since(since));
        let halves = age.unwrap_or_default().as_secs_f64() / HALF_LIFE.as_secs_f64();
        (self.bytes as f64 * (-halves).exp2()) as u64
    }
}

/// The memory of one worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerSize {
    current: Option<u64>,
    largest: FallingMaximum,
}

impl WorkerSize {
    /// None before it was read.
    pub fn current(&self) -> Option<u64> {
        self.current
    }
}

/// What a pool knows of the memory of its workers.
#[derive(Debug)]
pub struct PoolMemory {
    /// Its key in [`RESERVATIONS`].
    number: u64,
    largest: FallingMaximum,
    /// How much of that a worker shares with the others, if known.
    shared: u64,
    /// Sweeps that have read sizes.
    sweeps: u32,
    /// What they have read is trusted.
    is_trusted: bool,
    /// The slot of the worker that is read next.
    next: usize,
    /// What [`system::oom_kills`] was when the pool grew, or lost a worker, for the last time.
    oom_kills: Option<u64>,
}

impl PoolMemory {
    pub fn new() -> PoolMemory {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        PoolMemory {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            largest: FallingMaximum::default(),
            shared: 0,
            sweeps: 0,
            is_trusted: false,
            next: 0,
            oom_kills: system::oom_kills(),
        }
    }

    /// The slots that this sweep reads.
    pub fn due(&mut self, slots: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.next;
        let count = slots.min(READ_PER_SWEEP);
        self.next = (first + count) % slots.max(1);
        (first..first + count).map(move |slot| slot % slots)
    }

    /// Records the size of a worker that has just been read.
    pub fn observe(&mut self, now: Instant, worker: &mut WorkerSize, bytes: u64) {
        worker.current = Some(bytes);
        worker.largest.observe(now, bytes);
        self.largest.observe(now, bytes);
    }

    /// Records a sweep that has read sizes, when this many requests had ended.
    pub fn has_swept(&mut self, ended: u64) {
        self.sweeps = self.sweeps.saturating_add(1);
        self.is_trusted |= self.sweeps >= TRUSTED_AFTER.0 && ended >= TRUSTED_AFTER.1;
    }

    /// How large a worker may become.
    fn expected(&self, now: Instant) -> u64 {
        let assumed = match self.is_trusted {
            true => 0,
            false => ASSUMED,
        };
        self.largest.at(now).max(assumed)
    }

    /// How much more a worker of this age is expected to need. None: it has not started.
    pub fn unused(&self, now: Instant, worker: Option<(&WorkerSize, Duration)>) -> u64 {
        let Some((size, age)) = worker else {
            return self.expected(now).saturating_sub(self.shared);
        };
        match size.current {
            Some(current) => {
                let expected = match age < YOUNG {
                    true => self.expected(now),
                    false => size.largest.at(now),
                };
                expected.saturating_sub(current)
            }
            None => self.expected(now).saturating_sub(self.shared),
        }
    }

    /// Replaces what the pool's workers are expected to need.
    pub fn reserve(&self, now: Instant, bytes: u64) {
        reservations().insert(self.number, (bytes, now));
    }

    /// How many of `added` more workers fit, which are like the process `like`. Reserves their
    /// memory, so that no other pool gets it.
    pub fn reserve_workers(&mut self, now: Instant, added: usize, like: Option<u32>) -> usize {
        // This growth may cause later kills.
        self.oom_kills = system::oom_kills();
        self.shared = like.and_then(shared).unwrap_or_default();
        let Some(memory) = Memory::read() else {
            return added;
        };
        self.reserve_in(&mut reservations(), memory, now, added)
    }

    fn reserve_in(
        &self,
        all: &mut Reservations,
        memory: Memory,
        now: Instant,
        added: usize,
    ) -> usize {
        all.retain(|_, (_, at)| now.saturating_duration_since(*at) < YOUNG);
        let reserved = all.values().map(|(bytes, _)| bytes).sum();
        let each = self.expected(now).saturating_sub(self.shared);
        let fits = memory.fits(added, each, reserved);
        let (own, _) = all.get(&self.number).copied().unwrap_or((0, now));
        all.insert(self.number, (own + each * fits as u64, now));
        fits
    }

    /// Whether the kernel has killed processes for lack of memory since the pool has grown or lost
    /// a worker. If that cannot be read, a worker that is killed counts as one of them.
    pub fn has_run_out(&mut self) -> bool {
        let now = system::oom_kills();
        let before = std::mem::replace(&mut self.oom_kills, now);
        now.is_none_or(|now| before.is_none_or(|before| now > before))
    }
}

impl Drop for PoolMemory {
    fn drop(&mut self) {
        reservations().remove(&self.number);
    }
}

fn reservations() -> MutexGuard<'static, Reservations> {
    RESERVATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a process shares with others of its memory that is neither of files nor shared memory. None
/// if that may not be read: only a process of the same user may.
fn shared(pid: u32) -> Option<u64> {
    let own = system::proportional_size(pid)?;
    Some(system::anonymous_size(pid)?.saturating_sub(own))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn memory(mib: u64) -> Memory {
        Memory::of(mib * MIB, mib * MIB)
    }

    /// A pool that has measured a worker of this size for long enough.
    fn known(now: Instant, mib: u64) -> PoolMemory {
        let mut pool = PoolMemory::new();
        pool.observe(now, &mut WorkerSize::default(), mib * MIB);
        (0..TRUSTED_AFTER.0).for_each(|_| pool.has_swept(TRUSTED_AFTER.1));
        pool
    }

    #[test]
    fn maximum_halves_in_five_minutes_and_rises_at_once() {
        let now = Instant::now();
        let mut largest = FallingMaximum::default();
        assert_eq!(largest.at(now), 0);
        largest.observe(now, 100 * MIB);
        assert_eq!(largest.at(now + HALF_LIFE), 50 * MIB);
        largest.observe(now + HALF_LIFE, 10 * MIB);
        assert_eq!(largest.at(now + 2 * HALF_LIFE), 25 * MIB);
        largest.observe(now + HALF_LIFE, 60 * MIB);
        assert_eq!(largest.at(now + HALF_LIFE), 60 * MIB);
    }

    #[test]
    fn workers_of_a_new_pool_count_as_large_until_it_has_measured_for_long() {
        let now = Instant::now();
        let (mut pool, mut all) = (PoolMemory::new(), Reservations::new());
        let mut worker = WorkerSize::default();
        pool.observe(now, &mut worker, 2 * MIB);
        // 1024 MiB without a sixteenth.
        assert_eq!(pool.reserve_in(&mut all, memory(1024), now, 99), 7);
        all.clear();
        (0..TRUSTED_AFTER.0).for_each(|_| pool.has_swept(TRUSTED_AFTER.1 - 1));
        assert_eq!(pool.reserve_in(&mut all, memory(1024), now, 99), 7);
        all.clear();
        pool.has_swept(TRUSTED_AFTER.1);
        assert_eq!(pool.reserve_in(&mut all, memory(1024), now, 99), 99);
        pool.observe(now, &mut worker, 200 * MIB);
        all.clear();
        assert_eq!(pool.reserve_in(&mut all, memory(1024), now, 99), 4);
    }

    #[test]
    fn pools_share_one_budget() {
        let (now, mut all) = (Instant::now(), Reservations::new());
        let (one, other) = (known(now, 100), known(now, 50));
        assert_eq!(one.reserve_in(&mut all, memory(1024), now, 5), 5);
        assert_eq!(other.reserve_in(&mut all, memory(1024), now, 99), 9);
        assert_eq!(one.reserve_in(&mut all, memory(1024), now, 1), 0);
        all.insert(other.number, (0, now));
        assert_eq!(one.reserve_in(&mut all, memory(1024), now, 99), 4);
        // Nothing has been in flight since.
        assert_eq!(other.reserve_in(&mut all, memory(1024), now + YOUNG, 1), 1);
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn young_worker_is_expected_to_become_as_large_as_the_largest() {
        let now = Instant::now();
        let mut pool = known(now, 100);
        let mut worker = WorkerSize::default();
        assert_eq!(pool.unused(now, None), 100 * MIB);
        assert_eq!(pool.unused(now, Some((&worker, YOUNG * 2))), 100 * MIB);
        pool.observe(now, &mut worker, 30 * MIB);
        pool.observe(now, &mut worker, 10 * MIB);
        assert_eq!(pool.unused(now, Some((&worker, YOUNG / 2))), 90 * MIB);
        // Later, only as large as it was itself.
        assert_eq!(pool.unused(now, Some((&worker, YOUNG))), 20 * MIB);
    }

    #[test]
    fn sweeps_read_some_workers_in_turn() {
        let mut pool = PoolMemory::new();
        let mut read = |slots| pool.due(slots).collect::<Vec<_>>();
        assert_eq!(read(3), [0, 1, 2]);
        assert_eq!(read(READ_PER_SWEEP + 2).len(), READ_PER_SWEEP);
        assert_eq!(read(READ_PER_SWEEP + 2)[..3], [32, 33, 0]);
        assert!(read(0).is_empty());
    }

    #[test]
    fn own_size_can_be_read() {
        let size = system::anonymous_size(std::process::id()).unwrap();
        assert!((100 << 10..1 << 34).contains(&size), "{size}");
    }
}
