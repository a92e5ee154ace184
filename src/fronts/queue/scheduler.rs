//! Weighted fair scheduling of jobs by the time that they take.
//!
//! Each queue has a virtual time: the seconds that its jobs have taken, divided by its weight. The
//! queue with the least begins its next job. A job is charged with its queue's mean when it begins,
//! and with its real time when it ends. A queue that had no jobs does not catch up, and one whose
//! broker is slow catches up on little ([`LAG`]).

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::job::Job;
use super::rate::JobRate;
use crate::fronts::records::order::RecordOrder;

/// How many seconds of work a queue keeps reserved.
const AHEAD: f64 = 0.1;
/// How many jobs of a queue wait here at most, with those behind others of their group.
pub const MAX_AHEAD: usize = 100;
/// How many suspects count among these at most. One suspect runs at a time, so that more of them
/// would stop their queue.
const SUSPECTS_AHEAD: usize = 10;
/// How many bytes of payloads of a queue wait here before it reserves no more. Jobs that wait for
/// their next try are among them. Suspects have as many bytes of their own.
const MAX_BYTES_AHEAD: usize = 64 << 20;
/// How many suspects of a queue are held at most, without those of groups. Others are postponed.
pub const SUSPECTS_HELD: usize = 1000;
/// The weight of the newest job in a queue's mean.
const NEWEST: f64 = 0.2;
/// What a job is charged with before one of its queue has ended, in seconds.
const UNKNOWN: f64 = 0.1;
/// A queue without jobs counts as one that waits for its broker for this long.
const BROKER_WAIT: Duration = Duration::from_millis(100);
/// How many seconds of work a queue may catch up on that could not begin jobs, in addition to the
/// work that others have begun at once meanwhile.
const LAG: f64 = 1.0;

/// A job that takes memory while it waits.
pub trait Payload {
    /// The length of its payload.
    fn payload_bytes(&self) -> usize;
}

impl Payload for Job {
    fn payload_bytes(&self) -> usize {
        self.payload.len()
    }
}

/// A queue as the scheduler sees it.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    pub weight: usize,
    /// How many of its jobs may run at once.
    pub concurrency: usize,
    /// How often its jobs may begin.
    pub rate: Option<JobRate>,
}

/// Which jobs may run at the same time as a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Any.
    Shared,
    /// No other suspect.
    Suspect,
    /// None.
    Alone,
}

impl Isolation {
    /// Whether a job may begin while others run, of which the strictest has this isolation.
    fn may_join(self, strictest: Isolation) -> bool {
        match self {
            Isolation::Shared => strictest != Isolation::Alone,
            Isolation::Suspect => strictest == Isolation::Shared,
            Isolation::Alone => false,
        }
    }
}

#[derive(Debug)]
pub struct Scheduler<J> {
    queues: Vec<JobQueue<J>>,
    workers: usize,
    running: usize,
    /// The strictest isolation of the running jobs. At most one of them is not shared.
    strictest: Isolation,
    strict: bool,
    /// The least virtual time of the queues that have jobs. It never goes back.
    clock: f64,
    next_number: usize,
}

#[derive(Debug)]
struct JobQueue<J> {
    share: Share,
    running: usize,
    virtual_time: f64,
    /// The mean time of its jobs in seconds; None until the first has ended.
    mean: Option<f64>,
    /// How many jobs have run since one was refused, at most [`MAX_AHEAD`].
    accepted: usize,
    /// When its last job has ended.
    ended: Option<Instant>,
    /// Its rate lets no job begin before.
    due: Option<Instant>,
    order: RecordOrder<JobGroup>,
    waiting: HashMap<usize, WaitingJob<J>>,
    /// How many of these are not shared.
    isolated: usize,
    /// The payloads of those that are shared, and of jobs that wait for their next try.
    bytes: usize,
    /// The payloads of those that are not shared.
    isolated_bytes: usize,
    /// The longest payload of the latest jobs. It becomes less with each shorter one.
    longest: usize,
}

#[derive(Debug)]
struct WaitingJob<J> {
    group: JobGroup,
    isolation: Isolation,
    job: J,
}

/// Jobs of one group run in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum JobGroup {
    Named(String),
    Single(usize),
}

