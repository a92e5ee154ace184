//! The open loop against theory: what a stall and known delays must look like.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{answer, ok, plan, run};
use proptest::prelude::*;
use surus_load::{FindMax, Pace, Schedule, Stop};

/// 4 s at 100/s with a stall of 1 s in the middle: about 100 of 400 requests are due during the
/// stall and wait 0 to 1 s, evenly. So a quarter waits, and the p99 is about 960 ms.
#[test]
fn stall_of_a_second_shows_in_the_open_loop_and_not_in_the_closed_loop() {
    let began = Mutex::new(None);
    let address = answer(move |head| {
        let until = {
            let mut began = began.lock().unwrap();
            let began = *began.get_or_insert_with(Instant::now);
            let stall = began + Duration::from_millis(1500)..began + Duration::from_millis(2500);
            stall.contains(&Instant::now()).then_some(stall.end)
        };
        if let Some(until) = until {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        ok(head)
    });
    let mut plan = plan(address, 1);
    plan.stop = Stop::After(Duration::from_secs(4));
    plan.pace = Pace::Open(Schedule::constant(100.0));
    let outcome = run(&plan);
    let offered = outcome.offered.unwrap();
    assert_eq!(
        (offered.due, offered.unsent),
        (400, 0),
        "nothing was left out"
    );
    assert_eq!(outcome.totals.responses, 400);
    let p99 = outcome.latencies.percentile_ms(99.0);
    assert!(p99 >= 850.0, "p99 {p99} ms");
    // 12.5 % wait at least half a second, so the 85th percentile sees 400 ms at least.
    let p85 = outcome.latencies.percentile_ms(85.0);
    assert!(p85 >= 300.0, "p85 {p85} ms");
}

#[test]
fn known_delays_come_back_as_the_percentiles_they_are() {
    // Of ten requests, eight take 20 ms, one 60 ms and one 200 ms.
    let count = AtomicU64::new(0);
    let address = answer(move |head| {
        let delay = match count.fetch_add(1, Ordering::Relaxed) % 10 {
            0..8 => 20,
            8 => 60,
            _ => 200,
        };
        std::thread::sleep(Duration::from_millis(delay));
        ok(head)
    });
    let latencies = run(&plan(address, 200)).latencies;
    // A busy machine adds to a delay and never takes from it.
    for (percent, least) in [(1.0, 20.0), (79.0, 20.0), (89.0, 60.0), (95.0, 200.0)] {
        let got = latencies.percentile_ms(percent);
        assert!(got >= least * 0.999, "p{percent}: {got} ms");
    }
    assert_eq!(latencies.count(), 200);
}

#[test]
fn rate_above_the_server_capacity_is_reported() {
    let address = answer(|head| {
        std::thread::sleep(Duration::from_millis(100));
        ok(head)
    });
    let mut plan = plan(address, 1);
    // Four connections at 100 ms reach 40/s at most.
    plan.pace = Pace::Open(Schedule::constant(200.0));
    plan.stop = Stop::After(Duration::from_secs(1));
    let outcome = run(&plan);
    assert!(!outcome.kept_rate());
    assert_eq!(outcome.offered.unwrap().due, 200);
    assert!(outcome.totals.requests <= 44, "{:?}", outcome.totals);
}

#[test]
fn requests_are_not_sent_before_they_are_due() {
    let times = std::sync::Arc::new(Mutex::new(Vec::new()));
    let seen = times.clone();
    let address = answer(move |head| {
        seen.lock().unwrap().push(Instant::now());
        ok(head)
    });
    let mut plan = plan(address, 10);
    plan.pace = Pace::Open(Schedule::constant(50.0));
    let outcome = run(&plan);
    let times = times.lock().unwrap();
    assert_eq!((times.len(), outcome.offered.unwrap().due), (10, 10));
    // The tenth is due 180 ms after the first, which may have been late.
    assert!(outcome.elapsed >= Duration::from_millis(180));
}

#[test]
fn ramp_has_the_number_of_requests_under_its_line() {
    let ramp = Schedule::ramp(100.0, 300.0, Duration::from_secs(10));
    let due = (0..10_000).take_while(|number| {
        ramp.due(*number)
            .is_some_and(|due| due < Duration::from_secs(10))
    });
    assert!((1999..=2001).contains(&due.count()));
    let falling = Schedule::ramp(100.0, 1.0, Duration::from_secs(1));
    assert!(falling.due(1_000).is_none(), "never due on a falling ramp");
}

/// 50 requests per second for a second. The server answers ten at once, and the others after 3 s.
#[test]
fn requests_that_were_never_sent_count_with_the_time_that_they_waited() {
    let count = AtomicU64::new(0);
    let address = answer(move |head| {
        if count.fetch_add(1, Ordering::Relaxed) >= 10 {
            std::thread::sleep(Duration::from_secs(3));
        }
        ok(head)
    });
    let mut plan = plan(address, 1);
    plan.concurrency = 1;
    plan.pace = Pace::Open(Schedule::constant(50.0));
    plan.stop = Stop::After(Duration::from_secs(1));
    let outcome = run(&plan);
    let unsent = outcome.offered.unwrap().unsent;
    assert!(unsent >= 38, "{unsent}");
    assert_eq!(outcome.latencies.count(), 50);
    // At least 39 of 50 waited, the first of them for 780 ms.
    let p50 = outcome.latencies.percentile_ms(50.0);
    assert!(p50 >= 200.0, "p50 {p50} ms");
    let seconds = &outcome.latencies.seconds;
    let responses: u64 = seconds.iter().map(|second| second.responses).sum();
    assert_eq!(responses, outcome.totals.responses, "only responses");
}

#[test]
fn rate_far_above_the_sent_one_is_counted_without_a_loop() {
    let length = Duration::from_secs(3600);
    let schedule = Schedule::constant(10_000_000.0);
    assert_eq!(schedule.due_before(length), 36_000_000_000);
    assert_eq!(schedule.due_before(Duration::ZERO), 0);
    let falling = Schedule::ramp(100.0, 1.0, Duration::from_secs(1));
    assert_eq!(
        falling.due_before(length),
        51,
        "the ramp ends at 0 per second"
    );
}

/// The server answers after the load has ended, with a body that takes the generator time to read.
#[test]
fn cpu_of_the_drain_does_not_make_the_generator_the_limit() {
    let length = Duration::from_millis(50);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = format!("{head}{}0\r\n\r\n", "1\r\nx\r\n".repeat(3 << 20));
    let address = answer(move |_| {
        std::thread::sleep(length * 4);
        Some(body.clone().into_bytes())
    });
    let mut plan = plan(address, 1);
    plan.stop = Stop::After(length);
    let outcome = run(&plan);
    assert_eq!(outcome.totals.failed(), 0);
    assert!(outcome.own_cpu > outcome.own_cpu_in_time);
    assert!(outcome.own_busy() < 0.9, "{}", outcome.own_busy());
    assert!(!outcome.is_generator_limited());
}

proptest! {
    #[test]
    fn count_of_due_requests_agrees_with_their_times(
        from in 0.1_f64..1000.0, to in 0.1_f64..1000.0, millis in 1_u64..10_000,
    ) {
        let ramp = Schedule::ramp(from, to, Duration::from_secs(10));
        let end = Duration::from_millis(millis);
        let due = (0..).take_while(|number| ramp.due(*number).is_some_and(|due| due < end));
        prop_assert_eq!(ramp.due_before(end), due.count() as u64);
    }

    #[test]
    fn due_times_never_fall(from in 0.1_f64..100_000.0, to in 0.1_f64..100_000.0) {
        let ramp = Schedule::ramp(from, to, Duration::from_secs(10));
        let due: Vec<_> = (0..1000).map_while(|number| ramp.due(number)).collect();
        prop_assert!(due.is_sorted());
        prop_assert_eq!(due[0], Duration::ZERO);
    }

    #[test]
    fn search_finds_the_highest_rate_within_its_precision(
        limit in 2.0_f64..100_000.0, guess in 0.2_f64..5.0,
    ) {
        let mut search = FindMax::new(limit * guess, 40);
        while let Some(rate) = search.next_rate() {
            search.record(rate, rate <= limit);
        }
        let best = search.best().unwrap();
        prop_assert!(best <= limit && best >= limit / 1.04, "{} of {}", best, limit);
    }
}
