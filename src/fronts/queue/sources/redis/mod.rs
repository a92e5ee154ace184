//! Queues in Redis or Valkey, in the lists and sorted sets of Laravel or the streams of Messenger.
//!
//! Each queue waits on a connection of its own. Settlements and extensions of all queues of a
//! server share another one.

mod buried;
mod member;
mod scripts;
mod server;
mod stream;
mod stream_scripts;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tracing::error;

use self::scripts::{PUT_BACK, Scripts};
use self::server::Link;
pub use self::server::RedisServer;
pub use self::stream::{RedisStream, Stream};
use crate::fronts::queue::job::{Depth, Disposition, FailedJob, Failures, Job, Lease};
use crate::fronts::queue::source::{Pending, Source};

/// How often delayed and expired jobs are polled for without a known one: nothing wakes a client
/// that waits for a sorted set.
const RARELY: Duration = Duration::from_secs(1);
/// The shortest wait; 0 would mean for ever.
const SHORTEST: Duration = Duration::from_millis(1);

/// One queue of a server.
pub struct RedisQueue {
    keys: Keys,
    lease: Duration,
    /// The jobs have Laravel's JSON, which counts its own attempts.
    is_laravel: bool,
    connection: String,
    name: String,
    /// See [`RedisNames::max_payload`].
    max_payload: u64,
    scripts: Arc<Scripts>,
    /// For waiting, which would hold up others.
    waiting: Link,
    shared: Arc<Link>,
    /// Makes the ids of jobs without one unique.
    next_id: AtomicU64,
    random: u64,
}

/// What a queue is, apart from its server.
pub struct RedisNames {
    pub queue: String,
    /// What all keys begin with.
    pub prefix: String,
    /// The name of Laravel's connection.
    pub connection: String,
    /// The longest job that is read, in bytes. Longer ones are put aside.
    pub max_payload: u64,
}

/// The keys of a queue, as `Illuminate\Queue\RedisQueue` names them. Buried jobs are Surus' own.
struct Keys {
    jobs: String,
    delayed: String,
    reserved: String,
    notify: String,
    failed: String,
    /// Jobs that are too long to be read.
    too_long: String,
}

impl Keys {
    fn new(prefix: &str, queue: &str) -> Keys {
        let jobs = format!("{prefix}queues:{queue}");
        let with = |end: &str| format!("{jobs}:{end}");
        Keys {
            delayed: with("delayed"),
            reserved: with("reserved"),
            notify: with("notify"),
            failed: with("failed"),
            too_long: with("too-long"),
            jobs,
        }
    }
}

/// Where [`RedisQueue::put_back`] puts a job.
#[derive(Clone, Copy)]
enum To {
    Front,
    Back,
    Delayed(u64),
}

impl To {
    /// The next poll for delayed jobs would move one without a pause to the end of the list.
    fn after(pause: Duration) -> To {
        match pause.as_millis().div_ceil(1000) as u64 {
            0 => To::Back,
            seconds => To::Delayed(epoch().as_secs().saturating_add(seconds)),
        }
    }
}

impl RedisQueue {
    pub fn new(
        server: &RedisServer,
        names: RedisNames,
        lease: Duration,
        is_laravel: bool,
    ) -> RedisQueue {
        RedisQueue {
            keys: Keys::new(&names.prefix, &names.queue),
            lease,
            is_laravel,
            connection: names.connection,
            name: names.queue,
            max_payload: names.max_payload,
            scripts: server.scripts.clone(),
            waiting: Link::new(server.client.clone()),
            shared: server.shared.clone(),
            next_id: AtomicU64::new(0),
            random: RandomState::new().hash_one("surus"),
        }
    }

    /// The key of the list of waiting jobs.
    pub fn list(&self) -> &str {
        &self.keys.jobs
    }

    /// Reserves jobs. If there are none, returns how long until the next one is due.
    async fn take(&self, most: usize) -> anyhow::Result<Result<Vec<Job>, Duration>> {
        let now = epoch();
        let first = self.next_id.fetch_add(most as u64, Ordering::Relaxed);
        let ids = format!("{:x}-{first:x}", self.random);
        let mut call = self.scripts.receive.prepare_invoke();
        call.key(&self.keys.jobs).key(&self.keys.delayed);
        call.key(&self.keys.reserved).key(&self.keys.notify);
        call.key(&self.keys.too_long);
        call.arg(now.as_secs())
            .arg((now + self.lease).as_secs())
            .arg(most);
        call.arg(if self.is_laravel { "laravel" } else { "plain" })
            .arg(&ids)
            .arg(self.max_payload);
        let (found, due, too_long): (Vec<Vec<u8>>, Option<f64>, u64) =
            self.waiting.call(&call).await?;
        if too_long > 0 {
            error!(
                queue = self.name,
                jobs = too_long,
                list = self.keys.too_long,
                "jobs are longer than work.max_payload; they are kept unread in a list of their own"
            );
        }
        if found.is_empty() && too_long > 0 {
            return Ok(Err(SHORTEST));
        }
        if found.is_empty() {
            let due = due.and_then(|due| Duration::try_from_secs_f64(due).ok());
            let wait = due.map_or(RARELY, |due| due.saturating_sub(now));
            return Ok(Err(wait.clamp(SHORTEST, RARELY)));
        }
        let mut jobs = Vec::new();
        for (number, pair) in found.chunks(2).enumerate() {
            if let [job, reserved] = pair {
                let own = format!("{ids}-{number:x}");
                jobs.push(member::job(self.is_laravel, job, reserved, own));
            }
        }
        Ok(Ok(jobs))
    }

