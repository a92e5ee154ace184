//! Waits for the signals that ask for the end: SIGTERM, SIGINT, SIGQUIT.

use std::io;
use std::time::Instant;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::keeper::REPEATED;

/// Why a server that shuts down rejects a reload.
pub(super) const ENDING: &str =
    "Surus is shutting down and reloads nothing; start it again when it has ended";

pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    first: Option<Instant>,
}

impl StopSignals {
    pub fn listen() -> io::Result<StopSignals> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            first: None,
        })
    }

    /// The end has begun for another reason, such as the same signal that someone else received.
    #[cfg(feature = "_work")]
    pub fn has_begun(&mut self) {
        self.first.get_or_insert_with(Instant::now);
    }

    /// Waits for the first signal, and then for one that does not repeat it.
    pub async fn recv(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                _ = self.quit.recv() => {}
            }
            match self.first {
                None => {
                    self.first = Some(Instant::now());
                    return;
                }
                Some(first) if first.elapsed() >= REPEATED => return,
                Some(_) => {}
            }
        }
    }
}
