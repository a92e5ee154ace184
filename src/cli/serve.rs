//! `surus serve`: runs the keeper and the front end until a signal stops them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use surus_sys::signals::Signals;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use super::addresses::{self, Addresses};
use super::engine_setup::PlannedPool;
use super::options::Args;
use super::{
    boot_engines, boot_script, config_trust, engine_setup, keeper_tasks, memory_trim, spool_access,
    tls,
};
use crate::app::site::file_opener::Opener;
use crate::app::site::routes::Routes;
use crate::app::x_sendfile::SendFile;
use crate::app::{Application, DocumentTree};
use crate::config::Config;
use crate::engines;
use crate::fronts::admin::{self, Admin};
use crate::fronts::http;
use crate::fronts::http::request::access_log;
use crate::fronts::http::{AccessLog, Accounting, Bound, Https, Service};
use crate::keeper::{self, Client, Keeper, Outcome, confine};
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::observe::reopen::Logs;

pub fn run(args: Args) -> anyhow::Result<()> {
    let project = args.project.directory()?;
    let loaded = args.load()?;
    let distrust = config_trust::warning(&loaded);
    let config = loaded.config;
    // As root, a keeper process keeps the privileges and reads nothing from the network. It has one
    // thread, so that it can safely fork another front end.
    let is_kept = surus_sys::process::has_other_users();
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
        warn!("{distrust}");
    }
    surus_sys::process::raise_open_files().context("cannot raise the limit of open files")?;
    engines::restrict_process(&config.engine)?;
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
    let place = open_place(&project, &config)?;
    let asked = engine_setup::asked_for(&project, &config, &place.routes)?;
    let plans = Arc::new(engine_setup::plan_all(asked, &project)?);
    let main = engine_setup::chosen(&project, &config)?.name;
    if let Some(obstacle) = boot_script::configured_obstacle(&config) {
        warn!(
            application = obstacle,
            "the application cannot be booted; `classic` serves it instead"
        );
    }
    if !is_kept {
        return run_front(Front {
            project,
            config,
            listeners,
            admin,
            place,
            plans,
            main,
            keeper: None,
        });
    }
    drop(place);
    let mut sockets = Some((listeners, admin));
    let run = |front: keeper::Front| {
        let (mut listeners, mut admin) =
            sockets.take().context("the front end was started twice")?;
        // The keeper removes the socket files.
        listeners.leave_files();
        admin.leave_file();
        let (place, opener) = keeper_tasks::adopt(&config, front.place)?;
        log::start_writer(&config.log)?;
        run_front(Front {
            project: project.clone(),
            config: config.clone(),
            listeners,
            admin,
            place,
            plans: plans.clone(),
            main,
            keeper: Some(KeeperHandle {
                socket: front.socket,
                opener,
                signals: front.signals,
            }),
        })
    };
    match keep(&project, &config, plans.clone(), run)? {
        0 => Ok(()),
        status => {
            // The front end has already reported the failure. Dropping the sockets removes their
            // files.
            drop(sockets);
            std::process::exit(status.into());
        }
    }
}

/// Runs the keeper of a project with a front end that has the usual privileges but runs `front`.
/// For tests.
pub fn keep_other(
    project: &Path,
    front: impl FnOnce(keeper::Front) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let config = crate::config::load(
        project,
        None,
        crate::config::env::of_process()?.into_iter(),
        None,
    )?;
    log::start_direct(&config.config.log)?;
    let place = open_place(project, &config.config)?;
    let asked = engine_setup::asked_for(project, &config.config, &place.routes)?;
    let plans = Arc::new(engine_setup::plan_all(asked, project)?);
    keep(project, &config.config, plans, front)
}

/// Runs a keeper. Returns in the front-end process when `run` returns, and in the keeper at
/// shutdown.
fn keep(
    project: &Path,
    config: &Config,
    plans: Arc<Vec<PlannedPool>>,
    run: impl FnOnce(keeper::Front) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let (php, user) = keeper_tasks::users(config)?;
    let kept = keeper_tasks::ProjectKeeper::new(project, config, plans.clone(), user.clone(), php);
    match Keeper::new(kept)?.run()? {
        Outcome::Ended(status) => Ok(status),
        Outcome::Front(front) => {
            let reach = keeper_tasks::reach(config, &front.place, &plans)?;
            confine(
                &keeper_tasks::confinement(config),
                &user,
                front.keeper,
                &reach,
            )?;
            run(front).map(|()| 0)
        }
    }
}

/// What the front-end process starts with.
struct Front {
    project: PathBuf,
    config: Config,
    listeners: Addresses<Bound>,
    admin: Bound,
    place: DocumentTree,
    plans: Arc<Vec<PlannedPool>>,
    /// The engine for requests for which no route names another.
    main: &'static str,
    keeper: Option<KeeperHandle>,
}

/// What a front of a keeper has from it.
struct KeeperHandle {
    socket: OwnedFd,
    /// See [`keeper_tasks::attend`].
    opener: (u32, Arc<Opener>),
    /// Those that wait.
    signals: Signals,
}

