//! Gives a pool as many workers as the load needs and the memory allows.
//!
//! Only the generation that serves observes the load.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::scale::Scale;
use super::state::GenerationState;
use crate::engines::workers::scaling::PoolLoad;
use crate::observe::scaling_metrics::Direction;
use crate::observe::system::{self, Memory};

impl GenerationState {
    /// From now on, this generation's load decides. It adopts what was decided while it booted.
    pub fn begin_scaling(&self) {
        if let Some(scale) = &self.scale {
            self.serves.store(true, Ordering::SeqCst);
            self.set_target(scale.target());
            self.attention.call();
        }
    }

    /// Adapts the number of workers to the load: `busy` workers hold events, and `waiting` others
    /// wait, the oldest since `oldest`.
    pub(super) fn scale(&self, busy: usize, waiting: usize, oldest: Option<Instant>) {
        let Some(scale) = self.deciding() else {
            return;
        };
        let now = Instant::now();
        let load = PoolLoad {
            busy,
            starting: if waiting > 0 { self.starting() } else { 0 },
            waiting,
            longest_wait: oldest.map_or(Duration::ZERO, |since| now.duration_since(since)),
        };
        let mut is_limited = false;
        let mut scaling = scale.lock();
        let before = scaling.target();
        scaling.observe(now, load, |added| {
            let fits = self.fits(added);
            is_limited = fits < added;
            fits
        });
        let after = scaling.target();
        let capacity = scale.capacity_of(&scaling);
        drop(scaling);
        scale.capacity.send_if_modified(|known| {
            let is_news = *known != capacity;
            *known = capacity;
            is_news
        });
        if is_limited {
            self.metrics.scaling.scaled(self.engine, Direction::Limited);
            if !scale.has_said_limit.swap(true, Ordering::Relaxed) {
                warn!(
                    engine = self.engine,
                    workers = after,
                    limit = scale.range.end(),
                    "memory is short for more workers (said once; counted in the metrics)"
                );
            }
        }
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
        let rings = &self.poller.rings;
        let before = rings.target();
        rings.set_target(target);
        if target > before {
            self.more_workers.notify_one();
        }
        // They exit if they are idle.
        (target..before).for_each(|worker| rings.wake(worker));
    }

    /// How many of `added` more workers fit into memory, if they become as large as the largest.
    fn fits(&self, added: usize) -> usize {
        let Some(memory) = Memory::read() else {
            return added;
        };
        let pids = self.lock_workers();
        let slots = pids.iter().enumerate();
        let sizes = slots.filter_map(|(index, worker)| {
            let pid = worker.as_ref()?.pid.get();
            Some((self.line(index).memory, pid))
        });
        let largest = sizes.max_by_key(|(bytes, _)| *bytes);
        drop(pids);
        let Some((private, pid)) = largest else {
            return added;
        };
        // Readable only if PHP has the same user.
        let each = system::proportional_size(pid).unwrap_or(private);
        memory.fits(added, each)
    }
}
