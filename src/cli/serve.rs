//! `surus serve`: runs the keeper and the front end until a signal stops them.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use surus_sys::signals::Signals;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::addresses::{self, Addresses};
use super::engine_setup::PlannedPool;
use super::learning::{self, Learner};
use super::options::ServeArgs;
use super::served::{Served, open_place};
use super::{
    acme, boot_engines, boot_script, config_lint, config_trust, engine_setup, keeper_tasks,
    learned_pages, memory_trim, revalidation, spool_access, tls,
};
use crate::app::site::file_opener::Opener;
use crate::app::{Application, DocumentTree};
use crate::config::Config;
use crate::engines;
use crate::fronts::admin::{self, Admin};
use crate::fronts::http;
use crate::fronts::http::request::access_log;
use crate::fronts::http::{AccessLog, Accounting, Bound, Https, Service};
use crate::keeper::{self, Client, Keeper, KeeperOutcome, confine};
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::observe::reopen::Logs;

pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let project = args.app.project.directory()?;
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
        warn!(
            reason = distrust,
            "the configuration is not safe from other users"
        );
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
    let asked = engine_setup::pools(&project, &config)?;
    let plans = Arc::new(engine_setup::plan_all(asked, &project)?);
    for planned in plans.iter().filter(|planned| planned.asked.learns()) {
        // Not used before a comparison of answers.
        let pages = learned_pages::load(&project, &planned.asked);
        planned.asked.learned.propose(pages);
    }
    let main = engine_setup::chosen(&project, &config)?.name;
    if let Some(obstacle) = boot_script::configured_obstacle(&config) {
        warn!(
            application = obstacle,
            "the application cannot be booted; `classic` serves it instead"
        );
    }
    if !is_kept {
        return run_front_end(FrontEnd {
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
    let run = |front: keeper::ForkedFrontEnd| {
        let (mut listeners, mut admin) =
            sockets.take().context("the front end was started twice")?;
        // The keeper removes the socket files.
        listeners.leave_files();
        admin.leave_file();
        let (place, opener) = keeper_tasks::adopt(&config, front.place)?;
        log::start_writer(&config.log)?;
        run_front_end(FrontEnd {
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
    front: impl FnOnce(keeper::ForkedFrontEnd) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let config = crate::config::load(project, None, crate::config::env::read()?.into_iter(), None)?;
    log::start_direct(&config.config.log)?;
    let asked = engine_setup::pools(project, &config.config)?;
    let plans = Arc::new(engine_setup::plan_all(asked, project)?);
    keep(project, &config.config, plans, front)
}

/// Runs a keeper. Returns in the front-end process when `run` returns, and in the keeper at
/// shutdown.
fn keep(
    project: &Path,
    config: &Config,
    plans: Arc<Vec<PlannedPool>>,
    run: impl FnOnce(keeper::ForkedFrontEnd) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let (php, user) = keeper_tasks::users(config)?;
    let kept = keeper_tasks::ProjectKeeper::new(project, config, plans.clone(), user.clone(), php);
    match Keeper::new(kept)?.run()? {
        KeeperOutcome::Ended(status) => Ok(status),
        KeeperOutcome::FrontEnd(front) => {
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
struct FrontEnd {
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

/// What a front end has from its keeper.
struct KeeperHandle {
    socket: OwnedFd,
    /// See [`keeper_tasks::attend`].
    opener: (u32, Arc<Opener>),
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
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut usr1 = signal(SignalKind::user_defined1())?;
    let mut usr2 = signal(SignalKind::user_defined2())?;
    let logs = Logs::remember();

    let FrontEnd {
        project,
        config,
        listeners,
        admin,
        place,
        plans,
        main,
        keeper,
    } = front;
    let mut place = place;
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
    if let Some(trouble) = spool_access::check_this_process(&config)? {
        warn!(reason = trouble, "request bodies above 64 KiB are rejected");
    }
    let metrics = Arc::new(Metrics::default());
    // Before PHP boots, which takes longer.
    let answers = Arc::default();
    let tls = tls::start(&project, &config, keeper.clone(), &answers, &metrics).await?;
    // Those of a front end that has ended.
    for (number, planned) in (0..).zip(plans.iter()).filter(|(_, it)| it.asked.learns()) {
        let keeper = keeper.clone().map(|keeper| (keeper, number));
        let pages = learning::withdraw(planned, &keeper).await;
        planned.asked.learned.propose(pages);
    }
    let engines = tokio::select! {
        booted = boot_engines::boot(&plans, &keeper, &metrics) => booted?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
        _ = quit.recv() => return Ok(()),
        () = lost() => bail!("the keeper process has exited"),
    };
    let displays_errors = config_lint::displays_errors(engines.values());
    place.read_error_pages(&config.error_pages, displays_errors, keeper.is_none());
    let served = Arc::new(Served {
        project: project.clone(),
        config: config.clone(),
        keeper: keeper.clone(),
        application: Arc::new(Application {
            tree: arc_swap::ArcSwap::from_pointee(place),
            engine: main,
            engines,
            metrics: metrics.clone(),
            compress: config.compress.clone(),
        }),
    });
    let quic = listeners.quic_ports();
    let service = Arc::new(Service {
        application: served.application.clone(),
        accounting: Arc::new(Accounting::new(
            metrics.clone(),
            AccessLog::start(config.access_log.format)?,
        )),
        https: Https::new(&config.http, &config.tls, answers).with_http_3(quic.into_iter()),
        spool: config.http.response_spool(),
        settings: config.http.clone(),
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
    // One boot with pages that are not compared yet, or one reload, at a time.
    let booting = Arc::new(tokio::sync::Mutex::new(()));
    let learners = Arc::new(learners(&service, &project, &plans, &keeper, &booting));
    let reload = {
        let (served, tls, booting) = (served.clone(), tls.clone(), booting.clone());
        let learners = learners.clone();
        Arc::new(
            move || -> crate::engine::Pending<'static, anyhow::Result<()>> {
                let (served, tls, booting) = (served.clone(), tls.clone(), booting.clone());
                let learners = learners.clone();
                // A task: a failed reload restores the learned pages also if its caller has gone.
                let reload = tokio::spawn(async move {
                    let certificates = tls::prepare(&tls).await?;
                    let _booting = booting.lock().await;
                    learning::prove_again(&learners, async {
                        served.change_over(served.prepare().await?)
                    })
                    .await?;
                    tls::change_over(&tls, certificates);
                    info!("reloaded");
                    Ok(())
                });
                Box::pin(async move { reload.await? })
            },
        )
    };
    // PHP decides when the application has changed. So only an operator's reload orders
    // certificates before the pause after a failure is over.
    let asked = {
        let (reload, renew) = (reload.clone(), renew.clone());
        Arc::new(move || operator_reload(reload(), renew.clone()))
    };
    let learning: Vec<_> = (learners.iter())
        .map(|learner| tokio::spawn(learner.clone().run()))
        .collect();
    let engines: Vec<_> = service.application.engines.values().cloned().collect();
    let revalidation = {
        let reload = reload.clone();
        tokio::spawn(revalidation::run(engines.clone(), move || reload()))
    };
    let admin = Arc::new(Admin {
        project,
        engines,
        queues: Vec::new(),
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
    listeners.announce(matches!(config.access_log.format, access_log::Format::Json));
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

    if let Some(keeper) = &keeper {
        keeper.ready();
    }
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
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = quit.recv() => break,
            () = lost() => bail!("the keeper process has exited"),
        }
    }
    info!("shutting down; a second signal exits immediately");
    admin.draining.store(true, Ordering::Release);
    revalidation.abort();
    learning.iter().for_each(tokio::task::JoinHandle::abort);
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

/// A reload that an operator has asked for. Once it is done, certificates are ordered without the
/// pauses that failures have caused.
fn operator_reload(
    reload: crate::engine::Pending<'static, anyhow::Result<()>>,
    renew: Arc<Notify>,
) -> crate::engine::Pending<'static, anyhow::Result<()>> {
    Box::pin(async move {
        reload.await?;
        renew.notify_one();
        Ok(())
    })
}

/// What learns by which pages to warm up, for each pool that does.
fn learners(
    service: &Arc<Service>,
    project: &Path,
    plans: &Arc<Vec<PlannedPool>>,
    keeper: &Option<Arc<Client>>,
    booting: &Arc<tokio::sync::Mutex<()>>,
) -> Vec<Arc<Learner>> {
    let learner = |(number, planned): (u16, &PlannedPool)| {
        let name = planned.asked.name;
        let engine = service.application.engines.get(name)?.clone();
        let service = service.clone();
        let learner = Learner {
            project: project.to_path_buf(),
            planned: planned.clone(),
            keeper: keeper.clone().map(|keeper| (keeper, number)),
            engine,
            booting: booting.clone(),
            site: Box::new(move || {
                let tree = service.application.tree.load();
                let own = tree.pool_sites.get(name);
                own.unwrap_or(&tree.site).clone()
            }),
        };
        planned.asked.learns().then(|| Arc::new(learner))
    };
    (0..).zip(plans.iter()).filter_map(learner).collect()
}
