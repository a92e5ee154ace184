//! Simulates loads over hours without a clock.

use super::*;

/// The interval of the sweeps that observe a pool.
const TICK: Duration = Duration::from_millis(50);

/// A pool, and requests that each occupy a worker.
struct Simulation {
    scaling: Scaling,
    now: Instant,
    /// How many requests are in flight.
    requests: usize,
    /// How long a new worker takes until it waits for requests.
    boot: Duration,
    /// When the last workers were started, and how many.
    started: Option<(Instant, usize)>,
    waited: Duration,
    grown: usize,
    shrunk: usize,
    fit: usize,
    /// How many workers are about to be replaced at each instant.
    replaced: usize,
}

impl Simulation {
    fn of(range: RangeInclusive<usize>) -> Simulation {
        let now = Instant::now();
        Simulation {
            scaling: Scaling::new(range.clone(), *range.start(), now),
            now,
            requests: 0,
            boot: Duration::from_millis(5),
            started: None,
            waited: Duration::ZERO,
            grown: 0,
            shrunk: 0,
            fit: usize::MAX,
            replaced: 0,
        }
    }

    fn target(&self) -> usize {
        self.scaling.target()
    }

    fn tick(&mut self) {
        self.now += TICK;
        let boots = |(at, _): &(Instant, usize)| self.now.duration_since(*at) < self.boot;
        let starting = self.started.filter(boots).map_or(0, |(_, count)| count);
        let able = self.target() - starting.max(self.replaced).min(self.target());
        let waiting = self.requests.saturating_sub(able);
        self.waited = if waiting > 0 {
            self.waited + TICK
        } else {
            Duration::ZERO
        };
        let load = PoolLoad {
            busy: self.requests.min(able),
            starting: starting.max(self.replaced),
            beginning: starting,
            waiting,
            longest_wait: self.waited,
        };
        let (before, fit) = (self.target(), self.fit);
        let fits = |added: usize| added.min(fit.saturating_sub(before));
        let has_changed = self.scaling.observe(self.now, load, fits);
        assert_eq!(has_changed, self.target() != before);
        match self.target() > before {
            true => {
                self.grown += 1;
                self.started = Some((self.now, self.target() - before));
            }
            false => self.shrunk += usize::from(has_changed),
        }
    }

