//! `surus work`: runs the jobs of an application's queues until a signal stops it.

mod brokers;
mod describe;
mod failed;
mod laravel;
mod messenger;
mod operate;
mod queues;
mod schedules;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use surus_sys::privileges::{self, Identity};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::brokers::Brokers;
use self::queues::{Group, Weighted};
use super::options::Project;
use super::stop_signals::StopSignals;
use super::{config_trust, engine_setup, events, memory_trim, revalidation, running, stdout};
use crate::config::Config;
use crate::engine::{Engine, Pending};
use crate::engines;
use crate::fronts::admin::{self, Admin, SiteEngines};
use crate::fronts::http::Bound;
use crate::fronts::queue::front::{self, Consumer, Front};
use crate::fronts::queue::runner::Runner;
use crate::fronts::queue::{Format, Queue};
use crate::keeper;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::observe::reopen::{self, Logs};
use crate::observe::status::SiteStatus;

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
    /// Number of PHP processes
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Engine that runs PHP; `surus engines` lists all [default: rewind for jobs of Laravel and
    /// Messenger, else worker]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    if let Some(operation) = &args.operation {
        return operate::run(operation);
    }
    let project = args.project.directory()?;
    let loaded = args.project.load()?;
    let distrust = config_trust::warning(&loaded);
    let mut config = loaded.config;
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
    let user = give_up_root(&mut config)?;
    log::start(&config.log)?;
    reopen::lead_to(&project, None, config.log.file.as_deref())?;
    if let Some(distrust) = distrust {
        warn!(
            reason = distrust,
            "the configuration is not safe from other users"
        );
    }
    if let Some(user) = user {
        info!(
            user,
            "started as root; continues as this user (engine.user)"
        );
    }
    surus_sys::process::raise_open_files().context("cannot raise the limit of open files")?;
    engines::restrict_process(&config.engine)?;
    if let Some(file) = &loaded.file {
        info!(file = %file.display(), "configuration read");
    }
    config.http.set_budgets();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let worked = runtime.block_on(work(&project, config, groups, admin));
    runtime.shutdown_background();
    worked
}

/// The listener for health checks, metrics, reloads and pauses.
fn bind_admin(project: &Path, config: &Config) -> anyhow::Result<Bound> {
    let (settings, name) = running::find_work(project, config);
    let bound = settings.bind(&name);
    bound.context("the admin listener of `surus work` (work.admin_listen)")
}

/// Becomes the user of PHP: nothing here needs root, and the files of databases must be PHP's.
fn give_up_root(config: &mut Config) -> anyhow::Result<Option<String>> {
    let Some(user) = engines::find_user(&config.engine)? else {
        return Ok(None);
    };
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
    Ok(Some(user.name))
}

async fn work(
    project: &Path,
    config: Config,
    groups: Vec<Group>,
    admin: Bound,
) -> anyhow::Result<()> {
    let mut stop_signals = StopSignals::listen()?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut usr1 = signal(SignalKind::user_defined1())?;
    let logs = Logs::remember();
    let mut usr2 = signal(SignalKind::user_defined2())?;
    let metrics = Arc::new(Metrics::default());
    let admin_listener = admin.listen()?;
    let booted = tokio::select! {
        booted = boot(project, &config, groups, &metrics) => booted?,
        () = stop_signals.recv() => return Ok(()),
    };
    let engines: Vec<Arc<dyn Engine>> = booted
        .iter()
        .filter_map(|front| front.engine().cloned())
        .collect();
    let reload = {
        let engines = engines.clone();
        Arc::new(move || -> Pending<'static, anyhow::Result<()>> {
            let engines = engines.clone();
            Box::pin(async move {
                let mut prepared = Vec::new();
                for engine in &engines {
                    prepared.push(engine.prepare().await?);
                }
                for prepared in prepared {
                    prepared.change_over()?;
                }
                info!("reloaded");
                Ok(())
            })
        })
    };
    let revalidation = {
        let reload = reload.clone();
        tokio::spawn(revalidation::run(engines.clone(), move || reload()))
    };
    let admin = Arc::new(Admin {
        project: PathBuf::from(project),
        sites: Arc::new(move || {
            vec![SiteEngines {
                status: SiteStatus::default(),
                engines: engines.clone(),
            }]
        }),
        queues: booted.clone(),
        metrics,
        draining: AtomicBool::new(false),
        dashboard: Arc::default(),
        reload: {
            let reload = reload.clone();
            Box::new(move || reload())
        },
    });
    info!(address = admin_listener.name(), "admin listener");
    let admin_task = tokio::spawn(admin::run(admin_listener, admin.clone()));
    tokio::spawn(memory_trim::run());
    let stop = CancellationToken::new();
    let mut fronts = JoinSet::new();
    for front in booted {
        for consumer in &front.consumers {
            let (queue, weight) = (&consumer.queue.name, consumer.queue.weight);
            stdout::announce(format_args!("working on queue {queue} (weight {weight})"));
        }
        fronts.spawn(front::run(front, stop.clone()));
    }
    loop {
        let start_reload = || {
            let reload = reload();
            tokio::spawn(async move {
                if let Err(error) = reload.await {
                    error!(error = format!("{error:#}"), "the reload failed");
                }
            });
        };
        tokio::select! {
            _ = hangup.recv() => start_reload(),
            _ = usr2.recv() => start_reload(),
            _ = usr1.recv() => {
                if let Err(error) = logs.reopen() {
                    warn!(%error, "cannot reopen the logs");
                }
            }
            () = stop_signals.recv() => break,
            Some(ended) = fronts.join_next() => {
                drop(ended.context("the front end of a queue failed")?);
            }
        }
    }
    info!("shutting down: running jobs finish; a second signal exits immediately");
    admin.draining.store(true, Ordering::Release);
    revalidation.abort();
    stop.cancel();
    let mut interrupted = Vec::new();
    let ended = async {
        while let Some(ended) = fronts.join_next().await {
            match ended {
                Ok(left) => interrupted.push(left),
                Err(error) => error!(%error, "the front end of a queue failed"),
            }
        }
    };
    tokio::select! {
        () = ended => {}
        () = stop_signals.recv() => warn!("second signal received; exiting immediately"),
    }
    drop(fronts);
    // Aborting the task removes the socket file. With the last engine, PHP's processes end.
    admin_task.abort();
    let _ = admin_task.await;
    let _ = revalidation.await;
    drop((admin, reload));
    for left in interrupted {
        left.release().await;
    }
    Ok(())
}

