//! Tests of shares in simulated time, of order, and of limits.
#![allow(clippy::unwrap_used)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::*;

mod memory;

macro_rules! without_payload {
    ($($job:ty),*) => {
        $(impl Payload for $job {
            fn payload_bytes(&self) -> usize {
                0
            }
        })*
    };
}

without_payload!((), i32, usize);

fn share(weight: usize) -> Share {
    Share {
        weight,
        concurrency: usize::MAX,
        rate: None,
    }
}

/// A broker that pushes jobs: how many may be unacknowledged, and how many microseconds after an
/// acknowledgement the next one arrives. Its times vary by 30 %, because jobs that all take the
/// same time run in step. The other kind has as many jobs as are wanted.
type Pushes = Option<(usize, u64)>;

enum Event {
    /// A job, and how long it has run.
    Ended(BegunJob, u64),
    Arrived(usize),
}

/// What happens later, by microsecond.
#[derive(Default)]
struct Events {
    times: BinaryHeap<Reverse<(u64, usize)>>,
    events: BTreeMap<usize, Event>,
    count: usize,
}

impl Events {
    fn add(&mut self, at: u64, event: Event) {
        self.times.push(Reverse((at, self.count)));
        self.events.insert(self.count, event);
        self.count += 1;
    }

    fn next(&mut self) -> (u64, Event) {
        let Reverse((at, number)) = self.times.pop().unwrap();
        (at, self.events.remove(&number).unwrap())
    }
}

/// Runs queues that never become empty until this many jobs have ended, in simulated time.
/// `takes[queue]` is what a job of that queue takes, in milliseconds. Returns the time that each
/// queue has got.
fn used(scheduler: &mut Scheduler<()>, takes: &[u64], pushes: Pushes, jobs: usize) -> Vec<u64> {
    let start = Instant::now();
    let mut used = vec![0; takes.len()];
    let mut events = Events::default();
    let mut random = 1_u64;
    let mut vary = |micros: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        match pushes {
            Some(_) => micros * (700 + (random >> 33) % 601) / 1000,
            None => micros,
        }
    };
    let mut now = 0;
    for queue in 0..takes.len() {
        for _ in 0..pushes.map_or(0, |(window, _)| window) {
            scheduler.push(queue, None, (), Isolation::Shared);
        }
    }
    let mut ended = 0;
    while ended < jobs {
        loop {
            for queue in (0..takes.len()).filter(|_| pushes.is_none()) {
                for _ in 0..scheduler.room(queue) {
                    scheduler.push(queue, None, (), Isolation::Shared);
                }
            }
            let Some((job, ())) = scheduler.next(start + Duration::from_micros(now)) else {
                break;
            };
            let took = vary(takes[job.queue] * 1000);
            events.add(now + took, Event::Ended(job, took));
        }
        let (at, event) = events.next();
        now = at;
        match event {
            Event::Arrived(queue) => scheduler.push(queue, None, (), Isolation::Shared),
            Event::Ended(job, took) => {
                let queue = job.queue;
                used[queue] += took;
                let took = Duration::from_micros(took);
                scheduler.ended(job, took, start + Duration::from_micros(now));
                ended += 1;
                if let Some((_, delay)) = pushes {
                    events.add(now + vary(delay), Event::Arrived(queue));
                }
            }
        }
    }
    used
}

#[track_caller]
fn assert_shared(weights: &[usize], takes: &[u64], pushes: Pushes) {
    let shares = weights.iter().map(|weight| share(*weight));
    let mut scheduler = Scheduler::new(shares, 4, false);
    let used = used(&mut scheduler, takes, pushes, 10_000);
    let all: u64 = used.iter().sum();
    let weight: usize = weights.iter().sum();
    for (queue, used) in used.iter().enumerate() {
        let due = all as f64 * weights[queue] as f64 / weight as f64;
        let off = (*used as f64 - due).abs() / due;
        assert!(
            off < 0.1,
            "{weights:?} {takes:?} {pushes:?}: queue {queue} is off by {off}"
        );
    }
}

