//! Returns free memory to the system after a peak: glibc keeps memory that was freed between other
//! blocks.

use std::sync::Arc;
use std::time::Duration;

use surus_sys::memory;
use tokio::time::sleep;

use crate::budget::{self, Budget};
use crate::observe::activity::ENDS;
use crate::observe::metrics::Metrics;

/// How soon after a peak memory is returned, and the longest pause if that does not help.
const OFTEN: Duration = Duration::from_secs(10);
const RARELY: Duration = Duration::from_secs(320);

/// Growth below this is ignored.
const GROWTH: u64 = 16 << 20;

/// About what an idle connection takes, which no budget counts.
const CONNECTION: u64 = 4096;

/// Returns memory whenever the process has grown, for as long as the future is polled. No timer
/// runs while nothing happens.
pub async fn run(metrics: Arc<Metrics>) {
    let Some(mut least) = resident() else {
        // Without /proc the size is unknown.
        return;
    };
    let mut pace = TrimPace::new();
    loop {
        ENDS.reset();
        sleep(OFTEN).await;
        let used = in_use(&metrics);
        if !pace.is_due(used) {
            continue;
        }
        let Some(before) = resident() else { return };
        least = least.min(before);
        if before <= least + GROWTH {
            pace.restart(OFTEN, used);
            // Memory grows and is freed only while something happens.
            ENDS.recorded().await;
            continue;
        }
        // On a thread without tasks, because it takes milliseconds.
        let _ = tokio::task::spawn_blocking(memory::trim).await;
        let after = resident().unwrap_or(before);
        least = least.min(after);
        let has_helped = before.saturating_sub(after) > GROWTH / 4;
        let pause = if has_helped { OFTEN } else { pace.longer() };
        pace.restart(pause, used);
        if !has_helped {
            ENDS.recorded().await;
        }
    }
}

/// When to try next. Memory in use cannot be returned, so attempts that do not help become rarer
/// until requests, logs, `.htaccess` files and connections hold less.
struct TrimPace {
    pause: Duration,
    waited: Duration,
    /// The most bytes that were in use since the last attempt.
    max: u64,
}

impl TrimPace {
    fn new() -> TrimPace {
        TrimPace {
            pause: OFTEN,
            waited: Duration::ZERO,
            max: 0,
        }
    }

    /// Whether to try now; asked once in [`OFTEN`].
    fn is_due(&mut self, used: u64) -> bool {
        self.waited += OFTEN;
        self.max = self.max.max(used);
        if used + GROWTH < self.max {
            self.pause = OFTEN;
        }
        self.waited >= self.pause
    }

    fn longer(&self) -> Duration {
        (self.pause * 2).min(RARELY)
    }

    fn restart(&mut self, pause: Duration, used: u64) {
        (self.pause, self.waited, self.max) = (pause, Duration::ZERO, used);
    }
}

/// Bytes in memory that the budgets count and connections take.
fn in_use(metrics: &Metrics) -> u64 {
    let budgeted: u64 = budgets().map(Budget::used).sum();
    budgeted + connections(metrics)
}

/// The budgets of memory: all but that of temporary files.
fn budgets() -> impl Iterator<Item = &'static Budget> {
    let all = budget::ALL.into_iter();
    all.filter(|one| !std::ptr::eq(*one, &budget::SPOOL))
}

/// About how many bytes the open connections take.
fn connections(metrics: &Metrics) -> u64 {
    u64::try_from(metrics.connections.get()).unwrap_or(0) * CONNECTION
}

/// Resident memory of this process in bytes (proc(5)).
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_reset_when_the_budgets_fall() {
        let mut pace = TrimPace::new();
        for used in [0, 50 << 20, 50 << 20, 50 << 20] {
            while !pace.is_due(used) {}
            pace.restart(pace.longer(), used);
        }
        assert_eq!(pace.pause, OFTEN * 16);
        assert!(!pace.is_due(50 << 20));
        assert!(!pace.is_due((50 << 20) - 1));
        assert!(pace.is_due(1 << 20));
    }

    #[test]
    fn every_budget_of_memory_counts() {
        let counted: Vec<_> = budgets().map(|budget| budget.name).collect();
        let expected = ["memory", "moving", "log", "access_log", "queue", "htaccess"];
        assert_eq!(counted, expected);
    }

    #[test]
    fn pause_is_reset_when_many_connections_close() {
        let metrics = Metrics::default();
        let mut pace = TrimPace::new();
        metrics.connections.inc_by(10_000);
        for _ in 0..4 {
            while !pace.is_due(connections(&metrics)) {}
            pace.restart(pace.longer(), connections(&metrics));
        }
        assert!(!pace.is_due(connections(&metrics)));
        metrics.connections.dec_by(10_000);
        assert!(pace.is_due(connections(&metrics)));
    }
}
