//! The front-end process of `surus serve`: starts listeners and sites, handles signals, and drains.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use surus_sys::signals::Signals;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, Notify};
use tracing::{error, info, warn};

use super::access_logs::AccessLogs;
use super::addresses::{self, Addresses};
use super::reconfigure::{ConfigSource, OwnSource, Reconfiguration};
use super::served::{ReloadHook, Served};
use super::serving::Serving;
use super::site_plans::Plans;
use super::stop_signals::StopSignals;
use super::work_part::WorkPart;
use super::{acme, adopted_trees, memory_trim, server_reload, spool_access, tls, watch};
use crate::app::DocumentTree;
use crate::app::site::file_opener::Opener;
use crate::config::Config;
use crate::engines;
use crate::fronts::admin::{self, Admin};
use crate::fronts::http;
use crate::fronts::http::tls::acme::unstored::Unstored;
use crate::fronts::http::{Accounting, Bound, Https, Service};
use crate::keeper::Client;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::observe::reopen::{Logs, SiteLogs};
use crate::observe::service_manager::{self, ServiceManager, ServiceState};
use crate::observe::traces::Tracer;

/// How long the last traces may delay the exit.
const FLUSH: Duration = Duration::from_secs(5);

/// How long connections may delay the exit if no site has booted.
const ABANDON: Duration = Duration::from_secs(2);

/// What the front-end process starts with.
pub(super) struct FrontEnd {
    pub project: PathBuf,
    pub config: Config,
    /// Where a changed configuration comes from. None if it comes from the keeper.
    pub source: Option<Arc<OwnSource>>,
    pub listeners: Addresses<Bound>,
    pub admin: Bound,
    /// The directories of each site, or why they cannot be opened.
    pub trees: Vec<anyhow::Result<DocumentTree>>,
    pub plans: Arc<Plans>,
    pub keeper: Option<KeeperHandle>,
    /// The files of sites' access logs.
    pub site_logs: SiteLogs,
    /// What runs jobs in this process. A keeper has another process for it.
    pub queues: Option<WorkPart>,
    /// For `--watch`.
    pub watching: Option<Arc<watch::Watching>>,
    /// What authorities have issued and this process could not store. Empty if there is a keeper.
    pub unstored: Arc<Unstored>,
}

/// What a front end has from its keeper.
pub(super) struct KeeperHandle {
    pub socket: OwnedFd,
    /// See [`adopted_trees::attend`].
    pub openers: Vec<(u32, Arc<Opener>)>,
    /// Signals that have not been handled.
    pub signals: Signals,
}

