//! Weighted fair scheduling of jobs: deficit round robin over whole jobs, whose cost is the time
//! that they take.
//!
//! A queue's balance is the time that it may still use. A job is charged with its queue's mean when
//! it begins, and with its real time when it ends. If no queue that could go on has a positive
//! balance, all get credit by weight until one has.

use std::collections::HashMap;
use std::time::Duration;

use crate::fronts::records::order::RecordOrder;

/// The credit of one round for all queues together, in seconds. A queue that gets its first job
/// waits for about that long.
const ROUND: f64 = 0.1;
/// How many seconds of work a queue keeps reserved.
const AHEAD: f64 = 0.1;
const MAX_AHEAD: usize = 100;
/// The weight of the newest job in a queue's mean.
const NEWEST: f64 = 0.2;

/// A queue as the scheduler sees it.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    pub weight: usize,
    /// How many of its jobs may run at once.
    pub concurrency: usize,
}

#[derive(Debug)]
pub struct Scheduler<J> {
    queues: Vec<JobQueue<J>>,
    workers: usize,
    running: usize,
    strict: bool,
    /// The queue that begins first if several may.
    turn: usize,
    next_number: usize,
    /// A suspect runs, and nothing else begins.
    is_alone: bool,
}

#[derive(Debug)]
struct JobQueue<J> {
    share: Share,
    running: usize,
    balance: f64,
    /// The mean time of its jobs in seconds; None until the first has ended.
    mean: Option<f64>,
    order: RecordOrder<JobGroup>,
    waiting: HashMap<usize, (JobGroup, J)>,
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
    charged: f64,
    is_alone: bool,
}

impl BegunJob {
    /// Distinguishes it from all other jobs of its scheduler.
    pub fn id(&self) -> usize {
        self.number
    }
}

impl<J> Scheduler<J> {
    pub fn new(shares: impl IntoIterator<Item = Share>, workers: usize, strict: bool) -> Self {
        let queues = shares.into_iter().map(|share| JobQueue {
            share,
            running: 0,
            balance: 0.0,
            mean: None,
            order: RecordOrder::default(),
            waiting: HashMap::new(),
        });
        Scheduler {
            queues: queues.collect(),
            workers,
            running: 0,
            strict,
            turn: 0,
            next_number: 0,
            is_alone: false,
        }
    }

    /// Sets how many jobs may run at once. Those that run go on.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// Adds a job behind the others of its queue. A suspect runs alone.
    pub fn push(&mut self, queue: usize, group: Option<String>, job: J, is_suspect: bool) {
        let number = self.next_number;
        self.next_number += 1;
        let group = group.map_or(JobGroup::Single(number), JobGroup::Named);
        let queue = &mut self.queues[queue];
        queue.order.push(number, group.clone(), is_suspect);
        queue.waiting.insert(number, (group, job));
    }

    /// How many more jobs a queue should reserve now. It asks for several at once if its
    /// jobs are short.
    pub fn room(&self, queue: usize) -> usize {
        let queue = &self.queues[queue];
        let workers = self.workers.min(queue.share.concurrency) as f64;
        let ahead = match queue.mean {
            Some(mean) => (workers * AHEAD / mean.max(1e-6)) as usize,
            None => 1,
        };
        let ahead = ahead.clamp(1, MAX_AHEAD);
        match queue.waiting.len() <= ahead / 2 {
            true => ahead - queue.waiting.len(),
            false => 0,
        }
    }

    /// The job that begins now. None while all workers are busy or nothing may begin.
    pub fn next(&mut self) -> Option<(BegunJob, J)> {
        if self.running >= self.workers || self.is_alone {
            return None;
        }
        let suspect = self.queues.iter().position(JobQueue::has_suspect);
        let chosen = match suspect {
            // It would wait for ever for a queue that is never empty.
            Some(_) if self.running > 0 => return None,
            Some(queue) => queue,
            None if self.strict => self.queues.iter().position(JobQueue::can_begin)?,
            None => self.fair()?,
        };
        let queue = &mut self.queues[chosen];
        let number = match suspect {
            Some(_) => queue.order.late(0)?,
            None => queue.order.ready(0)?,
        };
        let (group, job) = queue.waiting.remove(&number)?;
        queue.order.begin(number, &group);
        queue.running += 1;
        self.running += 1;
        self.is_alone = suspect.is_some();
        let charged = queue.mean.unwrap_or_default();
        queue.balance -= charged;
        let begun = BegunJob {
            queue: chosen,
            number,
            group,
            charged,
            is_alone: self.is_alone,
        };
        Some((begun, job))
    }

