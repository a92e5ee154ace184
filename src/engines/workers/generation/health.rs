//! Decides whether a generation can serve requests, and whether it must be replaced.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use tracing::error;

use super::state::GenerationState;

impl GenerationState {
    /// Whether a request can be served; the error says why not.
    pub fn usable(&self) -> Result<(), &'static str> {
        if self.has_master_exited() || self.alive.load(Ordering::Acquire) == 0 {
            Err("no PHP process is running")
        } else if self.is_inbox_closed() {
            Err("PHP is restarting")
        } else if self.is_stuck.load(Ordering::Acquire) {
            Err("no PHP process takes requests")
        } else {
            Ok(())
        }
    }

    /// Replaces the generation as soon as another has booted. Returns whether this is the first
    /// request to do so.
    pub fn request_replacement(&self, why: &'static str) -> bool {
        let is_news = !self.replace.is_cancelled() && !self.is_draining();
        if is_news {
            error!(
                engine = self.engine,
                reason = why,
                "PHP restarts; the current workers finish their requests"
            );
            self.replace.cancel();
        }
        is_news
    }

    /// The workers' socket is closed: a script has shut it down for all of them, or they have
    /// exited.
    pub fn inbox_was_closed(&self) {
        self.abandon_inbox("a script has shut down the socket by which workers get requests");
    }

    /// Sends no more requests to this generation. The next one has another socket.
    pub fn abandon_inbox(&self, why: &'static str) {
        self.is_inbox_closed.store(true, Ordering::Release);
        if !self.has_master_exited() && self.request_replacement(why) {
            self.repaired("request_socket");
        }
    }

    /// No worker takes any event: those that wait go to the next generation, once there is one.
    pub fn hand_over(&self, why: &'static str) {
        self.hands_over.store(true, Ordering::SeqCst);
        if self.is_draining() {
            self.send_to_next_generation();
        } else if self.request_replacement(why) {
            self.repaired("stuck");
        }
    }

    pub fn hands_over(&self) -> bool {
        self.hands_over.load(Ordering::SeqCst)
    }

    pub fn is_inbox_closed(&self) -> bool {
        self.is_inbox_closed.load(Ordering::Acquire)
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire) || self.dropped.is_cancelled()
    }

    /// Counts a repair.
    pub fn repaired(&self, what: &'static str) {
        self.metrics.repaired(self.engine, what);
    }

    pub(super) fn lock_readers(&self) -> MutexGuard<'_, Vec<(usize, u32)>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the frames of this process, which has or had this worker slot, are still read.
    pub fn has_reader(&self, worker: usize, pid: u32) -> bool {
        self.lock_readers().contains(&(worker, pid))
    }
}
