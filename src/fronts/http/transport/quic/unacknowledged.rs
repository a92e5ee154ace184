//! Counts what a client of HTTP/3 has not acknowledged, which quinn must keep. A connection may
//! keep less of it while memory is short.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes};

use crate::budget::{self, MEMORY};

/// The most unacknowledged bytes of a connection.
pub const WINDOW: u64 = 1 << 20;

/// The most while `http.buffer_memory` has no room for a whole window.
const SMALL_WINDOW: u64 = 16 << 10;

/// The most that is counted at a time.
const PIECE: usize = 16 << 10;

/// The unacknowledged bytes of a connection.
pub struct Unacknowledged {
    connection: quinn::Connection,
    is_small: AtomicBool,
}

impl Unacknowledged {
    pub fn new(connection: quinn::Connection) -> Unacknowledged {
        Unacknowledged {
            connection,
            is_small: AtomicBool::new(false),
        }
    }

    /// The next bytes of `data`. They count in [`MEMORY`] as long as a reference to them exists.
    pub fn count(&self, data: &mut impl Buf) -> Bytes {
        let is_small = !MEMORY.has_room(WINDOW);
        if self.is_small.swap(is_small, Ordering::Relaxed) != is_small {
            let window = if is_small { SMALL_WINDOW } else { WINDOW };
            self.connection.set_send_window(window);
        }
        let bytes = data.copy_to_bytes(data.remaining().min(PIECE));
        // A client waits for exactly these. The window bounds them.
        budget::charge_anyway(bytes)
    }
}
