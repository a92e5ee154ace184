//! `surus serve`: runs the keeper and the front end until a signal stops them.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use surus_sys::signals::Signals;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::addresses::{self, Addresses};
use super::keeper_tasks::{ProjectKeeper, Sockets};
use super::options::ServeArgs;
use super::served::{ReloadHook, Served, open_tree};
use super::site_plans::{Plans, SitePlan};
use super::stop_signals::StopSignals;
use super::work_part::WorkPart;
use super::{
    acme, boot_script, config_trust, keeper_tasks, learned_pages, memory_trim, reloads,
    spool_access, tls, watch,
};
use crate::app::DocumentTree;
use crate::app::site::file_opener::Opener;
use crate::config::Config;
use crate::engines;
use crate::fronts::admin::{self, Admin};
use crate::fronts::http;
use crate::fronts::http::{AccessLog, Accounting, Bound, Https, Service};
use crate::keeper::{self, Client, Keeper, KeeperOutcome, confine};
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::observe::reopen::{self, Logs};
use crate::observe::traces::Tracer;

#[derive(Debug, clap::Args)]
pub struct Serve {
    #[command(flatten)]
    args: ServeArgs,
    /// Boot again when a file changes, and reload the page in browsers; for development
    #[arg(long)]
    watch: bool,
}

pub fn run(Serve { args, watch }: Serve) -> anyhow::Result<()> {
    let project = args.app.project.directory()?;
    let loaded = args.load()?;
    let distrust = config_trust::warning(&loaded);
    let mut config = loaded.config;
    // As root, a keeper process keeps the privileges and reads nothing from the network. It has one
    // thread, so that it can safely fork another front end.
    let is_kept = surus_sys::process::has_other_users();
    if watch {
        watch::check(&config, is_kept)?;
    }
    if let Some(status) = keeper::init::run()? {
        std::process::exit(status.into());
    }
    match is_kept {
        true => log::start_direct(&config.log)?,
        false => log::start(&config.log)?,
    }
    if !is_kept && surus_sys::process::is_root() {
        warn!(
            "this user namespace has no user but root, so that PHP and the process that reads \
             requests are not separated; map more users into it (/etc/subuid), or start Surus as a \
             user"
        );
    }
    if let Some(distrust) = distrust {
        warn!(
            reason = distrust,
            "the configuration is not safe from other users"
        );
    }
    let open_files =
        surus_sys::process::raise_open_files().context("cannot raise the limit of open files")?;
    config.http.fit_connections(open_files);
    engines::restrict_process(&config.engine)?;
    if is_kept && let Err(error) = config.telemetry.look_up() {
        let error = format!("{error:#}");
        warn!(error, "requests are not traced (telemetry.endpoint)");
        config.telemetry.endpoint = None;
    }
    let admin = config.admin.address(&project);
    let watching = watch.then(|| watch::Watching::new(args, loaded.file.clone(), &admin));
    if let Some(file) = &loaded.file {
        info!(file = %file.display(), "configuration read");
    }
    if let Some(roadrunner) = &loaded.roadrunner {
        info!(file = %roadrunner.file.display(), "configuration of RoadRunner read");
        if !roadrunner.ignored.is_empty() {
            let settings = roadrunner.ignored.join(", ");
            warn!(
                settings,
                "RoadRunner's settings without a counterpart are ignored"
            );
        }
    }
    let listeners = addresses::bind(&config)?;
    let admin = config.admin.bind(&project)?;
    let queues = WorkPart::of_server(&project, &config)?;
    // A single site that cannot be opened stops the start before anything is planned.
    let mut trees = Vec::new();
    if config.sites.is_empty() {
        trees.push(Ok(open_tree(&project, &config)?));
    }
    let plans = Arc::new(Plans::new(&project, &config)?);
    for site in &plans.sites {
        let pools = &plans.pools[site.pools.clone()];
        for planned in pools.iter().filter(|planned| planned.asked.learns()) {
            // Not used before a comparison of answers.
            let pages = learned_pages::load(&site.project, &planned.asked);
            planned.asked.learned.propose(pages);
        }
        for planned in pools.iter().filter(|planned| planned.asked.could_learn()) {
            info!(
                engine = planned.asked.name,
                "the boot is warmed up by a page that does not exist; with engine.warmup = \
                 \"learn\", also by pages that clients often ask for, which saves more CPU time"
            );
        }
        if let Some(obstacle) = boot_script::configured_obstacle(&site.config) {
            let site = (!site.name.is_empty()).then_some(site.name);
            warn!(
                site,
                application = obstacle,
                "the application cannot be booted; `classic` serves it instead"
            );
        }
    }
    let (access_log, errors) = (&config.access_log.file, &config.log.file);
    reopen::lead_to(&project, access_log.as_deref(), errors.as_deref())?;
    if !is_kept {
        if !config.sites.is_empty() {
            let open = |site: &SitePlan| open_tree(&site.project, &site.config);
            trees.extend(plans.sites.iter().map(open));
        }
        run_front_end(FrontEnd {
            project,
            config,
            listeners,
            admin,
            trees,
            plans,
            keeper: None,
            queues,
            watching: watching.clone(),
        })?;
        return watching.map_or(Ok(()), |watching| watching.restart());
    }
    drop(trees);
    let sockets = Sockets::keep(listeners, admin);
    let run = |front: keeper::ForkedFrontEnd| {
        let (listeners, admin) = sockets.take().context("the front end was started twice")?;
        let mut trees = Vec::new();
        let mut openers = Vec::new();
        for (site, directories) in plans.sites.iter().zip(front.directories) {
            let adopted =
                directories.and_then(|directories| keeper_tasks::adopt(&site.config, directories));
            trees.push(adopted.map(|(tree, opener)| {
                openers.push(opener);
                tree
            }));
        }
        log::start_writer(&config.log)?;
        run_front_end(FrontEnd {
            project: project.clone(),
            config: config.clone(),
            listeners,
            admin,
            trees,
            plans: plans.clone(),
            keeper: Some(KeeperHandle {
                socket: front.socket,
                openers,
                signals: front.signals,
            }),
            queues: None,
            watching: None,
        })
    };
    let kept = ProjectKeeper {
        project: project.clone(),
        config: config.clone(),
        plans: plans.clone(),
        users: keeper_tasks::users(&config)?,
        sockets: sockets.clone(),
        queues,
    };
    match keep(kept, run)? {
        0 => Ok(()),
        // The front end has already reported the failure.
        status => std::process::exit(status.into()),
    }
}

