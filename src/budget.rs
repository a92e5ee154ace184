//! Limits the bytes of each kind that all requests together may make Surus hold.
//!
//! They are process-wide, as is what they protect: the memory of the process, and the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Bytes of requests and responses in memory (`http.buffer_memory`).
pub static MEMORY: Budget = Budget::new("memory", DEFAULT_MEMORY);
pub const DEFAULT_MEMORY: u64 = 256 << 20;

/// Bytes of requests and responses in temporary files (`http.max_temp_size`).
pub static SPOOL: Budget = Budget::new("spool", DEFAULT_SPOOL);
pub const DEFAULT_SPOOL: u64 = 8 << 30;

/// Whole responses that are about to be written to temporary files, because [`MEMORY`] has no room
/// for them.
pub static MOVING: Budget = Budget::new("moving", 16 << 20);

/// Lines of the log that are not written yet.
pub static LOG: Budget = Budget::new("log", 16 << 20);

/// Lines of all access logs that are not written yet. Each log has a small share beyond it.
pub static ACCESS_LOG: Budget = Budget::new("access_log", 16 << 20);

/// Events that wait for a worker, without their bodies.
pub static QUEUE: Budget = Budget::new("queue", 128 << 20);

/// What the `.htaccess` files of all sites take.
pub static HTACCESS: Budget = Budget::new("htaccess", 512 << 20);

/// All of them, for the metrics.
pub static ALL: [&Budget; 7] = [
    &MEMORY,
    &SPOOL,
    &MOVING,
    &LOG,
    &ACCESS_LOG,
    &QUEUE,
    &HTACCESS,
];

/// A number of bytes of which each holder takes a part.
#[derive(Debug)]
pub struct Budget {
    pub name: &'static str,
    limit: AtomicU64,
    used: AtomicU64,
    refused: AtomicU64,
}

