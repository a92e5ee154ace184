//! Waits for the master process's report of how a worker exited, and notices a master process that
//! does not report.

use std::time::{Duration, Instant};

use surus_sys::process;
use tokio::sync::oneshot;
use tracing::warn;

use crate::engines::workers::generation::state::{Exit, GenerationState};

/// For how long a worker is a zombie before its master process counts as unable to replace it. A
/// busy machine does not keep a master process from waiting for its children that long.
const UNREPORTED: Duration = Duration::from_secs(3);

/// How the worker exited. None if the master process has exited, or does not reap its children:
/// then the generation is replaced.
pub(super) async fn reported(
    shared: &GenerationState,
    pid: u32,
    exited: &mut oneshot::Receiver<Exit>,
) -> Option<Exit> {
    let mut checks = tokio::time::interval(UNREPORTED / 6);
    let mut died = None;
    loop {
        tokio::select! {
            biased;
            exit = &mut *exited => return exit.ok(),
            _ = checks.tick() => {}
        }
        if process::state(pid) != Some('Z') {
            continue;
        }
        if died.get_or_insert_with(Instant::now).elapsed() > UNREPORTED {
            warn!(
                pid,
                "the master process does not replace a worker that has exited"
            );
            shared.hand_over("its master process does not replace workers");
            return None;
        }
    }
}
