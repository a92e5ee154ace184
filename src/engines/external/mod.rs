//! The external engines, which run an installed PHP: php-cgi, php-fpm, `php -S`, `php`, or
//! RoadRunner workers.

mod builtin;
mod cgi;
mod cli;
pub(crate) mod command;
mod connection;
mod daemon;
mod exchange;
mod file_names;
mod fpm;
mod fpm_master;
mod fpm_trust;
pub(super) mod furnish;
pub mod ini_files;
mod process;
pub mod roadrunner;
pub(super) mod runtime_dir;
mod slots;
mod variables;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use arc_swap::ArcSwapOption;
use http_body_util::{BodyExt, Limited};
use surus_sys::process::User;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

pub use command::find;
pub use connection::FpmAddress;
pub use fpm_trust::names_foreign_files;

use crate::engine::{Engine, Pending, Prepared, Report};
use crate::engines::queue::{Bounds, Permit, RequestQueue};
use crate::event::{self, Body, Event, Failure, Origin, Response, Script};
use crate::launcher::Launch;
use crate::observe::metrics::Metrics;
use crate::observe::status::{EngineStatus, WorkerStatus};
use crate::observe::traces::Trace;
use daemon::ExitHandle;
use exchange::Exchange;
use runtime_dir::RuntimeDir;

/// The PHP program that runs events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    Cli,
    Cgi,
    Fpm,
    Builtin,
    RoadRunner,
}

impl ProgramKind {
    /// Whether each event gets its own process.
    pub fn starts_per_request(self) -> bool {
        [ProgramKind::Cli, ProgramKind::Cgi].contains(&self)
    }
}

/// How to run PHP; the same for every boot.
#[derive(Clone)]
pub struct PhpSpec {
    /// The name in metrics, logs and the status.
    pub name: &'static str,
    pub way: ProgramKind,
    pub program: PathBuf,
    /// The address of a php-fpm that already runs.
    pub address: Option<FpmAddress>,
    /// How many events may run at once.
    pub workers: usize,
    /// How many events one process serves; 0 for no limit.
    pub max_requests: u64,
    pub user: Option<User>,
    /// See [`Settings`](crate::engines::Settings::is_replaceable).
    pub is_replaceable: bool,
    /// Whether the settings name files that PHP's user decides. Determined once, because that user
    /// can change files later.
    pub names_foreign_files: bool,
    pub ini_file: Option<PathBuf>,
    pub ini: Vec<(String, String)>,
    pub clear_env: bool,
    pub env: BTreeMap<String, String>,
    /// How long PHP may take to start.
    pub boot_timeout: Duration,
    /// The worker script of `roadrunner`.
    pub roadrunner: Option<roadrunner::RoadRunnerSpec>,
    /// The launcher that starts PHP, if not this process.
    pub launch: Option<Launch>,
}

/// A started PHP that runs events.
trait StartedPhp: Send + Sync {
    /// Starts an event.
    fn begin<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<Box<dyn Exchange>, Failure>>;

    /// The status of its processes.
    fn workers(&self) -> Vec<WorkerStatus>;

    /// The exit that ends this PHP, if it has a long-running process.
    fn exit_handle(&self) -> Option<ExitHandle> {
        None
    }

    /// PHP's report, if no script may be asked for it.
    fn report(&self) -> Option<Report> {
        None
    }

    /// Stops its processes after their events have ended.
    fn end(&self) -> Pending<'_, ()>;
}

/// There are as many slots as permits, so this should not happen.
fn no_slot() -> Failure {
    Failure::Busy("all PHP processes are busy")
}

/// One start of PHP, kept while it is current or has events.
pub struct PhpBoot {
    number: u64,
    php: Box<dyn StartedPhp>,
    report: Report,
    /// Cancelled when all events must end at once.
    dropped: CancellationToken,
}

/// An engine.
pub struct ExternalEngine(Arc<Inner>);

struct Inner {
    spec: PhpSpec,
    queue: RequestQueue,
    /// None after draining.
    current: ArcSwapOption<PhpBoot>,
    next_number: AtomicU64,
    /// Held during a boot, so that reload and recovery do not boot at the same time.
    booting: Arc<tokio::sync::Mutex<()>>,
    metrics: Arc<Metrics>,
    /// Cancelled together with all boots.
    dropped: CancellationToken,
}

