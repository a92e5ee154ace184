//! `surus work`: runs the jobs of an application's queues until a signal stops it.

mod brokers;
mod check;
mod describe;
mod failed;
mod laravel;
mod leftovers;
mod messenger;
mod open;
mod operate;
mod part;
mod queues;
mod run;
mod schedules;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use surus_sys::privileges::{self, Identity};
use surus_sys::process::User;
use tracing::{info, warn};

use self::leftovers::CrashCountsFile;
use self::queues::{Group, Weighted};
use self::run::Host;
use super::options::{Project, log_files};
use super::{config_trust, engine_setup, events, memory_trim, revalidation, running, stdout};
use crate::config::Config;
use crate::config::reread::ConfigOrigin;
use crate::engines;
use crate::fronts::http::{Bound, SocketFile};
use crate::keeper;
use crate::observe::{log, reopen};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    operation: Option<operate::Operation>,
    #[command(flatten)]
    project: Project,
    /// Queue to serve, with its weight relative to the others; may be repeated [default: all
    /// [[queue]] tables, else the default queue of the Laravel application, or all transports of
    /// Messenger]
    #[arg(long = "queue", value_name = "NAME[=WEIGHT]")]
    queues: Vec<Weighted>,
    /// Run the schedule of the Laravel application, too
    #[arg(long)]
    schedule: bool,
    /// Number of PHP processes that run jobs
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Engine that runs PHP; `surus engines` lists all [default: rewind for jobs of Laravel and
    /// Messenger, else worker]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
}

/// The queues and schedules of a project, ready to run.
pub struct WorkPart {
    project: PathBuf,
    config: Config,
    groups: Vec<Group>,
    /// The listener for health checks, metrics, reloads and pauses. None in a keeper that has
    /// closed it.
    admin: Option<Bound>,
    /// The file of a closed one.
    file: Option<SocketFile>,
    /// The file of [`CrashCounts`](crate::fronts::queue::crash_counts::CrashCounts).
    crash_counts: Option<CrashCountsFile>,
    /// How the configuration was read, if this process can still read it and no other compares it.
    origin: Option<Arc<ConfigOrigin>>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if let Some(operation) = &args.operation {
        return operate::run(operation);
    }
    let project = args.project.directory()?;
    let loaded = args.project.load_single(args.engine.as_deref())?;
    let distrust = config_trust::warnings(&loaded);
    let (mut config, origin) = (loaded.config, Arc::new(loaded.origin));
    config.work.schedule |= args.schedule;
    if let Some(workers) = args.workers {
        config.engine.fix_workers(workers);
    }
    if let Some(engine) = &args.engine {
        engines::find(engine).context("--engine")?;
        config.engine.name = Some(engine.clone());
    }
    if let Some(status) = keeper::init::run()? {
        std::process::exit(status.into());
    }
    let groups = queues::chosen(&project, &config, &args.queues)?;
    let admin = bind_admin(&project, &config)?;
    let crash_counts = CrashCountsFile::open(&project, &config);
    let _alive = match surus_sys::process::is_root() {
        true => Some(leftovers::remove_after(&admin, crash_counts.as_ref().ok())?),
        false => None,
    };
    let user = give_up_root(&mut config)?;
    log::start(&config.log)?;
    reopen::lead_to(&project, None, config.log.file.as_deref())?;
    config_trust::report(distrust);
    let origin = user.is_none().then_some(origin);
    match user {
        Some(user) if user.uid == 0 => warn!(
            "jobs run as root (engine.user): an attacker who takes over a job is root; name \
             another user"
        ),
        Some(user) => info!(
            user = user.name,
            "started as root; continues as this user (engine.user)"
        ),
        None => {}
    }
    surus_sys::process::raise_open_files().context("cannot raise the limit of open files")?;
    engines::restrict_process(&config.engine)?;
    log_files(loaded.file.as_deref(), loaded.unread.as_deref());
    if let Some(roadrunner) = &loaded.roadrunner {
        roadrunner.log();
    }
    config.http.set_budgets();
    let runtime = runtime()?;
    let part = WorkPart {
        project,
        config,
        groups,
        admin: Some(admin),
        file: None,
        crash_counts: or_warn(crash_counts),
        origin,
    };
    let worked = runtime.block_on(run::run(part, Host::Own));
    runtime.shutdown_background();
    worked
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// The listener for health checks, metrics, reloads and pauses.
fn bind_admin(project: &Path, config: &Config) -> anyhow::Result<Bound> {
    let (settings, name) = running::find_work(project, config);
    let bound = settings.bind(&name);
    bound.context("the admin listener of `surus work` (work.admin_listen)")
}

/// The queues run without it.
fn or_warn(file: anyhow::Result<CrashCountsFile>) -> Option<CrashCountsFile> {
    let warn = |error: &anyhow::Error| {
        let error = format!("{error:#}");
        warn!(
            error,
            "jobs that kill the process of the queues are forgotten with it"
        );
    };
    file.inspect_err(warn).ok()
}

/// Becomes the user of PHP, and returns it: nothing here needs root, and the files of databases
/// must be PHP's. If that is root, this process stays root, as PHP does.
fn give_up_root(config: &mut Config) -> anyhow::Result<Option<User>> {
    let Some(user) = engines::find_user(&config.engine)? else {
        return Ok(None);
    };
    if user.uid == 0 {
        return Ok(Some(user));
    }
    let identity = Identity::new(&user).with_context(|| {
        format!(
            "cannot read the supplementary groups of user {} (engine.user)",
            user.name
        )
    })?;
    privileges::give_up(&identity)
        .with_context(|| format!("cannot become user {} (engine.user)", user.name))?;
    config.engine.user = None;
    config.engine.group = None;
    Ok(Some(user))
}
