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

/// How the worker exited. None if the master process has exited, or does not reap its children:
/// then the generation is replaced.
pub(super) async fn reported(
    shared: &GenerationState,
    pid: u32,
    exited: &mut oneshot::Receiver<Exit>,
) -> Option<Exit> {
    let report = watch(pid, exited).await;
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

/// Waits for the report. None if none will come, because the master process has exited.
async fn watch<T>(pid: u32, exited: &mut oneshot::Receiver<T>) -> Result<Option<T>, Unreported> {
    let mut checks = tokio::time::interval(UNREPORTED / 6);
    let mut zombie_since = None;
    loop {
        tokio::select! {
            biased;
            exit = &mut *exited => return Ok(exit.ok()),
            _ = checks.tick() => {}
        }
        if process::state(pid) != Some('Z') {
            continue;
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
        assert_eq!(watch(zombie.0.id(), &mut exited).await, Err(Unreported));
        assert!(began.elapsed() > UNREPORTED);
    }

    #[tokio::test(start_paused = true)]
    async fn report_in_time_counts_and_none_comes_from_an_exited_master_process() {
        let zombie = Zombie::make();
        let (master, mut exited) = oneshot::channel();
        let report = async {
            tokio::time::sleep(UNREPORTED * 2 / 3).await;
            master.send(7).unwrap();
        };
        let (seen, ()) = tokio::join!(watch(zombie.0.id(), &mut exited), report);
        assert_eq!(seen, Ok(Some(7)));

        let (master, mut exited) = oneshot::channel::<u8>();
        drop(master);
        assert_eq!(watch(zombie.0.id(), &mut exited).await, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn living_worker_may_take_its_time() {
        let (master, mut exited) = oneshot::channel();
        let report = async {
            tokio::time::sleep(UNREPORTED * 100).await;
            master.send(7).unwrap();
        };
        let (seen, ()) = tokio::join!(watch(std::process::id(), &mut exited), report);
        assert_eq!(seen, Ok(Some(7)));
    }
}
