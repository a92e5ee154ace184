//! Which records have killed workers in this environment?

use std::collections::HashMap;
use std::sync::Mutex;

/// From so many on a record runs last and alone: once may have been the fault of what ran beside it.
const SUSPECT: u32 = 2;
/// More would be a function that crashes whatever it is given.
const REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
pub struct Kills(Mutex<HashMap<String, u32>>);

impl Kills {
    pub fn is_suspect(&self, id: &str) -> bool {
        self.with(|kills| kills.get(id).is_some_and(|times| *times >= SUSPECT))
    }

    /// Says how often it has been.
    pub fn note(&self, id: &str) -> u32 {
        self.with(|kills| {
            if kills.len() >= REMEMBERED && !kills.contains_key(id) {
                kills.retain(|_, times| *times >= SUSPECT);
                if kills.len() >= REMEMBERED {
                    kills.clear();
                }
            }
            let times = kills.entry(id.to_string()).or_insert(0);
            *times += 1;
            *times
        })
    }

    pub fn forget(&self, id: &str) {
        self.with(|kills| {
            if !kills.is_empty() {
                kills.remove(id);
            }
        });
    }

    fn with<T>(&self, ask: impl FnOnce(&mut HashMap<String, u32>) -> T) -> T {
        // Nothing panics while it is held; and if it did, what is in there would still be true.
        ask(&mut self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_makes_a_suspect_and_success_clears_it() {
        let kills = Kills::default();
        assert_eq!(kills.note("a"), 1);
        assert!(!kills.is_suspect("a"));
        assert_eq!(kills.note("a"), 2);
        assert!(kills.is_suspect("a") && !kills.is_suspect("b"));
        kills.forget("a");
        assert!(!kills.is_suspect("a"));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_suspects_stay_longest() {
        let kills = Kills::default();
        kills.note("bad");
        kills.note("bad");
        for number in 0..3000 {
            kills.note(&number.to_string());
            assert!(kills.0.lock().unwrap().len() <= REMEMBERED);
        }
        assert!(kills.is_suspect("bad"));
    }
}
