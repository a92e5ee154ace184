//! Limits the total memory of compiled patterns in all `.htaccess` files of a site.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Enough for thousands of typical patterns, which take 10 to 40 KiB each.
pub(super) const MAX_MEMORY: usize = 64 << 20;

const TOO_MUCH: &str = "the patterns of all .htaccess files together would take more than 64 MiB";

/// The memory that is left for patterns.
#[derive(Debug, Clone)]
pub struct PatternMemory(Arc<State>);

#[derive(Debug)]
struct State {
    left: AtomicUsize,
    was_short: AtomicBool,
}

/// The memory of one pattern, returned when the pattern is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: PatternMemory,
    bytes: usize,
}

impl PatternMemory {
    pub fn new(bytes: usize) -> PatternMemory {
        PatternMemory(Arc::new(State {
            left: AtomicUsize::new(bytes),
            was_short: AtomicBool::new(false),
        }))
    }

    /// An error if too little memory is left.
    pub(super) fn take(&self, bytes: usize) -> Result<Share, String> {
        self.check()?;
        let State { left, was_short } = &*self.0;
        let less = |left: usize| left.checked_sub(bytes);
        if left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_err()
        {
            was_short.store(true, Ordering::Relaxed);
            return Err(TOO_MUCH.to_owned());
        }
        Ok(Share {
            of: self.clone(),
            bytes,
        })
    }

    /// An error after a pattern got no memory: the rest of its file need not be compiled either.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.0.was_short.load(Ordering::Relaxed) {
            true => Err(TOO_MUCH.to_owned()),
            false => Ok(()),
        }
    }

    /// Whether a pattern got no memory since the last call.
    pub(super) fn was_short(&self) -> bool {
        self.0.was_short.swap(false, Ordering::Relaxed)
    }
}

impl Default for PatternMemory {
    fn default() -> PatternMemory {
        PatternMemory::new(MAX_MEMORY)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn dropped_pattern_returns_its_memory() {
        let memory = PatternMemory::new(10);
        let share = memory.take(7).unwrap();
        assert!(memory.take(4).is_err() && memory.take(1).is_err());
        assert!(memory.was_short() && !memory.was_short());
        drop(share);
        assert!(memory.take(10).is_ok());
    }
}
