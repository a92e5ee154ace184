//! Tests of the rings, with concurrent readers and with arbitrary writes of workers.

use std::io::{self, IoSlice};

use proptest::prelude::*;

use super::requests::{BLOCKED, EVENT_HEADER, IN_SOCKET, MAX_EVENT, POLLING, WORKING};
use super::responses::size_of_frame;
use super::*;
use crate::futex;

/// Does what `sapi/ipc/rings.c` does.
impl Rings {
    fn take_event(&self) -> Option<Vec<u8>> {
        let ends = self.ends(0);
        loop {
            let (head, tail) = (ends.head.0.load(SeqCst), ends.tail.0.load(SeqCst));
            if head == tail {
                return None;
            }
            let ring = (self.layout.inbox, self.layout.inbox_size);
            let mut before = [0; EVENT_HEADER];
            self.copy_out(ring, head, &mut before);
            let [a, b, c, d, at @ ..] = before;
            let len = u32::from_ne_bytes([a, b, c, d]) as usize;
            if u32::from_ne_bytes(at) != head as u32 {
                // Another worker has taken it, and other bytes may be there by now.
                assert_ne!(ends.head.0.load(SeqCst), head);
                continue;
            }
            let mut event = vec![0; len.min(MAX_EVENT)];
            self.copy_out(ring, head + EVENT_HEADER as u64, &mut event);
            let next = head + (EVENT_HEADER + len.next_multiple_of(EVENT_HEADER)) as u64;
            let moved = ends.head.0.compare_exchange(head, next, SeqCst, SeqCst);
            if moved.is_ok() {
                return Some(event);
            }
        }
    }

    fn put_frame(&self, worker: usize, pid: u32, number: u64, content: &[u8]) -> bool {
        let ends = self.ends(1 + worker);
        let (head, tail) = (ends.head.0.load(SeqCst), ends.tail.0.load(SeqCst));
        let size = size_of_frame(content.len()) as u64;
        if size > OUTBOX as u64 - (tail - head) {
            return false;
        }
        let mut frame = (content.len() as u32).to_ne_bytes().to_vec();
        frame.extend(pid.to_ne_bytes());
        frame.extend(number.to_ne_bytes());
        frame.extend(content);
        self.copy_in(self.outbox(worker), tail, &frame);
        ends.tail.0.store(tail + size, SeqCst);
        let (_, word) = self.written_words().nth(worker / 64).unwrap();
        word.fetch_or(1 << (worker % 64), SeqCst);
        true
    }

    fn frame_of(&self, worker: usize, pid: u32, number: u64) -> Result<Option<Vec<u8>>, Damaged> {
        let mut to = Vec::new();
        let is_there = self.take_frame(worker, pid, number, |len| {
            to.resize(len, 0);
            &mut to[..]
        })?;
        Ok(is_there.then_some(to))
    }

    fn found(&self) -> Vec<usize> {
        let mut found = Vec::new();
        self.written(|worker| found.push(worker));
        found
    }
}

#[test]
fn ring_areas_never_overlap() {
    for workers in [1, 2, 4, 5, 63, 64, 65, 200, 513] {
        let layout = Layout::new(workers);
        assert_eq!(layout.doorbells, size_of::<RingsHeader>());
        assert!(
            layout.written - layout.doorbells >= workers * 4,
            "{layout:?}"
        );
        assert!((layout.ends - layout.written) * 8 >= workers, "{layout:?}");
        assert_eq!((layout.written % LINE, layout.ends % LINE), (0, 0));
        assert!(layout.inbox_size.is_power_of_two() && layout.inbox_size >= 2 * MAX_EVENT);
        let rings = Rings::new(workers).unwrap();
        for worker in 0..workers {
            rings.doorbell(worker).store(u32::MAX, SeqCst);
            let content = [worker as u8; 100];
            while rings.put_frame(worker, 7, worker as u64, &content) {}
        }
        while rings.put(&[IoSlice::new(&[255; 1000])]).is_ok() {}
        assert_eq!(rings.found(), (0..workers).collect::<Vec<_>>());
        assert_eq!(rings.found(), [0; 0]);
        for worker in 0..workers {
            let frame = rings.frame_of(worker, 7, worker as u64).unwrap();
            assert_eq!(frame.unwrap(), [worker as u8; 100]);
        }
        assert_eq!(rings.take_event().unwrap(), [255; 1000]);
    }
}

