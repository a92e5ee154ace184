//! Tests of reservations, of which jobs begin, and of the order in which jobs go back.

use std::sync::Mutex;

use bytes::Bytes;

use super::*;
use crate::fronts::queue::command::Program;
use crate::fronts::queue::job::{Depth, FailedJob, Failures};
use crate::fronts::queue::scheduler::SUSPECTS_HELD;
use crate::fronts::queue::source::Pending;

/// Notes what is returned.
#[derive(Default)]
struct Noted(Mutex<Vec<String>>);

/// The token of reservations that it has ended.
const ENDED: &[u8] = b" ended";

impl Source for Noted {
    fn receive<'a>(&'a self, _: usize, _: &'a CancellationToken) -> Pending<'a, Vec<Job>> {
        Box::pin(std::future::pending())
    }

    fn extend(&self, _: Vec<Lease>) -> Pending<'_, Vec<Lease>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn is_renewed(&self, held: &Lease, received: &Lease) -> bool {
        held.id == received.id
    }

    fn is_held(&self, lease: &Lease) -> bool {
        lease.token != ENDED
    }

    fn settle(&self, job: Job, disposition: Disposition) -> Pending<'_, ()> {
        assert_eq!(disposition, Disposition::Return);
        let mut noted = self.0.lock().expect("no test has panicked");
        let token = String::from_utf8_lossy(&job.lease.token);
        noted.push(job.lease.id.clone() + &token);
        Box::pin(async { Ok(()) })
    }

    fn depth(&self) -> Pending<'_, Depth> {
        Box::pin(async { Ok(Depth::default()) })
    }

    fn failures(&self, _: Failures) -> Pending<'_, Vec<FailedJob>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn jobs(ids: std::ops::Range<usize>) -> anyhow::Result<Vec<Job>> {
    let job = |id: usize| Job {
        lease: Lease {
            id: id.to_string(),
            token: Bytes::new(),
        },
        unread: None,
        payload: Bytes::from_static(b"{}"),
        attempts: 1,
    };
    Ok(ids.map(job).collect())
}

fn drive(source: &Arc<Noted>) -> Drive {
    drive_of(&[source], Queue::default())
}

/// Drives queues with the same settings.
fn drive_of(sources: &[&Arc<Noted>], queue: Queue) -> Drive {
    let consumers = sources.iter().map(|source| Consumer {
        queue: queue.clone(),
        connection: String::new(),
        source: Arc::<Noted>::clone(source),
        lease: Duration::from_secs(90),
        runs: JobProgram::Command(Program {
            words: Vec::new(),
            directory: "/".into(),
        }),
    });
    let front = Front {
        workers: 0,
        consumers: consumers.collect(),
        settings: Settings::default(),
        metrics: Arc::default(),
        suspects: Suspects::default(),
        crash_counts: Arc::default(),
        unsettled: sources.iter().map(|_| AtomicBool::new(false)).collect(),
        paused: watch::Sender::new(vec![false; sources.len()]),
        resting: sources.iter().map(|_| AtomicBool::new(false)).collect(),
    };
    Drive::new(Arc::new(front), CancellationToken::new())
}

async fn returned(mut drive: Drive, source: &Noted) -> Vec<String> {
    while drive.settling.next().await.is_some() {}
    std::mem::take(&mut *source.0.lock().expect("no test has panicked"))
}

#[tokio::test]
async fn jobs_received_during_the_drain_go_back_behind_those_received_before() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..4));
    drive.is_receiving[0] = true;
    drive.stop.cancel();
    drive.drain();
    drive.received(0, jobs(4..6));
    // The last one first: put back at the front of a list one by one, they are in order again.
    assert_eq!(returned(drive, &source).await, ["5", "4", "3", "2", "1"]);
}

#[tokio::test]
async fn jobs_go_back_although_the_broker_has_failed() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..3));
    drive.is_receiving[0] = true;
    drive.stop.cancel();
    drive.drain();
    drive.received(0, Err(anyhow::anyhow!("gone")));
    assert_eq!(returned(drive, &source).await, ["2", "1"]);
}

