//! Kills the processes of `surus work` at random, and lets its broker fail, while jobs run.

use std::time::Duration;

use super::work::{Work, descendants, signal};

/// What a test does itself in a round.
pub enum Event {
    /// Surus has been killed: the test starts it again.
    Killed,
    /// The broker or the network fails for a moment.
    Outage,
}

/// How many jobs a test has: `few`, or `WORK_JOBS` in `make test-work`.
pub fn jobs(few: usize) -> usize {
    std::env::var("WORK_JOBS").map_or(few, |jobs| jobs.parse().unwrap())
}

/// Kills workers, in some rounds Surus itself, and has the broker fail in others.
pub fn at_random(
    mut work: Work,
    rounds: usize,
    mut act: impl FnMut(Event) -> Option<Work>,
) -> Work {
    let mut random = 12345_usize;
    for round in 0..rounds {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_millis((random >> 33) as u64 % 60));
        match round % 8 {
            7 => {
                signal(work.pid(), "KILL");
                work = act(Event::Killed).unwrap();
            }
            3 => assert!(act(Event::Outage).is_none()),
            _ => {
                let processes = descendants(work.pid());
                // The first is the master process of the workers.
                if let Some(pid) = processes.get(1 + (random >> 40) % processes.len().max(1)) {
                    signal(*pid, "KILL");
                }
            }
        }
    }
    work
}