#[test]
fn frame_is_taken_only_for_its_process_and_request() {
    let rings = Rings::new(1).unwrap();
    assert!(rings.put_frame(0, 10, 5, b"five") && rings.put_frame(0, 10, 6, b"six"));
    assert_eq!(rings.frame_of(0, 11, 5), Ok(None), "its successor");
    assert_eq!(rings.frame_of(0, 10, 4), Ok(None), "that comes by socket");
    assert_eq!(rings.frame_of(0, 10, 5), Ok(Some(b"five".to_vec())));
    rings.discard(0, 11);
    assert_eq!(rings.first_frame(0, 10, 6), Ok(First::Awaited));
    assert_eq!(rings.first_frame(0, 10, 7), Ok(First::Other(10)));
    rings.discard(0, 10);
    assert_eq!(rings.first_frame(0, 10, 6), Ok(First::None));
}

/// What each worker's doorbell says.
fn doorbells(rings: &Rings) -> Vec<u32> {
    let workers = 0..rings.layout.workers;
    workers
        .map(|worker| rings.doorbell(worker).load(SeqCst))
        .collect()
}

#[test]
fn event_claims_one_polling_worker_before_a_blocked_one() {
    let rings = Rings::new(4).unwrap();
    assert!(!rings.notify_one(), "no worker waits");
    for (worker, state) in [(0, BLOCKED), (1, POLLING), (2, BLOCKED), (3, POLLING)] {
        rings.doorbell(worker).store(state, SeqCst);
    }
    assert!(rings.notify_one() && rings.notify_one());
    assert_eq!(doorbells(&rings), [BLOCKED, WORKING, BLOCKED, WORKING]);
    assert!(!rings.notify_one());
    assert_eq!(doorbells(&rings), [WORKING, WORKING, BLOCKED, WORKING]);
    assert!(!rings.notify_one() && !rings.notify_one());
    assert_eq!(doorbells(&rings), [WORKING; 4]);
}

#[test]
fn blocked_worker_wakes_when_its_doorbell_is_rung() {
    let rings = Rings::new(2).unwrap();
    std::thread::scope(|scope| {
        let rings = &rings;
        let wait = |worker: usize| {
            let doorbell = rings.doorbell(worker);
            doorbell.store(BLOCKED, SeqCst);
            while doorbell.load(SeqCst) == BLOCKED {
                futex::wait(doorbell, BLOCKED);
            }
        };
        let first = scope.spawn(move || wait(0));
        let second = scope.spawn(move || wait(1));
        while doorbells(rings) != [BLOCKED; 2] {
            std::thread::yield_now();
        }
        assert!(!rings.notify_one());
        first.join().unwrap();
        assert_eq!(doorbells(rings), [WORKING, BLOCKED]);
        rings.wake_all();
        second.join().unwrap();
    });
}

