//! Identifiers and timestamps in AWS's formats.

use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A random UUID.
pub fn uuid() -> String {
    let (high, low) = (random(), random());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48) & 0x3fff,
        low & 0xffff_ffff_ffff
    )
}

/// The `X-Amzn-Trace-Id` of a request without one.
pub fn trace() -> String {
    format!(
        "Root=1-{:08x}-{:08x}{:016x};Parent={:016x};Sampled=0",
        since_epoch().as_secs(),
        random() >> 32,
        random(),
        random()
    )
}

/// Unpredictable enough for names: the keys of the hash are random, and each count is used once.
pub fn random() -> u64 {
    static KEYS: OnceLock<std::hash::RandomState> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = KEYS.get_or_init(std::hash::RandomState::new).build_hasher();
    hasher.write_u64(COUNT.fetch_add(1, Ordering::Relaxed));
    hasher.finish()
}

/// Whether the text has the form of a UUID.
pub fn is_valid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

pub fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Year, month, day, hour, minute and second in UTC, with Howard Hinnant's `civil_from_days`.
pub fn civil(since_epoch: Duration) -> (u64, u64, u64, u64, u64, u64) {
    let seconds = since_epoch.as_secs();
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (
        year,
        month,
        day,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    )
}

/// `2026-11-21T06:00:38.123Z`.
pub fn rfc3339(since_epoch: Duration) -> String {
    let (year, month, day, hour, minute, second) = civil(since_epoch);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        since_epoch.subsec_millis()
    )
}

/// `21/Nov/2026:06:00:38 +0000`, the format of `requestContext.time` in API Gateway.
pub fn clf(since_epoch: Duration) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (year, month, day, hour, minute, second) = civil(since_epoch);
    let month = MONTHS[(month as usize - 1) % 12];
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_the_formats_of_aws() {
        for (seconds, rfc, clf_text) in [
            (0, "1970-01-01T00:00:00.000Z", "01/Jan/1970:00:00:00 +0000"),
            (
                951_782_400,
                "2000-02-29T00:00:00.000Z",
                "29/Feb/2000:00:00:00 +0000",
            ),
            (
                1_795_240_838,
                "2026-11-21T06:00:38.000Z",
                "21/Nov/2026:06:00:38 +0000",
            ),
        ] {
            let instant = Duration::from_secs(seconds);
            assert_eq!(rfc3339(instant), rfc);
            assert_eq!(clf(instant), clf_text);
        }
    }

    #[test]
    fn identifiers_are_uuids_and_differ() {
        let (one, other) = (uuid(), uuid());
        assert!(is_valid(&one), "{one}");
        assert_eq!(&one[14..15], "4");
        assert_ne!(one, other);
        assert!(!is_valid("not-a-uuid"));
    }
}