    fn fair(&mut self) -> Option<usize> {
        let count = self.queues.len();
        let turns = |first: usize| (0..count).map(move |step| (first + step) % count);
        let weights = self.queues.iter().filter(|queue| queue.can_begin());
        let weights: usize = weights.map(|queue| queue.share.weight).sum();
        if weights == 0 {
            return None;
        }
        let credit = |queue: &JobQueue<J>| ROUND * queue.share.weight as f64 / weights as f64;
        let has_credit = |queue: &JobQueue<J>| queue.can_begin() && queue.balance > 0.0;
        if let Some(found) = turns(self.turn).find(|at| has_credit(&self.queues[*at])) {
            self.turn = found;
            return Some(found);
        }
        // All that may go on have used their time: as many rounds of credit as the first needs.
        let able = self.queues.iter().filter(|queue| queue.can_begin());
        let rounds = able.map(|queue| (-queue.balance / credit(queue)).floor() + 1.0);
        let rounds = rounds.fold(f64::INFINITY, f64::min);
        for queue in &mut self.queues {
            if queue.can_begin() {
                queue.balance += rounds * ROUND * queue.share.weight as f64 / weights as f64;
            } else if queue.is_idle() {
                // Time that a queue did not need is not saved up.
                queue.balance = queue.balance.min(0.0);
            }
        }
        let found = turns(self.turn + 1).find(|at| has_credit(&self.queues[*at]))?;
        self.turn = found;
        Some(found)
    }

    /// Frees the worker of a job. The next job of its group may begin.
    pub fn ended(&mut self, begun: BegunJob, took: Duration) {
        self.charge(&begun, took);
        let queue = &mut self.queues[begun.queue];
        queue.order.ended(begun.group, usize::MAX);
    }

    /// Frees the worker of a job that will be tried again; its group waits for it.
    pub fn paused(&mut self, begun: &BegunJob, took: Duration) {
        self.charge(begun, took);
    }

    /// Tries a paused job again, before the others of its group.
    pub fn again(&mut self, begun: BegunJob, job: J) {
        let queue = &mut self.queues[begun.queue];
        queue.order.again(begun.number, &begun.group);
        queue.waiting.insert(begun.number, (begun.group, job));
    }

    /// Forgets a paused job. The next job of its group may begin.
    pub fn abandon(&mut self, begun: BegunJob) {
        let queue = &mut self.queues[begun.queue];
        queue.order.ended(begun.group, usize::MAX);
    }

    /// Removes all jobs of a queue that have not begun, and returns them, the last one first. Put
    /// back at the front of a list one by one, they are in their order again.
    pub fn clear(&mut self, queue: usize) -> Vec<J> {
        let queue = &mut self.queues[queue];
        queue.order.clear();
        let mut removed: Vec<_> = queue.waiting.drain().collect();
        removed.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        removed.into_iter().map(|(_, (_, job))| job).collect()
    }

    fn charge(&mut self, begun: &BegunJob, took: Duration) {
        let took = took.as_secs_f64();
        let queue = &mut self.queues[begun.queue];
        queue.balance += begun.charged - took;
        queue.mean = Some(match queue.mean {
            Some(mean) => mean + (took - mean) * NEWEST,
            None => took,
        });
        queue.running -= 1;
        self.running -= 1;
        self.is_alone &= !begun.is_alone;
    }
}

impl<J> JobQueue<J> {
    fn can_begin(&self) -> bool {
        self.running < self.share.concurrency && self.order.ready(0).is_some()
    }

    fn has_suspect(&self) -> bool {
        self.order.late(0).is_some()
    }

    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    fn share(weight: usize) -> Share {
        Share {
            weight,
            concurrency: usize::MAX,
        }
    }

    /// Runs queues that never become empty for a while of simulated time. `takes[queue]` is what a
    /// job of that queue takes, in milliseconds. Returns the time that each queue got.
    fn used(scheduler: &mut Scheduler<()>, takes: &[u64], jobs: usize) -> Vec<u64> {
        let mut used = vec![0; takes.len()];
        let mut now = 0;
        let mut running: BinaryHeap<(Reverse<u64>, usize)> = BinaryHeap::new();
        let mut begun = HashMap::new();
        for number in 0..jobs {
            loop {
                for queue in 0..takes.len() {
                    for _ in 0..scheduler.room(queue) {
                        scheduler.push(queue, None, (), false);
                    }
                }
                if let Some((job, ())) = scheduler.next() {
                    running.push((Reverse(now + takes[job.queue]), number));
                    begun.insert(number, job);
                    break;
                }
                let (Reverse(at), ended) = running.pop().unwrap();
                now = at;
                let job: BegunJob = begun.remove(&ended).unwrap();
                used[job.queue] += takes[job.queue];
                let took = Duration::from_millis(takes[job.queue]);
                scheduler.ended(job, took);
            }
        }
        used
    }

