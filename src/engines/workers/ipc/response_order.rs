//! Whose answer may a worker send? That of the event which it has claimed and not ended, and nobody
//! else's.
//!
//! Request ids are used again and again, so what comes late, or from a process that should be
//! silent, would reach another client. So the first that a worker says of an event is the event's
//! ticket, which only its holder shows, and all that follows is said of the event with this ticket.

use crate::engines::workers::generation::in_flight::Key;

/// The events of one worker, in the order in which it ends them.
#[derive(Default)]
pub struct Turn {
    /// Events whose end it has said. The next one's number is one more, as its letters count.
    ended: u64,
    current: Option<Current>,
}

struct Current {
    request: u16,
    /// The event, if the ticket was right.
    event: Option<Key>,
}

impl Turn {
    /// Which event does it answer, if it is believed? An error where it answers another request, or
    /// none.
    pub fn at(&self, request: u16) -> Result<Option<Key>, String> {
        match &self.current {
            Some(current) if current.request == request => Ok(current.event),
            _ => Err(format!("it speaks of request {request} without its ticket")),
        }
    }

    /// Is this the event that it answers?
    pub fn is_at(&self, event: Key) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.event == Some(event))
    }

    /// The number of the event whose turn it is.
    pub fn number(&self) -> u64 {
        self.ended + 1
    }

    /// It begins to speak of `request`, which is `event` if it is believed. An error says why that
    /// cannot be.
    pub fn begin(&mut self, request: u16, event: Option<Key>) -> Result<(), String> {
        if let Some(Current { request: other, .. }) = self.current {
            return Err(format!(
                "it speaks of request {request} amid its answer to request {other}"
            ));
        }
        self.current = Some(Current { request, event });
        Ok(())
    }

    /// It has ended the event.
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
    fn record_without_ticket_is_nobodys() {
        let key = |request, number| Key {
            request,
            ticket: Ticket::new(number, 5),
        };
        let mut turn = Turn::default();
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