    fn run(&mut self, requests: usize, time: Duration) {
        self.requests = requests;
        for _ in 0..time.as_millis() / TICK.as_millis() {
            self.tick();
        }
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn burst_gets_all_workers_within_half_a_second_and_returns_them_slowly() {
    let mut pool = Simulation::of(1..=32);
    pool.run(0, seconds(60));
    assert_eq!((pool.target(), pool.grown), (1, 0));
    assert!(
        pool.scaling.due().is_none(),
        "a resting pool needs no timer"
    );
    pool.run(100, Duration::from_millis(450));
    assert_eq!(pool.target(), 32);
    pool.run(0, seconds(15));
    assert_eq!(pool.target(), 32, "kept for the next burst");
    assert!(pool.scaling.due().is_some());
    pool.run(0, seconds(10));
    assert!((16..32).contains(&pool.target()), "{}", pool.target());
    pool.run(0, seconds(240));
    assert_eq!(pool.target(), 1);
    assert!(pool.scaling.due().is_none());
}

#[test]
fn pool_of_one_size_never_changes() {
    let mut pool = Simulation::of(4..=4);
    pool.run(100, seconds(60));
    pool.run(0, seconds(600));
    assert_eq!((pool.target(), pool.grown, pool.shrunk), (4, 0, 0));
}

#[test]
fn short_waves_change_the_size_once() {
    let mut pool = Simulation::of(1..=32);
    for _ in 0..600 {
        pool.run(20, seconds(3));
        pool.run(1, seconds(3));
    }
    assert!(pool.target() >= 20);
    assert!(
        pool.grown <= 6 && pool.shrunk <= 3,
        "{} {}",
        pool.grown,
        pool.shrunk
    );
}

#[test]
fn waves_of_every_length_settle() {
    for half in [8, 12, 15, 25, 30, 45, 60] {
        let mut pool = Simulation::of(1..=32);
        let waves = 7200 / (2 * half);
        for _ in 0..waves / 2 {
            pool.run(32, seconds(half));
            pool.run(1, seconds(half));
        }
        let (grown, shrunk) = (pool.grown, pool.shrunk);
        for _ in 0..waves / 2 {
            pool.run(32, seconds(half));
            pool.run(1, seconds(half));
        }
        let changes = pool.grown - grown + pool.shrunk - shrunk;
        assert!(
            changes <= 16,
            "half a wave of {half} s: {changes} changes in an hour"
        );
    }
}

#[test]
fn long_waves_are_followed() {
    let mut pool = Simulation::of(2..=16);
    for _ in 0..4 {
        pool.run(16, seconds(900));
        assert_eq!(pool.target(), 16);
        pool.run(0, seconds(900));
        assert_eq!(pool.target(), 2);
    }
}

#[test]
fn steady_load_settles_near_its_need() {
    for busy in 1..=32 {
        let mut pool = Simulation::of(1..=32);
        pool.run(busy, seconds(3600));
        let (grown, shrunk) = (pool.grown, pool.shrunk);
        assert!((busy..=busy + busy.div_ceil(SHARE)).contains(&pool.target()));
        pool.run(busy, seconds(3600));
        assert_eq!((pool.grown, pool.shrunk), (grown, shrunk), "{busy}");
    }
}

#[test]
fn slow_ramp_is_followed_up_and_down_without_a_turn() {
    let mut pool = Simulation::of(1..=64);
    for busy in 1..=60 {
        pool.run(busy, seconds(20));
        assert!(pool.target() >= busy, "{busy}");
        assert_eq!(pool.shrunk, 0);
    }
    let grown = pool.grown;
    for busy in (1..=60).rev() {
        pool.run(busy, seconds(20));
        assert!(pool.target() >= busy, "{busy}");
    }
    assert_eq!(pool.grown, grown);
    pool.run(1, seconds(600));
    assert!(pool.target() <= 2);
}

#[test]
fn slow_boots_are_awaited_before_more_are_started() {
    let mut pool = Simulation::of(1..=32);
    pool.boot = Duration::from_millis(800);
    pool.run(4, seconds(4));
    assert!((4..=5).contains(&pool.target()), "{}", pool.target());
    // Workers that never become ready do not stop the growth for good.
    let mut pool = Simulation::of(1..=32);
    pool.boot = seconds(3600);
    pool.run(100, seconds(8));
    assert_eq!(pool.target(), 32);
}

#[test]
fn pool_that_begins_large_keeps_what_it_needs_and_shrinks_otherwise() {
    let begun = || {
        let mut pool = Simulation::of(1..=32);
        pool.scaling = Scaling::new(1..=32, 16, pool.now);
        pool
    };
    let mut busy = begun();
    busy.run(16, seconds(60));
    assert_eq!((busy.target(), busy.grown), (16, 0));
    let mut idle = begun();
    idle.run(0, seconds(600));
    assert_eq!(idle.target(), 1);
}

#[test]
fn short_waits_and_idle_workers_are_no_reason_to_grow() {
    let now = Instant::now();
    let mut scaling = Scaling::new(2..=8, 2, now);
    let load = PoolLoad {
        busy: 2,
        waiting: 5,
        longest_wait: LONG_WAIT / 2,
        ..PoolLoad::default()
    };
    assert!(!scaling.observe(now, load, |more| more));
    let idle = PoolLoad {
        busy: 1,
        longest_wait: seconds(1),
        ..load
    };
    assert!(
        !scaling.observe(now, idle, |more| more),
        "one is about to take it"
    );
    let long = PoolLoad {
        longest_wait: LONG_WAIT,
        ..load
    };
    assert!(scaling.observe(now, long, |more| more));
}

#[test]
fn short_memory_limits_growth_and_is_asked_for_once_a_second() {
    let mut pool = Simulation::of(1..=32);
    pool.fit = 5;
    pool.run(100, seconds(10));
    assert_eq!(pool.target(), 5);
    assert!(pool.scaling.is_limited());
    let now = pool.now;
    let load = PoolLoad {
        busy: 5,
        waiting: 9,
        longest_wait: seconds(1),
        ..PoolLoad::default()
    };
    let mut requests = 0;
    for step in 1..=100 {
        let at = now + TICK * step;
        pool.scaling.observe(at, load, |_| {
            requests += 1;
            0
        });
    }
    assert!((4..=6).contains(&requests), "{requests}");
    pool.fit = usize::MAX;
    pool.now = now + seconds(6);
    pool.run(100, seconds(2));
    assert_eq!(pool.target(), 32);
    assert!(!pool.scaling.is_limited());
}

#[test]
fn replaced_workers_do_not_slow_growth_down() {
    let mut pool = Simulation::of(1..=32);
    pool.replaced = 1;
    pool.run(100, Duration::from_millis(450));
    assert_eq!(pool.target(), 32);
}

#[test]
fn lack_of_memory_makes_the_pool_smaller_for_longer_and_longer() {
    let mut pool = Simulation::of(2..=32);
    pool.run(100, seconds(1));
    assert!(pool.scaling.run_out(pool.now));
    assert!(!pool.scaling.run_out(pool.now + SETTLES / 2), "one event");
    assert_eq!(pool.target(), 24);
    assert!(pool.scaling.is_limited());
    pool.run(100, seconds(8));
    assert_eq!(pool.target(), 24);
    pool.run(100, seconds(4));
    assert_eq!(pool.target(), 32);
    assert!(!pool.scaling.is_limited());
    // Soon after the first time.
    assert!(pool.scaling.run_out(pool.now));
    pool.run(100, seconds(18));
    assert_eq!(pool.target(), 24);
    pool.run(100, seconds(4));
    assert_eq!(pool.target(), 32);
    for _ in 0..50 {
        pool.now += SETTLES;
        pool.scaling.run_out(pool.now);
    }
    assert_eq!(pool.target(), 2, "never below its minimum");
    pool.run(100, MAX_HOLD + seconds(4));
    assert_eq!(pool.target(), 32);
}
