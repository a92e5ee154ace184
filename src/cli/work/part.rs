//! The queues and schedules of a project, ready to run: in a process of the keeper's, or in that of
//! `surus serve`.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use surus_sys::{fork, privileges, signals};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::leftovers::CrashCountsFile;
use super::run::{self, Host};
use super::{Group, WorkPart, queues};
use crate::config::Config;
use crate::fronts::http::Bound;
use crate::keeper::Client;
use crate::observe::log;
use crate::observe::reopen::SiteLogs;

impl WorkPart {
    /// What `surus serve` runs besides HTTP; None without `work.serve`.
    pub fn of_server(project: &Path, config: &Config) -> anyhow::Result<Option<WorkPart>> {
        let Some(groups) = WorkPart::groups(project, config)? else {
            return Ok(None);
        };
        Ok(Some(WorkPart {
            admin: Some(super::bind_admin(project, config)?),
            file: None,
            crash_counts: super::or_warn(CrashCountsFile::open(project, config)),
            project: project.to_path_buf(),
            config: config.clone(),
            groups,
            origin: None,
        }))
    }

    /// The queues and schedules of `surus serve`; None without `work.serve`.
    pub fn groups(project: &Path, config: &Config) -> anyhow::Result<Option<Vec<Group>>> {
        if !config.work.serve {
            return Ok(None);
        }
        if !config.sites.is_empty() {
            bail!(
                "work.serve is not supported with [[site]], because no site is named whose \
                 application runs the jobs; remove it, and start `surus work DIR` for each \
                 application with queues"
            );
        }
        let groups = queues::chosen(project, config, &[]).context("work.serve")?;
        Ok(Some(groups))
    }

    /// How long jobs may take to finish at the end.
    pub fn shutdown_timeout(&self) -> Duration {
        self.config.work.shutdown_timeout.0
    }

    /// Runs jobs in the process of `surus serve`, until a signal or `end`.
    pub async fn run(self, end: CancellationToken) {
        if let Err(error) = run::run(self, Host::Server(end)).await {
            error!(error = format!("{error:#}"), "cannot run the queues");
        }
    }

    /// Closes the listener in the keeper. The file of its socket stays until the end.
    pub fn stop_listening(&mut self) {
        self.file = self.admin.take().and_then(Bound::close);
    }

    /// Forks the process that runs the jobs. `socket` is connected to this process, the keeper.
    pub fn fork(&self, socket: &OwnedFd) -> anyhow::Result<u32> {
        let keeper = std::process::id();
        let admin = self.admin.as_ref().context("the server is shutting down")?;
        let crash_counts = self.crash_counts.as_ref().map(|file| file.file.as_fd());
        let keep: Vec<_> = [admin.as_fd(), socket.as_fd()]
            .into_iter()
            .chain(crash_counts)
            .collect();
        let run = || {
            // The stack below belongs to the keeper.
            let ran = std::panic::catch_unwind(AssertUnwindSafe(|| {
                self.run_forked(admin, socket.try_clone()?, keeper)
            }));
            let ran = ran.unwrap_or_else(|panic| Err(bug(&*panic)));
            log::end(ran.as_ref().err());
            i32::from(ran.is_err())
        };
        fork::fork_into(&keep, run).context("cannot fork the process that runs the queues")
    }

    /// The user and the rights of this process are those of `surus work`.
    fn run_forked(&self, admin: &Bound, socket: OwnedFd, keeper: u32) -> anyhow::Result<()> {
        let mut config = self.config.clone();
        privileges::leave_terminal().context("cannot leave the keeper's process group")?;
        let user = super::give_up_root(&mut config)?;
        privileges::end_with(keeper).context("the keeper has exited")?;
        privileges::set_name(c"surus work");
        signals::start_over().context("cannot reset the signals")?;
        log::start_writer(&config.log)?;
        config.http.set_budgets();
        // Of root, the keeper has warned.
        if let Some(user) = user.filter(|user| user.uid != 0) {
            info!(user = user.name, "queues: privileges dropped (engine.user)");
        }
        let part = WorkPart {
            project: self.project.clone(),
            config,
            groups: self.groups.clone(),
            admin: Some(admin.share()?),
            file: None,
            crash_counts: self
                .crash_counts
                .as_ref()
                .and_then(|file| file.share().ok()),
            origin: None,
        };
        let runtime = super::runtime()?;
        let ran = runtime.block_on(async {
            let keeper = Client::new(socket, SiteLogs::default())?;
            run::run(part, Host::Keeper(keeper)).await
        });
        runtime.shutdown_background();
        ran
    }
}

fn bug(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    anyhow::anyhow!("a bug in surus: {}", text.unwrap_or_default())
}