fn run_front(front: Front) -> anyhow::Result<()> {
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

async fn serve(front: Front) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut usr1 = signal(SignalKind::user_defined1())?;
    let mut usr2 = signal(SignalKind::user_defined2())?;
    let logs = Logs::remember();

    let Front {
        project,
        config,
        listeners,
        admin,
        place,
        plans,
        main,
        keeper,
    } = front;
    config.http.set_budgets();
    let listeners = listeners.listen()?;
    let admin_listener = admin.listen()?;
    let keeper = match keeper {
        None => None,
        Some(kept) => {
            // Where this process can take them now, and in this thread alone.
            kept.signals.give_back();
            let keeper = Client::new(kept.socket)?;
            keeper_tasks::attend(&keeper, kept.opener);
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
    if let Some(trouble) = spool_access::of_this_process(&config)? {
        warn!("{trouble}");
    }
    let metrics = Arc::new(Metrics::default());
    // Before PHP boots, which takes longer.
    let tls = tls::start(&project, &config, keeper.clone(), &metrics).await?;
    let engines = tokio::select! {
        booted = boot_engines::boot(&plans, &keeper, &metrics) => booted?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
        _ = quit.recv() => return Ok(()),
        () = lost() => bail!("the keeper process has exited"),
    };
    let service = Arc::new(Service {
        application: Application {
            tree: arc_swap::ArcSwap::from_pointee(place),
            engine: main,
            engines,
            metrics: metrics.clone(),
            compress: config.compress.clone(),
        },
        accounting: Arc::new(Accounting::new(
            metrics.clone(),
            AccessLog::start(config.access_log.format)?,
        )),
        https: Https::new(&config.http, &config.tls),
        spool: config.http.response_spool(),
        settings: config.http.clone(),
    });
    let reload = {
        let service = service.clone();
        let (config, project) = (config.clone(), project.clone());
        let (keeper, tls) = (keeper.clone(), tls.clone());
        Arc::new(
            move || -> crate::engine::Pending<'static, anyhow::Result<()>> {
                let (service, config) = (service.clone(), config.clone());
                let (project, keeper, tls) = (project.clone(), keeper.clone(), tls.clone());
                Box::pin(async move {
                    let certificates = tls::prepare(&tls).await?;
                    // A symbolic link to the project may have changed, so the site is opened again.
                    // It is switched only after every engine.
                    let place = match &keeper {
                        Some(keeper) => {
                            let (place, opener) =
                                keeper_tasks::adopt(&config, keeper.place().await?)?;
                            keeper_tasks::attend(keeper, opener);
                            place
                        }
                        None => open_place(&project, &config)?,
                    };
                    let mut prepared = Vec::new();
                    for engine in service.application.engines.values() {
                        prepared.push(engine.prepare().await?);
                    }
                    for prepared in prepared {
                        prepared.change_over()?;
                    }
                    service.application.tree.store(Arc::new(place));
                    tls::change_over(&tls, certificates);
                    info!("reloaded");
                    Ok(())
                })
            },
        )
    };
    let admin = Arc::new(Admin {
        project,
        engines: service.application.engines.values().cloned().collect(),
        queues: Vec::new(),
        metrics,
        draining: AtomicBool::new(false),
        reload: {
            let reload = reload.clone();
            Box::new(move || reload())
        },
    });
    tokio::spawn(memory_trim::run());
    info!(socket = admin_listener.name(), "admin listener");
    let admin_task = tokio::spawn(admin::run(admin_listener, admin.clone()));
    listeners.announce(matches!(config.access_log.format, access_log::Format::Json));
    let draining = tokio_util::sync::CancellationToken::new();
    let https = listeners
        .https
        .into_iter()
        .map(|listener| (listener, tls.clone()));
    let http = listeners.http.into_iter().map(|listener| (listener, None));
    let front = tokio::spawn(http::run(
        http.chain(https).collect(),
        service.clone(),
        draining.clone().cancelled_owned(),
    ));

    if let Some(keeper) = &keeper {
        keeper.ready();
    }
    let start_reload = || {
        let reload = reload();
        tokio::spawn(async move {
            if let Err(error) = reload.await {
                error!("{error:#}");
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
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = quit.recv() => break,
            () = lost() => bail!("the keeper process has exited"),
        }
    }
    info!("shutting down; a second signal exits immediately");
    admin.draining.store(true, Ordering::Release);
    let delay = config.http.shutdown_delay.0;
    let grace = config.http.shutdown_timeout.0 + std::time::Duration::from_secs(1);
    let drained = async {
        if let Err(error) = front.await {
            error!(%error, "the front end failed");
        }
        for engine in service.application.engines.values() {
            engine.drain().await;
        }
    };
    let ended = async {
        // Load balancers see from the readiness probe that this server shuts down, before it
        // rejects connections.
        tokio::time::sleep(delay).await;
        draining.cancel();
        if tokio::time::timeout(grace, drained).await.is_err() {
            warn!("grace period exceeded (http.shutdown_timeout); in-flight requests aborted");
        }
    };
    tokio::select! {
        () = ended => {}
        _ = terminate.recv() => warn!("second signal received; exiting immediately"),
        _ = interrupt.recv() => warn!("second signal received; exiting immediately"),
        _ = quit.recv() => warn!("second signal received; exiting immediately"),
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

/// Opens the application's directory, and the directories from which routes send files.
pub(super) fn open_place(project: &Path, config: &Config) -> anyhow::Result<DocumentTree> {
    let site = Arc::new(engine_setup::open_site(project, config)?);
    let send_file = SendFile::open(
        project,
        site.clone(),
        config.site.symlinks,
        &config.x_sendfile,
    )?;
    let routes = Routes::new(&config.route, &config.site)?;
    let mut fronts = BTreeMap::new();
    for name in routes.engines() {
        if let Some(front) = engine_setup::open_front(project, config, name)? {
            fronts.insert(name.to_owned(), Arc::new(front));
        }
    }
    Ok(DocumentTree {
        site,
        fronts,
        send_file,
        routes,
    })
}