/// Runs the keeper of a project with a front end that has the usual privileges but runs `front`.
/// For tests.
pub fn keep_other(
    project: &Path,
    front: impl FnOnce(keeper::ForkedFrontEnd) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let config = crate::config::load(project, None, crate::config::env::read()?.into_iter(), None)?;
    log::start_direct(&config.config.log)?;
    let plans = Arc::new(Plans::new(project, &config.config)?);
    let config = config.config;
    let users = keeper_tasks::users(&config)?;
    let kept = ProjectKeeper {
        project: project.to_path_buf(),
        config,
        plans,
        users,
        sockets: Rc::default(),
        queues: None,
    };
    keep(kept, front)
}

/// Runs a keeper. Returns in the front-end process when `run` returns, and in the keeper at
/// shutdown.
fn keep(
    kept: ProjectKeeper,
    run: impl FnOnce(keeper::ForkedFrontEnd) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let (config, plans) = (kept.config.clone(), kept.plans.clone());
    let user = kept.users.front.clone();
    match Keeper::new(kept)?.run()? {
        KeeperOutcome::Ended(status) => Ok(status),
        KeeperOutcome::FrontEnd(front) => {
            let reach = keeper_tasks::reach(&config, &front.directories, &plans.pools)?;
            confine(
                &keeper_tasks::confinement(&config),
                &user,
                front.keeper,
                &reach,
            )?;
            run(front).map(|()| 0)
        }
    }
}

/// How long the last traces may delay the exit.
const FLUSH: Duration = Duration::from_secs(5);

