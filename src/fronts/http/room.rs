//! Is there room for another connection, and which one leaves for it?
//!
//! Nothing here happens for a request: connections note what they do in their `Activity`, and those notes are read where there is no
//! room left.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::io::Shared;
use crate::observe::rarely::Rarely;

/// All listeners' connections.
pub struct Room {
    limit: usize,
    guests: Mutex<Guests>,
}

#[derive(Default)]
struct Guests {
    next: u64,
    /// Connections that are open.
    open: HashMap<u64, Arc<Shared>>,
    /// Those of them that have been asked to leave.
    leaving: HashSet<u64>,
    /// Who was idle longest when all were looked at, the longest last. Who has become idle since then is so for less long.
    longest: Vec<(Instant, u64)>,
    /// When all were looked at and nobody was idle.
    in_vain: Option<Instant>,
}

/// How long all count as busy that were.
const ALL_BUSY: Duration = Duration::from_millis(5);

/// Looking at all of them finds one in so many, so that the cost of it is shared by as many newcomers.
const FOUND: usize = 32;

/// A connection's place in the room.
pub struct Guest {
    room: Arc<Room>,
    number: u64,
}

impl Room {
    pub fn new(limit: usize) -> Room {
        Room {
            limit,
            guests: Mutex::default(),
        }
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the connection to leave that has been idle longest, where that is needed. None where all are busy.
    pub fn enter(self: &Arc<Room>, connection: Arc<Shared>) -> Option<Guest> {
        let mut guests = self.guests();
        while guests.open.len() - guests.leaving.len() >= self.limit {
            guests.ask_the_longest_idle()?;
        }
        guests.next += 1;
        let number = guests.next;
        guests.open.insert(number, connection);
        Some(Guest {
            room: self.clone(),
            number,
        })
    }
}

impl Guest {
    /// It was asked to leave, and is busy again.
    pub fn stays(&self) {
        self.room.guests().leaving.remove(&self.number);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut guests = self.room.guests();
        guests.leaving.remove(&self.number);
        let connection = guests.open.remove(&self.number);
        // It closes its socket, for which nobody needs to wait.
        drop(guests);
        drop(connection);
    }
}

impl Guests {
    fn ask_the_longest_idle(&mut self) -> Option<()> {
        loop {
            while let Some((since, number)) = self.longest.pop() {
                if let Some(connection) = self.open.get(&number)
                    && connection.activity.idle_since() == Some(since)
                    && self.leaving.insert(number)
                {
                    connection.leave.notify_one();
                    return Some(());
                }
            }
            self.look()?;
        }
    }

    /// Finds who has been idle longest. None when nobody is.
    fn look(&mut self) -> Option<()> {
        let now = Instant::now();
        if self.in_vain.is_some_and(|then| now - then < ALL_BUSY) {
            return None;
        }
        let staying = self
            .open
            .iter()
            .filter(|(number, _)| !self.leaving.contains(number));
        let mut idle: Vec<_> = staying
            .filter_map(|(number, connection)| Some((connection.activity.idle_since()?, *number)))
            .collect();
        self.in_vain = idle.is_empty().then_some(now);
        let found = idle.len().div_ceil(FOUND);
        if found < idle.len() {
            idle.select_nth_unstable(found);
            idle.truncate(found);
        }
        idle.sort_unstable_by(|one, other| other.cmp(one));
        self.longest = idle;
        if self.in_vain.is_some() {
            return None;
        }
        static SAID: Rarely = Rarely::new();
        if SAID.is_time(now) {
            warn!("http.max_connections are open; those that have been idle longest make room");
        }
        Some(())
    }
}
