//! Gives a pool as many workers as the load needs and the memory allows.
//!
//! Only the generation that serves observes the load.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::scale::Scale;
use super::state::{GenerationState, Worker};
use crate::engines::workers::pool_memory::PoolMemory;
use crate::engines::workers::scaling::{PoolLoad, Scaling};
use crate::observe::scaling_metrics::Direction;
use crate::observe::system;

/// The signal by which the kernel ends a process for lack of memory.
const SIGKILL: i32 = 9;

impl GenerationState {
    /// From now on, this generation's load decides. It adopts what was decided while it booted.
    pub fn begin_scaling(&self) {
        if let Some(scale) = &self.scale {
            self.serves.store(true, Ordering::SeqCst);
            self.set_target(scale.target());
            self.parking.notify();
        }
    }

    /// Adapts the number of workers to the load: `busy` workers hold events, and `waiting` others
    /// wait, the oldest since `oldest`.
    pub(super) fn scale(&self, busy: usize, waiting: usize, oldest: Option<Instant>) {
        let Some(scale) = self.deciding() else {
            return;
        };
        let now = Instant::now();
        let mut memory = scale.lock_memory();
        self.measure(&mut memory, now);
        let waits = waiting > 0;
        let load = PoolLoad {
            busy,
            starting: if waits { self.starting() } else { 0 },
            beginning: if waits { self.beginning() } else { 0 },
            waiting,
            longest_wait: oldest.map_or(Duration::ZERO, |since| now.duration_since(since)),
        };
        let mut is_limited = false;
        let mut scaling = scale.lock();
        let before = scaling.target();
        scaling.observe(now, load, |added| {
            let fits = memory.reserve_workers(now, added, self.largest());
            is_limited = fits < added;
            fits
        });
        drop(memory);
        if is_limited {
            self.metrics.scaling.scaled(self.engine, Direction::Limited);
            if !scale.has_said_limit.swap(true, Ordering::Relaxed) {
                warn!(
                    engine = self.engine,
                    workers = scaling.target(),
                    limit = scale.range.end(),
                    "memory is short for more workers (logged once; counted in the metrics)"
                );
            }
        }
        self.adopt(scale, before, &scaling);
    }

    /// Records that a worker has exited which Surus has not killed. If the kernel has killed it for
    /// lack of memory, the pool becomes smaller.
    pub(super) fn note_kill(&self, wait_status: i32) {
        let is_killed = ExitStatus::from_raw(wait_status).signal() == Some(SIGKILL);
        let Some(scale) = self.deciding().filter(|_| is_killed) else {
            return;
        };
        if !scale.lock_memory().has_run_out() {
            return;
        }
        let mut scaling = scale.lock();
        let before = scaling.target();
        if !scaling.run_out(Instant::now()) {
            return;
        }
        self.metrics.scaling.scaled(self.engine, Direction::Limited);
        warn!(
            engine = self.engine,
            workers = scaling.target(),
            limit = scale.range.end(),
            "the kernel has killed a worker for lack of memory; the pool has fewer workers for a \
             while (engine.max_workers)"
        );
        self.adopt(scale, before, &scaling);
    }

    /// Adopts a number of workers that has just been decided.
    fn adopt(&self, scale: &Scale, before: usize, scaling: &Scaling) {
        let after = scaling.target();
        let capacity = scale.capacity_of(scaling);
        scale.capacity.send_if_modified(|known| {
            let is_news = *known != capacity;
            *known = capacity;
            is_news
        });
        if after != before {
            debug!(
                engine = self.engine,
                workers = after,
                "number of workers changed"
            );
            let direction = match after > before {
                true => Direction::Up,
                false => Direction::Down,
            };
            self.metrics.scaling.scaled(self.engine, direction);
            self.set_target(after);
        }
    }

    /// When to adapt the number of workers although nothing is in flight.
    pub(super) fn next_scaling(&self) -> Option<Instant> {
        self.deciding()?.lock().due()
    }

    fn deciding(&self) -> Option<&Scale> {
        let decides = self.serves.load(Ordering::SeqCst) && !self.is_draining();
        self.scale.as_deref().filter(|_| decides)
    }

    fn set_target(&self, target: usize) {
        let before = self.target();
        self.poller.rings.set_target(target);
        if target != before {
            self.scaled.notify_one();
        }
        for worker in target..before {
            self.set_begun(worker, false);
        }
    }

    /// How many workers there should be. Workers cannot write this: the master process learns it by
    /// the control socket, and each released worker by its own socket.
    pub(super) fn target(&self) -> usize {
        self.poller.rings.target()
    }

    /// Releases the workers that there should not be any more: each exits when it is idle. This
    /// cannot be taken back; if the pool grows meanwhile, another worker takes its place.
    pub(super) fn release_workers(&self) {
        let target = self.target();
        for (index, worker) in self.lock_workers().iter_mut().enumerate().skip(target) {
            let end = worker.as_mut().and_then(|worker| worker.end.take());
            if end.is_some() {
                // Its end is closed first.
                drop(end);
                self.poller.rings.wake(index);
            }
        }
    }

    /// How many workers there should be that do not wait for events yet.
    fn starting(&self) -> usize {
        let target = self.target();
        let workers = self.lock_workers();
        let has_waited = |worker: &Option<Worker>| worker.as_ref().is_some_and(|it| it.has_waited);
        workers
            .iter()
            .take(target)
            .filter(|worker| !has_waited(worker))
            .count()
    }

    /// How many slots growth has added whose first worker does not wait for events yet. A worker
    /// that replaces another is not among them.
    fn beginning(&self) -> usize {
        let slots = self.has_slot_begun.iter();
        let slots = slots.take(self.target());
        slots.filter(|begun| !begun.load(Ordering::Relaxed)).count()
    }

    /// Reads how large workers are, and reserves for all of them what they do not use yet.
    fn measure(&self, memory: &mut PoolMemory, now: Instant) {
        let target = self.target();
        let mut workers = self.lock_workers();
        let mut has_read = false;
        for slot in memory.due(workers.len()) {
            if let Some(Some(worker)) = workers.get_mut(slot)
                && let Some(bytes) = system::anonymous_size(worker.pid.get())
            {
                memory.observe(now, &mut worker.size, bytes);
                has_read = true;
            }
        }
        if has_read {
            memory.has_swept(self.in_flight.ended());
        }
        let unused = workers
            .iter()
            .enumerate()
            .map(|(slot, worker)| match worker {
                Some(worker) => {
                    // The one event of such a worker is always ahead.
                    let age = match self.serves_one {
                        true => Duration::ZERO,
                        false => now.saturating_duration_since(worker.started),
                    };
                    memory.unused(now, Some((&worker.size, age)))
                }
                None if slot < target => memory.unused(now, None),
                None => 0,
            });
        let unused = unused.sum();
        drop(workers);
        memory.reserve(now, unused);
    }

    /// The largest worker, as read last.
    fn largest(&self) -> Option<u32> {
        let workers = self.lock_workers();
        let largest = workers.iter().flatten().max_by_key(|it| it.size.current());
        largest.map(|worker| worker.pid.get())
    }
}
