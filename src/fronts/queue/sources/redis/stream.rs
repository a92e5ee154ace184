//! A stream of Symfony Messenger's Redis transport, with its sorted set of delayed messages.
//!
//! Each process is a consumer of its own in the transport's group. It claims messages that others
//! have left for longer than a lease, as Messenger does with its `redeliver_timeout`.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use bytes::Bytes;
use redis::{Script, ScriptInvocation};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::buried::{Buried, stored};
use super::server::{Link, RedisServer};
use super::stream_scripts::StreamScripts;
use super::{RARELY, SHORTEST, epoch};
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};
use crate::fronts::queue::messenger;
use crate::fronts::queue::source::{Pending, Source};

/// Why a message is not read, as it is kept with it.
const TOO_LONG: &str = "it is longer than work.max_payload, and was not read";
/// Consumers of other processes that have not asked for so long, in addition to a lease, have
/// exited.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// What a stream is, apart from its server.
pub struct Stream {
    pub key: String,
    pub group: String,
    /// About how many entries it keeps; 0 for all.
    pub max_entries: u64,
    /// Whether messages that are done are deleted.
    pub deletes: bool,
    /// Whether phpredis serializes the messages as PHP does.
    pub is_serialized: bool,
    /// The transport's name.
    pub queue: String,
    /// The longest message that is read, in bytes. Longer ones move to a stream of their own.
    pub max_payload: u64,
}

pub struct RedisStream {
    stream: Stream,
    /// The key of delayed messages.
    delayed: String,
    failed: String,
    /// Messages that are too long to be read.
    too_long: String,
    consumer: String,
    lease: Duration,
    scripts: StreamScripts,
    /// For waiting, which would hold up others.
    waiting: Link,
    shared: Arc<Link>,
    is_clean: AtomicBool,
}

/// A message: its id, its fields and their values, and how often it was delivered.
type Delivered = (String, Vec<Vec<u8>>, u32);

impl RedisStream {
    pub fn new(server: &RedisServer, stream: Stream, lease: Duration) -> RedisStream {
        RedisStream {
            delayed: format!("{}__queue", stream.key),
            failed: format!("{}__failed", stream.key),
            too_long: format!("{}__too-long", stream.key),
            consumer: format!("surus-{:x}", RandomState::new().hash_one("surus")),
            stream,
            lease,
            scripts: StreamScripts::default(),
            waiting: Link::new(server.client.clone()),
            shared: server.shared.clone(),
            is_clean: AtomicBool::new(false),
        }
    }

    fn prepare<'a>(&'a self, script: &'a Script, second: &'a str) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        call.key(&self.stream.key).key(second);
        call.arg(&self.stream.group).arg(&self.consumer);
        call
    }

    /// Reserves messages. If there are none, returns the last message that was read, and how long
    /// until the next delayed one is due.
    async fn take(&self, most: usize) -> anyhow::Result<Result<Vec<Job>, (String, Duration)>> {
        let now = epoch();
        let mut call = self.prepare(&self.scripts.receive, &self.delayed);
        call.arg(now.as_millis() as u64).arg(most);
        call.arg(self.lease.as_millis() as u64);
        call.arg(self.stream.max_entries);
        call.arg(if self.stream.is_serialized {
            "php"
        } else {
            "none"
        });
        call.key(&self.too_long);
        call.arg(self.stream.max_payload).arg(TOO_LONG);
        let (found, last, due, too_long): (Vec<Delivered>, String, Option<f64>, u64) =
            self.waiting.call(&call).await?;
        if too_long > 0 {
            error!(
                queue = self.stream.queue,
                jobs = too_long,
                stream = self.too_long,
                "jobs are longer than work.max_payload; they are kept unread in a stream of their \
                 own"
            );
        }
        if found.is_empty() && too_long > 0 {
            return Ok(Err((last, SHORTEST)));
        }
        if found.is_empty() {
            let due = due.and_then(|due| Duration::try_from_secs_f64(due / 1000.0).ok());
            let wait = due.map_or(RARELY, |due| due.saturating_sub(now));
            return Ok(Err((last, wait.clamp(SHORTEST, RARELY))));
        }
        let jobs = found.into_iter().map(|(id, fields, attempts)| Job {
            lease: Lease {
                id,
                token: Bytes::new(),
            },
            unread: None,
            payload: self.message(&fields),
            attempts,
        });
        Ok(Ok(jobs.collect()))
    }

    /// The message among the fields of an entry.
    fn message(&self, fields: &[Vec<u8>]) -> Bytes {
        let found = fields.chunks(2).find(|pair| pair[0] == b"message");
        let value = found.and_then(|pair| pair.get(1));
        let value = value.map(Vec::as_slice).unwrap_or_default();
        match self.stream.is_serialized {
            true => Bytes::copy_from_slice(unserialized(value).unwrap_or(value)),
            false => Bytes::copy_from_slice(value),
        }
    }

    async fn requeue(&self, job: &Job, pause: Duration, attempts: u32) -> anyhow::Result<()> {
        let idle = self.lease.saturating_sub(pause);
        let mut call = self.prepare(&self.scripts.requeue, &self.delayed);
        call.arg(&job.lease.id).arg(idle.as_millis() as u64);
        call.arg(attempts);
        self.shared.call(&call).await
    }

    async fn bury(&self, job: &Job, why: &str) -> anyhow::Result<()> {
        let queue = &self.stream.queue;
        let buried = Buried::new(queue, queue, &job.payload, why);
        let buried = serde_json::to_string(&buried).context("cannot write a buried message")?;
        let mut call = self.prepare(&self.scripts.bury, &self.failed);
        call.arg(&job.lease.id).arg(buried);
        self.shared.call(&call).await
    }

    async fn buried(&self, requested: &Failures) -> anyhow::Result<Vec<FailedJob>> {
        let mut found = Vec::new();
        for (id, json) in stored(&self.shared, &self.failed, requested.id()).await? {
            let buried: Buried = serde_json::from_str(&json)
                .with_context(|| format!("{} has a value that Surus did not write", self.failed))?;
            let payload = buried.bytes()?;
            match requested {
                Failures::List | Failures::Find(_) => {}
                Failures::Retry(_) => {
                    let mut call = self.prepare(&self.scripts.retry, &self.failed);
                    call.arg(&id).arg(match self.stream.is_serialized {
                        true => serialized(&payload),
                        false => payload.to_vec(),
                    });
                    let () = self.shared.call(&call).await?;
                }
                Failures::Forget(_) => {
                    let mut forget = redis::cmd("HDEL");
                    forget.arg(&self.failed).arg(&id);
                    let () = self.shared.command(&forget).await?;
                }
            }
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(buried.failed_at);
            let at = httpdate::fmt_http_date(at);
            let mut failed = FailedJob::new(id, &self.stream.queue, b"", &buried.exception, at);
            failed.class = messenger::class(&payload);
            found.push(failed);
        }
        Ok(found)
    }
}