#[tokio::test]
async fn jobs_of_an_interrupted_receive_go_back_behind_the_others() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..3));
    drive.is_receiving[0] = true;
    drive.drain();
    let interrupted = Interrupted {
        front: drive.front.clone(),
        running: Vec::new(),
        returned: std::mem::take(&mut drive.returned),
        receiving: Receiving::new(),
    };
    interrupted
        .receiving
        .push(Box::pin(async { (0, jobs(3..4)) }));
    interrupted.release().await;
    assert_eq!(returned(drive, &source).await, ["3", "2", "1"]);
}

#[tokio::test]
async fn job_returned_by_a_pause_runs_first_if_the_queue_is_resumed_at_once() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..2));
    drive.is_receiving[0] = true;
    drive.front.pause(None, true);
    drive.pause();
    drive.front.pause(None, false);
    drive.pause();
    drive.received(0, jobs(2..3));
    let waiting = drive.scheduler.clear(0).into_iter().map(|job| job.lease.id);
    assert_eq!(waiting.collect::<Vec<_>>(), ["2", "1"]);
    assert!(returned(drive, &source).await.is_empty());
}

#[tokio::test]
async fn no_job_begins_after_a_stop_although_one_ended_at_the_same_time() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..3));
    drive.scheduler.set_workers(1);
    drive.stop.cancel();
    drive.begin();
    assert!(drive.begun.is_empty());
}

#[tokio::test]
async fn no_job_begins_after_a_pause_although_one_ended_at_the_same_time() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..3));
    drive.scheduler.set_workers(1);
    drive.front.pause(None, true);
    drive.begin();
    assert!(drive.begun.is_empty());
}

/// A job whose reservation has expired, as its broker delivers it again.
fn renewed(id: usize) -> anyhow::Result<Vec<Job>> {
    let mut received = jobs(id..id + 1)?;
    received[0].lease.token = Bytes::from_static(b" again");
    Ok(received)
}

#[tokio::test]
async fn job_that_is_held_is_not_run_twice_and_is_settled_with_its_new_lease() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..3));
    drive.received(0, renewed(1));
    drive.stop.cancel();
    drive.drain();
    drive.received(0, jobs(3..3));
    assert_eq!(returned(drive, &source).await, ["2", "1 again"]);
}

#[tokio::test]
async fn job_that_comes_back_during_its_settlement_is_another_run() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..2));
    drive.scheduler.set_workers(1);
    let (first, job) = drive.scheduler.next(now()).expect("a job waits");
    drive.scheduler.ended(first, Duration::ZERO, now());
    drive.settle(0, job, Disposition::Return);
    drive.received(0, renewed(1));
    while let Some((queue, job)) = drive.settling.next().await {
        drive.settled(queue, &job);
    }
    assert_eq!(drive.leases[0].len(), 1);
    drive.stop.cancel();
    drive.drain();
    drive.received(0, jobs(2..2));
    assert_eq!(returned(drive, &source).await, ["1", "1 again"]);
}

#[tokio::test]
async fn refused_job_goes_back_as_the_first_and_its_queue_rests() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..4));
    drive.scheduler.set_workers(1);
    let (first, job) = drive.scheduler.next(now()).expect("a job waits");
    drive.scheduler.ended(first, Duration::ZERO, now());
    drive.is_receiving[0] = true;
    drive.refused(0, job, None);
    assert!(drive.stops[0].is_cancelled());
    drive.received(0, jobs(4..5));
    assert_eq!(returned(drive, &source).await, ["4", "3", "2", "1"]);
}

#[tokio::test]
async fn queue_that_has_rested_is_received_from_again_unless_it_is_paused() {
    let source = Arc::default();
    let mut drive = drive(&source);
    let (_, job) = {
        drive.received(0, jobs(1..2));
        drive.scheduler.set_workers(1);
        drive.scheduler.next(now()).expect("a job waits")
    };
    drive.is_receiving[0] = true;
    drive.refused(0, job, None);
    drive.front.pause(None, true);
    drive.end_rest(0);
    assert!(drive.stops[0].is_cancelled(), "an operator has paused it");
    drive.front.pause(None, false);
    drive.pause();
    assert!(!drive.stops[0].is_cancelled());
}

