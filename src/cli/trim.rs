//! Gives memory back to the system after a peak: glibc keeps what was freed between other blocks.

use std::time::Duration;

use surus_sys::memory;
use tokio::time::sleep;

/// How long after a peak memory is given back, and how rarely that is tried where it is of no use.
const OFTEN: Duration = Duration::from_secs(10);
const RARELY: Duration = Duration::from_secs(320);

/// Growth that is not worth the time.
const GROWTH: u64 = 16 << 20;

/// Gives memory back whenever the process has grown, for as long as it is polled.
pub async fn run() {
    let Some(mut least) = resident() else {
        // Without /proc nothing is known.
        return;
    };
    let mut pause = OFTEN;
    loop {
        sleep(pause).await;
        let Some(before) = resident() else { return };
        least = least.min(before);
        if before <= least + GROWTH {
            pause = OFTEN;
            continue;
        }
        // On a thread that serves nobody: it takes milliseconds.
        let _ = tokio::task::spawn_blocking(memory::trim).await;
        let after = resident().unwrap_or(before);
        least = least.min(after);
        pause = match before.saturating_sub(after) > GROWTH / 4 {
            true => OFTEN,
            false => (pause * 2).min(RARELY),
        };
    }
}

/// Bytes of this process in memory (proc(5)).
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
