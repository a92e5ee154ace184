//! Computes the times at which certificates are renewed and attempts repeated.

use std::time::{Duration, SystemTime};

use crate::fronts::http::tls::certificates::Validity;

/// How often an attempt asks the authority when to renew.
pub const INTERVAL: Duration = Duration::from_secs(12 * 3600);

/// The shortest time to the next check of a certificate that need not be renewed.
const SHORTEST: Duration = Duration::from_secs(60);

/// The pauses after failures. Let's Encrypt allows five failed validations of a host per hour.
pub const PAUSES: [Duration; 8] = [
    minutes(1),
    minutes(5),
    minutes(15),
    minutes(30),
    minutes(60),
    minutes(120),
    minutes(240),
    minutes(360),
];

/// The longest time that an authority can make Surus wait. Let's Encrypt counts by the week.
pub const LONGEST_WAIT: Duration = minutes(7 * 24 * 60);

/// The longest pause before a certificate is stored again.
const LONGEST_STORING_PAUSE: Duration = minutes(15);

/// How long a limit lasts if the authority does not say.
pub const USUAL_LIMIT: Duration = minutes(60);

const fn minutes(number: u64) -> Duration {
    Duration::from_secs(60 * number)
}

/// The pause after this many failures in a row.
pub fn pause(failures: u32) -> Duration {
    let last = PAUSES.len() - 1;
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(last);
    PAUSES[index.min(last)]
}

/// The pause after this many failures in a row to store a certificate. Another try costs no order.
pub fn storing_pause(failures: u32) -> Duration {
    pause(failures).min(LONGEST_STORING_PAUSE)
}

/// What is left of a pause. Nothing if the clock was set back since it began: the next failure
/// notes the new time.
pub fn rest(pause: Duration, since: SystemTime, now: SystemTime) -> Duration {
    match now.duration_since(since) {
        Ok(elapsed) => pause.saturating_sub(elapsed),
        Err(_) => Duration::ZERO,
    }
}

impl Validity {
    fn lifetime(self) -> Duration {
        self.ends.duration_since(self.begins).unwrap_or_default()
    }

    /// When two thirds of the lifetime are over.
    fn renew_at(self) -> SystemTime {
        self.ends - self.lifetime() / 3
    }

    /// When it is renewed even if its authority suggests a later time.
    fn latest(self) -> SystemTime {
        self.ends - self.lifetime() / 6
    }

    /// The time to the next check of a certificate without a suggestion of its authority. Zero if
    /// it must be renewed now.
    pub fn until_check(self, now: SystemTime) -> Duration {
        wait(until(self.renew_at(), now), INTERVAL)
    }

    /// The same with the authority's suggestion. `part` is a random number from 0 to 1: it selects
    /// an instant of the window, so that not all renew at its start (RFC 9773, 4.2).
    pub fn until_suggested(self, window: &RenewalWindow, part: f64, now: SystemTime) -> Duration {
        let length = window.end.duration_since(window.start).unwrap_or_default();
        let suggested = window.start + length.mul_f64(part.clamp(0.0, 1.0));
        wait(until(suggested.min(self.latest()), now), window.again)
    }
}

/// When the authority suggests to renew (ARI).
#[derive(Debug, Clone, Copy)]
pub struct RenewalWindow {
    pub start: SystemTime,
    pub end: SystemTime,
    /// When to ask again.
    pub again: Duration,
}

/// Zero if that time is past.
fn until(at: SystemTime, now: SystemTime) -> Duration {
    at.duration_since(now).unwrap_or_default()
}

/// The time to the next check, if `left` is the time to the renewal. Zero stays zero.
fn wait(left: Duration, again: Duration) -> Duration {
    match left.is_zero() {
        true => left,
        false => left.min(again).clamp(SHORTEST, INTERVAL),
    }
}

#[cfg(test)]
mod tests;
