//! SIGINT, SIGTERM and SIGHUP end a measurement.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

static RECEIVED: AtomicBool = AtomicBool::new(false);

/// Returns when one of the signals comes, or at once if one has come.
pub async fn received() {
    if RECEIVED.load(Ordering::Acquire) {
        return;
    }
    match Signals::new() {
        Ok(signals) => signals.first().await,
        Err(_) => std::future::pending().await,
    }
}

/// From now on, the signals do not end this process. [`check`] reports them, also one that is
/// received between two runs.
pub fn remember() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let signals = {
        let _context = runtime.enter();
        Signals::new().context("cannot watch for signals")?
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(signals.first()))?;
    Ok(())
}

/// Fails once one of the signals was received.
pub fn check() -> anyhow::Result<()> {
    if RECEIVED.load(Ordering::Acquire) {
        bail!("interrupted; every server that was started is stopped");
    }
    Ok(())
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn first(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
        RECEIVED.store(true, Ordering::Release);
    }
}