#[test]
fn time_is_shared_by_weight_whatever_jobs_take() {
    for (weights, takes) in [
        (vec![3, 1], vec![10, 10]),
        (vec![3, 1], vec![3, 3]),
        (vec![3, 1], vec![1, 50]),
        (vec![1, 3], vec![1, 50]),
        (vec![5, 3, 1], vec![7, 2, 300]),
        (vec![1; 10], vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ] {
        assert_shared(&weights, &takes, None);
    }
}

#[test]
fn time_is_shared_by_weight_although_a_broker_delivers_late() {
    // RabbitMQ with twice as many unacknowledged jobs as workers. One queue alone could not keep
    // all workers busy.
    let pushes = Some((8, 2500));
    for takes in [[3, 3], [3, 6]] {
        assert_shared(&[3, 1], &takes, pushes);
    }
}

#[test]
fn single_job_waits_for_one_job_of_each_long_queue_at_most() {
    let took = Duration::from_millis(10);
    for long in [1, 100] {
        let mut scheduler = Scheduler::new((0..=long).map(|_| share(1)), 1, false);
        for job in 0..100_000 {
            scheduler.push(job % long, None, (), Isolation::Shared);
        }
        let (mut now, mut pushed, mut count) = (Instant::now(), None, 0);
        for round in 0..2000 {
            // Its queue was empty for as long as others have run.
            if round % 400 == 300 {
                scheduler.push(long, None, (), Isolation::Shared);
                pushed = Some(round);
            }
            let (begun, ()) = scheduler.next(now).unwrap();
            if begun.queue == long {
                let waited = round - pushed.take().unwrap();
                assert!(waited < long, "{long}: {waited}");
                count += 1;
            }
            now += took;
            scheduler.ended(begun, took, now);
        }
        assert_eq!(count, 5);
    }
}

#[test]
fn queue_catches_up_on_at_most_a_second_after_its_broker_was_slow() {
    let mut scheduler = Scheduler::new([share(1), share(1)], 2, false);
    let mut now = Instant::now();
    let took = Duration::from_millis(10);
    // One queue has a job now and then, which is why it counts as one that has jobs.
    for round in 0..10_000 {
        scheduler.push(0, None, (), Isolation::Shared);
        if round % 5 == 0 {
            scheduler.push(1, None, (), Isolation::Shared);
        }
        while let Some((begun, ())) = scheduler.next(now) {
            now += took;
            scheduler.ended(begun, took, now);
        }
    }
    for job in 0..1000 {
        scheduler.push(job % 2, None, (), Isolation::Shared);
    }
    let mut row = 0;
    while let Some((begun, ())) = scheduler.next(now)
        && begun.queue == 1
    {
        row += 1;
        now += took;
        scheduler.ended(begun, took, now);
    }
    assert!((50..=110).contains(&row), "{row}");
}

#[test]
fn strict_queues_are_served_in_their_order() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1), share(1000)], 1, true);
    for job in 0..4 {
        scheduler.push(job % 2, None, job, Isolation::Shared);
    }
    let mut order = Vec::new();
    while let Some((begun, job)) = scheduler.next(now) {
        order.push(job);
        scheduler.ended(begun, Duration::from_secs(1), now);
    }
    assert_eq!(order, [0, 2, 1, 3]);
}

#[test]
fn queue_does_not_exceed_its_concurrency_nor_all_their_workers() {
    let now = Instant::now();
    let limited = Share {
        concurrency: 2,
        ..share(1)
    };
    let mut scheduler = Scheduler::new([limited, share(1)], 3, false);
    for job in 0..10 {
        scheduler.push(0, None, job, Isolation::Shared);
    }
    let begun: Vec<_> = std::iter::from_fn(|| scheduler.next(now)).collect();
    assert_eq!(begun.len(), 2);
    scheduler.push(1, None, 10, Isolation::Shared);
    scheduler.push(1, None, 11, Isolation::Shared);
    assert_eq!(std::iter::from_fn(|| scheduler.next(now)).count(), 1);
}

