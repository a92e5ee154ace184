//! The request ring and the doorbells, by which Surus wakes workers for it.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use super::Rings;
use crate::futex;

/// The longest event that [`Rings::put`] accepts. So the ring has room for several, and is small
/// enough for a cache.
pub const MAX_EVENT: usize = 16 * 1024;
/// The length of an entry that announces a message in the request socket.
pub(super) const IN_SOCKET: usize = 1;
/// Bytes before each event: its length, and half of its position.
pub(super) const EVENT_HEADER: usize = 8;
/// What a worker does about the request ring (`enum surus_doorbell`): it takes from it
/// before it does anything else, busy-polls it, or waits by futex(2) until this changes.
pub(super) const WORKING: u32 = 0;
pub(super) const POLLING: u32 = 1;
pub(super) const BLOCKED: u32 = 2;

impl Rings {
    /// Sets how long workers poll for their next event before they block.
    pub fn set_poll_budget(&self, budget: Duration) {
        let micros = u32::try_from(budget.as_micros()).unwrap_or(u32::MAX);
        self.head().idle.0.poll_budget.store(micros, SeqCst);
    }

    /// Makes one worker take from the request ring, for an event that has just been put there: one
    /// that polls, or else one that blocks. If there is neither, the next worker that becomes idle
    /// takes the event. Returns whether a polling worker was found.
    pub fn notify_one(&self) -> bool {
        let claim = |state| {
            let mut doorbells = (0..self.target()).map(|worker| self.doorbell(worker));
            doorbells.find(|doorbell| {
                doorbell.load(SeqCst) == state
                    && doorbell
                        .compare_exchange(state, WORKING, SeqCst, SeqCst)
                        .is_ok()
            })
        };
        if claim(POLLING).is_some() {
            return true;
        }
        if let Some(doorbell) = claim(BLOCKED) {
            futex::wake(doorbell);
        }
        false
    }

    /// Wakes a worker if it blocks.
    pub fn wake(&self, worker: usize) {
        let doorbell = self.doorbell(worker);
        doorbell.store(WORKING, SeqCst);
        futex::wake(doorbell);
    }

    /// Wakes all workers that block, even if their doorbells were overwritten.
    pub fn wake_all(&self) {
        (0..self.layout.workers).for_each(|worker| self.wake(worker));
    }

    /// Whether the request ring contains an event.
    pub fn has_event(&self) -> bool {
        let (head, tail) = self.inbox_ends();
        head != tail
    }

    /// The positions of the next event to take and of the next one to put. Workers write the first;
    /// callers must use it only if it is between the last value and the second.
    pub fn inbox_ends(&self) -> (u64, u64) {
        let tail = *self.lock_tail();
        (self.ends(0).head.0.load(SeqCst), tail)
    }

    /// Puts an event, gathered from `parts`, into the request ring. Returns its position. Fails
    /// with [`io::ErrorKind::WouldBlock`] if there is no room.
    pub fn put(&self, parts: &[IoSlice<'_>]) -> io::Result<u64> {
        self.put_after(parts, || Ok(()))
    }

    /// Sends an event by the request socket, and announces it in the ring. Otherwise like
    /// [`put`](Rings::put). If it fails, nothing was announced.
    pub fn announce(&self, send: impl FnOnce() -> io::Result<()>) -> io::Result<u64> {
        self.put_after(&[IoSlice::new(&[0; IN_SOCKET])], send)
    }

    /// Calls `before` if there is room for the entry, and puts the entry into the ring if that
    /// succeeds.
    fn put_after(
        &self,
        parts: &[IoSlice<'_>],
        before: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<u64> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let size = EVENT_HEADER + len.next_multiple_of(EVENT_HEADER);
        if len == 0 || len > MAX_EVENT {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut tail = self.lock_tail();
        let ends = self.ends(0);
        // Workers move the head, and a faulty one may have moved it anywhere. Then there is no room
        // until another worker corrects it.
        let used = tail.wrapping_sub(ends.head.0.load(SeqCst));
        if used > self.layout.inbox_size as u64
            || size as u64 > self.layout.inbox_size as u64 - used
        {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        before()?;
        let ring = (self.layout.inbox, self.layout.inbox_size);
        let position = *tail;
        let mut at = position;
        let mut head = [0; EVENT_HEADER];
        head[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        head[4..].copy_from_slice(&(position as u32).to_ne_bytes());
        for part in std::iter::once(&head[..]).chain(parts.iter().map(|part| &part[..])) {
            self.copy_in(ring, at, part);
            at = at.wrapping_add(part.len() as u64);
        }
        *tail = position.wrapping_add(size as u64);
        ends.tail.0.store(*tail, SeqCst);
        Ok(position)
    }

    /// What a worker does about the request ring (`enum surus_doorbell`).
    pub(super) fn doorbell(&self, worker: usize) -> &AtomicU32 {
        assert!(worker < self.layout.workers, "worker {worker}");
        let at = self.layout.doorbells + worker * size_of::<AtomicU32>();
        // SAFETY: inside the mapping by the assertion and the layout, which has room for a word for
        // each worker; aligned as a cache line plus a multiple of 4.
        unsafe { self.memory.base().add(at).cast::<AtomicU32>().as_ref() }
    }
}