#[test]
fn message_is_announced_only_if_it_was_sent() {
    let rings = Rings::new(1).unwrap();
    let refused = rings.announce(|| Err(io::ErrorKind::BrokenPipe.into()));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert!(!rings.has_event());
    rings.announce(|| Ok(())).unwrap();
    assert_eq!(rings.take_event().unwrap().len(), IN_SOCKET);
    while rings.put(&[IoSlice::new(&[1; 1000])]).is_ok() {}
    while rings.announce(|| Ok(())).is_ok() {}
    let full = rings.announce(|| panic!("there is no room for an announcement"));
    assert_eq!(full.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn longest_request_fits_next_to_another_and_a_longer_one_is_refused() {
    let rings = Rings::new(1).unwrap();
    let too_long = rings.put(&[IoSlice::new(&[0; MAX_EVENT + 1])]);
    assert_eq!(too_long.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    for number in [1, 2] {
        rings.put(&[IoSlice::new(&[number; MAX_EVENT])]).unwrap();
    }
    assert_eq!(rings.take_event().unwrap(), [1; MAX_EVENT]);
    assert_eq!(rings.take_event().unwrap(), [2; MAX_EVENT]);
}

#[test]
fn concurrent_readers_get_each_request_once_and_whole() {
    let rings = &Rings::new(4).unwrap();
    const EVENTS: u32 = 40_000;
    let mut seen = std::thread::scope(|scope| {
        let read = || {
            let mut seen = Vec::new();
            loop {
                let Some(event) = rings.take_event() else {
                    std::thread::yield_now();
                    continue;
                };
                let number = u32::from_ne_bytes(*event.first_chunk().unwrap());
                if number == EVENTS {
                    return seen;
                }
                let rest = &event[4..];
                assert_eq!(rest.len(), number as usize % 3000);
                assert!(rest.iter().all(|byte| *byte == number as u8));
                seen.push(number);
            }
        };
        let readers = [scope.spawn(read), scope.spawn(read), scope.spawn(read)];
        for number in (0..EVENTS).chain([EVENTS; 3]) {
            let rest = vec![number as u8; number as usize % 3000];
            while rings
                .put(&[IoSlice::new(&number.to_ne_bytes()), IoSlice::new(&rest)])
                .is_err()
            {
                std::thread::yield_now();
            }
        }
        readers.map(|reader| reader.join().unwrap()).concat()
    });
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..EVENTS));
}

proptest! {
    #[test]
    fn requests_are_taken_in_order(
        steps in prop::collection::vec((0..20_000_usize, any::<bool>()), 1..200),
    ) {
        let rings = Rings::new(1).unwrap();
        let (mut waiting, mut number) = (std::collections::VecDeque::new(), 0_u8);
        for (len, puts) in steps {
            if puts {
                number = number.wrapping_add(1);
                let event = vec![number; len];
                let (first, second) = event.split_at(len / 3);
                if rings.put(&[IoSlice::new(first), IoSlice::new(second)]).is_ok() {
                    prop_assert!((1..=MAX_EVENT).contains(&len));
                    waiting.push_back(event);
                } else {
                    let used: usize = waiting.iter().map(|event: &Vec<u8>| event.len() + 16).sum();
                    prop_assert!(len == 0 || len > MAX_EVENT || used + len + 16 > INBOX_LEAST);
                }
            } else {
                prop_assert_eq!(rings.has_event(), !waiting.is_empty());
                prop_assert_eq!(rings.take_event(), waiting.pop_front());
            }
        }
    }

    #[test]
    fn frames_arrive_unchanged(lens in prop::collection::vec(0..40_000_usize, 1..60)) {
        let rings = Rings::new(3).unwrap();
        for (number, len) in lens.into_iter().enumerate() {
            let content = vec![number as u8; len];
            prop_assert!(rings.put_frame(2, 9, number as u64, &content));
            prop_assert_eq!(rings.frame_of(2, 9, number as u64), Ok(Some(content)));
        }
    }

    /// A worker with corrupted memory may write anything.
    #[test]
    fn arbitrary_worker_writes_are_survived(
        head in any::<u64>(), ahead in prop_oneof![0..200_000_u64, any::<u64>()],
        len in prop_oneof![0..100_000_u32, any::<u32>()], bits in any::<u64>(),
    ) {
        let rings = Rings::new(2).unwrap();
        prop_assert!(rings.put(&[IoSlice::new(&[1; 5000])]).is_ok());
        for ring in 0..3 {
            rings.ends(ring).head.0.store(head, SeqCst);
            rings.ends(ring).tail.0.store(head.wrapping_add(ahead), SeqCst);
        }
        let frame = [len.to_ne_bytes(), 7_u32.to_ne_bytes()].concat();
        rings.copy_in(rings.outbox(1), head, &frame);
        rings.written_words().next().unwrap().1.store(bits, SeqCst);
        rings.doorbell(0).store(bits as u32, SeqCst);
        rings.doorbell(1).store((bits >> 32) as u32, SeqCst);
        prop_assert!(rings.found().iter().all(|worker| *worker < 2));
        for _ in 0..3 {
            if let Ok(Some(frame)) = rings.frame_of(1, 7, 0) {
                prop_assert!(frame.len() <= OUTBOX);
            }
        }
        let _ = rings.put(&[IoSlice::new(&[1; 5000])]);
        let tail = rings.inbox_ends().1;
        prop_assert!(tail <= 2 * 5016, "a worker cannot move surus's position");
        prop_assert!(!rings.rewrite() || rings.ends(0).tail.0.load(SeqCst) == tail);
        rings.notify_one();
        rings.wake_all();
        rings.discard(1, 7);
        rings.discard(0, 7);
        rings.repair(0);
        rings.repair(1);
        prop_assert_eq!(rings.first_frame(0, 1, 0), Ok(First::None));
    }
}