impl Budget {
    pub const fn new(name: &'static str, limit: u64) -> Budget {
        Budget {
            name,
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// How often bytes were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes bytes if they fit.
    pub fn try_take(&'static self, bytes: u64) -> Option<Reservation> {
        let mut taken = Reservation::none(self);
        taken.try_grow(bytes).then_some(taken)
    }

    /// Takes bytes as soon as they fit, or nothing else is taken. `freed` is notified of what
    /// becomes free.
    async fn take_when_free(&'static self, bytes: u64, freed: &Notify) -> Reservation {
        let fits = |used| used == 0 || self.fits(used, bytes);
        let mut is_counted = false;
        loop {
            let is_freed = freed.notified();
            if self.add_without_counting(fits, bytes) {
                return Reservation {
                    budget: self,
                    bytes,
                };
            }
            // Once for each holder, however often it is woken for nothing.
            if !std::mem::replace(&mut is_counted, true) {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            is_freed.await;
        }
    }

    /// Takes bytes that cannot be refused, even if they do not fit.
    pub fn take(&'static self, bytes: u64) -> Reservation {
        self.used.fetch_add(bytes, Ordering::AcqRel);
        Reservation {
            budget: self,
            bytes,
        }
    }

    /// Whether this number of bytes would fit now.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.fits(self.used(), bytes)
    }

    /// Takes bytes if they fit, or if the holder is exempt from the limit.
    /// [`release`](Self::release) returns them.
    pub fn try_take_unless_exempt(&self, is_exempt: bool, bytes: u64) -> bool {
        self.add_if(|used| is_exempt || self.fits(used, bytes), bytes)
    }

    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    fn fits(&self, used: u64, bytes: u64) -> bool {
        used.checked_add(bytes)
            .is_some_and(|sum| sum <= self.limit())
    }

    fn add_if(&self, allowed: impl Fn(u64) -> bool, bytes: u64) -> bool {
        let added = self.add_without_counting(allowed, bytes);
        if !added {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        added
    }

    /// Like [`add_if`](Self::add_if), but a refusal is not counted.
    fn add_without_counting(&self, allowed: impl Fn(u64) -> bool, bytes: u64) -> bool {
        let add = |used: u64| allowed(used).then_some(used.saturating_add(bytes));
        let order = (Ordering::AcqRel, Ordering::Acquire);
        self.used.fetch_update(order.0, order.1, add).is_ok()
    }
}

/// Bytes taken from a budget, released when dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: &'static Budget,
    bytes: u64,
}

impl Reservation {
    pub const fn none(budget: &'static Budget) -> Reservation {
        Reservation { budget, bytes: 0 }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes over what another one of the same budget has taken.
    pub fn join(&mut self, mut other: Reservation) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Takes more bytes if they fit.
    pub fn try_grow(&mut self, bytes: u64) -> bool {
        let budget = self.budget;
        let grown = bytes == 0 || budget.add_if(|used| budget.fits(used, bytes), bytes);
        if grown {
            self.bytes += bytes;
        }
        grown
    }

    /// Releases what is more than this number of bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        self.shrink(self.bytes.saturating_sub(bytes));
    }

    /// Releases some of the bytes.
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        if bytes > 0 {
            self.bytes -= bytes;
            self.budget.release(bytes);
        }
    }
}

/// A shorter response is part of the usual cost of a connection that has one response at a time;
/// counting it would cost more than the response.
pub const SMALL: usize = 4 << 10;

/// Bytes below this size are copied if they may be kept for long: they share a block of up to 256
/// KiB with others, and would keep all of it.
const SHARED: usize = 16 << 10;

/// Takes bytes out of the block in which they arrived, if they are a small part of it.
pub fn apart(bytes: Bytes) -> Bytes {
    match bytes.len() < SHARED {
        true => Bytes::copy_from_slice(&bytes),
        false => bytes,
    }
}

/// Why a response got no part of [`MOVING`].
pub const DISK_TOO_SLOW: &str = "no memory for the response, and the disk takes others too slowly \
    (http.buffer_memory, http.temp_dir)";

/// How long a response waits for its part of [`MOVING`], which the disk frees.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Notified when a part of [`MOVING`] is free.
static MOVED: Notify = Notify::const_new();

/// The bytes that a whole response of PHP has taken from a budget. They are an extension of the
/// response until the front end has charged its body or has written it to a file.
#[derive(Debug, Clone)]
pub struct HeldMemory(Arc<Taken>);

#[derive(Debug)]
enum Taken {
    Memory(Reservation),
    Moving { _taken: Moving },
}

#[derive(Debug)]
struct Moving(Reservation);

impl Drop for Moving {
    fn drop(&mut self) {
        self.0.shrink_to(0);
        MOVED.notify_waiters();
    }
}

impl HeldMemory {
    /// Takes the bytes from [`MEMORY`] if they fit.
    pub fn in_memory(bytes: usize) -> Option<HeldMemory> {
        let taken = Taken::Memory(MEMORY.try_take(bytes as u64)?);
        Some(HeldMemory(Arc::new(taken)))
    }

    /// Waits for a part of [`MOVING`]. None if there is none in time.
    pub async fn until_moved(bytes: usize) -> Option<HeldMemory> {
        let taken = timeout(MAX_WAIT, MOVING.take_when_free(bytes as u64, &MOVED));
        let _taken = Moving(taken.await.ok()?);
        Some(HeldMemory(Arc::new(Taken::Moving { _taken })))
    }

