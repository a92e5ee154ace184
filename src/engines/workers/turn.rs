//! Whose answer may a worker send? That of the event which it has taken from the inbox and not ended, and nobody else's.
//!
//! Request ids are used again and again, so what comes late, or from a process that should be silent, would reach another client.

use surus_sys::scoreboard::Took;

/// The events of one worker, in the order in which it takes and ends them.
#[derive(Default)]
pub struct Turn {
    /// Events whose end it has said. The next one's number is one more, as `taken` in its line counts.
    ended: u64,
    /// The request id of that one, once it has said something of it.
    request: Option<u16>,
}

impl Turn {
    /// Does it answer this event already?
    pub fn is_at(&self, request: u16) -> bool {
        self.request == Some(request)
    }

    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// The number of the event whose turn it is.
    pub fn number(&self) -> u64 {
        self.ended + 1
    }

    /// It speaks of `request`, which it has not done before; `took` is what it has taken as [`Turn::number`]. An error says
    /// why that cannot be.
    pub fn begin(&mut self, request: u16, took: Took) -> Result<(), String> {
        if let Some(other) = self.request {
            return Err(format!(
                "it speaks of request {request} amid its answer to request {other}"
            ));
        }
        match took {
            Took::Request(taken) if taken != request => {
                return Err(format!(
                    "it speaks of request {request} and has taken request {taken}"
                ));
            }
            Took::Nothing => {
                return Err(format!(
                    "it speaks of request {request} and has ended all that it has taken"
                ));
            }
            // So far behind is who reads, and never for long; of others the worker would not know by now either.
            Took::LongAgo | Took::Another | Took::Request(_) => {}
        }
        self.request = Some(request);
        Ok(())
    }

    /// It has ended the event.
    pub fn end(&mut self) {
        self.request = None;
        self.ended += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the line of a worker says that has taken these, the oldest first.
    fn took(taken: &[u16], number: u64) -> Took {
        match taken.get(number as usize - 1) {
            Some(request) => Took::Request(*request),
            None => Took::Nothing,
        }
    }

    #[test]
    fn what_comes_after_the_end_is_nobodys() {
        let mut turn = Turn::default();
        assert!(turn.begin(7, took(&[7], turn.number())).is_ok());
        assert!(turn.is_at(7));
        turn.end();
        assert!(!turn.is_at(7));
        assert!(turn.begin(7, took(&[7], turn.number())).is_err());
        assert!(turn.begin(7, took(&[7, 8], turn.number())).is_err());
        assert!(turn.begin(8, took(&[7, 8], turn.number())).is_ok());
        assert!(turn.begin(7, took(&[7, 8], turn.number())).is_err());
    }

    proptest! {
        /// However far the worker is ahead of who reads.
        #[test]
        fn a_worker_that_answers_what_it_takes_is_believed_and_others_are_not(
            events in prop::collection::vec((1..50_u16, 1..4_usize), 1..40),
            lag in 0..40_usize,
            lie in 50..60_u16,
        ) {
            let taken: Vec<u16> = events.iter().map(|(request, _)| *request).collect();
            let mut turn = Turn::default();
            for (at, (request, records)) in events.iter().enumerate() {
                let seen = &taken[..(at + 1 + lag).min(taken.len())];
                for _ in 0..*records {
                    prop_assert!(turn.begin(lie, took(seen, turn.number())).is_err());
                    prop_assert!(turn.is_at(*request) || turn.begin(*request, took(seen, turn.number())).is_ok());
                    prop_assert!(!turn.is_at(lie));
                }
                turn.end();
            }
            prop_assert_eq!(turn.ended(), taken.len() as u64);
            prop_assert!(turn.begin(taken[0], took(&taken, turn.number())).is_err());
        }
    }
}
