//! Buried jobs, which Surus keeps in a hash: Redis has no place for them that Laravel knows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::{RedisQueue, epoch};
use crate::fronts::queue::job::{FailedJob, Failures, Job};

/// A buried job, as the hash has it by its id.
#[derive(Serialize, Deserialize)]
pub(super) struct Buried<'a> {
    pub connection: Cow<'a, str>,
    pub queue: Cow<'a, str>,
    pub payload: Cow<'a, str>,
    pub exception: Cow<'a, str>,
    /// Seconds since 1970.
    pub failed_at: u64,
}

impl RedisQueue {
    pub(super) async fn bury(&self, job: &Job, why: &str) -> anyhow::Result<()> {
        let buried = Buried {
            connection: Cow::from(&self.connection),
            queue: Cow::from(&self.name),
            payload: String::from_utf8_lossy(&job.payload),
            exception: why.into(),
            failed_at: epoch().as_secs(),
        };
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
        let mut all = redis::cmd("HGETALL");
        all.arg(&self.keys.failed);
        let all: BTreeMap<String, String> = self.shared.command(&all).await?;
        let mut found = Vec::new();
        for (id, json) in all {
            if requested.id().is_some_and(|requested| requested != id) {
                continue;
            }
            let buried: Buried = serde_json::from_str(&json).with_context(|| {
                format!("{} has a value that Surus did not write", self.keys.failed)
            })?;
            match requested {
                Failures::List => {}
                Failures::Retry(_) => {
                    let mut call = self.scripts.retry.prepare_invoke();
                    call.key(&self.keys.jobs).key(&self.keys.notify);
                    call.key(&self.keys.failed).arg(&id);
                    call.arg(self.fresh(&buried.payload));
                    let () = self.shared.call(&call).await?;
                }
                Failures::Forget(_) => {
                    let mut forget = redis::cmd("HDEL");
                    forget.arg(&self.keys.failed).arg(&id);
                    let () = self.shared.command(&forget).await?;
                }
            }
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(buried.failed_at);
            let (payload, at) = (buried.payload.as_bytes(), httpdate::fmt_http_date(at));
            found.push(FailedJob::new(
                id,
                &self.name,
                payload,
                &buried.exception,
                at,
            ));
        }
        Ok(found)
    }

    /// A job without attempts: Laravel's counts them itself.
    fn fresh(&self, payload: &str) -> String {
        let counted = self.is_laravel.then(|| serde_json::from_str(payload));
        match counted {
            Some(Ok(serde_json::Value::Object(mut job))) => {
                job.insert("attempts".into(), 0.into());
                serde_json::Value::Object(job).to_string()
            }
            _ => payload.into(),
        }
    }
}
