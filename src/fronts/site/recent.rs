//! Which scripts have just been found, so that the file system is not asked anew for every request.
//!
//! Only scripts that are there are remembered, so a new file is seen at once, and strangers cannot fill the memory with names
//! that they make up. What has changed within the last [second](STALE) may be missed as it may be between our look and PHP's:
//! PHP opens the file itself, and says that it is not there when it has gone. Files that are sent are always opened anew.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::event::Script;

/// No longer than OPcache believes what it has seen (`opcache.revalidate_freq` is 2 seconds).
const STALE: Duration = Duration::from_secs(1);

/// More than applications have scripts that are often asked for. Two that fall on one place take turns in it.
const PLACES: usize = 256;

/// Scripts by the URL path that names them.
#[derive(Debug)]
pub(super) struct Recent(Box<[RwLock<Option<Seen>>]>);

#[derive(Debug)]
struct Seen {
    script: Script,
    at: Instant,
}

impl Recent {
    pub(super) fn new() -> Recent {
        Recent((0..PLACES).map(|_| RwLock::default()).collect())
    }

    pub(super) fn get(&self, name: &str, now: Instant) -> Option<Script> {
        let place = self.place(name).read();
        let place = place.unwrap_or_else(PoisonError::into_inner);
        let seen = place.as_ref()?;
        let fresh = now.saturating_duration_since(seen.at) < STALE;
        (fresh && *seen.script.name == *name).then(|| seen.script.clone())
    }

    pub(super) fn put(&self, script: Script, now: Instant) {
        let mut place = self
            .place(&script.name)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(Seen { script, at: now });
    }

    fn place(&self, name: &str) -> &RwLock<Option<Seen>> {
        // FNV; who makes names fall on one place gains nothing.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        &self.0[(hash >> 32) as usize % PLACES]
    }
}