impl Source for RedisStream {
    fn receive<'a>(&'a self, most: usize, stop: &'a CancellationToken) -> Pending<'a, Vec<Job>> {
        Box::pin(async move {
            if !self.is_clean.swap(true, Ordering::Relaxed) {
                let mut call = self.prepare(&self.scripts.clean, &self.delayed);
                call.arg((self.lease + ABANDONED_AFTER).as_millis() as u64);
                let () = self.shared.call(&call).await?;
            }
            while !stop.is_cancelled() {
                let (last, wait) = match self.take(most).await? {
                    Ok(jobs) => return Ok(jobs),
                    Err(waits) => waits,
                };
                // Waits for a message and takes none: a connection that breaks loses no message.
                let mut command = redis::cmd("XREAD");
                command.arg("COUNT").arg(1).arg("BLOCK");
                command.arg(wait.as_millis().max(1) as u64);
                command.arg("STREAMS").arg(&self.stream.key).arg(last);
                tokio::select! {
                    woken = self.waiting.command::<redis::Value>(&command) => drop(woken?),
                    () = stop.cancelled() => {}
                }
            }
            Ok(Vec::new())
        })
    }

    fn extend(&self, leases: Vec<Lease>) -> Pending<'_, Vec<Lease>> {
        Box::pin(async move {
            let mut call = self.scripts.extend.prepare_invoke();
            call.key(&self.stream.key);
            call.arg(&self.stream.group).arg(&self.consumer);
            for lease in &leases {
                call.arg(&lease.id);
            }
            let lost: Vec<usize> = self.shared.call(&call).await?;
            let lost = lost.into_iter().filter_map(|at| leases.get(at).cloned());
            Ok(lost.collect())
        })
    }

    fn is_renewed(&self, held: &Lease, received: &Lease) -> bool {
        held.id == received.id
    }

    fn settle(&self, job: Job, disposition: Disposition) -> Pending<'_, ()> {
        Box::pin(async move {
            let attempts = job.attempts;
            match disposition {
                Disposition::Done => {
                    let mut call = self.prepare(&self.scripts.end, &self.delayed);
                    call.arg(&job.lease.id);
                    call.arg(u8::from(self.stream.deletes));
                    self.shared.call(&call).await
                }
                Disposition::Return => {
                    let attempts = attempts.saturating_sub(1);
                    self.requeue(&job, Duration::ZERO, attempts).await
                }
                Disposition::Interrupt => self.requeue(&job, Duration::ZERO, attempts).await,
                Disposition::Release(pause) => self.requeue(&job, pause, attempts).await,
                Disposition::Postpone(pause) => {
                    let attempts = attempts.saturating_sub(1);
                    self.requeue(&job, pause, attempts).await
                }
                Disposition::Bury(why) => self.bury(&job, &why).await,
            }
        })
    }

    fn failures(&self, requested: Failures) -> Pending<'_, Vec<FailedJob>> {
        Box::pin(async move { self.buried(&requested).await })
    }

    fn depth(&self) -> Pending<'_, Depth> {
        Box::pin(async move {
            let now = epoch();
            let mut call = self.prepare(&self.scripts.depth, &self.delayed);
            call.arg(now.as_millis() as u64);
            let counted: (u64, u64, u64, Option<String>) = self.shared.call(&call).await?;
            let (waiting, delayed, reserved, first) = counted;
            // An id begins with the time of its entry.
            let added = first.and_then(|id| id.split('-').next()?.parse().ok());
            let added = added.map(Duration::from_millis);
            Ok(Depth {
                waiting,
                delayed,
                reserved,
                oldest: added.map(|at| now.saturating_sub(at).as_secs()),
            })
        })
    }
}

/// A string as PHP serializes it.
fn serialized(text: &[u8]) -> Vec<u8> {
    [format!("s:{}:\"", text.len()).as_bytes(), text, b"\";"].concat()
}

fn unserialized(value: &[u8]) -> Option<&[u8]> {
    let rest = value.strip_prefix(b"s:")?.strip_suffix(b"\";")?;
    let quote = rest.iter().position(|byte| *byte == b'"')?;
    Some(&rest[quote + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_is_read_as_php_serializes_it() {
        for text in [&b""[..], b"{\"a\":\"b\"}", b"\";s:1:\""] {
            assert_eq!(unserialized(&serialized(text)), Some(text));
        }
        assert_eq!(unserialized(b"{}"), None);
        assert_eq!(serialized(b"ab"), b"s:2:\"ab\";");
    }
}