#[tokio::test]
async fn pause_and_resume_of_a_resting_queue_are_each_reported_once() {
    let source = Arc::default();
    let mut drive = drive(&source);
    drive.received(0, jobs(1..2));
    drive.scheduler.set_workers(1);
    let (_, job) = drive.scheduler.next(now()).expect("a job waits");
    drive.refused(0, job, None);
    for is_paused in [true, false] {
        drive.front.pause(None, is_paused);
        assert_eq!(drive.follow_operators(), [0]);
        assert_eq!(drive.is_paused, [is_paused]);
        assert!(drive.follow_operators().is_empty());
        assert!(drive.stops[0].is_cancelled(), "it rests");
    }
    drive.end_rest(0);
    assert!(!drive.stops[0].is_cancelled());
    assert!(drive.follow_operators().is_empty(), "no operator has asked");
}

#[tokio::test(start_paused = true)]
async fn queue_rests_as_long_as_the_limiter_says_but_is_asked_every_3_seconds() {
    for (wait, expected) in [(None, 3000), (Some(500), 500), (Some(60_000), 3000)] {
        let source = Arc::default();
        let mut drive = drive(&source);
        drive.received(0, jobs(1..2));
        drive.scheduler.set_workers(1);
        let (begun, job) = drive.scheduler.next(now()).expect("a job waits");
        let began = tokio::time::Instant::now();
        drive.ended(Ended {
            begun,
            job,
            took: Duration::ZERO,
            verdict: Verdict {
                disposition: Disposition::Return,
                outcome: Outcome::Refused(wait.map(Duration::from_millis)),
            },
        });
        assert_eq!(drive.asking.next().await, Some(0));
        let rested = began.elapsed().as_millis();
        assert!((expected..expected + 50).contains(&rested), "{rested} ms");
    }
}

/// The ids of the jobs that begin now.
fn begun(drive: &mut Drive) -> Vec<String> {
    drive.begin();
    let mut begun: Vec<_> = drive.begun.values().collect();
    begun.sort_by_key(|(_, job)| job.lease.id.clone());
    begun.iter().map(|(_, job)| job.lease.id.clone()).collect()
}

#[tokio::test]
async fn job_whose_reservation_is_lost_does_not_begin() {
    let source = Arc::default();
    let mut drive = drive(&source);
    let mut received = jobs(1..5).expect("they are made here");
    let reported = received[0].lease.clone();
    received[1].lease.token = Bytes::from_static(ENDED);
    drive.received(0, Ok(received));
    drive.extended(0, Ok(vec![reported]));
    drive.scheduler.set_workers(9);
    assert_eq!(begun(&mut drive), ["3", "4"]);
    assert_eq!(drive.leases[0].len(), 2);
    drive.received(0, renewed(1));
    assert_eq!(begun(&mut drive), ["1", "3", "4"]);
}

#[tokio::test]
async fn job_that_comes_back_after_its_reservation_was_lost_begins_once() {
    let source = Arc::default();
    let mut drive = drive(&source);
    let received = jobs(1..2).expect("they are made here");
    let lost = received[0].lease.clone();
    drive.received(0, Ok(received));
    drive.extended(0, Ok(vec![lost]));
    drive.received(0, renewed(1));
    drive.scheduler.set_workers(9);
    assert_eq!(begun(&mut drive), ["1"]);
    assert!(drive.scheduler.clear(0).is_empty());
}

#[tokio::test]
async fn jobs_that_go_back_are_not_extended_and_a_broker_that_hangs_holds_up_no_other() {
    let (one, other) = (Arc::default(), Arc::default());
    let mut drive = drive_of(&[&one, &other], Queue::default());
    drive.received(0, jobs(1..3));
    drive.received(1, jobs(3..4));
    drive.extend();
    assert_eq!(drive.extending.len(), 2);
    // Only one of them answers.
    drive.extended(1, Ok(Vec::new()));
    drive.extend();
    assert_eq!(drive.extending.len(), 3);
    drive.extended(1, Ok(Vec::new()));
    drive.scheduler.clear(1);
    let job = jobs(3..4).expect("it is made here").remove(0);
    drive.settle(1, job, Disposition::Return);
    drive.extend();
    assert_eq!(drive.extending.len(), 3);
    drive.received(1, jobs(4..5));
    let done = jobs(4..5).expect("it is made here").remove(0);
    drive.settle(1, done, Disposition::Done);
    drive.extend();
    assert_eq!(drive.extending.len(), 4, "its broker does not know it yet");
}