impl ExternalEngine {
    pub async fn boot(
        spec: PhpSpec,
        bounds: Bounds,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<ExternalEngine> {
        let inner = Arc::new(Inner {
            queue: RequestQueue::new(spec.workers, bounds),
            spec,
            current: ArcSwapOption::empty(),
            next_number: AtomicU64::new(1),
            booting: Arc::default(),
            metrics,
            dropped: CancellationToken::new(),
        });
        let first = inner.boot().await?;
        inner.clone().install(first)?;
        Ok(ExternalEngine(inner))
    }
}

impl Drop for ExternalEngine {
    fn drop(&mut self) {
        self.0.current.store(None);
        self.0.dropped.cancel();
    }
}

impl Inner {
    async fn boot(&self) -> anyhow::Result<PhpBoot> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let limit = self.spec.boot_timeout;
        let booted =
            tokio::time::timeout(limit, start(&self.spec, number, self.dropped.child_token()))
                .await;
        booted.with_context(|| {
            format!(
                "PHP was not ready within {} seconds (engine.boot_timeout)",
                limit.as_secs()
            )
        })?
    }

    /// Makes the boot current. The previous one finishes its events and stops.
    fn install(self: Arc<Self>, boot: PhpBoot) -> anyhow::Result<()> {
        let boot = Arc::new(boot);
        let before = self.current.swap(Some(boot.clone()));
        if self.queue.is_draining() {
            // None if the previous one has already stopped.
            self.current.store(before);
            bail!("shutting down");
        }
        let Some(end) = boot.php.exit_handle() else {
            return Ok(());
        };
        // The task must keep neither the engine nor a replaced boot alive.
        let (engine, number) = (Arc::downgrade(&self), boot.number);
        tokio::spawn(async move {
            let how = end.wait().await;
            let is_current = |engine: &Inner| {
                let current = engine.current.load();
                current
                    .as_ref()
                    .is_some_and(|current| current.number == number)
            };
            if !engine.upgrade().is_some_and(|engine| is_current(&engine)) {
                return;
            }
            error!(exit = how, "PHP exited");
            let mut pause = Duration::from_millis(100);
            loop {
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                let booting = engine.booting.clone().lock_owned().await;
                if !is_current(&engine) {
                    return;
                }
                match engine.boot().await {
                    Ok(next) => {
                        info!("PHP restarted");
                        let _ = engine.install(next);
                        return;
                    }
                    Err(error) => error!(error = format!("{error:#}"), "cannot restart PHP"),
                }
                drop(booting);
                drop(engine);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
        });
        Ok(())
    }

    async fn handle(&self, event: Box<Event>) -> Result<Response, Failure> {
        let began = Instant::now();
        let permit = match self.queue.try_enter()? {
            Some(permit) => Ok(permit),
            None => self.queue.enter(&event).await,
        };
        let waited = self.metrics.queue_duration(self.spec.name);
        let wait = began.elapsed();
        waited.observe(wait.as_secs_f64());
        let permit = permit?;
        if let Some(trace) = event.request.extensions().get::<Arc<Trace>>() {
            trace.waited(began, wait);
        }
        let current = self.current.load_full();
        let boot = current.ok_or(Failure::Busy("shutting down"))?;
        exchange::answer(boot, event, permit).await
    }
}

/// Starts PHP and requests its report.
async fn start(spec: &PhpSpec, number: u64, dropped: CancellationToken) -> anyhow::Result<PhpBoot> {
    let runtime_dir = match &spec.launch {
        None => RuntimeDir::OwnDir(furnish::furnish(spec, None)?),
        Some(launch) => RuntimeDir::Keeper(runtime_dir::KeeperDir {
            dir: launch.by.runtime_dir(launch.pool).await?,
            launch: launch.clone(),
        }),
    };
    let script = runtime_dir.path(file_names::REPORT);
    let php: Box<dyn StartedPhp> = match spec.way {
        ProgramKind::Cli => Box::new(cli::Cli::new(spec, runtime_dir).await?),
        ProgramKind::Cgi => Box::new(cgi::Cgi::new(spec, runtime_dir)?),
        ProgramKind::Fpm => Box::new(fpm::Fpm::start(spec, runtime_dir).await?),
        ProgramKind::Builtin => Box::new(builtin::Builtin::start(spec, runtime_dir).await?),
        ProgramKind::RoadRunner => {
            Box::new(roadrunner::RoadRunner::start(spec, runtime_dir).await?)
        }
    };
    if let Some(report) = php.report() {
        return Ok(PhpBoot {
            number,
            php,
            report,
            dropped,
        });
    }
    let mut boot = Arc::new(PhpBoot {
        number,
        php,
        report: Report::default(),
        dropped,
    });
    // If the caller gives up, everything stops at once.
    let given_up = boot.dropped.clone().drop_guard();
    let response =
        exchange::answer(boot.clone(), Box::new(question(script, spec)?), permit()?).await;
    let body = |response: Response| async {
        let body = Limited::new(response.into_body(), MAX_REPORT);
        let body = body.collect().await.map_err(|error| anyhow!("{error}"))?;
        anyhow::Ok(body.to_bytes())
    };
    let text = match response {
        Ok(response) if response.status() == http::StatusCode::OK => body(response).await,
        // It may run on another machine or in its own root directory.
        Ok(_) if spec.address.is_some() => Ok(bytes::Bytes::new()),
        Ok(response) => {
            let status = response.status();
            let body = body(response).await?;
            bail!(
                "{} responded with {status} to the request for its report: {}",
                spec.program.display(),
                String::from_utf8_lossy(&body).trim()
            );
        }
        Err(failure) => Err(failure.into()),
    };
    let text = text.with_context(|| format!("{} does not work", spec.program.display()))?;
    // The process may still be finishing the request after the complete response.
    let boot = loop {
        match Arc::try_unwrap(boot) {
            Ok(boot) => break boot,
            Err(shared) => boot = shared,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let _ = given_up.disarm();
    Ok(PhpBoot {
        report: Report::read(&String::from_utf8_lossy(&text)),
        ..boot
    })
}

/// Larger than any report of PHP; an auto_prepend_file may add unlimited output.
const MAX_REPORT: usize = 1 << 20;

/// A permit from a queue of its own.
fn permit() -> anyhow::Result<Permit> {
    let permit = RequestQueue::new(1, Bounds::default()).try_enter()?;
    permit.context("a new queue has a permit")
}

fn question(script: PathBuf, spec: &PhpSpec) -> anyhow::Result<Event> {
    let local = event::Address::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    Ok(Event {
        id: 0,
        request: http::Request::get("/report.php").body(Body::Empty)?,
        script: Script {
            root: script
                .parent()
                .and_then(|root| root.to_str())
                .unwrap_or("/")
                .into(),
            filename: script.into(),
            name: "/report.php".into(),
            path_info: OsString::new(),
            query: None,
            rewritten: None,
        },
        origin: Origin {
            client: Some(local.clone()),
            server: Some(local),
            https: false,
        },
        variables: Vec::new(),
        // The boot timeout ends first.
        deadline: Instant::now() + 2 * spec.boot_timeout,
        idle_timeout: None,
        spool: None,
        completion_token: None,
        early_hints: None,
    })
}

impl Engine for ExternalEngine {
    fn handle(&self, mut event: Box<Event>) -> Pending<'_, Result<Response, Failure>> {
        // php-fpm and php-cgi take REDIRECT_URL as a sign of Apache's mod_fastcgi. They would run
        // PATH_TRANSLATED and remove PATH_INFO (init_request_info in fpm_main.c).
        if [ProgramKind::Fpm, ProgramKind::Cgi].contains(&self.0.spec.way) {
            event.script.rewritten = None;
        }
        if matches!(event.request.body(), Body::Streamed { .. }) {
            let why = "the engine takes no body that is still arriving";
            return Box::pin(std::future::ready(Err(Failure::BodyTooLarge(why))));
        }
        Box::pin(self.0.handle(event))
    }

    fn prepare(&self) -> Pending<'_, anyhow::Result<Prepared>> {
        let engine = self.0.clone();
        Box::pin(async move {
            // Held until the switch, so that recovery does not boot at the same time.
            let booting = engine.booting.clone().lock_owned().await;
            let next = engine
                .boot()
                .await
                .context("the reload failed; the old version keeps running")?;
            Ok(Prepared::new(move || {
                let changed = engine.install(next);
                drop(booting);
                changed
            }))
        })
    }

    fn drain(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.0.queue.emptied().await;
            if let Some(last) = self.0.current.swap(None) {
                last.php.end().await;
            }
        })
    }

    fn ready(&self) -> Result<(), String> {
        match self.0.current.load().as_ref() {
            None => Err("shutting down".into()),
            Some(boot) if boot.php.exit_handle().is_some_and(|end| end.has_exited()) => {
                Err("no PHP process is running".into())
            }
            Some(_) => Ok(()),
        }
    }

    fn report(&self) -> Report {
        let current = self.0.current.load();
        current
            .as_ref()
            .map(|boot| boot.report.clone())
            .unwrap_or_default()
    }

    fn status(&self) -> EngineStatus {
        let current = self.0.current.load();
        let boot = current.as_ref();
        EngineStatus {
            engine: self.0.spec.name.into(),
            instead: None,
            php: boot
                .map(|boot| boot.report.get("php").to_string())
                .unwrap_or_default(),
            learned: Vec::new(),
            named: Vec::new(),
            left_out: Vec::new(),
            created: String::new(),
            includes: None,
            generation: boot.map_or(0, |boot| boot.number),
            queued: self.0.queue.waiting(),
            workers: boot.map(|boot| boot.php.workers()).unwrap_or_default(),
            scaling: None,
        }
    }
}
