//! What is wrong with a generation, as far as it is known, and whether it has to be replaced.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use tracing::error;

use super::state::Shared;

impl Shared {
    /// Can a request be served? An error says why not.
    pub fn usable(&self) -> Result<(), &'static str> {
        if self.is_template_gone() || self.alive.load(Ordering::Acquire) == 0 {
            Err("no PHP process is running")
        } else if self.is_inbox_closed() {
            Err("PHP is being started anew")
        } else if self.is_stuck.load(Ordering::Acquire) {
            Err("no PHP process takes requests")
        } else {
            Ok(())
        }
    }

    /// Another generation takes this one's place as soon as it has booted. Returns whether that is
    /// news.
    pub fn is_to_be_replaced(&self, why: &'static str) -> bool {
        let is_news = !self.replace.is_cancelled() && !self.is_retiring();
        if is_news {
            error!(
                engine = self.engine,
                why, "PHP is started anew, and the workers that run now finish what they hold"
            );
            self.replace.cancel();
        }
        is_news
    }

    /// Nothing can be sent to the workers any more: a script has shut the socket down that all of
    /// them have, or they are gone.
    pub fn inbox_was_closed(&self) {
        self.inbox_is_useless("a script has shut down the socket by which workers get requests");
    }

    /// No request goes to this generation any more. Another one has another socket.
    pub fn inbox_is_useless(&self, why: &'static str) {
        self.is_inbox_closed.store(true, Ordering::Release);
        if !self.is_template_gone() && self.is_to_be_replaced(why) {
            self.repaired("inbox");
        }
    }

    pub fn is_inbox_closed(&self) -> bool {
        self.is_inbox_closed.load(Ordering::Acquire)
    }

    pub fn is_retiring(&self) -> bool {
        self.retiring.load(Ordering::Acquire) || self.dropped.is_cancelled()
    }

    /// Counts what was put right.
    pub fn repaired(&self, what: &'static str) {
        self.metrics.repaired(self.engine, what);
    }

    pub(super) fn lock_heard(&self) -> MutexGuard<'_, Vec<(usize, u32)>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is the outbox of this process still read, which has or had this place?
    pub fn is_heard(&self, worker: usize, pid: u32) -> bool {
        self.lock_heard().contains(&(worker, pid))
    }
}