    #[test]
    fn time_is_shared_by_weight_whatever_jobs_take() {
        for (weights, takes) in [
            (vec![3, 1], vec![10, 10]),
            (vec![3, 1], vec![1, 50]),
            (vec![1, 3], vec![1, 50]),
            (vec![5, 3, 1], vec![7, 2, 300]),
            (vec![1; 10], vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ] {
            let shares = weights.iter().map(|weight| share(*weight));
            let mut scheduler = Scheduler::new(shares, 4, false);
            let used = used(&mut scheduler, &takes, 10_000);
            let all: u64 = used.iter().sum();
            let weight: usize = weights.iter().sum();
            for (queue, used) in used.iter().enumerate() {
                let due = all as f64 * weights[queue] as f64 / weight as f64;
                let off = (*used as f64 - due).abs() / due;
                assert!(
                    off < 0.1,
                    "{weights:?} {takes:?}: queue {queue} is off by {off}"
                );
            }
        }
    }

    #[test]
    fn single_job_next_to_a_long_queue_begins_within_a_round() {
        let mut scheduler = Scheduler::new([share(1), share(1)], 1, false);
        for _ in 0..100 {
            scheduler.push(0, None, (), false);
        }
        let mut first = 0;
        for step in 0..50 {
            if step == 20 {
                scheduler.push(1, None, (), false);
            }
            let Some((begun, ())) = scheduler.next() else {
                continue;
            };
            if begun.queue == 1 {
                first = step;
            }
            scheduler.ended(begun, Duration::from_millis(10));
        }
        assert!((20..=31).contains(&first), "{first}");
    }

    #[test]
    fn strict_queues_are_served_in_their_order() {
        let mut scheduler = Scheduler::new([share(1), share(1000)], 1, true);
        for job in 0..4 {
            scheduler.push(job % 2, None, job, false);
        }
        let mut order = Vec::new();
        while let Some((begun, job)) = scheduler.next() {
            order.push(job);
            scheduler.ended(begun, Duration::from_secs(1));
        }
        assert_eq!(order, [0, 2, 1, 3]);
    }

    #[test]
    fn queue_does_not_exceed_its_concurrency_nor_all_their_workers() {
        let limited = Share {
            weight: 1,
            concurrency: 2,
        };
        let mut scheduler = Scheduler::new([limited, share(1)], 3, false);
        for job in 0..10 {
            scheduler.push(0, None, job, false);
        }
        let begun: Vec<_> = std::iter::from_fn(|| scheduler.next()).collect();
        assert_eq!(begun.len(), 2);
        scheduler.push(1, None, 10, false);
        scheduler.push(1, None, 11, false);
        assert_eq!(std::iter::from_fn(|| scheduler.next()).count(), 1);
    }

    #[test]
    fn cleared_queue_returns_its_last_job_first_and_leaves_the_others() {
        let mut scheduler = Scheduler::new([share(1), share(1)], 1, false);
        for job in 0..6 {
            scheduler.push(job % 2, None, job, false);
        }
        assert_eq!(scheduler.clear(0), [4, 2, 0]);
        let (begun, job) = scheduler.next().unwrap();
        assert_eq!(job, 1);
        scheduler.ended(begun, Duration::ZERO);
        scheduler.push(0, None, 6, false);
        assert!(scheduler.clear(0) == [6] && scheduler.clear(1) == [5, 3]);
    }

    #[test]
    fn abandoned_job_lets_its_group_go_on() {
        let mut scheduler = Scheduler::new([share(1)], 1, false);
        scheduler.push(0, Some("a".into()), 1, false);
        let (begun, _) = scheduler.next().unwrap();
        scheduler.paused(&begun, Duration::ZERO);
        scheduler.abandon(begun);
        scheduler.push(0, Some("a".into()), 2, false);
        assert_eq!(scheduler.next().unwrap().1, 2);
    }

    #[test]
    fn suspect_runs_alone_and_before_later_jobs() {
        let mut scheduler = Scheduler::new([share(1), share(1)], 3, false);
        scheduler.push(0, None, 1, false);
        let (first, _) = scheduler.next().unwrap();
        scheduler.push(1, None, 2, true);
        scheduler.push(0, None, 3, false);
        assert!(scheduler.next().is_none());
        scheduler.ended(first, Duration::ZERO);
        let (suspect, job) = scheduler.next().unwrap();
        assert_eq!(job, 2);
        assert!(scheduler.next().is_none());
        scheduler.ended(suspect, Duration::ZERO);
        assert_eq!(scheduler.next().unwrap().1, 3);
    }

    #[test]
    fn group_waits_for_its_paused_job() {
        let mut scheduler = Scheduler::new([share(1)], 4, false);
        for (group, job) in [("a", 1), ("a", 2), ("b", 3)] {
            scheduler.push(0, Some(group.into()), job, false);
        }
        let (first, job) = scheduler.next().unwrap();
        assert_eq!(job, 1);
        let (other, job) = scheduler.next().unwrap();
        assert_eq!(job, 3);
        assert!(scheduler.next().is_none());
        scheduler.paused(&first, Duration::ZERO);
        scheduler.ended(other, Duration::ZERO);
        assert!(scheduler.next().is_none(), "a waits for its first job");
        scheduler.again(first, 1);
        let (first, job) = scheduler.next().unwrap();
        assert_eq!(job, 1);
        scheduler.ended(first, Duration::ZERO);
        assert_eq!(scheduler.next().unwrap().1, 2);
    }
}