    async fn put_back(&self, job: &Job, member: Bytes, to: To) -> anyhow::Result<()> {
        let (place, score) = match to {
            To::Front => ("front", 0),
            To::Back => ("back", 0),
            To::Delayed(at) => ("delayed", at),
        };
        // Not by its hash: if the server does not know that yet, a call is repeated, and jobs that
        // go back to the front change their order.
        let mut eval = redis::cmd("EVAL");
        eval.arg(PUT_BACK).arg(4);
        eval.arg(&self.keys.jobs).arg(&self.keys.delayed);
        eval.arg(&self.keys.reserved).arg(&self.keys.notify);
        eval.arg(&job.lease.token[..]).arg(&member[..]);
        eval.arg(place).arg(score);
        self.shared.command(&eval).await
    }

    /// What a job with this number of attempts is in the lists.
    fn member(&self, job: &Job, attempts: u32) -> Bytes {
        match self.is_laravel {
            true => job.lease.token.clone(),
            false => member::enveloped(&job.lease.id, attempts, &job.payload),
        }
    }

    /// What a job was in the lists before this attempt.
    fn untried(&self, job: &Job) -> Bytes {
        match self.is_laravel {
            true => job.payload.clone(),
            false => self.member(job, job.attempts.saturating_sub(1)),
        }
    }
}

impl Source for RedisQueue {
    fn receive<'a>(&'a self, most: usize, stop: &'a CancellationToken) -> Pending<'a, Vec<Job>> {
        Box::pin(async move {
            while !stop.is_cancelled() {
                let wait = match self.take(most).await? {
                    Ok(jobs) => return Ok(jobs),
                    Err(wait) => wait,
                };
                // Moves the first job to where it is, which waits for one and takes none: a
                // connection that breaks loses no job.
                let mut command = redis::cmd("BLMOVE");
                command.arg(&self.keys.jobs).arg(&self.keys.jobs);
                command.arg("LEFT").arg("LEFT").arg(wait.as_secs_f64());
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
            call.key(&self.keys.reserved);
            call.arg((epoch() + self.lease).as_secs());
            for lease in &leases {
                call.arg(&lease.token[..]);
            }
            let lost: Vec<usize> = self.shared.call(&call).await?;
            let lost = lost.into_iter().filter_map(|at| leases.get(at).cloned());
            Ok(lost.collect())
        })
    }

    fn is_renewed(&self, held: &Lease, received: &Lease) -> bool {
        // A job may have been pushed twice. Each reservation counts an attempt.
        held.id == received.id && held.token != received.token
    }

    fn settle(&self, job: Job, disposition: Disposition) -> Pending<'_, ()> {
        Box::pin(async move {
            let attempts = job.attempts;
            match disposition {
                Disposition::Done => {
                    let mut command = redis::cmd("ZREM");
                    command.arg(&self.keys.reserved).arg(&job.lease.token[..]);
                    self.shared.command(&command).await
                }
                Disposition::Return => self.put_back(&job, self.untried(&job), To::Front).await,
                Disposition::Postpone(pause) => {
                    let member = self.untried(&job);
                    self.put_back(&job, member, To::after(pause)).await
                }
                Disposition::Interrupt => {
                    let member = self.member(&job, attempts);
                    self.put_back(&job, member, To::Front).await
                }
                Disposition::Release(pause) => {
                    let member = self.member(&job, attempts);
                    self.put_back(&job, member, To::after(pause)).await
                }
                Disposition::Bury(why) => self.bury(&job, &why).await,
            }
        })
    }

    fn failures(&self, requested: Failures) -> Pending<'_, Vec<FailedJob>> {
        Box::pin(async move { RedisQueue::failures(self, &requested).await })
    }

    fn depth(&self) -> Pending<'_, Depth> {
        Box::pin(async move {
            let now = epoch().as_secs();
            let mut call = self.scripts.depth.prepare_invoke();
            call.key(&self.keys.jobs).key(&self.keys.delayed);
            call.key(&self.keys.reserved).arg(now);
            call.arg(self.max_payload);
            let counted: (u64, u64, u64, Option<Vec<u8>>) = self.shared.call(&call).await?;
            let (waiting, delayed, reserved, first) = counted;
            let pushed = first.and_then(|job| member::pushed_at(&job));
            Ok(Depth {
                waiting,
                delayed,
                reserved,
                oldest: pushed.map(|at| now.saturating_sub(at)),
            })
        })
    }
}

/// Time since 1970. Laravel compares the clocks of its own processes, too, not the server's.
fn epoch() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}