/// Runs until a signal stops it.
pub(super) fn run_front_end(front: FrontEnd) -> anyhow::Result<()> {
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
    let FrontEnd {
        project,
        config,
        source,
        listeners,
        admin,
        trees,
        plans,
        keeper,
        site_logs,
        queues,
        watching,
        unstored,
    } = front;
    let logs = Logs::remember(site_logs.clone());
    config.http.set_budgets();
    let listeners = listeners.listen()?;
    let admin_listener = admin.listen()?;
    let keeper = match keeper {
        None => None,
        Some(kept) => {
            // Where this process can take them now, and in this thread alone.
            kept.signals.release();
            let keeper = Client::new(kept.socket, site_logs.clone())?;
            for opener in kept.openers {
                adopted_trees::attend(&keeper, opener);
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
    let reader = tls::CertificateReader::find(keeper.clone(), plans.first_site, &unstored);
    let tls = tls::start(&project, &config, reader, &answers, &metrics).await?;
    let access_logs = AccessLogs::start(&config, &site_logs)?;
    let accounting = Accounting::new(metrics.clone(), access_logs.common.clone());
    let served = Arc::new(Served::new(&plans, &keeper, &metrics, access_logs));
    served.report();
    let (names, quic) = (listeners.names(), listeners.quic_ports());
    let (tracer, pages) = (
        Tracer::start(&config.telemetry, &metrics)?,
        watching.as_ref().map(|watching| watching.pages.clone()),
    );
    let service = Service {
        sites: served.hosted(),
        accounting: Arc::new(accounting),
        https: Https::new(&config.tls, answers).with_http_3(quic.into_iter()),
        settings: config.http.clone(),
        tracer: tracer.clone(),
        live_reload: pages.clone(),
    };
    let serving = Arc::new(Serving::new(service, served.clone()));
    let renew = Arc::new(Notify::new());
    let renewals = Arc::new(acme::Renewals {
        project: project.clone(),
        keeper: keeper.clone(),
        tls: tls.clone(),
        repeat: renew.clone(),
        metrics: metrics.clone(),
        unstored,
        running: Default::default(),
    });
    let reload = {
        let reload = server_reload::Reload {
            serving: serving.clone(),
            tls: tls.clone(),
            pages: pages.clone(),
        };
        let reload: ReloadHook = Arc::new(move || reload.clone().start());
        reload
    };
    // No reload exchanges the sites before one of them is served.
    let reloading = Arc::new(Mutex::new(()));
    let starting = reloading.clone().lock_owned().await;
    let reload_on_request = {
        let reload_on_request = server_reload::RequestedReload {
            reload: reload.clone(),
            reconfiguration: Arc::new(Reconfiguration {
                source: match &keeper {
                    Some(keeper) => ConfigSource::Keeper(keeper.clone()),
                    None => ConfigSource::Own(source.context("nothing reads the configuration")?),
                },
                project: project.clone(),
                serving: serving.clone(),
                tls: tls.clone(),
                renewals: renewals.clone(),
                metrics: metrics.clone(),
                site_logs: site_logs.clone(),
                reloading,
            }),
            renew: renew.clone(),
        };
        Arc::new(move || reload_on_request.clone().start())
    };
    if let Some(watching) = &watching {
        watching.start(&config.watch, &project, &served, &reload)?;
    }
    let mut quic = Vec::new();
    if let Some(tls) = &tls {
        for socket in listeners.quic {
            quic.push(http::QuicListener::new(socket, tls.clone(), &config.http)?);
        }
    }
    let admin = Arc::new(Admin {
        project,
        sites: {
            let (serving, tls) = (serving.clone(), tls.clone());
            Arc::new(move || serving.served().engines(tls.as_deref()))
        },
        queues: Arc::new(Vec::new),
        metrics: metrics.clone(),
        draining: AtomicBool::new(false),
        dashboard: Arc::default(),
        reload: {
            let reload_on_request = reload_on_request.clone();
            Box::new(move || reload_on_request())
        },
    });
    tokio::spawn(memory_trim::run(metrics));
    info!(address = admin_listener.name(), "admin listener");
    let admin_task = tokio::spawn(admin::run(admin_listener, admin.clone()));
    let draining = tokio_util::sync::CancellationToken::new();
    let https = listeners
        .https
        .into_iter()
        .map(|listener| (listener, tls.clone()));
    let http = listeners.http.into_iter().map(|listener| (listener, None));
    let front = tokio::spawn(http::run(
        http.chain(https).collect(),
        quic,
        serving.service.clone(),
        draining.clone().cancelled_owned(),
    ));
    // Authorities connect to this server.
    renewals.start(&config);

    // Everything above works while the sites boot, and when one of them takes long.
    let is_served = tokio::select! {
        booted = served.boot(trees) => booted.map(|()| true),
        () = stop.recv() => Ok(false),
        () = lost() => bail!("the keeper process has exited"),
    };
    if !matches!(is_served, Ok(true)) {
        serving.begin_to_end();
        draining.cancel();
        // Requests that have waited for the boot are answered, and listeners remove their files.
        let _ = tokio::time::timeout(ABANDON, front).await;
        end(admin_task).await;
        return is_served.map(drop);
    }
    drop(served);
    drop(starting);
    addresses::announce(names, &config);
    // The main process of a service.
    let manager = Arc::new(match &keeper {
        None => ServiceManager::find(),
        Some(_) => None,
    });
    let ready = {
        let (keeper, manager) = (keeper.clone(), manager.clone());
        move || match &keeper {
            None => service_manager::tell(&manager, ServiceState::Ready),
            Some(keeper) => keeper.ready(),
        }
    };
    log::has_started();
    ready();
    let end_of_queues = tokio_util::sync::CancellationToken::new();
    let running_queues = queues.map(|queues| {
        let end = end_of_queues.clone();
        tokio::spawn(async move { queues.run(end).await })
    });
    let start_reload = || {
        service_manager::tell(&manager, ServiceState::Reloading);
        let (reload, ready) = (reload_on_request(), ready.clone());
        tokio::spawn(async move {
            if let Err(error) = reload.await {
                error!(error = format!("{error:#}"), "the reload failed");
            }
            ready();
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
    service_manager::tell(&manager, ServiceState::Stopping);
    if let Some(pages) = &pages {
        pages.close();
    }
    admin.draining.store(true, Ordering::Release);
    serving.begin_to_end();
    let (delay, limit) = {
        // A reload may have changed them.
        let service = serving.service.load();
        let settings = &service.settings;
        (settings.shutdown_delay.0, settings.shutdown_timeout.0)
    };
    let limit = limit + Duration::from_secs(1);
    end_of_queues.cancel();
    let ended_queues = futures_util::future::OptionFuture::from(running_queues);
    let drained = async {
        if let Err(error) = front.await {
            error!(%error, "the front end failed");
        }
        serving.drain().await;
    };
    let ended = async {
        // Load balancers see from the readiness probe that this server shuts down, before it
        // rejects connections.
        tokio::time::sleep(delay).await;
        draining.cancel();
        if tokio::time::timeout(limit, drained).await.is_err() {
            warn!("shutdown timeout exceeded (http.shutdown_timeout); in-flight requests aborted");
        }
        if let Some(tracer) = &tracer {
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
    end(admin_task).await;
    serving.served().logs.end();
    Ok(())
}

/// Ends the task of the admin listener, which removes the socket file.
async fn end(admin: tokio::task::JoinHandle<()>) {
    admin.abort();
    let _ = admin.await;
}