/// What the front-end process starts with.
struct FrontEnd {
    project: PathBuf,
    config: Config,
    listeners: Addresses<Bound>,
    admin: Bound,
    /// The directories of each site, or why they cannot be opened.
    trees: Vec<anyhow::Result<DocumentTree>>,
    plans: Arc<Plans>,
    keeper: Option<KeeperHandle>,
    /// What runs jobs in this process. A keeper has another process for it.
    queues: Option<WorkPart>,
    /// For `--watch`.
    watching: Option<Arc<watch::Watching>>,
}

/// What a front end has from its keeper.
struct KeeperHandle {
    socket: OwnedFd,
    /// See [`keeper_tasks::attend`].
    openers: Vec<(u32, Arc<Opener>)>,
    /// Signals that have not been handled.
    signals: Signals,
}

fn run_front_end(front: FrontEnd) -> anyhow::Result<()> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let threads = threads();
    builder.worker_threads(threads).enable_all();
    engines::observe_parking(&mut builder, threads);
    let runtime = builder.build()?;
    let served = runtime.block_on(serve(front));
    // In-flight work has already had the whole grace period.
    runtime.shutdown_background();
    served
}

/// Threads of the front end: one for every two CPUs, because PHP needs most of the CPU time.
fn threads() -> usize {
    (std::thread::available_parallelism().map_or(1, |cpus| cpus.get()) / 2).max(1)
}