/// What a job of a group counts as its attempts when it runs again.
async fn attempts_after(disposition: Disposition, outcome: Outcome) -> u32 {
    let source = Arc::default();
    let queue = Queue {
        group: Some("group".into()),
        ..Queue::default()
    };
    let mut drive = drive_of(&[&source], queue);
    let mut received = jobs(1..2).expect("they are made here");
    received[0].payload = Bytes::from_static(br#"{"group": 1}"#);
    drive.received(0, Ok(received));
    drive.scheduler.set_workers(1);
    let (begun, job) = drive.scheduler.next(now()).expect("a job waits");
    let verdict = Verdict {
        disposition,
        outcome,
    };
    drive.ended(Ended {
        begun,
        job,
        took: Duration::ZERO,
        verdict,
    });
    let (begun, job, left) = drive.pausing.next().await.expect("its group waits");
    drive.resume(begun, job, left);
    let (_, job) = drive.scheduler.next(now()).expect("it runs again");
    job.attempts
}

#[tokio::test]
async fn group_keeps_its_order_if_its_queue_is_stopped_between_two_tries() {
    let source = Arc::default();
    let queue = Queue {
        group: Some("group".into()),
        ..Queue::default()
    };
    let mut drive = drive_of(&[&source], queue);
    let mut received = jobs(1..4).expect("they are made here");
    for job in &mut received {
        job.payload = Bytes::from_static(br#"{"group": 1}"#);
    }
    drive.received(0, Ok(received));
    drive.scheduler.set_workers(1);
    let (begun, job) = drive.scheduler.next(now()).expect("a job waits");
    drive.ended(Ended {
        begun,
        job,
        took: Duration::ZERO,
        verdict: Verdict {
            disposition: Disposition::Release(Duration::from_secs(3600)),
            outcome: Outcome::Retried("failed".into()),
        },
    });
    drive.is_receiving[0] = true;
    drive.stop.cancel();
    drive.drain();
    let (begun, job, left) = drive.pausing.next().await.expect("its group waits");
    drive.resume(begun, job, left);
    // It has been tried once, and a return takes one away.
    assert_eq!(drive.returned[0][0].attempts, 2);
    drive.received(0, jobs(4..4));
    assert_eq!(returned(drive, &source).await, ["3", "2", "1"]);
}

#[tokio::test]
async fn job_that_no_worker_could_take_has_not_been_tried() {
    let (busy, failed) = ("busy".to_string(), "failed".to_string());
    let pause = Duration::ZERO;
    let postponed = attempts_after(Disposition::Postpone(pause), Outcome::Busy(busy)).await;
    let released = attempts_after(Disposition::Release(pause), Outcome::Retried(failed)).await;
    assert_eq!((postponed, released), (1, 2));
}

#[tokio::test]
async fn jobs_that_have_crashed_two_workers_run_one_at_a_time_with_others() {
    let source = Arc::default();
    let mut drive = drive(&source);
    let queue = Queue::default();
    for job in jobs(1..3).expect("they are made here") {
        for _ in 0..2 {
            drive.front.suspects.note(&format::name(&queue, &job));
        }
    }
    drive.received(0, jobs(1..5));
    drive.scheduler.set_workers(9);
    assert_eq!(
        begun(&mut drive),
        ["1", "3", "4"],
        "the innocent do not wait"
    );
    let waiting = drive.scheduler.clear(0).into_iter().map(|job| job.lease.id);
    assert_eq!(waiting.collect::<Vec<_>>(), ["2"]);
}

#[tokio::test]
async fn surplus_suspects_are_postponed() {
    let source = Arc::default();
    let mut drive = drive(&source);
    let queue = Queue::default();
    let all = 0..SUSPECTS_HELD + 2;
    for job in jobs(all.clone()).expect("they are made here") {
        for _ in 0..2 {
            drive.front.suspects.note(&format::name(&queue, &job));
        }
    }
    drive.received(0, jobs(all));
    assert_eq!(drive.scheduler.suspects(0), SUSPECTS_HELD);
    assert_eq!(drive.settling.len(), 2);
}