/// Boots PHP and opens the brokers of all queues.
async fn boot(
    project: &Path,
    config: &Config,
    groups: Vec<Group>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Vec<Arc<Front>>> {
    let mut brokers = Brokers::new(project, &config.work);
    let mut fronts = Vec::new();
    for group in groups {
        let workers = group.workers;
        let consumers = match &group.php {
            None => {
                let entries = group.schedules.into_iter();
                let consumers = entries.map(|entry| schedules::consumer(entry, project, None));
                consumers.collect::<anyhow::Result<_>>()?
            }
            Some(php) => {
                let runner = queues::boot(project, config, php, group.workers, metrics).await?;
                consumers(project, config, &mut brokers, &Arc::new(runner), group).await?
            }
        };
        let paused = vec![false; consumers.len()];
        fronts.push(Arc::new(Front {
            workers,
            consumers,
            settings: config.work.clone(),
            metrics: metrics.clone(),
            suspects: Default::default(),
            paused: watch::Sender::new(paused),
        }));
    }
    Ok(fronts)
}

/// Opens the queues that the same PHP workers serve.
async fn consumers(
    project: &Path,
    config: &Config,
    brokers: &mut Brokers,
    runner: &Arc<Runner>,
    group: Group,
) -> anyhow::Result<Vec<Consumer>> {
    let mut consumers: Vec<Consumer> = Vec::new();
    brokers.workers = group.workers;
    let is_laravel = |queue: &Queue| queue.format() == Format::Laravel;
    let is_sync = |application: &laravel::LaravelApplication| application.driver == "sync";
    let application = match group.queues.iter().any(is_laravel) {
        true => Some(describe::ask(runner).await?),
        false => None,
    };
    let is_messenger = |queue: &Queue| queue.format() == Format::Messenger;
    let messenger: Option<messenger::Messenger> = match group.queues.iter().any(is_messenger) {
        true => Some(describe::ask(runner).await?),
        false => None,
    };
    let has_schedules = config.work.schedule || !config.schedule.is_empty();
    for queue in group.queues {
        if let Some(messenger) = messenger.as_ref().filter(|_| is_messenger(&queue)) {
            for (queue, transport) in messenger.chosen(queue)? {
                consumers.push(brokers.transport(queue, transport, runner).await?);
            }
            continue;
        }
        if has_schedules && queue.name.is_empty() && application.as_ref().is_some_and(is_sync) {
            info!("no queue is served: the application runs its jobs itself (QUEUE_CONNECTION)");
            continue;
        }
        let opened = brokers.consumer(queue, application.as_ref(), runner).await;
        consumers.push(opened?);
    }
    for entry in group.schedules {
        consumers.push(schedules::consumer(entry, project, Some(runner))?);
    }
    if group.is_schedule_of_laravel {
        consumers.push(schedules::of_laravel(runner)?);
    }
    let status = runner.engine.status();
    info!(
        php = status.php,
        workers = group.workers,
        queues = consumers.len(),
        "PHP is ready"
    );
    Ok(consumers)
}
