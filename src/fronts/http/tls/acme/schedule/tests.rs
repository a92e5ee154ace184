//! Tests of the times of renewal, with clocks that a script sets.

use super::*;
use crate::fronts::http::tls::clock::ClockDifference;

const DAY: Duration = minutes(24 * 60);

fn days(number: u32) -> Duration {
    DAY * number
}

#[test]
fn pauses_grow_with_failures_and_have_an_end() {
    assert_eq!(pause(0), minutes(1));
    assert_eq!(pause(1), minutes(1));
    assert_eq!(pause(2), minutes(5));
    assert_eq!(pause(u32::MAX), minutes(360));
    // Five validations within an hour would be refused.
    let four: Duration = PAUSES[..4].iter().sum();
    assert!(four + PAUSES[4] > minutes(60));
}

#[test]
fn certificate_is_stored_again_within_a_quarter_of_an_hour() {
    assert_eq!(storing_pause(1), minutes(1));
    assert_eq!(storing_pause(2), minutes(5));
    assert_eq!(storing_pause(3), minutes(15));
    assert_eq!(storing_pause(u32::MAX), minutes(15));
}

#[test]
fn pause_ends_after_its_time_or_when_the_clock_is_set_back() {
    let began = SystemTime::UNIX_EPOCH + days(20_000);
    let left = |now| rest(minutes(30), began, now);
    assert_eq!(left(began), minutes(30));
    assert_eq!(left(began + minutes(10)), minutes(20));
    assert_eq!(left(began + days(400)), Duration::ZERO);
    assert_eq!(left(began - minutes(1)), Duration::ZERO);
}

#[test]
fn check_is_at_the_renewal_or_before_but_not_at_once() {
    assert_eq!(wait(Duration::ZERO, minutes(9)), Duration::ZERO);
    assert_eq!(wait(days(30), minutes(9)), minutes(9));
    assert_eq!(wait(days(30), days(1)), INTERVAL);
    assert_eq!(wait(minutes(5), days(1)), minutes(5));
    assert_eq!(wait(Duration::from_millis(1), days(1)), SHORTEST);
}

#[test]
fn suggested_time_counts_until_a_sixth_of_the_lifetime_is_left() {
    let begins = SystemTime::UNIX_EPOCH + days(20_000);
    let ends = begins + days(90);
    let validity = Validity { begins, ends };
    let due = |at: u32, start: u32, end: u32, part: f64| {
        let window = RenewalWindow {
            start: begins + days(start),
            end: begins + days(end),
            again: INTERVAL,
        };
        let left = validity.until_suggested(&window, part, begins + days(at));
        left.is_zero()
    };
    assert!(!due(10, 20, 22, 0.0) && due(20, 20, 22, 0.0));
    assert!(!due(20, 20, 22, 0.9) && due(22, 20, 22, 0.9));
    // Later than two thirds, but not later than five sixths.
    assert!(!due(61, 70, 72, 0.0) && due(70, 70, 72, 0.0));
    assert!(!due(74, 400, 401, 0.5) && due(75, 400, 401, 0.5));
    assert!(validity.until_check(begins + days(59)) > Duration::ZERO);
    assert!(validity.until_check(begins + days(60)).is_zero());
}

/// A machine whose clock differs from the true time, and an authority.
struct Machine {
    /// The true time since the start.
    now: Duration,
    certificate: Validity,
    orders: u32,
    failures: u32,
    has_windows: bool,
}

impl Machine {
    fn new(has_windows: bool) -> Machine {
        let mut machine = Machine {
            now: Duration::ZERO,
            certificate: Validity {
                begins: SystemTime::UNIX_EPOCH,
                ends: SystemTime::UNIX_EPOCH,
            },
            orders: 0,
            failures: 0,
            has_windows,
        };
        machine.issue();
        machine
    }

    fn time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + days(20_000) + self.now
    }

    fn issue(&mut self) {
        self.orders += 1;
        self.certificate = Validity {
            begins: self.time() - minutes(60),
            ends: self.time() - minutes(60) + days(90),
        };
    }

    /// Does what an attempt does, by a clock that is so many days ahead. Returns the pause.
    fn check(&mut self, ahead: i32) -> Duration {
        let offset = days(ahead.unsigned_abs());
        let ours = match ahead {
            0.. => self.time() + offset,
            _ => self.time() - offset,
        };
        // Beyond that, its own certificate is not valid by this machine's clock.
        let is_reached = ahead.abs() < 80;
        let difference = match is_reached {
            true => ClockDifference::between(ours, self.time()),
            false => ClockDifference::None,
        };
        let now = difference.correct(ours);
        let window = RenewalWindow {
            start: self.certificate.begins + days(58),
            end: self.certificate.begins + days(60),
            again: minutes(360),
        };
        let next = match self.has_windows && is_reached {
            true => self.certificate.until_suggested(&window, 0.5, now),
            false => self.certificate.until_check(now),
        };
        if !next.is_zero() {
            return next;
        }
        if is_reached {
            self.issue();
            let next = self.certificate.until_check(now);
            if !next.is_zero() {
                self.failures = 0;
                return next;
            }
        }
        self.failures += 1;
        pause(self.failures)
    }

    /// Runs for some days by this clock. Returns whether there was always a valid certificate.
    fn run(&mut self, for_days: u32, ahead: i32) -> bool {
        let end = self.now + days(for_days);
        let mut is_valid = true;
        while self.now < end {
            let pause = self.check(ahead);
            self.now += pause;
            is_valid &= self.certificate.ends > self.time();
        }
        is_valid
    }
}

#[test]
fn wrong_clock_causes_no_order_more_and_no_renewal_less() {
    for has_windows in [false, true] {
        for ahead in [0, 20, 59, 61, 79, -20, -61, -79] {
            let mut machine = Machine::new(has_windows);
            assert!(machine.run(720, ahead), "{ahead}");
            // One every 60 days, and the first.
            let orders = machine.orders;
            assert!((12..=14).contains(&orders), "{ahead}: {orders}");
        }
    }
}

#[test]
fn clock_that_jumps_to_and_fro_causes_no_order_more() {
    let mut machine = Machine::new(false);
    for _ in 0..36 {
        for (for_days, ahead) in [(4, 0), (4, 70), (4, -70), (4, 3650), (4, -20_000)] {
            assert!(machine.run(for_days, ahead), "{ahead}");
        }
    }
    assert!((12..=14).contains(&machine.orders), "{}", machine.orders);
}

#[test]
fn clock_that_is_set_right_leads_to_the_overdue_renewal() {
    let mut machine = Machine::new(true);
    // As if new until then.
    assert!(machine.run(80, -20_000));
    assert_eq!(machine.orders, 1);
    // The next check, by the right clock.
    machine.check(0);
    assert_eq!(machine.orders, 2);
    // Without a way to the authority, it is asked six hours apart at most.
    assert_eq!(machine.check(4000), pause(1));
    machine.run(80, 4000);
    assert_eq!(machine.orders, 2);
    let most = 4 * 80 + u32::try_from(PAUSES.len()).unwrap_or_default();
    assert!(machine.failures <= most, "{}", machine.failures);
    machine.check(0);
    assert_eq!((machine.orders, machine.failures), (3, 0));
}
