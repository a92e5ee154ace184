//! Computes the times at which certificates are renewed and attempts repeated.

use std::time::{Duration, SystemTime};

use crate::fronts::http::tls::certificates::Served;

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

const fn minutes(number: u64) -> Duration {
    Duration::from_secs(60 * number)
}

/// The pause after this many failures in a row.
pub fn pause(failures: u32) -> Duration {
    let last = PAUSES.len() - 1;
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(last);
    PAUSES[index.min(last)]
}

/// When two thirds of a certificate's lifetime are over.
pub fn renew_at(served: &Served) -> SystemTime {
    let lifetime = served.ends().duration_since(served.begins());
    served.ends() - lifetime.unwrap_or_default() / 3
}

/// When a certificate is renewed even if its authority suggests a later time.
pub fn latest(served: &Served) -> SystemTime {
    let lifetime = served.ends().duration_since(served.begins());
    served.ends() - lifetime.unwrap_or_default() / 6
}

/// Zero if that time is past.
pub fn until(at: SystemTime, now: SystemTime) -> Duration {
    at.duration_since(now).unwrap_or_default()
}

/// The time to the next check, if `left` is the time to the renewal. Zero stays zero.
pub fn wait(left: Duration, again: Duration) -> Duration {
    match left.is_zero() {
        true => left,
        false => left.min(again).clamp(SHORTEST, INTERVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_failures_and_have_an_end() {
        assert_eq!(pause(0), minutes(1));
        assert_eq!(pause(1), minutes(1));
        assert_eq!(pause(2), minutes(5));
        assert_eq!(pause(u32::MAX), minutes(360));
        // Five validations within an hour would be refused.
        let four: Duration = PAUSES[..4].iter().sum();
        assert!(four + PAUSES[4] > minutes(60));
    }

    #[test]
    fn check_is_at_the_renewal_or_before_but_not_at_once() {
        let days = |number: u64| minutes(number * 24 * 60);
        assert_eq!(wait(Duration::ZERO, minutes(9)), Duration::ZERO);
        assert_eq!(wait(days(30), minutes(9)), minutes(9));
        assert_eq!(wait(days(30), days(1)), INTERVAL);
        assert_eq!(wait(minutes(5), days(1)), minutes(5));
        assert_eq!(wait(Duration::from_millis(1), days(1)), SHORTEST);
    }
}
