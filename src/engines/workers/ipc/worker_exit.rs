//! Waits for the master process's report of how a worker exited, and notices a master process that
//! does not report.

use std::time::Duration;

use surus_sys::process;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

use crate::engines::workers::generation::state::{Exit, GenerationState};

/// For how long a worker is a zombie before its master process counts as unable to replace it. A
/// busy machine does not keep a master process from waiting for its children that long.
const UNREPORTED: Duration = Duration::from_secs(3);

/// The same if the master process sleeps or is stopped at each check: a child that exits would wake
/// it.
const IGNORED: Duration = Duration::from_millis(800);

/// The interval of checks.
const PAUSE: Duration = Duration::from_millis(50);

/// How the worker exited. None if the master process has exited, or does not reap its children:
/// then the generation is replaced.
pub(super) async fn reported(
    shared: &GenerationState,
    pid: u32,
    exited: &mut oneshot::Receiver<Exit>,
) -> Option<Exit> {
    let is_active = || shared.started_master().is_none_or(is_active);
    let report = watch(pid, exited, is_active).await;
    if report.is_err() {
        warn!(
            pid,
            "the master process does not replace a worker that has exited"
        );
        shared.hand_over("its master process does not replace workers");
    }
    report.ok().flatten()
}

/// The worker has been a zombie for too long.
#[derive(Debug, PartialEq, Eq)]
struct Unreported;

/// Whether the process runs, waits for a CPU or waits for a disk.
fn is_active(pid: u32) -> bool {
    !matches!(process::state(pid), Some('S' | 'T' | 't'))
}

/// Waits for the report. None if none will come, because the master process has exited.
async fn watch<T>(
    pid: u32,
    exited: &mut oneshot::Receiver<T>,
    is_master_active: impl Fn() -> bool,
) -> Result<Option<T>, Unreported> {
    let mut checks = tokio::time::interval(PAUSE);
    checks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut zombie_since, mut ignored_since) = (None, None);
    loop {
        tokio::select! {
            biased;
            exit = &mut *exited => return Ok(exit.ok()),
            _ = checks.tick() => {}
        }
        if process::state(pid) != Some('Z') {
            continue;
        }
        if is_master_active() {
            ignored_since = None;
        } else if ignored_since.get_or_insert_with(Instant::now).elapsed() > IGNORED {
            return Err(Unreported);
        }
        if zombie_since.get_or_insert_with(Instant::now).elapsed() > UNREPORTED {
            return Err(Unreported);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process that has exited, and that its parent reaps only when the test ends.
    struct Zombie(Child);

    impl Zombie {
        fn make() -> Zombie {
            let zombie = Zombie(Command::new("true").spawn().unwrap());
            while process::state(zombie.0.id()) != Some('Z') {
                std::thread::sleep(Duration::from_millis(1));
            }
            zombie
        }
    }

    impl Drop for Zombie {
        fn drop(&mut self) {
            let _ = self.0.wait();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn zombie_that_nothing_reaps_is_noticed() {
        let zombie = Zombie::make();
        let (_master, mut exited) = oneshot::channel::<u8>();
        let began = Instant::now();
        let seen = watch(zombie.0.id(), &mut exited, || true).await;
        assert_eq!(seen, Err(Unreported));
        assert!(began.elapsed() > UNREPORTED);
    }

    #[tokio::test(start_paused = true)]
    async fn zombie_of_a_master_process_that_sleeps_or_is_stopped_is_noticed_within_a_second() {
        let zombie = Zombie::make();
        let mut master = Command::new("sleep").arg("1000").spawn().unwrap();
        let own = master.id();
        let signal = |name: &str| {
            let pid = own.to_string();
            Command::new("kill").args([name, &pid]).status().unwrap();
        };
        for (signalled, states) in [("-CONT", "S"), ("-STOP", "T")] {
            signal(signalled);
            while !process::state(own).is_some_and(|state| states.contains(state)) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let (_reports, mut exited) = oneshot::channel::<u8>();
            let began = Instant::now();
            let seen = watch(zombie.0.id(), &mut exited, || is_active(own)).await;
            assert_eq!(seen, Err(Unreported), "{states}");
            assert!(began.elapsed() <= Duration::from_secs(1), "{states}");
        }
        // One that wants a CPU in between has more time.
        let checks = std::cell::Cell::new(0);
        let is_active = || checks.replace(checks.get() + 1) % 8 == 0;
        let (_reports, mut exited) = oneshot::channel::<u8>();
        let began = Instant::now();
        let seen = watch(zombie.0.id(), &mut exited, is_active).await;
        assert_eq!(seen, Err(Unreported));
        assert!(began.elapsed() > UNREPORTED);
        master.kill().unwrap();
        master.wait().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn report_in_time_counts_and_none_comes_from_an_exited_master_process() {
        let zombie = Zombie::make();
        let (master, mut exited) = oneshot::channel();
        let report = async {
            tokio::time::sleep(UNREPORTED * 2 / 3).await;
            master.send(7).unwrap();
        };
        let (seen, ()) = tokio::join!(watch(zombie.0.id(), &mut exited, || true), report);
        assert_eq!(seen, Ok(Some(7)));

        let (master, mut exited) = oneshot::channel::<u8>();
        drop(master);
        assert_eq!(watch(zombie.0.id(), &mut exited, || true).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn living_worker_may_take_its_time() {
        let (master, mut exited) = oneshot::channel();
        let report = async {
            tokio::time::sleep(UNREPORTED * 100).await;
            master.send(7).unwrap();
        };
        let (seen, ()) = tokio::join!(watch(std::process::id(), &mut exited, || false), report);
        assert_eq!(seen, Ok(Some(7)));
    }
}
