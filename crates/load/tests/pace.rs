//! The open loop against theory: what a stall and known delays must look like.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{answer, ok, plan, run};
use proptest::prelude::*;
use surus_load::{FindMax, Pace, RunOutcome, Schedule, Stop, Watch};

/// What was seen of a run over one connection, by request.
struct Seen {
    outcome: RunOutcome,
    /// When the run was called, and when its first request came: it began between them.
    called: Instant,
    first: Instant,
    /// When the server had read it.
    arrived: Vec<Instant>,
    /// Just before the response was written.
    answered: Vec<Instant>,
    /// When the generator had certainly recorded it.
    recorded: Vec<Instant>,
}

/// Runs a plan over one connection to a server that waits for `delay` of each request's number and
/// of the time since the first.
fn observe(
    count: u64,
    pace: Pace,
    delay: impl Fn(usize, Duration) -> Duration + Send + Sync + 'static,
) -> Seen {
    let (arrived, answered) = (
        Arc::<Mutex<Vec<_>>>::default(),
        Arc::<Mutex<Vec<_>>>::default(),
    );
    let (came, went) = (arrived.clone(), answered.clone());
    let address = answer(move |request| {
        let now = Instant::now();
        let (number, first) = {
            let mut came = came.lock().unwrap();
            came.push(now);
            (came.len() - 1, came[0])
        };
        std::thread::sleep(delay(number, now - first));
        went.lock().unwrap().push(Instant::now());
        ok(request)
    });
    let ended = Arc::new(AtomicU64::new(0));
    let watched = ended.clone();
    // The generator counts a response after it has recorded it.
    let watcher = std::thread::spawn(move || {
        let mut recorded = Vec::new();
        while (recorded.len() as u64) < count {
            std::thread::sleep(Duration::from_micros(200));
            let known = watched.load(Ordering::Acquire);
            let now = Instant::now();
            recorded.resize(known as usize, now);
        }
        recorded
    });
    let mut plan = plan(address, count);
    plan.concurrency = 1;
    plan.pace = pace;
    let watch = Watch {
        ended,
        seconds: channel().0,
        intervals: None,
    };
    let called = Instant::now();
    let outcome = surus_load::run(&plan, Some(watch), std::future::pending()).unwrap();
    assert_eq!(outcome.totals.responses, count);
    let arrived = arrived.lock().unwrap().clone();
    let answered = answered.lock().unwrap().clone();
    Seen {
        outcome,
        called,
        first: arrived[0],
        arrived,
        answered,
        recorded: watcher.join().unwrap(),
    }
}

impl Seen {
    /// Checks that percentiles lie between those of the shortest and the longest latencies that
    /// agree with what was seen. `from` is when a request's latency began, at the earliest and at
    /// the latest. However slow the machine is, it is slow for both sides.
    #[track_caller]
    fn check(&self, from: impl Fn(usize) -> (Instant, Instant)) {
        let numbers = || 0..self.answered.len();
        let shortest = numbers().map(|it| self.answered[it].saturating_duration_since(from(it).1));
        let longest = numbers().map(|it| self.recorded[it] - from(it).0);
        let (shortest, longest) = (sorted(shortest), sorted(longest));
        for percent in [1.0, 25.0, 50.0, 75.0, 85.0, 90.0, 95.0, 99.0, 100.0] {
            let place = (percent / 100.0 * shortest.len() as f64).ceil().max(1.0) as usize - 1;
            let got = self.outcome.latencies.percentile_ms(percent);
            let (least, most) = (ms(shortest[place]), ms(longest[place]));
            // The histogram is exact to 0.1 %, and counts whole microseconds.
            assert!(
                got >= least * 0.999 - 0.002 && got <= most * 1.001 + 0.002,
                "p{percent}: {got} ms is not between {least} and {most} ms"
            );
        }
    }
}

