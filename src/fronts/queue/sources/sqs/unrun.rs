//! Counts deliveries that were no tries: SQS counts those of messages that go back unrun, too.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many messages are remembered.
const MOST: usize = 10_000;

/// Deliveries to this process that were no tries, by message. Other processes do not know them.
#[derive(Default)]
pub struct UnrunDeliveries(Mutex<Differences>);

#[derive(Default)]
struct Differences {
    /// Deliveries less runs. A job of a FIFO queue may run more often than it is delivered.
    by_message: HashMap<String, i64>,
    /// All of them, the oldest first, and some that were forgotten.
    order: VecDeque<String>,
}

impl UnrunDeliveries {
    /// Notes a message that SQS has delivered so often, and that has run so often.
    pub fn note(&self, id: &str, deliveries: u32, runs: u32) {
        let mut known = self.lock();
        let difference = i64::from(deliveries) - i64::from(runs);
        if difference == 0 {
            known.by_message.remove(id);
        } else if known.by_message.insert(id.into(), difference).is_none() {
            known.order.push_back(id.into());
        }
        // Those that other processes have run since are never forgotten otherwise.
        while known.order.len() > MOST
            && let Some(oldest) = known.order.pop_front()
        {
            known.by_message.remove(&oldest);
        }
    }

    /// Forgets a message that does not come back.
    pub fn forget(&self, id: &str) {
        self.lock().by_message.remove(id);
    }

    /// The tries of a message that SQS has delivered so often, the coming one included.
    pub fn tries(&self, id: &str, deliveries: u32) -> u32 {
        let difference = self.lock().by_message.get(id).copied().unwrap_or_default();
        let tries = i64::from(deliveries) - difference;
        u32::try_from(tries.max(1)).unwrap_or(u32::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Differences> {
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
    }

    #[test]
    fn job_of_a_fifo_queue_keeps_the_tries_of_one_delivery() {
        let unrun = UnrunDeliveries::default();
        unrun.note("a", 1, 3);
        assert_eq!(unrun.tries("a", 2), 4);
        unrun.note("a", 2, 4);
        assert_eq!(unrun.tries("a", 3), 5);
        unrun.note("a", 3, 3);
        assert_eq!(unrun.tries("a", 4), 4);
    }

    #[test]
    fn oldest_of_too_many_messages_is_forgotten() {
        let unrun = UnrunDeliveries::default();
        for number in 0..=MOST {
            unrun.note(&number.to_string(), 1, 0);
        }
        assert_eq!(unrun.lock().by_message.len(), MOST);
        assert_eq!(unrun.tries("0", 2), 2);
        assert_eq!(unrun.tries("1", 2), 1);
        assert_eq!(unrun.tries(&MOST.to_string(), 2), 1);
    }
}
