//! Detects that this process was frozen, and for how long.

use std::time::{Duration, Instant, SystemTime};

use tokio::time::{Interval, MissedTickBehavior};

/// Shorter gaps come from the scheduler or from clock adjustments.
const LEAST: Duration = Duration::from_secs(1);

/// Interval of the heartbeat.
const BEAT: Duration = Duration::from_secs(1);

/// The clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// Stops while the machine is suspended.
    pub monotonic: Instant,
    /// Continues while the machine is suspended.
    pub since_boot: Duration,
    /// Corrected after a restore from a snapshot.
    pub real: SystemTime,
}

impl Clocks {
    pub fn read() -> Clocks {
        Clocks {
            monotonic: Instant::now(),
            since_boot: surus_sys::process::since_boot(),
            real: SystemTime::now(),
        }
    }

    /// Time that passed outside this process but not inside.
    fn lost(self, since: Clocks) -> Duration {
        let ours = self.monotonic.duration_since(since.monotonic);
        let boot = self.since_boot.saturating_sub(since.since_boot);
        let real = self.real.duration_since(since.real).unwrap_or_default();
        boot.max(real).saturating_sub(ours)
    }
}

/// Detects freezes while this process waits for an event.
pub struct FreezeWatch {
    since: Clocks,
    beats: Interval,
    last_beat: Instant,
}

impl FreezeWatch {
    pub fn begin() -> FreezeWatch {
        let first = tokio::time::Instant::now() + BEAT;
        let mut beats = tokio::time::interval_at(first, BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let since = Clocks::read();
        FreezeWatch {
            since,
            beats,
            last_beat: since.monotonic,
        }
    }

    /// Awaits `other`. Also returns how long the process was frozen meanwhile, if it was.
    pub async fn wait<T>(mut self, other: impl Future<Output = T>) -> (T, Option<Duration>) {
        let mut other = std::pin::pin!(other);
        let mut longest = Duration::ZERO;
        loop {
            tokio::select! {
                result = &mut other => {
                    let now = Clocks::read();
                    longest = longest.max(late(self.last_beat, now.monotonic));
                    let lost = longest.max(now.lost(self.since));
                    return (result, (lost >= LEAST).then_some(lost));
                }
                _ = self.beats.tick() => {
                    let now = Instant::now();
                    longest = longest.max(late(self.last_beat, now));
                    self.last_beat = now;
                }
            }
        }
    }
}

/// How late a heartbeat is. A process that is frozen while the machine runs misses its heartbeats.
fn late(last: Instant, now: Instant) -> Duration {
    now.duration_since(last).saturating_sub(BEAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_jump_is_a_freeze() {
        let then = Clocks::read();
        let after = |monotonic, since_boot, real| Clocks {
            monotonic: then.monotonic + Duration::from_secs(monotonic),
            since_boot: then.since_boot + Duration::from_secs(since_boot),
            real: then.real + Duration::from_secs(real),
        };
        assert_eq!(after(60, 60, 60).lost(then), Duration::ZERO);
        assert_eq!(after(60, 600, 600).lost(then), Duration::from_secs(540));
        assert_eq!(after(60, 60, 3660).lost(then), Duration::from_secs(3600));
        // The clock was set back.
        assert_eq!(after(60, 60, 0).lost(then), Duration::ZERO);
    }

    #[test]
    fn late_heartbeat_is_a_freeze() {
        let now = Instant::now();
        assert_eq!(late(now, now + BEAT), Duration::ZERO);
        assert_eq!(late(now, now + BEAT * 8), BEAT * 7);
    }
}