    /// Charges a body with what was taken from [`MEMORY`]. Returns the body if that was nothing, or
    /// less than it is long now.
    pub fn charge(self, body: Bytes) -> Result<Bytes, (Bytes, HeldMemory)> {
        match Arc::try_unwrap(self.0) {
            Ok(Taken::Memory(mut taken)) if body.len() as u64 <= taken.bytes => {
                taken.shrink_to(body.len() as u64);
                Ok(charge(body, taken))
            }
            Ok(taken) => Err((body, HeldMemory(Arc::new(taken)))),
            Err(taken) => Err((body, HeldMemory(taken))),
        }
    }
}

/// Charges bytes: they keep their part of [`MEMORY`] until the last reference to them is dropped.
pub fn charge(bytes: Bytes, taken: Reservation) -> Bytes {
    match bytes.is_empty() {
        true => bytes,
        false => Bytes::from_owner(Charged {
            bytes,
            _taken: taken,
        }),
    }
}

/// Charges bytes if they fit into [`MEMORY`].
pub fn try_charge(bytes: Bytes) -> Result<Bytes, Bytes> {
    match MEMORY.try_take(bytes.len() as u64) {
        Some(taken) => Ok(charge(bytes, taken)),
        None => Err(bytes),
    }
}

/// Charges bytes that cannot be refused.
pub fn charge_anyway(bytes: Bytes) -> Bytes {
    let taken = MEMORY.take(bytes.len() as u64);
    charge(bytes, taken)
}

struct Charged {
    bytes: Bytes,
    _taken: Reservation,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_limit_are_rejected_until_others_are_released() {
        static BUDGET: Budget = Budget::new("test", 100);
        let mut first = BUDGET.try_take(60).unwrap();
        assert!(BUDGET.try_take(41).is_none());
        let second = BUDGET.try_take(40).unwrap();
        assert!(!first.try_grow(1));
        first.shrink(10);
        assert!(first.try_grow(10));
        drop(second);
        assert_eq!((BUDGET.used(), BUDGET.refused()), (60, 2));
        assert!(BUDGET.try_take(u64::MAX).is_none());
        drop(first);
        assert_eq!(BUDGET.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_waits_for_the_disk_gets_its_part_or_gives_up() {
        let most = HeldMemory::until_moved(16 << 20).await.unwrap();
        let began = tokio::time::Instant::now();
        assert!(HeldMemory::until_moved(1).await.is_none());
        assert_eq!(began.elapsed(), MAX_WAIT);
        let waiting = tokio::spawn(HeldMemory::until_moved(5));
        tokio::time::sleep(MAX_WAIT / 2).await;
        drop(most);
        let last = waiting.await.unwrap().unwrap();
        assert_eq!(MOVING.used(), 5);
        let (body, last) = last.charge(Bytes::from_static(b"12345")).unwrap_err();
        assert_eq!((&body[..], MOVING.used()), (&b"12345"[..], 5));
        drop(last);
        assert_eq!(MOVING.used(), 0);
    }

    #[tokio::test]
    async fn refusal_is_counted_once_however_often_its_holder_is_woken() {
        static BUDGET: Budget = Budget::new("test", 10);
        static FREED: Notify = Notify::const_new();
        let first = BUDGET.try_take(10).unwrap();
        let waiting = tokio::spawn(BUDGET.take_when_free(1, &FREED));
        for _ in 0..5 {
            tokio::task::yield_now().await;
            FREED.notify_waiters();
        }
        drop(first);
        FREED.notify_waiters();
        assert_eq!(waiting.await.unwrap().bytes, 1);
        assert_eq!(BUDGET.refused(), 1);
    }

    #[test]
    fn body_that_is_longer_than_what_was_taken_for_it_is_not_charged() {
        let held = || HeldMemory::in_memory(3).unwrap();
        assert!(held().charge(Bytes::from_static(b"12")).is_ok());
        let (body, _) = held().charge(Bytes::from_static(b"1234")).unwrap_err();
        assert_eq!(&body[..], b"1234");
    }

    #[test]
    fn exempt_holder_is_not_refused() {
        static BUDGET: Budget = Budget::new("test", 10);
        assert!(BUDGET.try_take_unless_exempt(true, 100));
        assert!(!BUDGET.try_take_unless_exempt(false, 1));
        assert!(BUDGET.try_take_unless_exempt(true, 1));
        BUDGET.release(101);
        assert!(BUDGET.try_take_unless_exempt(false, 10));
        assert_eq!((BUDGET.used(), BUDGET.refused()), (10, 1));
    }
}
