//! Buried jobs, which Surus keeps in a hash: Redis has no place for them that Laravel knows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::server::Link;
use super::{RedisQueue, epoch};
use crate::fronts::queue::job::{FailedJob, Failures, Job};

/// A buried job, as the hash has it by its id.
#[derive(Serialize, Deserialize)]
pub(super) struct Buried<'a> {
    pub connection: Cow<'a, str>,
    pub queue: Cow<'a, str>,
    /// Empty if it is not UTF-8.
    pub payload: Cow<'a, str>,
    /// The payload if it is not UTF-8, which JSON cannot carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<Cow<'a, str>>,
    pub exception: Cow<'a, str>,
    /// Seconds since 1970.
    pub failed_at: u64,
}

impl<'a> Buried<'a> {
    pub(super) fn new(
        connection: &'a str,
        queue: &'a str,
        payload: &'a [u8],
        why: &'a str,
    ) -> Buried<'a> {
        let (text, bytes) = match std::str::from_utf8(payload) {
            Ok(text) => (text, None),
            Err(_) => ("", Some(STANDARD.encode(payload).into())),
        };
        Buried {
            connection: connection.into(),
            queue: queue.into(),
            payload: text.into(),
            payload_base64: bytes,
            exception: why.into(),
            failed_at: epoch().as_secs(),
        }
    }

    /// The payload as it was.
    pub(super) fn bytes(&self) -> anyhow::Result<Cow<'_, [u8]>> {
        let Some(text) = &self.payload_base64 else {
            return Ok(self.payload.as_bytes().into());
        };
        let bytes = STANDARD.decode(text.as_bytes());
        let bytes = bytes.context("the payload_base64 of a buried job is not base64")?;
        Ok(bytes.into())
    }
}

/// The values of a hash of buried jobs by id, or only that of one id.
pub(super) async fn stored(
    link: &Link,
    hash: &str,
    id: Option<&str>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let Some(id) = id else {
        let mut all = redis::cmd("HGETALL");
        all.arg(hash);
        return link.command(&all).await;
    };
    let mut one = redis::cmd("HGET");
    one.arg(hash).arg(id);
    let found: Option<String> = link.command(&one).await?;
    Ok(found.into_iter().map(|json| (id.into(), json)).collect())
}

impl RedisQueue {
    pub(super) async fn bury(&self, job: &Job, why: &str) -> anyhow::Result<()> {
        let buried = Buried::new(&self.connection, &self.name, &job.payload, why);
        let buried = serde_json::to_string(&buried).context("cannot write a buried job")?;
        let mut call = self.scripts.bury.prepare_invoke();
        call.key(&self.keys.reserved).key(&self.keys.failed);
        call.arg(&job.lease.token[..])
            .arg(&job.lease.id)
            .arg(buried);
        self.shared.call(&call).await
    }

    /// Lists the buried jobs, or retries or forgets one. Returns those concerned.
    pub(super) async fn failures(&self, requested: &Failures) -> anyhow::Result<Vec<FailedJob>> {
        let mut found = Vec::new();
        for (id, json) in stored(&self.shared, &self.keys.failed, requested.id()).await? {
            let buried: Buried = serde_json::from_str(&json).with_context(|| {
                format!("{} has a value that Surus did not write", self.keys.failed)
            })?;
            let payload = buried.bytes()?;
            match requested {
                Failures::List | Failures::Find(_) => {}
                Failures::Retry(_) => {
                    let mut call = self.scripts.retry.prepare_invoke();
                    call.key(&self.keys.jobs).key(&self.keys.notify);
                    call.key(&self.keys.failed).arg(&id);
                    call.arg(self.fresh(&payload));
                    let () = self.shared.call(&call).await?;
                }
                Failures::Forget(_) => {
                    let mut forget = redis::cmd("HDEL");
                    forget.arg(&self.keys.failed).arg(&id);
                    let () = self.shared.command(&forget).await?;
                }
            }
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(buried.failed_at);
            let (why, at) = (&buried.exception, httpdate::fmt_http_date(at));
            found.push(FailedJob::new(id, &self.name, &payload, why, at));
        }
        Ok(found)
    }

    /// A job without attempts: Laravel's counts them itself.
    fn fresh(&self, payload: &[u8]) -> Vec<u8> {
        let counted = self.is_laravel.then(|| serde_json::from_slice(payload));
        match counted {
            Some(Ok(serde_json::Value::Object(mut job))) => {
                job.insert("attempts".into(), 0.into());
                serde_json::Value::Object(job).to_string().into_bytes()
            }
            _ => payload.to_vec(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_kept_byte_for_byte_also_if_it_is_not_utf8() {
        let odd = b"\xff\0{";
        for (payload, is_text) in [(&b"{}"[..], true), (&b""[..], true), (&odd[..], false)] {
            let json = serde_json::to_string(&Buried::new("c", "q", payload, "why")).unwrap();
            assert_eq!(json.contains("base64"), !is_text, "{json}");
            let read: Buried = serde_json::from_str(&json).unwrap();
            assert_eq!(&*read.bytes().unwrap(), payload);
        }
    }
}
