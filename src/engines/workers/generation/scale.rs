//! The number of workers of a pool, which survives reloads. The policy is `scaling.rs`.

use std::ops::RangeInclusive;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use crate::engines::workers::pool_memory::PoolMemory;
use crate::engines::workers::scaling::Scaling;
use crate::observe::metrics::Metrics;
use crate::observe::status::ScalingStatus;

/// The number of workers of a pool.
pub struct Scale {
    pub(super) range: RangeInclusive<usize>,
    scaling: Mutex<Scaling>,
    memory: Mutex<PoolMemory>,
    pub(super) capacity: watch::Sender<usize>,
    pub(super) has_said_limit: AtomicBool,
}

impl Scale {
    /// None if the range has one size only. `first` is how many workers there are at first.
    pub fn new(
        pool: &'static str,
        range: RangeInclusive<usize>,
        first: usize,
        metrics: &Metrics,
    ) -> Option<Arc<Scale>> {
        if range.start() == range.end() {
            return None;
        }
        metrics.scaling.expect(pool);
        let scaling = Scaling::new(range.clone(), first, Instant::now());
        Some(Arc::new(Scale {
            capacity: watch::Sender::new(capacity(&scaling, &range)),
            range,
            scaling: Mutex::new(scaling),
            memory: Mutex::new(PoolMemory::new()),
            has_said_limit: AtomicBool::new(false),
        }))
    }

    /// How many workers there should be.
    pub fn target(&self) -> usize {
        self.lock().target()
    }

    /// See [`Engine::capacity`](crate::engine::Engine::capacity).
    pub fn capacity(&self) -> watch::Receiver<usize> {
        self.capacity.subscribe()
    }

    pub fn status(&self) -> ScalingStatus {
        let scaling = self.lock();
        ScalingStatus {
            target: scaling.target(),
            min: *self.range.start(),
            max: *self.range.end(),
            is_limited: scaling.is_limited(),
        }
    }

    pub(super) fn capacity_of(&self, scaling: &Scaling) -> usize {
        capacity(scaling, &self.range)
    }

    pub(super) fn lock_memory(&self) -> MutexGuard<'_, PoolMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Scaling> {
        self.scaling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Twice the workers, because the pool at most doubles at once. No more than there are if it cannot
/// grow.
fn capacity(scaling: &Scaling, range: &RangeInclusive<usize>) -> usize {
    match scaling.is_limited() {
        true => scaling.target(),
        false => (scaling.target() * 2).min(*range.end()),
    }
}
