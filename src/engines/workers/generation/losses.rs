//! Counts consecutive requests that the request socket loses, and replaces the generation.
//!
//! A filter that a script has attached to the socket (`SO_ATTACH_FILTER`) drops every message and
//! outlives the script. Each resend has another ticket, so losses are counted here, not per
//! request.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::state::GenerationState;

/// One loss may be a worker that crashed with the message; this many in a row are the socket's
/// fault. They are noticed one after the other, within a second.
const MAX_IN_A_ROW: u32 = 2;

#[derive(Default)]
pub struct Losses {
    /// Losses since a worker last received something by the socket.
    count: u32,
    /// When the last loss was noticed. Requests that were sent earlier may have been lost with it.
    noticed: Option<Instant>,
}

impl Losses {
    /// Records the loss of a request that was sent by the socket at this time.
    pub fn record(&mut self, shared: &GenerationState, sent: Instant, now: Instant) {
        if shared.is_socket_read.swap(false, Ordering::Relaxed) {
            self.count = 0;
        }
        if self.noticed.is_some_and(|noticed| sent < noticed) {
            return;
        }
        self.noticed = Some(now);
        self.count += 1;
        if self.count >= MAX_IN_A_ROW {
            shared.abandon_inbox(
                "requests are lost in the socket by which workers get them, one after the other",
            );
        }
    }
}
