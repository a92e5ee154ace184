//! Caches recent look-ups to avoid file system calls for every request.
//!
//! The number of entries is fixed, so clients cannot exhaust memory with invented names. Names with
//! the same hash share an entry. A change within the last [second](STALE) may be missed, as between
//! Surus's look-up and PHP's.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Shorter than OPcache's own cache (`opcache.revalidate_freq` is 2 seconds).
const STALE: Duration = Duration::from_secs(1);

/// More than the scripts and directories that an application uses frequently.
const SLOTS: usize = 256;

/// Entries by the hash of their names.
#[derive(Debug)]
pub(super) struct Recent<T>(Box<[RwLock<Option<Seen<T>>>]>);

#[derive(Debug)]
struct Seen<T> {
    name: Box<[u8]>,
    what: T,
    at: Instant,
}

impl<T: Clone> Recent<T> {
    pub(super) fn new() -> Recent<T> {
        Recent((0..SLOTS).map(|_| RwLock::default()).collect())
    }

    pub(super) fn get(&self, name: &[u8], now: Instant) -> Option<T> {
        let slot = self.slot(name).read();
        let slot = slot.unwrap_or_else(PoisonError::into_inner);
        let seen = slot.as_ref()?;
        let fresh = now.saturating_duration_since(seen.at) < STALE;
        (fresh && *seen.name == *name).then(|| seen.what.clone())
    }

    /// The last entry for the name, regardless of its age.
    pub(super) fn last(&self, name: &[u8]) -> Option<T> {
        let slot = self.slot(name).read();
        let slot = slot.unwrap_or_else(PoisonError::into_inner);
        let seen = slot.as_ref()?;
        (*seen.name == *name).then(|| seen.what.clone())
    }

    pub(super) fn put(&self, name: &[u8], what: T, now: Instant) {
        let mut slot = self
            .slot(name)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *slot = Some(Seen {
            name: name.into(),
            what,
            at: now,
        });
    }

    fn slot(&self, name: &[u8]) -> &RwLock<Option<Seen<T>>> {
        // FNV. Forced collisions gain an attacker nothing.
        let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // FNV's last bytes hardly affect the upper half.
        &self.0[(hash ^ (hash >> 32)) as usize % SLOTS]
    }
}
