//! Returns free memory to the system after a peak: glibc keeps memory that was freed between other
//! blocks.

use std::time::Duration;

use surus_sys::memory;
use tokio::time::sleep;

/// How soon after a peak memory is returned, and the longest pause if that does not help.
const OFTEN: Duration = Duration::from_secs(10);
const RARELY: Duration = Duration::from_secs(320);

/// Growth below this is ignored.
const GROWTH: u64 = 16 << 20;

/// Returns memory whenever the process has grown, for as long as the future is polled.
pub async fn run() {
    let Some(mut least) = resident() else {
        // Without /proc the size is unknown.
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
        // On a thread without tasks, because it takes milliseconds.
        let _ = tokio::task::spawn_blocking(memory::trim).await;
        let after = resident().unwrap_or(before);
        least = least.min(after);
        pause = match before.saturating_sub(after) > GROWTH / 4 {
            true => OFTEN,
            false => (pause * 2).min(RARELY),
        };
    }
}

/// Resident memory of this process in bytes (proc(5)).
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