#[test]
fn queue_does_not_exceed_its_rate_and_leaves_the_workers_to_others() {
    let limited = Share {
        rate: Some("100/s".parse().unwrap()),
        ..share(1000)
    };
    let mut scheduler = Scheduler::new([limited, share(1)], 1, false);
    assert_eq!(scheduler.room(0), 1);
    for job in 0..2000 {
        scheduler.push(job % 2, None, (), Isolation::Shared);
    }
    let start = Instant::now();
    let (mut now, mut begun) = (start, [0, 0]);
    while now < start + Duration::from_secs(2) {
        let (job, ()) = scheduler.next(now).unwrap();
        begun[job.queue] += 1;
        now += Duration::from_millis(4);
        scheduler.ended(job, Duration::from_millis(4), now);
    }
    assert_eq!(begun, [200, 300]);
    scheduler.clear(1);
    let (job, ()) = scheduler.next(now).unwrap();
    assert!(scheduler.due(now).is_none(), "no worker is free");
    scheduler.ended(job, Duration::ZERO, now);
    assert!(scheduler.next(now).is_none() && scheduler.due(now).is_some());
    scheduler.clear(0);
    assert!(scheduler.due(now).is_none(), "no job waits");
}

#[test]
fn cleared_queue_returns_its_last_job_first_and_leaves_the_others() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1), share(1)], 1, false);
    for job in 0..6 {
        scheduler.push(job % 2, None, job, Isolation::Shared);
    }
    assert_eq!(scheduler.clear(0), [4, 2, 0]);
    let (begun, job) = scheduler.next(now).unwrap();
    assert_eq!(job, 1);
    scheduler.ended(begun, Duration::ZERO, now);
    scheduler.push(0, None, 6, Isolation::Shared);
    assert!(scheduler.clear(0) == [6] && scheduler.clear(1) == [5, 3]);
}

#[test]
fn abandoned_job_lets_its_group_go_on() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1)], 1, false);
    scheduler.push(0, Some("a".into()), 1, Isolation::Shared);
    let (begun, _) = scheduler.next(now).unwrap();
    scheduler.paused(&begun, Duration::ZERO, now);
    scheduler.abandon(begun);
    scheduler.push(0, Some("a".into()), 2, Isolation::Shared);
    assert_eq!(scheduler.next(now).unwrap().1, 2);
}

#[test]
fn one_suspect_runs_at_a_time_with_other_jobs() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1), share(1)], 3, false);
    for (queue, job, isolation) in [
        (0, 1, Isolation::Suspect),
        (1, 2, Isolation::Suspect),
        (0, 3, Isolation::Suspect),
        (1, 4, Isolation::Shared),
        (0, 5, Isolation::Shared),
    ] {
        scheduler.push(queue, None, job, isolation);
    }
    let begun: Vec<_> = std::iter::from_fn(|| scheduler.next(now)).collect();
    let jobs: Vec<_> = begun.iter().map(|(_, job)| *job).collect();
    assert_eq!(jobs, [1, 4, 5], "one suspect, and all others");
    for (begun, job) in begun {
        scheduler.ended(begun, Duration::ZERO, now);
        if job == 1 {
            let (suspect, job) = scheduler.next(now).unwrap();
            assert!(job == 2 || job == 3, "{job}");
            scheduler.ended(suspect, Duration::ZERO, now);
        }
    }
    let (last, job) = scheduler.next(now).unwrap();
    assert!(job == 2 || job == 3, "{job}");
    scheduler.ended(last, Duration::ZERO, now);
    assert!(scheduler.next(now).is_none());
}

#[test]
fn waiting_suspects_leave_room_for_other_jobs() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1)], 4, false);
    for job in 0..4 {
        scheduler.push(0, None, job, Isolation::Suspect);
    }
    let (_running, _) = scheduler.next(now).unwrap();
    assert_eq!(scheduler.room(0), 1);
    scheduler.push(0, None, 4, Isolation::Shared);
    assert_eq!(scheduler.room(0), 0);
    assert_eq!(scheduler.next(now).unwrap().1, 4);
    assert_eq!(scheduler.clear(0), [3, 2, 1]);
    scheduler.push(0, None, 5, Isolation::Shared);
    assert_eq!(scheduler.next(now).unwrap().1, 5);
}

#[test]
fn many_waiting_suspects_do_not_stop_their_queue() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1)], 4, false);
    for job in 0..3 * MAX_AHEAD {
        scheduler.push(0, None, job, Isolation::Suspect);
    }
    let (_running, _) = scheduler.next(now).unwrap();
    assert_eq!(scheduler.suspects(0), 3 * MAX_AHEAD - 1);
    assert_eq!(scheduler.room(0), 1);
    scheduler.push(0, None, 1000, Isolation::Shared);
    assert_eq!(scheduler.next(now).unwrap().1, 1000);
}

