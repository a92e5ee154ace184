//! Checks that a worker answers only the event that it holds.
//!
//! Request ids are reused, so a late or forged record could otherwise reach another client. A
//! worker therefore begins each response with the event's ticket, which only the holder knows. All
//! records up to the end belong to the event with that ticket.

use crate::engines::workers::generation::in_flight::Key;

/// The events of one worker, in the order in which it ends them.
#[derive(Default)]
pub struct ResponseSequence {
    /// How many events it has ended. The next one has the next number, as counted in its frames.
    ended: u64,
    current: Option<CurrentResponse>,
}

struct CurrentResponse {
    slot: u16,
    /// The event, if the ticket was valid.
    event: Option<Key>,
}

impl ResponseSequence {
    /// The event that the worker currently answers, if its ticket was valid. Fails if it answers
    /// another slot, or none.
    pub fn at(&self, slot: u16) -> Result<Option<Key>, String> {
        match &self.current {
            Some(current) if current.slot == slot => Ok(current.event),
            _ => Err(format!("it answers slot {slot} without its ticket")),
        }
    }

    /// Whether the worker currently answers this event.
    pub fn is_at(&self, event: Key) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.event == Some(event))
    }

    /// The number of the event that comes next.
    pub fn number(&self) -> u64 {
        self.ended + 1
    }

    /// The worker begins to answer `slot`, which holds `event` if its ticket was valid. Fails if it
    /// has not ended the previous one.
    pub fn begin(&mut self, slot: u16, event: Option<Key>) -> Result<(), String> {
        if let Some(CurrentResponse { slot: other, .. }) = self.current {
            return Err(format!(
                "it sent a record of slot {slot} within its response to slot {other}"
            ));
        }
        self.current = Some(CurrentResponse { slot, event });
        Ok(())
    }

    /// The worker has ended the event.
    pub fn end(&mut self) {
        self.current = None;
        self.ended += 1;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use surus_sys::scoreboard::Ticket;

    #[test]
    fn record_without_ticket_is_rejected() {
        let key = |slot, number| Key {
            slot,
            ticket: Ticket::new(number, 5),
        };
        let mut turn = ResponseSequence::default();
        assert!(turn.at(7).is_err() && turn.number() == 1);
        turn.begin(7, Some(key(7, 1))).unwrap();
        assert_eq!(turn.at(7), Ok(Some(key(7, 1))));
        assert!(turn.is_at(key(7, 1)) && !turn.is_at(key(7, 2)));
        assert!(turn.at(8).is_err());
        assert!(turn.begin(7, None).is_err() && turn.begin(8, None).is_err());
        turn.end();
        assert!(turn.at(7).is_err() && turn.number() == 2);
        turn.begin(8, None).unwrap();
        assert_eq!(turn.at(8), Ok(None));
    }
}
