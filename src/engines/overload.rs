//! Controlled delay: detects a queue whose wait has been too long for a whole interval.
//!
//! Like CoDel (RFC 8289), it ignores bursts. CoDel measures how long the oldest event has waited,
//! which says nothing if the newest is served first. This one predicts the wait from the queue's
//! length and the recent rate of service.

use std::time::Duration;

use tokio::time::Instant;

pub struct Overload {
    pub target: Duration,
    interval: Duration,
    /// So few waiting events are never overload, however long they wait.
    few: usize,
    /// The start of the current measurement.
    began: Option<Instant>,
    served: usize,
    /// Since when the predicted wait has exceeded the target.
    above: Option<Instant>,
    on: bool,
    /// When overload was found last.
    found: Option<Instant>,
}

impl Overload {
    /// Predicted waits above `target` during a whole `interval` are overload if more than `few`
    /// events wait. Within two intervals after overload, one `target` is long enough: the queue
    /// empties whenever the rejected clients pause, although they come back.
    pub fn new(target: Duration, interval: Duration, few: usize) -> Overload {
        Overload {
            target,
            interval,
            few,
            began: None,
            served: 0,
            above: None,
            on: false,
            found: None,
        }
    }

    /// An event has left the queue for a worker.
    pub fn served(&mut self) {
        self.served += 1;
    }

    /// Whether there is overload while `waiting` events wait.
    pub fn is_on(&mut self, now: Instant, waiting: usize) -> bool {
        let began = *self.began.get_or_insert(now);
        let took = now.duration_since(began);
        if waiting == 0 {
            *self = Overload {
                found: self.found,
                ..Overload::new(self.target, self.interval, self.few)
            };
        } else if took >= self.target {
            // How many would be served within the target.
            let within = self.served as f64 * self.target.as_secs_f64() / took.as_secs_f64();
            let is_above = waiting > self.few && waiting as f64 > within;
            self.above = is_above.then(|| self.above.unwrap_or(now));
            let was_found = |at| now.duration_since(at) <= 2 * self.interval;
            let is_back = self.found.is_some_and(was_found);
            let since = |above| is_back || now.duration_since(above) >= self.interval;
            self.on = self.above.is_some_and(since);
            if self.on {
                self.found = Some(now);
            }
            (self.began, self.served) = (Some(now), 0);
        }
        self.on
    }

    /// The last result of `is_on`.
    pub fn was_on(&self) -> bool {
        self.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_secs(1);
    const INTERVAL: Duration = Duration::from_secs(5);

    /// Passes seconds, in each of which `served` events are served while `waiting` wait. Returns
    /// whether there is overload in the last one.
    fn pass(
        overload: &mut Overload,
        now: &mut Instant,
        seconds: u32,
        served: usize,
        waiting: usize,
    ) -> bool {
        let mut on = overload.was_on();
        for _ in 0..seconds {
            for _ in 0..served {
                overload.served();
            }
            *now += TARGET;
            on = overload.is_on(*now, waiting);
        }
        on
    }

    #[test]
    fn queue_that_is_too_long_is_overload_only_after_an_interval() {
        let (mut overload, mut now) = (Overload::new(TARGET, INTERVAL, 4), Instant::now());
        assert!(!overload.is_on(now, 1));
        assert!(!pass(&mut overload, &mut now, 5, 100, 1000));
        assert!(pass(&mut overload, &mut now, 1, 100, 1000));
        assert!(
            !pass(&mut overload, &mut now, 1, 100, 90),
            "it ends when the queue is short enough"
        );
    }

    #[test]
    fn overload_that_comes_back_soon_begins_after_one_target() {
        let (mut overload, mut now) = (Overload::new(TARGET, INTERVAL, 4), Instant::now());
        assert!(!overload.is_on(now, 1));
        assert!(pass(&mut overload, &mut now, 6, 100, 1000));
        for rest in [1, 5, 8] {
            // The rejected clients stay away, and the queue empties again and again.
            assert!(!pass(&mut overload, &mut now, rest, 100, 0));
            assert!(!overload.is_on(now, 1));
            assert!(!overload.is_on(now + TARGET / 2, 1000), "within the target");
            assert!(pass(&mut overload, &mut now, 1, 100, 1000), "{rest}");
            assert!(!pass(&mut overload, &mut now, rest, 100, 90));
            assert!(pass(&mut overload, &mut now, 1, 100, 1000), "{rest}");
        }
    }

    #[test]
    fn overload_after_a_long_rest_needs_an_interval_again() {
        for waiting in [0, 90] {
            let (mut overload, mut now) = (Overload::new(TARGET, INTERVAL, 4), Instant::now());
            assert!(!overload.is_on(now, 1));
            assert!(pass(&mut overload, &mut now, 6, 100, 1000));
            assert!(!pass(&mut overload, &mut now, 11, 100, waiting));
            assert!(!overload.is_on(now, 1));
            assert!(!pass(&mut overload, &mut now, 5, 100, 1000), "{waiting}");
            assert!(pass(&mut overload, &mut now, 1, 100, 1000), "{waiting}");
            // No event comes, so none ends the overload.
            now += INTERVAL * 100;
            assert!(!overload.is_on(now, 0));
            assert!(!pass(&mut overload, &mut now, 3, 100, 1000), "{waiting}");
        }
    }

    #[test]
    fn long_queue_that_is_served_within_the_target_is_no_overload() {
        let (mut overload, mut now) = (Overload::new(TARGET, INTERVAL, 4), Instant::now());
        assert!(!overload.is_on(now, 1));
        assert!(!pass(&mut overload, &mut now, 60, 30_000, 20_000));
    }

    #[test]
    fn machine_that_stood_still_is_no_overload() {
        let (mut overload, mut now) = (Overload::new(TARGET, INTERVAL, 4), Instant::now());
        assert!(!overload.is_on(now, 1));
        now += Duration::from_secs(60);
        assert!(!overload.is_on(now, 20_000));
        assert!(!pass(&mut overload, &mut now, 5, 30_000, 20_000));
    }

    #[test]
    fn few_events_that_wait_for_slow_scripts_are_no_overload() {
        let (mut overload, mut now) = (Overload::new(TARGET, INTERVAL, 4), Instant::now());
        assert!(!overload.is_on(now, 1));
        assert!(!pass(&mut overload, &mut now, 60, 0, 4));
    }

    #[test]
    fn empty_queue_resets_the_measurement() {
        let (mut overload, mut now) = (Overload::new(TARGET, INTERVAL, 4), Instant::now());
        assert!(!overload.is_on(now, 1));
        assert!(!pass(&mut overload, &mut now, 5, 100, 1000));
        assert!(!overload.is_on(now, 0));
        assert!(!pass(&mut overload, &mut now, 5, 100, 1000));
    }
}
