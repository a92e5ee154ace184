//! Tests of how many payloads of a queue wait in memory.

use super::*;

/// A job with a payload of so many bytes.
#[derive(Debug)]
struct Long(usize);

impl Payload for Long {
    fn payload_bytes(&self) -> usize {
        self.0
    }
}

#[test]
fn long_payloads_leave_less_room_and_a_queue_without_jobs_always_has_some() {
    let now = Instant::now();
    let took = Duration::from_millis(1);
    let mut scheduler = Scheduler::new([share(1)], 4, false);
    let push = |scheduler: &mut Scheduler<Long>, bytes: usize| {
        scheduler.push(0, None, Long(bytes), Isolation::Shared);
    };
    push(&mut scheduler, 10);
    let (begun, _) = scheduler.next(now).unwrap();
    scheduler.ended(begun, took, now);
    assert_eq!(scheduler.room(0), MAX_AHEAD);
    for room in [1, 0] {
        push(&mut scheduler, MAX_BYTES_AHEAD / 2);
        assert_eq!(scheduler.room(0), room);
    }
    let (begun, _) = scheduler.next(now).unwrap();
    scheduler.ended(begun, took, now);
    assert_eq!(scheduler.room(0), 1);
    assert_eq!(scheduler.clear(0).len(), 1);
    assert_eq!(scheduler.room(0), 2);
    push(&mut scheduler, 3 * MAX_BYTES_AHEAD);
    assert_eq!(scheduler.room(0), 0);
    assert_eq!(scheduler.clear(0).len(), 1);
    assert_eq!(scheduler.room(0), 1, "nothing waits");
    for _ in 0..40 {
        push(&mut scheduler, 10);
    }
    assert_eq!(scheduler.room(0), MAX_AHEAD - 40);
}

#[test]
fn payloads_count_between_two_tries_and_suspects_have_a_limit_of_their_own() {
    let now = Instant::now();
    let mut scheduler = Scheduler::new([share(1)], 4, false);
    let group = Some("a".to_string());
    scheduler.push(0, group, Long(MAX_BYTES_AHEAD), Isolation::Shared);
    for _ in 0..2 {
        assert_eq!(scheduler.room(0), 0);
        let (begun, job) = scheduler.next(now).unwrap();
        assert_eq!(scheduler.room(0), 1, "it runs");
        scheduler.paused(&begun, Duration::ZERO, now);
        assert_eq!(scheduler.room(0), 0);
        scheduler.again(begun, job, Isolation::Shared);
    }
    let (begun, _) = scheduler.next(now).unwrap();
    scheduler.paused(&begun, Duration::ZERO, now);
    scheduler.abandon(begun);
    assert_eq!(scheduler.room(0), 1);
    assert!(scheduler.has_room_for_suspect(0));
    scheduler.push(0, None, Long(MAX_BYTES_AHEAD), Isolation::Suspect);
    assert!(!scheduler.has_room_for_suspect(0));
    assert_eq!(scheduler.room(0), 1, "a suspect does not stop its queue");
    assert_eq!(scheduler.clear(0).len(), 1);
    assert!(scheduler.has_room_for_suspect(0));
}
