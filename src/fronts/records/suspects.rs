//! Records that have crashed workers of this process, or have blocked them until their timeout.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::event::Failure;
use crate::observe::bounded::bounded;

/// From this many lost workers on, a record runs last and alone; from this many crashes on, a job
/// runs while no other suspect runs. A single loss may be the fault of another one that ran at the
/// same time.
const SUSPECT: u32 = 2;
/// Limit of remembered records. If more records fail, PHP crashes on any input.
const REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
pub struct Suspects(Mutex<HashMap<String, LostWorkers>>);

/// The workers that a record has cost.
#[derive(Debug, Default)]
struct LostWorkers {
    /// By crashes and timeouts.
    lost: u32,
    crashed: u32,
}

impl Suspects {
    /// Whether none has cost a worker, so that names need not be made.
    pub fn is_empty(&self) -> bool {
        self.with(|workers| workers.is_empty())
    }

    pub fn is_suspect(&self, id: &str) -> bool {
        let id = bounded(id);
        self.with(|workers| workers.get(&*id).is_some_and(|it| it.lost >= SUSPECT))
    }

    /// The same without timeouts. A service that does not answer makes many jobs time out, which
    /// harm no other job.
    pub fn is_crash_suspect(&self, id: &str) -> bool {
        let id = bounded(id);
        self.with(|workers| workers.get(&*id).is_some_and(|it| it.crashed >= SUSPECT))
    }

    /// How many workers the record has cost so far, if this failure has cost one. `has_time`: the
    /// record's own timeout has passed, not the time of others.
    pub fn judge(&self, id: &str, failure: &Failure, has_time: bool) -> Option<u32> {
        match failure {
            Failure::WorkerCrashed(_) => Some(self.note(id)),
            Failure::TimedOut if has_time => Some(self.count(id, false)),
            _ => None,
        }
    }

    /// Counts one more crashed worker and returns how many are lost.
    pub fn note(&self, id: &str) -> u32 {
        self.count(id, true)
    }

    fn count(&self, id: &str, is_crash: bool) -> u32 {
        let id = bounded(id);
        self.with(|workers| {
            if workers.len() >= REMEMBERED && !workers.contains_key(&*id) {
                workers.retain(|_, it| it.lost >= SUSPECT);
                if workers.len() >= REMEMBERED {
                    workers.clear();
                }
            }
            let workers = workers.entry(id.to_string()).or_default();
            workers.lost += 1;
            workers.crashed += u32::from(is_crash);
            workers.lost
        })
    }

    pub fn forget(&self, id: &str) {
        self.with(|workers| {
            if !workers.is_empty() {
                workers.remove(&*bounded(id));
            }
        });
    }

    fn with<T>(&self, ask: impl FnOnce(&mut HashMap<String, LostWorkers>) -> T) -> T {
        // Nothing panics under the lock, and the map would stay valid if something did.
        ask(&mut self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn second_crash_makes_a_suspect_and_success_clears_it() {
        let workers = Suspects::default();
        assert_eq!(workers.note("a"), 1);
        assert!(!workers.is_suspect("a"));
        assert_eq!(workers.note("a"), 2);
        assert!(workers.is_suspect("a") && !workers.is_suspect("b"));
        workers.forget("a");
        assert!(!workers.is_suspect("a"));
    }

    #[test]
    fn timeouts_count_as_losses_and_make_no_crash_suspect() {
        let workers = Suspects::default();
        for count in 1..=3 {
            let losses = workers.judge("a", &Failure::TimedOut, true);
            assert_eq!(losses, Some(count));
        }
        assert!(workers.is_suspect("a") && !workers.is_crash_suspect("a"));
        assert_eq!(workers.note("a"), 4);
        assert!(!workers.is_crash_suspect("a"));
        assert_eq!(workers.note("a"), 5);
        assert!(workers.is_crash_suspect("a"));
    }

    #[test]
    fn suspects_are_bounded_and_forgotten_last() {
        let workers = Suspects::default();
        workers.note("bad");
        workers.note("bad");
        for number in 0..3000 {
            workers.note(&number.to_string());
            assert!(workers.0.lock().unwrap().len() <= REMEMBERED);
        }
        assert!(workers.is_suspect("bad"));
    }
}
