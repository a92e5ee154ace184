//! Counts requests that the inbox socket loses, one after the other, and replaces the generation.
//!
//! A filter that a script has attached to the socket (`SO_ATTACH_FILTER`) drops every message and
//! outlives the script. Each resend has another ticket, so losses are counted here, not per
//! request.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::state::Shared;

/// One loss may be a worker that died with the message; so many in a row are the socket's.
const MOST: u32 = 3;

#[derive(Default)]
pub struct Losses {
    /// Losses since a worker has last shown that it received something by the socket.
    count: u32,
    /// When the last one was noticed. What was sent before that may have been lost with it.
    noticed: Option<Instant>,
}

impl Losses {
    /// Notes that a request sent at this time by the socket was lost.
    pub fn note(&mut self, shared: &Shared, sent: Instant) {
        if shared.is_socket_read.swap(false, Ordering::Relaxed) {
            self.count = 0;
        }
        if self.noticed.is_some_and(|noticed| sent < noticed) {
            return;
        }
        self.noticed = Some(Instant::now());
        self.count += 1;
        if self.count >= MOST {
            shared.inbox_is_useless(
                "requests are lost in the socket by which workers get them, one after the other",
            );
        }
    }
}
