//! Compares this machine's clock with another one, and notices when it is set.

use std::fmt;
use std::time::{Duration, SystemTime};

/// A smaller difference is none: answers take time, and `Date` has whole seconds.
const TOLERATED: Duration = Duration::from_secs(600);

/// How often a clock that is set again and again is worth a check of the certificates.
const INTERVAL: Duration = Duration::from_secs(3600);

/// How far this machine's clock is from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClockDifference {
    #[default]
    None,
    Ahead(Duration),
    Behind(Duration),
}

impl ClockDifference {
    pub fn between(ours: SystemTime, other: SystemTime) -> ClockDifference {
        match ours.duration_since(other) {
            Ok(ahead) if ahead > TOLERATED => ClockDifference::Ahead(ahead),
            Err(behind) if behind.duration() > TOLERATED => {
                ClockDifference::Behind(behind.duration())
            }
            _ => ClockDifference::None,
        }
    }

    /// What the other clock shows when this machine's shows `ours`.
    pub fn correct(self, ours: SystemTime) -> SystemTime {
        let corrected = match self {
            ClockDifference::None => Some(ours),
            ClockDifference::Ahead(by) => ours.checked_sub(by),
            ClockDifference::Behind(by) => ours.checked_add(by),
        };
        corrected.unwrap_or(ours)
    }
}

/// `65 days ahead`
impl fmt::Display for ClockDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, direction) = match self {
            ClockDifference::None => return f.write_str("right"),
            ClockDifference::Ahead(by) => (by, "ahead"),
            ClockDifference::Behind(by) => (by, "behind"),
        };
        match by.as_secs() / 60 {
            minutes @ 0..120 => write!(f, "{minutes} minutes {direction}"),
            minutes @ 120..2880 => write!(f, "{} hours {direction}", minutes / 60),
            minutes => write!(f, "{} days {direction}", minutes / 1440),
        }
    }
}

/// Notices that this machine's clock is set, or that the machine has slept: the steady clock stands
/// still then.
pub struct ClockWatch {
    wall: SystemTime,
    steady: Duration,
    reported: Option<Duration>,
    change: ClockDifference,
}

impl ClockWatch {
    /// `steady` is the time since any instant.
    pub fn new(wall: SystemTime, steady: Duration) -> ClockWatch {
        ClockWatch {
            wall,
            steady,
            reported: None,
            change: ClockDifference::None,
        }
    }

    /// How far the clock was moved since the last call, if that is worth a check now. Moves within
    /// an hour after that count at its end.
    pub fn moved(&mut self, wall: SystemTime, steady: Duration) -> Option<ClockDifference> {
        let expected = self.wall.checked_add(steady.saturating_sub(self.steady));
        let change = ClockDifference::between(wall, expected.unwrap_or(wall));
        (self.wall, self.steady) = (wall, steady);
        if change != ClockDifference::None {
            self.change = change;
        }
        let is_soon = |last: Duration| steady.saturating_sub(last) < INTERVAL;
        if self.change == ClockDifference::None || self.reported.is_some_and(is_soon) {
            return None;
        }
        self.reported = Some(steady);
        Some(std::mem::take(&mut self.change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86400);

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn difference_is_known_in_both_directions_and_small_ones_are_none() {
        let other = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        for (ours, text) in [
            (other, "right"),
            (other + seconds(600), "right"),
            (other - seconds(600), "right"),
            (other + seconds(1200), "20 minutes ahead"),
            (other - seconds(7200), "2 hours behind"),
            (other + 65 * DAY, "65 days ahead"),
            (SystemTime::UNIX_EPOCH, "20000 days behind"),
        ] {
            let difference = ClockDifference::between(ours, other);
            assert_eq!(difference.to_string(), text);
            if text != "right" {
                assert_eq!(difference.correct(ours), other);
            }
        }
        let far = ClockDifference::Ahead(Duration::MAX);
        assert_eq!(far.correct(other), other);
    }

    #[test]
    fn clock_that_is_set_is_noticed_once_and_at_most_every_hour() {
        let start = SystemTime::UNIX_EPOCH + 20_000 * DAY;
        let mut watch = ClockWatch::new(start, seconds(0));
        // It runs, and is slewed.
        for at in [5, 10, 15] {
            assert_eq!(watch.moved(start + seconds(at + 9), seconds(at)), None);
        }
        let mut moved = |days: i32, at: u64| {
            let whole = DAY * days.unsigned_abs();
            let wall = match days {
                0.. => start + whole + seconds(at),
                _ => start - whole + seconds(at),
            };
            watch.moved(wall, seconds(at))
        };
        assert_eq!(moved(0, 20), None);
        assert_eq!(moved(30, 25), Some(ClockDifference::Ahead(30 * DAY)));
        assert_eq!(moved(30, 30), None);
        // Set to and fro every five seconds for an hour.
        for at in (35..3625).step_by(5) {
            assert_eq!(moved(if at % 10 == 0 { 30 } else { -9 }, at), None, "{at}");
        }
        assert!(moved(0, 3625).is_some());
        assert_eq!(moved(0, 3630), None);
        assert_eq!(moved(0, 99_999), None);
    }
}
