//! SIGINT, SIGTERM and SIGHUP end a measurement. A second one ends the process.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

static RECEIVED: AtomicBool = AtomicBool::new(false);

/// Returns when one of the signals comes, or at once if one has come.
pub async fn received() {
    if has_come() {
        return;
    }
    match Signals::new() {
        Ok(mut signals) => signals.next().await,
        Err(_) => std::future::pending().await,
    }
}

/// The exit status after a second signal, as a shell reports a SIGINT.
const KILLED: i32 = 130;

/// From now on, the first signal does not end this process. [`has_come`] reports it, also one that
/// is received between two runs. The second ends a process that hangs.
pub fn remember() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = {
        let _context = runtime.enter();
        Signals::new().context("cannot watch for signals")?
    };
    let watch = move || {
        runtime.block_on(signals.next());
        runtime.block_on(signals.next());
        std::process::exit(KILLED);
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(watch)?;
    Ok(())
}

/// Whether one of the signals was received.
pub fn has_come() -> bool {
    RECEIVED.load(Ordering::Acquire)
}

/// Fails once one of the signals was received.
pub fn check() -> anyhow::Result<()> {
    if has_come() {
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

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
        RECEIVED.store(true, Ordering::Release);
    }
}
