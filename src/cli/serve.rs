//! `surus serve`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, anyhow, bail};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use super::options::Args;
use super::{boot, findings, trim};
use crate::cli::stdout;
use crate::config::Config;
use crate::engine::Engine;
use crate::engines;
use crate::fronts::admin::{self, Admin};
use crate::fronts::http::send_file::SendFile;
use crate::fronts::http::{
    self, AccessLog, Address, Application, Listener, Mode, Place, Service, access,
};
use crate::fronts::site::route::Routes;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::spool::TempFile;

pub fn run(args: Args) -> anyhow::Result<()> {
    let project = args.project.directory()?;
    let loaded = args.load()?;
    log::start(&loaded.config.log)?;
    surus_sys::process::raise_open_files().context("cannot raise the limit of open files")?;
    engines::restrict_process(&loaded.config.engine)?;
    if let Some(file) = &loaded.file {
        info!(file = %file.display(), "configuration read");
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let threads = threads();
    builder.worker_threads(threads).enable_all();
    engines::observe_sleep(&mut builder, threads);
    let runtime = builder.build()?;
    let served = runtime.block_on(serve(project, loaded.config));
    // What is still running after the grace period has had its time.
    runtime.shutdown_background();
    served
}

/// Threads of the front: one for every two CPUs, since PHP needs most of them.
fn threads() -> usize {
    (std::thread::available_parallelism().map_or(1, |cpus| cpus.get()) / 2).max(1)
}

async fn serve(project: PathBuf, config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;

    config.http.set_budgets();
    let listeners = bind(&config)?;
    let admin_listener = config.admin.bind(&project)?;
    let place = open_place(&project, &config)?;
    if let Some(trouble) = check_spool(&config)? {
        warn!("{trouble}");
    }
    let metrics = Arc::new(Metrics::default());
    let engines = tokio::select! {
        booted = boot_all(&project, &config, &place.routes, &metrics) => booted?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let service = Arc::new(Service {
        application: Application {
            place: arc_swap::ArcSwap::from_pointee(place),
            engine: boot::chosen(&project, &config)?.name,
            engines,
            metrics: metrics.clone(),
            compress: config.compress.clone(),
        },
        access_log: AccessLog::start(config.access_log.format)?,
        next_event: AtomicU64::new(1),
        lookout: http::Lookout::new(engines::spin(&config.engine)),
        spool: config.http.response_spool(),
        settings: config.http.clone(),
    });
    let reload = {
        let service = service.clone();
        let (config, project) = (config.clone(), project.clone());
        Arc::new(
            move || -> crate::engine::Pending<'static, anyhow::Result<()>> {
                let (service, config) = (service.clone(), config.clone());
                let project = project.clone();
                Box::pin(async move {
                    // A symbolic link to the project may lead elsewhere by now; so both are opened anew, and the site changes only when every engine has.
                    let place = open_place(&project, &config)?;
                    let mut prepared = Vec::new();
                    for engine in service.application.engines.values() {
                        prepared.push(engine.prepare().await?);
                    }
                    for prepared in prepared {
                        prepared.change_over()?;
                    }
                    service.application.place.store(Arc::new(place));
                    info!("reloaded");
                    Ok(())
                })
            },
        )
    };
    let admin = Arc::new(Admin {
        project,
        engines: service.application.engines.values().cloned().collect(),
        metrics,
        draining: AtomicBool::new(false),
        reload: {
            let reload = reload.clone();
            Box::new(move || reload())
        },
    });
    tokio::spawn(trim::run());
    info!(socket = admin_listener.name(), "admin listener");
    let admin_task = tokio::spawn(admin::run(admin_listener, admin.clone()));
    for listener in &listeners {
        // What reads lines of JSON from stdout can do nothing with another.
        match config.access_log.format {
            access::Format::Json => info!(address = listener.name(), "listening"),
            _ => stdout::announce(format_args!("listening on {}", listener.name())),
        }
    }
    let draining = tokio_util::sync::CancellationToken::new();
    let front = tokio::spawn(http::run(
        listeners,
        service.clone(),
        draining.clone().cancelled_owned(),
    ));

    loop {
        tokio::select! {
            _ = hangup.recv() => {
                let reload = reload();
                tokio::spawn(async move {
                    if let Err(error) = reload.await {
                        error!("{error:#}");
                    }
                });
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    info!("shutting down; a second signal ends at once");
    admin.draining.store(true, Ordering::Release);
    let delay = config.http.drain_delay.0;
    let grace = config.http.grace.0 + std::time::Duration::from_secs(1);
    let drained = async {
        if let Err(error) = front.await {
            error!(%error, "the front failed");
        }
        for engine in service.application.engines.values() {
            engine.drain().await;
        }
    };
    let ended = async {
        // Whoever asks for readiness, and leads requests here, learns of the end before anybody is refused.
        tokio::time::sleep(delay).await;
        draining.cancel();
        if tokio::time::timeout(grace, drained).await.is_err() {
            warn!("the grace period is over (http.grace); what was in flight is given up");
        }
    };
    tokio::select! {
        () = ended => {}
        _ = terminate.recv() => warn!("second signal; ended at once"),
        _ = interrupt.recv() => warn!("second signal; ended at once"),
    }
    // Its end removes the socket's file.
    admin_task.abort();
    let _ = admin_task.await;
    if let Some(log) = &service.access_log {
        log.end();
    }
    Ok(())
}

/// Binds the addresses that the application is served at.
pub(super) fn bind(config: &Config) -> anyhow::Result<Vec<Listener>> {
    let listen = &config.http.listen;
    if config.http.proxy_protocol && config.http.trusted_proxies.is_empty() {
        bail!(
            "http.proxy_protocol is on and http.trusted_proxies is empty, so nobody could connect; name the proxies there"
        );
    }
    let listeners: Vec<Listener> = listen
        .iter()
        .map(|address| Listener::bind(address, "--listen or http.listen"))
        .collect::<Result<_, _>>()?;
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    if listen.iter().any(is_unix) {
        let group = engines::user(&config.engine)?.map(|user| user.gid);
        let mode = config.http.socket_mode.or(group.map(|_| Mode(0o660)));
        for listener in &listeners {
            listener.admit(mode, group)?;
        }
    }
    Ok(listeners)
}

/// Opens the application's directory, and those that routes send files from.
pub(super) fn open_place(project: &Path, config: &Config) -> anyhow::Result<Place> {
    let rights = engines::rights(&config.engine)?;
    let site = Arc::new(boot::open_site(project, config)?.read_with(rights));
    let send_file = SendFile::open(
        project,
        site.clone(),
        config.site.symlinks,
        &config.send_file,
    )?;
    let routes = Routes::new(&config.route, &config.site)?;
    let routes = routes.read_with(site.rights().as_ref());
    let mut fronts = BTreeMap::new();
    for name in routes.engines() {
        if let Some(front) = boot::open_front(project, config, name)? {
            let front = front.read_with(site.rights());
            fronts.insert(name.to_owned(), Arc::new(front));
        }
    }
    Ok(Place {
        site,
        fronts,
        send_file,
        routes,
    })
}

/// Can bodies be kept that are too large for memory? A directory that was chosen has to do; without one, only large bodies are refused.
pub(super) fn check_spool(config: &Config) -> anyhow::Result<Option<String>> {
    match (
        TempFile::create(config.http.spool.as_deref()),
        &config.http.spool,
    ) {
        (Ok(_), _) => Ok(None),
        (Err(error), Some(directory)) => Err(anyhow!(error).context(format!(
            "cannot make a file in {} (http.spool)",
            directory.display()
        ))),
        (Err(error), None) => Ok(Some(format!(
            "no file can be made in {} ({error}), so bodies above 64 KiB are refused; http.spool names another directory",
            std::env::temp_dir().display()
        ))),
    }
}

type Engines = BTreeMap<&'static str, Arc<dyn Engine>>;

async fn boot_all(
    project: &Path,
    config: &Config,
    routes: &Routes,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Engines> {
    let mut booted: Engines = BTreeMap::new();
    for asked in boot::asked_for(project, config, routes)? {
        let name = asked.name;
        let pool = boot::boot_one(&asked, project, metrics).await?;
        let report = pool.report();
        match report.get("opcache") {
            "on" => {}
            _ if !asked.entry.is_standing() => {}
            "file cache only" => warn!(
                "OPcache has no shared memory (opcache.file_cache_only); every request reads its compiled files from disk"
            ),
            state => warn!(
                opcache = state,
                "PHP runs without OPcache; every request compiles its files"
            ),
        }
        for setting in findings::unknown_settings(&report, &asked.config) {
            warn!(engine = name, "{}", findings::unknown_setting(setting));
        }
        info!(
            engine = name,
            php = report.get("php_running"),
            ini = report.get("ini_file"),
            opcache = report.get("opcache"),
            workers = pool.status().workers.len(),
            "PHP is ready"
        );
        booted.insert(name, pool);
    }
    Ok(booted)
}