#[test]
fn job_that_runs_alone_waits_for_the_running_ones_and_begins_before_later_ones() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1), share(1)], 3, false);
    scheduler.push(0, None, 1, Isolation::Suspect);
    let (first, _) = scheduler.next(now).unwrap();
    scheduler.push(1, None, 2, Isolation::Alone);
    scheduler.push(0, None, 3, Isolation::Shared);
    assert!(scheduler.next(now).is_none());
    scheduler.ended(first, Duration::ZERO, now);
    let (alone, job) = scheduler.next(now).unwrap();
    assert_eq!(job, 2);
    assert!(scheduler.next(now).is_none());
    scheduler.ended(alone, Duration::ZERO, now);
    assert_eq!(scheduler.next(now).unwrap().1, 3);
}

#[test]
fn jobs_that_wait_for_their_group_leave_room_for_others_up_to_a_limit() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1)], 4, false);
    for job in 0..3 {
        scheduler.push(0, Some("a".into()), job, Isolation::Shared);
    }
    let (first, _) = scheduler.next(now).unwrap();
    assert_eq!(scheduler.room(0), 1, "two wait for the running job");
    // After jobs of a second, no more than one is reserved ahead.
    scheduler.paused(&first, Duration::from_secs(1), now);
    assert_eq!(scheduler.room(0), 1, "two wait for its next try");
    let mut waiting = 2;
    while scheduler.room(0) > 0 {
        scheduler.push(0, Some("a".into()), waiting, Isolation::Shared);
        waiting += 1;
    }
    assert_eq!(waiting, MAX_AHEAD);
}

#[test]
fn skipped_job_lets_its_group_go_on_and_counts_for_no_rate() {
    let now = Instant::now();
    let limited = Share {
        rate: Some("1/h".parse().unwrap()),
        ..share(1)
    };
    let mut scheduler = Scheduler::new([limited], 2, false);
    for job in 1..4 {
        scheduler.push(0, Some("a".into()), job, Isolation::Suspect);
    }
    for lost in 1..3 {
        let (begun, job) = scheduler.next(now).unwrap();
        assert_eq!(job, lost);
        scheduler.skip(begun);
    }
    let (begun, job) = scheduler.next(now).unwrap();
    assert_eq!(job, 3);
    scheduler.ended(begun, Duration::ZERO, now);
    scheduler.push(0, None, 4, Isolation::Shared);
    assert!(scheduler.next(now).is_none(), "one an hour");
}

#[test]
fn queue_reserves_few_jobs_after_a_refusal() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1)], 1, false);
    let begin = |scheduler: &mut Scheduler<i32>| {
        scheduler.push(0, None, 0, Isolation::Shared);
        scheduler.next(now).unwrap().0
    };
    for room in [100, 1, 2, 3] {
        let begun = begin(&mut scheduler);
        scheduler.ended(begun, Duration::from_micros(1), now);
        assert_eq!(scheduler.room(0), room);
        if room == 100 {
            let begun = begin(&mut scheduler);
            scheduler.refused(begun);
            assert_eq!(scheduler.room(0), 1);
        }
    }
}

#[test]
fn group_waits_for_its_paused_job() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1)], 4, false);
    for (group, job) in [("a", 1), ("a", 2), ("b", 3)] {
        scheduler.push(0, Some(group.into()), job, Isolation::Shared);
    }
    let (first, job) = scheduler.next(now).unwrap();
    assert_eq!(job, 1);
    let (other, job) = scheduler.next(now).unwrap();
    assert_eq!(job, 3);
    assert!(scheduler.next(now).is_none());
    scheduler.paused(&first, Duration::ZERO, now);
    scheduler.ended(other, Duration::ZERO, now);
    assert!(scheduler.next(now).is_none(), "a waits for its first job");
    scheduler.again(first, 1, Isolation::Shared);
    let (first, job) = scheduler.next(now).unwrap();
    assert_eq!(job, 1);
    scheduler.ended(first, Duration::ZERO, now);
    assert_eq!(scheduler.next(now).unwrap().1, 2);
}
