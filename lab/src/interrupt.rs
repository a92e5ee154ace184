//! SIGINT, SIGTERM and SIGHUP end a run; its finished rounds stay.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Keeps the signals from ending this process. [`check`] reports them.
pub fn remember() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let context = "cannot watch for signals";
    let _entered = runtime.enter();
    let signals = [
        signal(SignalKind::interrupt()).context(context)?,
        signal(SignalKind::terminate()).context(context)?,
        signal(SignalKind::hangup()).context(context)?,
    ];
    drop(_entered);
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || runtime.block_on(first(signals)))?;
    Ok(())
}

async fn first([mut interrupt, mut terminate, mut hangup]: [Signal; 3]) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    INTERRUPTED.store(true, Ordering::Release);
}

/// Whether one of the signals was received.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}

/// Fails once one of the signals was received.
pub fn check() -> anyhow::Result<()> {
    if is_interrupted() {
        bail!("interrupted; the same command continues after the last finished round");
    }
    Ok(())
}

/// Returns once one of the signals was received.
pub async fn received() {
    while !is_interrupted() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