/// A job that has begun.
#[derive(Debug)]
pub struct BegunJob {
    pub queue: usize,
    number: usize,
    group: JobGroup,
    isolation: Isolation,
    charged: f64,
    payload_bytes: usize,
    /// When its queue's rate let it begin.
    due: Option<Instant>,
}

impl BegunJob {
    /// Distinguishes it from all other jobs of its scheduler.
    pub fn id(&self) -> usize {
        self.number
    }
}

impl<J: Payload> Scheduler<J> {
    pub fn new(shares: impl IntoIterator<Item = Share>, workers: usize, strict: bool) -> Self {
        let queues = shares.into_iter().map(|share| JobQueue {
            share,
            running: 0,
            virtual_time: 0.0,
            mean: None,
            accepted: MAX_AHEAD,
            ended: None,
            due: None,
            order: RecordOrder::default(),
            waiting: HashMap::new(),
            isolated: 0,
            bytes: 0,
            isolated_bytes: 0,
            longest: 0,
        });
        Scheduler {
            queues: queues.collect(),
            workers,
            running: 0,
            strictest: Isolation::Shared,
            strict,
            clock: 0.0,
            next_number: 0,
        }
    }

    /// Sets how many jobs may run at once. Those that run go on.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// Adds a job behind the others of its queue.
    pub fn push(&mut self, queue: usize, group: Option<String>, job: J, isolation: Isolation) {
        let number = self.next_number;
        self.next_number += 1;
        let group = group.map_or(JobGroup::Single(number), JobGroup::Named);
        let queue = &mut self.queues[queue];
        queue.order.push(number, group.clone(), false);
        queue.longest = job.payload_bytes().max(queue.longest - queue.longest / 5);
        let waiting = WaitingJob {
            group,
            isolation,
            job,
        };
        queue.insert(number, waiting);
    }

    /// How many more jobs a queue should reserve now. It asks for several at once if its jobs are
    /// short, in time and in bytes. Jobs that wait for another one leave room for those that need
    /// not. After a refusal it begins with one: brokers count how often a job goes back.
    pub fn room(&self, queue: usize) -> usize {
        let queue = &self.queues[queue];
        let workers = queue.able(self.workers) as f64;
        let ahead = match queue.mean {
            Some(mean) => (workers * AHEAD / mean.max(1e-6)) as usize,
            None => 1,
        };
        let rate = queue.share.rate.map_or(f64::INFINITY, JobRate::per_second);
        let ahead = ahead.min((rate * AHEAD) as usize).min(queue.accepted);
        let ahead = ahead.clamp(1, MAX_AHEAD);
        let ready = queue.ready();
        let waiting = queue.waiting.len() - queue.isolated.saturating_sub(SUSPECTS_AHEAD);
        let room = MAX_AHEAD.saturating_sub(waiting);
        match ready <= ahead / 2 {
            true => (ahead - ready).min(room).min(queue.room_in_memory()),
            false => 0,
        }
    }

    /// How many suspects of a queue wait.
    pub fn suspects(&self, queue: usize) -> usize {
        self.queues[queue].isolated
    }

    /// Whether another suspect of a queue may wait.
    pub fn has_room_for_suspect(&self, queue: usize) -> bool {
        self.suspects(queue) < SUSPECTS_HELD && self.queues[queue].isolated_bytes < MAX_BYTES_AHEAD
    }

    /// The job that begins now. None while all workers are busy or nothing may begin.
    pub fn next(&mut self, now: Instant) -> Option<(BegunJob, J)> {
        let strictest = self.strictest;
        if self.running >= self.workers || strictest == Isolation::Alone {
            return None;
        }
        let is_alone = |it: Isolation| it == Isolation::Alone;
        let alone = self
            .queues
            .iter()
            .position(|it| it.first(is_alone).is_some());
        let chosen = match alone {
            // It would wait for ever for a queue that is never empty.
            Some(_) if self.running > 0 => return None,
            // It holds up all others, so it does not wait for its rate.
            Some(queue) => queue,
            None if self.strict => {
                let mut queues = self.queues.iter();
                queues.position(|it| it.can_begin(now, strictest))?
            }
            None => self.fair(now)?,
        };
        let queue = &mut self.queues[chosen];
        let number = match alone {
            Some(_) => queue.first(is_alone)?,
            None => queue.first(|it| it.may_join(strictest))?,
        };
        let waiting = queue.remove(number)?;
        queue.order.begin(number, &waiting.group);
        queue.running += 1;
        let due = queue.due;
        if let Some(rate) = queue.share.rate {
            queue.due = Some(rate.next(due, now));
        }
        let charged = queue.mean.unwrap_or(UNKNOWN);
        queue.charge(charged);
        self.running += 1;
        if waiting.isolation != Isolation::Shared {
            self.strictest = waiting.isolation;
        }
        let begun = BegunJob {
            queue: chosen,
            number,
            group: waiting.group,
            isolation: waiting.isolation,
            charged,
            payload_bytes: waiting.job.payload_bytes(),
            due,
        };
        Some((begun, waiting.job))
    }