impl Seen {
    /// In a closed loop over one connection, a request begins after the one before it was answered.
    #[track_caller]
    fn check_closed(&self) {
        self.check(|number| self.began(number));
    }

    fn began(&self, number: usize) -> (Instant, Instant) {
        match number.checked_sub(1) {
            None => (self.called, self.first),
            Some(before) => (self.answered[before], self.arrived[number]),
        }
    }

    /// Number of requests, apart from one, that may have taken longer than `bound`.
    fn slow_others(&self, one: usize, bound: Duration) -> u64 {
        let numbers = (0..self.recorded.len()).filter(|number| *number != one);
        let slow = numbers.filter(|it| self.recorded[*it] - self.began(*it).0 > bound);
        slow.count() as u64
    }
}

fn sorted(all: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// 4 s at 100/s with a stall of 1 s in the middle: about 100 of 400 requests are due during the
/// stall and wait 0 to 1 s, evenly. So a quarter waits, and the p99 is about 960 ms.
#[test]
fn stall_of_a_second_shows_in_the_open_loop_as_theory_says() {
    let stall = Duration::from_millis(1500)..Duration::from_millis(2500);
    let schedule = Schedule::constant(100.0);
    let seen = observe(400, Pace::Open(schedule), move |_, since| {
        match stall.contains(&since) {
            true => stall.end - since,
            false => Duration::ZERO,
        }
    });
    let offered = seen.outcome.offered.unwrap();
    assert_eq!(
        (offered.due, offered.unsent),
        (400, 0),
        "nothing is left out"
    );
    // A busy machine adds to latencies and takes nothing from them.
    let p99 = seen.outcome.latencies.percentile_ms(99.0);
    assert!(p99 >= 850.0, "p99 {p99} ms");
    // 12.5 % wait at least half a second, so the 85th percentile sees 400 ms at least.
    let p85 = seen.outcome.latencies.percentile_ms(85.0);
    assert!(p85 >= 300.0, "p85 {p85} ms");
    let due = |number: usize| schedule.due(number as u64).unwrap();
    seen.check(|number| (seen.called + due(number), seen.first + due(number)));
}

#[test]
fn stall_shows_in_one_request_of_the_closed_loop() {
    let seen = observe(100, Pace::Closed, |number, _| {
        Duration::from_millis(if number == 50 { 500 } else { 0 })
    });
    let latencies = &seen.outcome.latencies;
    assert!(latencies.max_ms() >= 500.0);
    seen.check_closed();
    // All others are what they are on this machine: none of them counts the stall.
    let others = latencies.count_above(Duration::from_millis(499)) - 1;
    let slow = seen.slow_others(50, Duration::from_millis(499));
    assert!(
        others <= slow,
        "{others} slow requests, and {slow} that may have been"
    );
}

#[test]
fn known_delays_come_back_as_the_percentiles_they_are() {
    // Of ten requests, eight take 20 ms, one 60 ms and one 200 ms.
    let seen = observe(60, Pace::Closed, |number, _| {
        Duration::from_millis(match number % 10 {
            0..8 => 20,
            8 => 60,
            _ => 200,
        })
    });
    let latencies = &seen.outcome.latencies;
    // A busy machine adds to a delay and never takes from it.
    for (percent, least) in [(1.0, 20.0), (79.0, 20.0), (89.0, 60.0), (95.0, 200.0)] {
        let got = latencies.percentile_ms(percent);
        assert!(got >= least * 0.999, "p{percent}: {got} ms");
    }
    assert_eq!(latencies.count(), 60);
    seen.check_closed();
}

#[test]
fn rate_above_the_server_capacity_is_reported() {
    let address = answer(|request| {
        std::thread::sleep(Duration::from_millis(100));
        ok(request)
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
fn responses_after_the_end_of_the_load_count_with_the_time_that_they_take() {
    let address = answer(|request| {
        std::thread::sleep(Duration::from_millis(400));
        ok(request)
    });
    let mut plan = plan(address, 0);
    plan.stop = Stop::After(Duration::from_millis(300));
    let outcome = run(&plan);
    let responses = outcome.totals.responses;
    assert_eq!(outcome.late.len() as u64, responses);
    assert_eq!(outcome.totals.late_statuses[&200], responses);
    // One by each connection, and none before 400 ms.
    let rate = outcome.rate();
    assert!(
        rate > 0.0 && rate <= responses as f64 / 0.4,
        "{rate} of {responses}"
    );
}

#[test]
fn requests_are_not_sent_before_they_are_due() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let seen = times.clone();
    let address = answer(move |request| {
        seen.lock().unwrap().push(Instant::now());
        ok(request)
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
    let address = answer(move |request| {
        if count.fetch_add(1, Ordering::Relaxed) >= 10 {
            std::thread::sleep(Duration::from_secs(3));
        }
        ok(request)
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
fn number_of_requests_that_takes_longer_than_its_rate_allows_misses_the_rate() {
    let address = answer(|request| {
        std::thread::sleep(Duration::from_millis(20));
        ok(request)
    });
    let mut missed = plan(address, 20);
    missed.concurrency = 1;
    missed.pace = Pace::Open(Schedule::constant(1000.0));
    let outcome = run(&missed);
    let offered = outcome.offered.unwrap();
    // All were due in 20 ms, until when at most two were sent.
    assert_eq!((offered.due, offered.unsent), (20, 0), "{offered:?}");
    assert!(offered.overdue >= 18, "{offered:?}");
    assert!(!outcome.kept_rate());

    let mut kept = plan(address, 1);
    kept.pace = Pace::Open(Schedule::constant(0.001));
    let outcome = run(&kept);
    assert_eq!(outcome.offered.unwrap().overdue, 0);
    assert!(outcome.kept_rate());
}

#[test]
fn turns_that_wait_for_their_time_are_not_due_when_the_run_is_interrupted() {
    let mut plan = plan(answer(ok), 1);
    plan.pace = Pace::Open(Schedule::constant(0.000_1));
    plan.stop = Stop::After(Duration::from_secs(86_400));
    let ended = Arc::new(AtomicU64::new(0));
    let (seconds, _received) = channel();
    let watch = Watch {
        ended: ended.clone(),
        seconds,
        intervals: None,
    };
    // Four connections wait: one for its response, the others for hours.
    let interrupt = async move {
        while ended.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let outcome = surus_load::run(&plan, Some(watch), interrupt).unwrap();
    assert!(outcome.is_interrupted);
    let offered = outcome.offered.unwrap();
    assert_eq!((offered.due, offered.unsent), (1, 0), "{offered:?}");
    assert_eq!(outcome.totals.responses, 1);
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
    let section = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = format!("{section}{}0\r\n\r\n", "1\r\nx\r\n".repeat(3 << 20));
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

#[test]
fn rate_that_fails_is_tried_once_more_before_it_counts() {
    let mut search = FindMax::new(100.0, 40);
    let mut tried = Vec::new();
    while let Some(rate) = search.next_rate() {
        // Each rate below 200 fails the first time, as on a machine with other work.
        let holds = rate <= 200.0 && tried.contains(&rate);
        tried.push(rate);
        search.record(rate, holds);
    }
    let best = search.best().unwrap();
    assert!(
        (200.0 / 1.04..=200.0).contains(&best),
        "{best} of {tried:?}"
    );
    for rate in &tried {
        assert_eq!(tried.iter().filter(|other| *other == rate).count(), 2);
    }
}

#[test]
fn limit_of_a_search_counts_rates() {
    let mut search = FindMax::new(100.0, 3);
    let mut tried = Vec::new();
    while let Some(rate) = search.next_rate() {
        tried.push(rate);
        search.record(rate, false);
    }
    tried.dedup();
    assert_eq!(tried.len(), 3, "{tried:?}");
    assert_eq!(search.best(), None);
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
