//! Counts deliveries that were no tries: SQS counts those of messages that go back unrun, too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many messages are remembered.
const MOST: usize = 10_000;

/// Deliveries to this process that were no tries, by message. Other processes do not know them.
#[derive(Default)]
pub struct UnrunDeliveries(Mutex<HashMap<String, u32>>);

impl UnrunDeliveries {
    /// Notes a message that SQS has delivered so often, and that has run so often.
    pub fn note(&self, id: &str, deliveries: u32, runs: u32) {
        let mut unrun = self.lock();
        match deliveries.saturating_sub(runs) {
            0 => drop(unrun.remove(id)),
            count => {
                // Those that other processes have run since are never forgotten otherwise.
                if unrun.len() >= MOST && !unrun.contains_key(id) {
                    unrun.clear();
                }
                unrun.insert(id.into(), count);
            }
        }
    }

    /// Forgets a message that does not come back.
    pub fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    /// The tries of a message that SQS has delivered so often, the coming one included.
    pub fn tries(&self, id: &str, deliveries: u32) -> u32 {
        let unrun = self.lock().get(id).copied().unwrap_or_default();
        deliveries.saturating_sub(unrun).max(1)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_that_were_no_tries_do_not_count() {
        let unrun = UnrunDeliveries::default();
        assert_eq!(unrun.tries("a", 1), 1);
        unrun.note("a", 1, 0);
        assert_eq!(unrun.tries("a", 2), 1);
        unrun.note("a", 2, 0);
        assert_eq!((unrun.tries("a", 3), unrun.tries("b", 3)), (1, 3));
        // It runs, and comes back.
        unrun.note("a", 3, 1);
        assert_eq!(unrun.tries("a", 4), 2);
        unrun.forget("a");
        assert_eq!(unrun.tries("a", 4), 4);
        // A job of a FIFO queue may run more often than it is delivered.
        unrun.note("a", 1, 3);
        assert_eq!(unrun.tries("a", 2), 2);
    }

    #[test]
    fn number_of_remembered_messages_is_limited() {
        let unrun = UnrunDeliveries::default();
        for number in 0..=MOST {
            unrun.note(&number.to_string(), 1, 0);
        }
        assert_eq!(unrun.lock().len(), 1);
        assert_eq!(unrun.tries(&MOST.to_string(), 2), 1);
    }
}