    /// When a job may begin for which only its queue's rate leaves no time now.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let strictest = self.strictest;
        if self.running >= self.workers || strictest == Isolation::Alone {
            return None;
        }
        let waiting = self.queues.iter();
        let waiting = waiting.filter(|queue| queue.has_next(strictest));
        let due = waiting.filter_map(|queue| queue.due);
        due.filter(|due| *due > now).min()
    }

    fn fair(&mut self, now: Instant) -> Option<usize> {
        let active = self.queues.iter().filter(|queue| queue.is_active(now));
        let least = active
            .map(|queue| queue.virtual_time)
            .min_by(f64::total_cmp);
        self.clock = self.clock.max(least?);
        for queue in self.queues.iter_mut().filter(|it| !it.is_active(now)) {
            queue.virtual_time = queue.virtual_time.max(self.clock);
        }
        let strictest = self.strictest;
        let able = self.queues.iter().enumerate();
        let able = able.filter(|(_, queue)| queue.can_begin(now, strictest));
        let (chosen, queue) =
            able.min_by(|(_, one), (_, other)| one.virtual_time.total_cmp(&other.virtual_time))?;
        // While others have no jobs for a moment, one queue may take all workers.
        let jobs = queue.able(self.workers) as f64;
        let ahead = jobs * queue.mean.unwrap_or(UNKNOWN) / queue.weight();
        let least = queue.virtual_time - ahead;
        for queue in &mut self.queues {
            let behind = least - LAG / queue.weight();
            queue.virtual_time = queue.virtual_time.max(behind);
        }
        Some(chosen)
    }

    /// Frees the worker of a job. The next job of its group may begin.
    pub fn ended(&mut self, begun: BegunJob, took: Duration, now: Instant) {
        self.free(&begun, took, now);
        let queue = &mut self.queues[begun.queue];
        queue.order.ended(begun.group, usize::MAX);
    }

    /// Frees the worker of a job that will be tried again; its group waits for it.
    pub fn paused(&mut self, begun: &BegunJob, took: Duration, now: Instant) {
        self.free(begun, took, now);
        self.queues[begun.queue].bytes += begun.payload_bytes;
    }

    /// Takes back a job that has just begun and does not run. It takes no time of its queue, and
    /// counts for no rate. The next job of its group may begin.
    pub fn skip(&mut self, begun: BegunJob) {
        self.leave(&begun, 0.0);
        let queue = &mut self.queues[begun.queue];
        queue.due = begun.due;
        queue.order.ended(begun.group, usize::MAX);
    }

    /// Takes back a job that its application has refused.
    pub fn refused(&mut self, begun: BegunJob) {
        self.queues[begun.queue].accepted = 0;
        self.skip(begun);
    }

    /// Tries a paused job again, before the others of its group.
    pub fn again(&mut self, begun: BegunJob, job: J, isolation: Isolation) {
        let queue = &mut self.queues[begun.queue];
        queue.bytes -= begun.payload_bytes;
        queue.order.again(begun.number, &begun.group);
        let waiting = WaitingJob {
            group: begun.group,
            isolation,
            job,
        };
        queue.insert(begun.number, waiting);
    }

    /// Forgets a paused job. The next job of its group may begin.
    pub fn abandon(&mut self, begun: BegunJob) {
        let queue = &mut self.queues[begun.queue];
        queue.bytes -= begun.payload_bytes;
        queue.order.ended(begun.group, usize::MAX);
    }

    /// Removes all jobs of a queue that have not begun, and returns them, the last one first. Put
    /// back at the front of a list one by one, they are in their order again.
    pub fn clear(&mut self, queue: usize) -> Vec<J> {
        let queue = &mut self.queues[queue];
        queue.order.clear();
        let mut numbers: Vec<_> = queue.waiting.keys().copied().collect();
        numbers.sort_by_key(|number| std::cmp::Reverse(*number));
        let removed = numbers.into_iter().filter_map(|it| queue.remove(it));
        removed.map(|it| it.job).collect()
    }

    fn free(&mut self, begun: &BegunJob, took: Duration, now: Instant) {
        let took = took.as_secs_f64();
        self.leave(begun, took);
        let queue = &mut self.queues[begun.queue];
        queue.mean = Some(match queue.mean {
            Some(mean) => mean + (took - mean) * NEWEST,
            None => took,
        });
        queue.ended = Some(now);
        queue.accepted = (queue.accepted + 1).min(MAX_AHEAD);
    }

    /// Removes a job from the running ones, and charges it with its real time in seconds.
    fn leave(&mut self, begun: &BegunJob, seconds: f64) {
        let queue = &mut self.queues[begun.queue];
        queue.charge(seconds - begun.charged);
        queue.running -= 1;
        self.running -= 1;
        if begun.isolation != Isolation::Shared {
            self.strictest = Isolation::Shared;
        }
    }
}

