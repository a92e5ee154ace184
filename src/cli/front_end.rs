//! The front-end process of `surus serve`: starts listeners and sites, handles signals, and drains.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::bail;
use surus_sys::signals::Signals;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::access_logs::AccessLogs;
use super::addresses::{self, Addresses};
use super::served::{ReloadHook, Served};
use super::site_plans::Plans;
use super::stop_signals::StopSignals;
use super::work_part::WorkPart;
use super::{acme, keeper_tasks, memory_trim, server_reload, spool_access, tls, watch};
use crate::app::DocumentTree;
use crate::app::site::file_opener::Opener;
use crate::config::Config;
use crate::config::reread::ConfigOrigin;
use crate::engines;
use crate::fronts::admin::{self, Admin};
use crate::fronts::http;
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
    /// How it was read.
    pub origin: Arc<ConfigOrigin>,
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
}

/// What a front end has from its keeper.
pub(super) struct KeeperHandle {
    pub socket: OwnedFd,
    /// See [`keeper_tasks::attend`].
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
        origin,
        listeners,
        admin,
        trees,
        plans,
        keeper,
        site_logs,
        queues,
        watching,
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
    let access_logs = AccessLogs::start(&config, &site_logs)?;
    let served = Arc::new(Served::new(&plans, &keeper, &metrics, &access_logs));
    let (names, quic) = (listeners.names(), listeners.quic_ports());
    let service = Arc::new(Service {
        sites: served.hosted(),
        accounting: Arc::new(Accounting::new(metrics.clone(), access_logs.common.clone())),
        https: Https::new(&config.tls, answers).with_http_3(quic.into_iter()),
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
        let reload = server_reload::Reload {
            served: served.clone(),
            tls: tls.clone(),
            pages: service.live_reload.clone(),
        };
        let reload: ReloadHook = Arc::new(move || reload.clone().start());
        reload
    };
    let reload_on_request = {
        let reload_on_request = server_reload::RequestedReload {
            reload: reload.clone(),
            origin,
            keeper: keeper.clone(),
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
            let (served, tls) = (served.clone(), tls.clone());
            Arc::new(move || served.engines(tls.as_deref()))
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
        service.clone(),
        draining.clone().cancelled_owned(),
    ));
    // Authorities connect to this server.
    tokio::spawn(renewals);

    // Everything above works while the sites boot, and when one of them takes long.
    let is_served = tokio::select! {
        booted = served.boot(trees) => booted.map(|()| true),
        () = stop.recv() => Ok(false),
        () = lost() => bail!("the keeper process has exited"),
    };
    if !matches!(is_served, Ok(true)) {
        served.end_tasks();
        draining.cancel();
        // Requests that have waited for the boot are answered, and listeners remove their files.
        let _ = tokio::time::timeout(ABANDON, front).await;
        end(admin_task).await;
        return is_served.map(drop);
    }
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
    if let Some(pages) = &service.live_reload {
        pages.close();
    }
    admin.draining.store(true, Ordering::Release);
    served.end_tasks();
    let delay = config.http.shutdown_delay.0;
    let limit = config.http.shutdown_timeout.0 + Duration::from_secs(1);
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
        if tokio::time::timeout(limit, drained).await.is_err() {
            warn!("shutdown timeout exceeded (http.shutdown_timeout); in-flight requests aborted");
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
    end(admin_task).await;
    access_logs.end();
    Ok(())
}

/// Ends the task of the admin listener, which removes the socket file.
async fn end(admin: tokio::task::JoinHandle<()>) {
    admin.abort();
    let _ = admin.await;
}