async fn serve(front: FrontEnd) -> anyhow::Result<()> {
    let mut stop = StopSignals::listen()?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut usr1 = signal(SignalKind::user_defined1())?;
    let mut usr2 = signal(SignalKind::user_defined2())?;
    let logs = Logs::remember();

    let FrontEnd {
        project,
        config,
        listeners,
        admin,
        trees,
        plans,
        keeper,
        queues,
        watching,
    } = front;
    config.http.set_budgets();
    let listeners = listeners.listen()?;
    let admin_listener = admin.listen()?;
    let keeper = match keeper {
        None => None,
        Some(kept) => {
            // Where this process can take them now, and in this thread alone.
            kept.signals.release();
            let keeper = Client::new(kept.socket)?;
            for opener in kept.openers {
                keeper_tasks::attend(&keeper, opener);
            }
            Some(keeper)
        }
    };
    let lost = || {
        let keeper = keeper.clone();
        async move {
            match keeper {
                Some(keeper) => keeper.lost().await,
                None => std::future::pending().await,
            }
        }
    };
    if let Some(problem) = spool_access::check_this_process(&config)? {
        warn!(reason = problem, "request bodies above 64 KiB are rejected");
    }
    let metrics = Arc::new(Metrics::default());
    // Before PHP boots, which takes longer.
    let answers = Arc::default();
    let tls = tls::start(&project, &config, keeper.clone(), &answers, &metrics).await?;
    let served = tokio::select! {
        booted = Served::boot(&plans, trees, &keeper, &metrics) => Arc::new(booted?),
        () = stop.recv() => return Ok(()),
        () = lost() => bail!("the keeper process has exited"),
    };
    let quic = listeners.quic_ports();
    let service = Arc::new(Service {
        sites: served.hosted(),
        accounting: Arc::new(Accounting::new(
            metrics.clone(),
            AccessLog::start(&config.access_log.format)?,
        )),
        https: Https::new(&config.http, &config.tls, answers).with_http_3(quic.into_iter()),
        spool: config.http.response_spool(),
        settings: config.http.clone(),
        tracer: Tracer::start(&config.telemetry, &metrics)?,
        live_reload: watching.as_ref().map(|watching| watching.pages.clone()),
    });
    let renew = Arc::new(Notify::new());
    let renewals = acme::run(
        project.clone(),
        config.clone(),
        keeper.clone(),
        tls.clone(),
        renew.clone(),
        metrics.clone(),
    );
    let reload = {
        let reload = reloads::Reload {
            served: served.clone(),
            tls: tls.clone(),
            pages: service.live_reload.clone(),
        };
        let reload: ReloadHook = Arc::new(move || reload.clone().start());
        reload
    };
    let asked = {
        let (reload, renew) = (reload.clone(), renew.clone());
        Arc::new(move || reloads::by_operator(reload(), renew.clone()))
    };
    match &watching {
        None => served.watch(|_| None),
        Some(watching) => watching.start(&config.watch, &project, &served, &reload)?,
    }
    let admin = Arc::new(Admin {
        project,
        sites: {
            let served = served.clone();
            Arc::new(move || served.engines())
        },
        queues: Arc::new(Vec::new),
        metrics,
        draining: AtomicBool::new(false),
        dashboard: Arc::default(),
        reload: {
            let asked = asked.clone();
            Box::new(move || asked())
        },
    });
    tokio::spawn(memory_trim::run());
    info!(address = admin_listener.name(), "admin listener");
    let admin_task = tokio::spawn(admin::run(admin_listener, admin.clone()));
    listeners.announce(config.access_log.format.is_json() || config.access_log.file.is_some());
    let draining = tokio_util::sync::CancellationToken::new();
    let https = listeners
        .https
        .into_iter()
        .map(|listener| (listener, tls.clone()));
    let http = listeners.http.into_iter().map(|listener| (listener, None));
    let mut quic = Vec::new();
    if let Some(tls) = &tls {
        for socket in listeners.quic {
            quic.push(http::QuicListener::new(socket, tls.clone(), &config.http)?);
        }
    }
    let front = tokio::spawn(http::run(
        http.chain(https).collect(),
        quic,
        service.clone(),
        draining.clone().cancelled_owned(),
    ));
    // Authorities connect to this server.
    tokio::spawn(renewals);

    log::has_started();
    if let Some(keeper) = &keeper {
        keeper.ready();
    }
    let end_of_queues = tokio_util::sync::CancellationToken::new();
    let running_queues = queues.map(|queues| {
        let end = end_of_queues.clone();
        tokio::spawn(async move { queues.run(end).await })
    });
    let start_reload = || {
        let reload = asked();
        tokio::spawn(async move {
            if let Err(error) = reload.await {
                error!(error = format!("{error:#}"), "the reload failed");
            }
        });
    };
    loop {
        tokio::select! {
            _ = hangup.recv() => start_reload(),
            _ = usr2.recv() => start_reload(),
            // If there is a keeper, it reopens the logs.
            _ = usr1.recv(), if keeper.is_none() => {
                if let Err(error) = logs.reopen() {
                    warn!(%error, "cannot reopen the logs");
                }
            }
            () = stop.recv() => break,
            () = watch::asks_for_restart(&watching) => break,
            () = lost() => bail!("the keeper process has exited"),
        }
    }
    info!("shutting down; a second signal exits immediately");
    if let Some(pages) = &service.live_reload {
        pages.close();
    }
    admin.draining.store(true, Ordering::Release);
    served.unwatch();
    let delay = config.http.shutdown_delay.0;
    let grace = config.http.shutdown_timeout.0 + Duration::from_secs(1);
    end_of_queues.cancel();
    let ended_queues = futures_util::future::OptionFuture::from(running_queues);
    let drained = async {
        if let Err(error) = front.await {
            error!(%error, "the front end failed");
        }
        served.drain().await;
    };
    let ended = async {
        // Load balancers see from the readiness probe that this server shuts down, before it
        // rejects connections.
        tokio::time::sleep(delay).await;
        draining.cancel();
        if tokio::time::timeout(grace, drained).await.is_err() {
            warn!("grace period exceeded (http.shutdown_timeout); in-flight requests aborted");
        }
        if let Some(tracer) = &service.tracer {
            tracer.flush(FLUSH).await;
        }
        // Their time is work.shutdown_timeout.
        if let Some(Err(error)) = ended_queues.await {
            error!(%error, "the queues failed");
        }
    };
    tokio::select! {
        () = ended => {}
        () = stop.recv() => warn!("second signal received; exiting immediately"),
        () = lost() => {}
    }
    // Aborting the task removes the socket file.
    admin_task.abort();
    let _ = admin_task.await;
    if let Some(log) = &service.accounting.access_log {
        log.end();
    }
    Ok(())
}