impl<J: Payload> JobQueue<J> {
    fn weight(&self) -> f64 {
        self.share.weight as f64
    }

    /// How many of its jobs may run at once.
    fn able(&self, workers: usize) -> usize {
        workers.min(self.share.concurrency)
    }

    fn charge(&mut self, seconds: f64) {
        self.virtual_time += seconds / self.weight();
    }

    fn insert(&mut self, number: usize, waiting: WaitingJob<J>) {
        let bytes = waiting.job.payload_bytes();
        match waiting.isolation {
            Isolation::Shared => self.bytes += bytes,
            Isolation::Suspect | Isolation::Alone => {
                self.isolated += 1;
                self.isolated_bytes += bytes;
            }
        }
        self.waiting.insert(number, waiting);
    }

    fn remove(&mut self, number: usize) -> Option<WaitingJob<J>> {
        let removed = self.waiting.remove(&number)?;
        let bytes = removed.job.payload_bytes();
        match removed.isolation {
            Isolation::Shared => self.bytes -= bytes,
            Isolation::Suspect | Isolation::Alone => {
                self.isolated -= 1;
                self.isolated_bytes -= bytes;
            }
        }
        Some(removed)
    }

    /// How many more jobs fit into memory if they are as long as the latest ones: at least one
    /// until the limit is reached.
    fn room_in_memory(&self) -> usize {
        match MAX_BYTES_AHEAD.saturating_sub(self.bytes) {
            0 => 0,
            left => (left / self.longest.max(1)).max(1),
        }
    }

    fn isolation(&self, number: usize) -> Isolation {
        let waiting = self.waiting.get(&number);
        waiting.map_or(Isolation::Shared, |it| it.isolation)
    }

    /// The first job with such an isolation that no other of its group holds up.
    fn first(&self, is_meant: impl Fn(Isolation) -> bool) -> Option<usize> {
        if self.isolated == 0 {
            return self.order.ready(0).filter(|_| is_meant(Isolation::Shared));
        }
        let mut ready = self.order.all_ready();
        ready.find(|number| is_meant(self.isolation(*number)))
    }

    /// How many jobs wait for nothing but a worker. Suspects also wait for each other.
    fn ready(&self) -> usize {
        if self.isolated == 0 {
            return self.order.ready_count();
        }
        let ready = self.order.all_ready();
        ready
            .filter(|number| self.isolation(*number) == Isolation::Shared)
            .count()
    }

    /// Whether only its rate may keep its next job from beginning.
    fn has_next(&self, strictest: Isolation) -> bool {
        self.running < self.share.concurrency && self.first(|it| it.may_join(strictest)).is_some()
    }

    fn can_begin(&self, now: Instant, strictest: Isolation) -> bool {
        self.has_next(strictest) && self.due.is_none_or(|due| due <= now)
    }

    /// Whether it has jobs, or had some a moment ago.
    fn is_active(&self, now: Instant) -> bool {
        let ended = self.ended.map(|at| now.saturating_duration_since(at));
        self.running > 0 || !self.waiting.is_empty() || ended.is_some_and(|ago| ago < BROKER_WAIT)
    }
}
