//! Jobs as the members of Redis' lists and sorted sets.
//!
//! Laravel's JSON has an id and counts its attempts. A `plain` job is what its producer has pushed.
//! Once it has been reserved, Surus counts its attempts in front of it: `surus:ATTEMPTS:ID:` and
//! the job. That is no JSON, so it cannot be mistaken for a job.

use bytes::Bytes;
use serde::Deserialize;

use crate::fronts::queue::job::{Job, Lease};

const MARK: &[u8] = b"surus:";

/// The ids and attempts in Laravel's payload.
#[derive(Deserialize, Default)]
#[serde(default)]
struct LaravelIds {
    id: Option<String>,
    uuid: Option<String>,
    attempts: Option<u32>,
}

/// Reads what has been popped, and what has been put among the reserved jobs instead. `own_id` is
/// the id of a job that has none.
pub fn job(is_laravel: bool, popped: &[u8], reserved: &[u8], own_id: String) -> Job {
    let token = Bytes::copy_from_slice(reserved);
    let (id, attempts, payload) = match is_laravel {
        true => {
            let laravel: LaravelIds = serde_json::from_slice(popped).unwrap_or_default();
            let id = laravel.id.or(laravel.uuid).unwrap_or(own_id);
            let attempts = laravel.attempts.unwrap_or_default().saturating_add(1);
            (id, attempts, Bytes::copy_from_slice(popped))
        }
        false => match open(&token) {
            Some((attempts, id, start)) => (id, attempts, token.slice(start..)),
            None => (own_id, 1, token.clone()),
        },
    };
    Job {
        lease: Lease { id, token },
        payload,
        unread: None,
        attempts,
    }
}

/// A `plain` job with its attempts. One that has none is what its producer has pushed.
pub fn enveloped(id: &str, attempts: u32, payload: &Bytes) -> Bytes {
    match attempts {
        0 => payload.clone(),
        _ => {
            let mut member = format!("surus:{attempts}:{id}:").into_bytes();
            member.extend_from_slice(payload);
            member.into()
        }
    }
}

/// When a job was pushed, if it says so: Laravel 12 and Horizon write that. Seconds since 1970.
pub fn pushed_at(member: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Times {
        created_at: Option<serde_json::Value>,
        pushed_at: Option<serde_json::Value>,
    }
    let times: Times = serde_json::from_slice(member).ok()?;
    match times.created_at.or(times.pushed_at)? {
        serde_json::Value::String(text) => text.split('.').next()?.parse().ok(),
        number => number.as_f64().map(|seconds| seconds as u64),
    }
}

/// The attempts, the id, and where the job begins.
fn open(member: &[u8]) -> Option<(u32, String, usize)> {
    let rest = member.strip_prefix(MARK)?;
    let colon = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b':');
    let (attempts, rest) = rest.split_at(colon(rest)?);
    let rest = &rest[1..];
    let (id, payload) = rest.split_at(colon(rest)?);
    let attempts = std::str::from_utf8(attempts).ok()?.parse().ok()?;
    let id = std::str::from_utf8(id).ok()?.to_string();
    Some((attempts, id, member.len() - payload.len() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(is_laravel: bool, popped: &str, reserved: &str) -> Job {
        let (popped, reserved) = (popped.as_bytes(), reserved.as_bytes());
        job(is_laravel, popped, reserved, "own".into())
    }

    #[test]
    fn laravel_job_counts_this_attempt_and_keeps_its_payload() {
        let popped = r#"{"uuid":"u","id":"abc","attempts":2}"#;
        let job = read(true, popped, "reserved");
        assert_eq!((job.lease.id.as_str(), job.attempts), ("abc", 3));
        assert_eq!(
            (&job.payload[..], &job.lease.token[..]),
            (popped.as_bytes(), &b"reserved"[..])
        );
        for (broken, id) in [("no JSON", "own"), (r#"{"uuid":"u"}"#, "u")] {
            let job = read(true, broken, broken);
            assert_eq!((job.lease.id.as_str(), job.attempts), (id, 1), "{broken}");
        }
    }

    #[test]
    fn time_of_a_push_is_read_from_laravel_and_horizon() {
        for (json, at) in [
            (r#"{"createdAt": 1764183600}"#, Some(1764183600)),
            (r#"{"pushedAt": "1764183600.1234"}"#, Some(1764183600)),
            (r#"{"id": "a"}"#, None),
            ("surus:1:ab-1:{}", None),
        ] {
            assert_eq!(pushed_at(json.as_bytes()), at, "{json}");
        }
    }

    #[test]
    fn plain_job_is_read_as_it_was_enveloped() {
        for payload in ["{\"n\": 1}", "", "a:b:c", "\u{e4}"] {
            let payload = Bytes::copy_from_slice(payload.as_bytes());
            let member = enveloped("1a-2", 7, &payload);
            let job = job(false, b"popped", &member, "own".into());
            assert_eq!((job.lease.id.as_str(), job.attempts), ("1a-2", 7));
            assert_eq!((&job.payload, &job.lease.token), (&payload, &member));
            assert_eq!(enveloped("1a-2", 0, &payload), payload);
        }
    }
}
