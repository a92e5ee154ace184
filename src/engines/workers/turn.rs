//! Whose answer may a worker send? That of the event which it has claimed and not ended, and nobody else's.
//!
//! Request ids are used again and again, so what comes late, or from a process that should be silent, would reach another
//! client. So the first that a worker says of an event is the event's ticket, which nobody knows who has not claimed it.

/// The events of one worker, in the order in which it ends them.
#[derive(Default)]
pub struct Turn {
    /// Events whose end it has said. The next one's number is one more, as its letters count.
    ended: u64,
    current: Option<Current>,
}

struct Current {
    request: u16,
    /// The ticket was right.
    is_believed: bool,
}

impl Turn {
    /// Does it answer this request, and is the answer believed? None where it answers another, or none.
    pub fn at(&self, request: u16) -> Option<bool> {
        let current = self.current.as_ref();
        current
            .filter(|current| current.request == request)
            .map(|current| current.is_believed)
    }

    /// The number of the event whose turn it is.
    pub fn number(&self) -> u64 {
        self.ended + 1
    }

    /// It begins to speak of `request`. An error says why that cannot be.
    pub fn begin(&mut self, request: u16, is_believed: bool) -> Result<(), String> {
        if let Some(Current { request: other, .. }) = self.current {
            return Err(format!(
                "it speaks of request {request} amid its answer to request {other}"
            ));
        }
        self.current = Some(Current {
            request,
            is_believed,
        });
        Ok(())
    }

    /// It has ended the event.
    pub fn end(&mut self) {
        self.current = None;
        self.ended += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_without_ticket_is_nobodys() {
        let mut turn = Turn::default();
        assert_eq!((turn.at(7), turn.number()), (None, 1));
        assert!(turn.begin(7, true).is_ok());
        assert_eq!((turn.at(7), turn.at(8)), (Some(true), None));
        assert!(turn.begin(7, true).is_err() && turn.begin(8, true).is_err());
        turn.end();
        assert_eq!((turn.at(7), turn.number()), (None, 2));
        assert!(turn.begin(8, false).is_ok());
        assert_eq!(turn.at(8), Some(false));
    }
}
