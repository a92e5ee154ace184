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

use super::run::{self, Host};
use super::{WorkPart, queues};
use crate::config::Config;
use crate::keeper::Client;
use crate::observe::log;

impl WorkPart {
    /// What `surus serve` runs besides HTTP; None without `work.serve`.
    pub fn of_server(project: &Path, config: &Config) -> anyhow::Result<Option<WorkPart>> {
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
        Ok(Some(WorkPart {
            admin: super::bind_admin(project, config)?,
            project: project.to_path_buf(),
            config: config.clone(),
            groups,
            origin: None,
        }))
    }

    /// How long jobs may take to finish at the end.
    pub fn grace(&self) -> Duration {
        self.config.work.shutdown_timeout.0
    }

    /// Runs jobs in the process of `surus serve`, until a signal or `end`.
    pub async fn run(&self, end: CancellationToken) {
        if let Err(error) = run::run(self, &self.admin, Host::Server(end)).await {
            error!(error = format!("{error:#}"), "cannot run the queues");
        }
    }

    /// Forks the process that runs the jobs. `socket` is connected to this process, the keeper.
    pub fn fork(&self, socket: &OwnedFd) -> anyhow::Result<u32> {
        let keeper = std::process::id();
        let keep = [self.admin.as_fd(), socket.as_fd()];
        let run = || {
            // The stack below belongs to the keeper.
            let ran = std::panic::catch_unwind(AssertUnwindSafe(|| {
                self.run_forked(socket.try_clone()?, keeper)
            }));
            let ran = ran.unwrap_or_else(|panic| Err(bug(&*panic)));
            log::end(ran.as_ref().err());
            i32::from(ran.is_err())
        };
        fork::fork_into(&keep, run).context("cannot fork the process that runs the queues")
    }

    /// The user and the rights of this process are those of `surus work`.
    fn run_forked(&self, socket: OwnedFd, keeper: u32) -> anyhow::Result<()> {
        let mut config = self.config.clone();
        privileges::leave_terminal().context("cannot leave the keeper's process group")?;
        let user = super::give_up_root(&mut config)?;
        privileges::end_with(keeper).context("the keeper has exited")?;
        privileges::set_name(c"surus work");
        signals::start_over().context("cannot reset the signals")?;
        log::start_writer(&config.log)?;
        config.http.set_budgets();
        info!(user, "queues: privileges dropped (engine.user)");
        let part = WorkPart {
            project: self.project.clone(),
            config,
            groups: self.groups.clone(),
            admin: self.admin.share()?,
            origin: None,
        };
        let runtime = super::runtime()?;
        let ran = runtime.block_on(async {
            let keeper = Client::new(socket)?;
            run::run(&part, &part.admin, Host::Keeper(keeper)).await
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
