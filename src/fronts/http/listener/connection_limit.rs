//! Bounds the open connections: makes room for another one by closing the one that has been idle
//! longest, or has it wait.
//!
//! Nothing here happens for a request: connections note what they do in their `Activity`, and those
//! notes are read where there is no room left.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::fronts::http::transport::io::Shared;
use crate::observe::rate_limit::Rarely;

/// All listeners' connections.
pub struct Room {
    limit: usize,
    guests: Mutex<Guests>,
    /// A connection has ended.
    left: Notify,
}

#[derive(Default)]
struct Guests {
    next: u64,
    /// Connections that are open.
    open: HashMap<u64, Arc<Shared>>,
    /// Those of them that have been asked to leave.
    leaving: HashSet<u64>,
    /// Who was idle longest when all were looked at, the longest last. Who has become idle since
    /// then is so for less long.
    longest: Vec<(Instant, u64)>,
    /// When all were looked at and nobody was idle.
    in_vain: Option<Instant>,
}

/// How long all count as busy that were.
const ALL_BUSY: Duration = Duration::from_millis(5);

/// A client that asks without pause is idle for less; to close its connection would have it connect
/// again.
const IDLE: Duration = Duration::from_millis(500);

/// How long a connection waits for room until it is closed. Those behind it wait in the kernel
/// meanwhile: closed at once, they would come back at once, and use the time that the open ones
/// need.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is seen whether one has been idle for long enough.
const LOOK: Duration = Duration::from_millis(20);

/// Looking at all of them finds one in so many, so that the cost of it is shared by as many
/// newcomers.
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
            left: Notify::new(),
        }
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the connection to leave that has been idle longest, where that is needed. None where
    /// all are busy.
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

impl Room {
    /// As [`enter`](Self::enter), once there is room. None where there is none in time, or the
    /// service is about to end.
    pub async fn wait(
        self: &Arc<Room>,
        connection: &Arc<Shared>,
        draining: &CancellationToken,
    ) -> Option<Guest> {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = tokio::time::timeout(LOOK, self.left.notified());
            tokio::select! {
                _ = left => {}
                () = draining.cancelled() => return self.enter(connection.clone()),
            }
            let guest = self.enter(connection.clone());
            if guest.is_some() || Instant::now() >= until {
                return guest;
            }
        }
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
        self.room.left.notify_one();
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
            .filter(|(since, _)| now.saturating_duration_since(*since) >= IDLE)
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
