//! Controlled delay: notices a queue whose events have been waiting too long for too long.
//!
//! As CoDel (RFC 8289) it ignores bursts: a queue is overloaded when it is too long during a whole
//! interval. CoDel measures how long the oldest event has waited, which says nothing where the
//! newest is served first; here the wait is foreseen, from what waits and from what was served
//! lately.

use std::time::Duration;

use tokio::time::Instant;

pub struct Overload {
    pub target: Duration,
    interval: Duration,
    /// So few events in the queue are no overload, however long they wait.
    few: usize,
    /// Since when events that leave the queue are counted.
    began: Option<Instant>,
    served: usize,
    /// Since when the foreseen wait has been above the target.
    above: Option<Instant>,
    on: bool,
}

impl Overload {
    /// Waits of more than a `few` events above `target` during an `interval` are overload.
    pub fn new(target: Duration, interval: Duration, few: usize) -> Overload {
        Overload {
            target,
            interval,
            few,
            began: None,
            served: 0,
            above: None,
            on: false,
        }
    }

    /// An event has left the queue for a worker.
    pub fn served(&mut self) {
        self.served += 1;
    }

    /// Is there overload, with so many events in the queue?
    pub fn is_on(&mut self, now: Instant, waiting: usize) -> bool {
        let began = *self.began.get_or_insert(now);
        let took = now.duration_since(began);
        if waiting == 0 {
            *self = Overload::new(self.target, self.interval, self.few);
        } else if took >= self.target {
            // So many would be served within the target.
            let within = self.served as f64 * self.target.as_secs_f64() / took.as_secs_f64();
            let is_above = waiting > self.few && waiting as f64 > within;
            self.above = is_above.then(|| self.above.unwrap_or(now));
            let since = |above| now.duration_since(above) >= self.interval;
            self.on = self.above.is_some_and(since);
            (self.began, self.served) = (Some(now), 0);
        }
        self.on
    }

    /// Was there overload when last asked?
    pub fn was_on(&self) -> bool {
        self.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_secs(1);
    const INTERVAL: Duration = Duration::from_secs(5);

    /// Passes seconds in each of which so many events are served while so many wait; the last
    /// second says whether there is overload.
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
        assert!(!pass(&mut overload, &mut now, 5, 100, 1000));
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
    fn queue_that_was_empty_begins_anew() {
        let (mut overload, mut now) = (Overload::new(TARGET, INTERVAL, 4), Instant::now());
        assert!(!overload.is_on(now, 1));
        assert!(pass(&mut overload, &mut now, 6, 100, 1000));
        assert!(!overload.is_on(now, 0));
        assert!(!pass(&mut overload, &mut now, 3, 100, 1000));
    }
}
