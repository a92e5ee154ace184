//! The part of `surus serve` that runs jobs, which a build without brokers lacks.

#[cfg(feature = "_work")]
pub use super::work::WorkPart;
#[cfg(not(feature = "_work"))]
pub use absent::WorkPart;

#[cfg(not(feature = "_work"))]
mod absent {
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use crate::cli::findings::Findings;
    use crate::config::Config;

    /// A stub: without brokers there is none, so no value of it exists.
    pub enum WorkPart {}

    impl WorkPart {
        pub fn of_server(_: &Path, config: &Config) -> anyhow::Result<Option<WorkPart>> {
            anyhow::ensure!(
                !config.work.serve,
                "this surus is built without queues (work.serve); build it with the feature of \
                 a broker, such as `redis`"
            );
            Ok(None)
        }

        pub async fn check(project: &Path, config: &Config, findings: &mut Findings) {
            if let Err(error) = WorkPart::of_server(project, config) {
                findings.stop(&error);
            }
        }

        pub fn shutdown_timeout(&self) -> Duration {
            match *self {}
        }

        pub fn stop_listening(&mut self) {
            match *self {}
        }

        pub async fn run(self, _: CancellationToken) {
            match self {}
        }

        pub fn fork(&self, _: &OwnedFd) -> anyhow::Result<u32> {
            match *self {}
        }
    }
}
