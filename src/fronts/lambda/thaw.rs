//! Has this process been frozen since, and for how long?

use std::time::{Duration, Instant, SystemTime};

use tokio::time::{Interval, MissedTickBehavior};

/// Less is the scheduler's doing, or that of who sets the clock.
const LEAST: Duration = Duration::from_secs(1);

/// How often the process notes that it is running.
const BEAT: Duration = Duration::from_secs(1);

/// The clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// Stands still while the machine is suspended.
    pub monotonic: Instant,
    /// Goes on meanwhile.
    pub since_boot: Duration,
    /// Is set right when a machine comes back from a snapshot.
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

    /// How much longer others have seen pass than this process.
    fn lost(self, since: Clocks) -> Duration {
        let ours = self.monotonic.duration_since(since.monotonic);
        let boot = self.since_boot.saturating_sub(since.since_boot);
        let real = self.real.duration_since(since.real).unwrap_or_default();
        boot.max(real).saturating_sub(ours)
    }
}

/// Watches the clocks while nothing else is to be done.
pub struct Watch {
    since: Clocks,
    beats: Interval,
    last_beat: Instant,
}

impl Watch {
    pub fn begin() -> Watch {
        let first = tokio::time::Instant::now() + BEAT;
        let mut beats = tokio::time::interval_at(first, BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let since = Clocks::read();
        Watch {
            since,
            beats,
            last_beat: since.monotonic,
        }
    }

    /// Waits for something else; how long the process stood still meanwhile comes beside it, if it did.
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

/// By how much a beat is late: a process that is frozen while the machine goes on misses its beats.
fn late(last: Instant, now: Instant) -> Duration {
    now.duration_since(last).saturating_sub(BEAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_has_jumped_tells_of_a_freeze() {
        let then = Clocks::read();
        let after = |monotonic, since_boot, real| Clocks {
            monotonic: then.monotonic + Duration::from_secs(monotonic),
            since_boot: then.since_boot + Duration::from_secs(since_boot),
            real: then.real + Duration::from_secs(real),
        };
        assert_eq!(after(60, 60, 60).lost(then), Duration::ZERO);
        assert_eq!(after(60, 600, 600).lost(then), Duration::from_secs(540));
        assert_eq!(after(60, 60, 3660).lost(then), Duration::from_secs(3600));
        // Somebody has set the clock back.
        assert_eq!(after(60, 60, 0).lost(then), Duration::ZERO);
    }

    #[test]
    fn a_late_beat_tells_of_a_freeze() {
        let now = Instant::now();
        assert_eq!(late(now, now + BEAT), Duration::ZERO);
        assert_eq!(late(now, now + BEAT * 8), BEAT * 7);
    }
}
