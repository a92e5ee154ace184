//! `surus lambda` inside AWS Lambda: the function's runtime.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use super::{compiled, writable};
use crate::app::Application;
use crate::app::compression::dav_scripts::DavScripts;
use crate::cli::engine_setup;
use crate::cli::engine_setup::PoolConfig;
use crate::cli::events;
use crate::cli::options::{Project, log_files};
use crate::cli::other_scripts;
use crate::cli::served::open_tree;
use crate::cli::stop_signals::StopSignals;
use crate::config::{Config, Loaded};
use crate::engine::Engine;
use crate::engines::{self, Warmup};
use crate::fronts::lambda::batch::{self, Batches};
use crate::fronts::lambda::{self, Environment, Function, Handler, Initialization};
use crate::observe::log;
use crate::observe::log_context::Names;
use crate::observe::log_format::Format;
use crate::observe::metrics::Metrics;
use crate::package::{self, laravel};
use crate::units::Time;

/// The application's directory and configuration.
#[derive(Debug, clap::Args)]
pub struct AppLocation {
    /// Directory of the application [default: $LAMBDA_TASK_ROOT, else the current directory]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Configuration file [default: DIR/surus.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The pool for events that are not HTTP; `[pool.events]` overrides its settings.
pub(super) const EVENTS: &str = "events";

pub fn run(which: AppLocation) -> anyhow::Result<()> {
    let began = Instant::now();
    let dir = which
        .dir
        .or_else(|| text("LAMBDA_TASK_ROOT").map(|root| package::unpacked(root.into())));
    let project = Project::new(dir.unwrap_or_else(|| ".".into()), which.config);
    let environment = Environment {
        api: text("AWS_LAMBDA_RUNTIME_API").context(
            "AWS_LAMBDA_RUNTIME_API is not set; only AWS Lambda starts this command, use `surus \
             lambda dev` to run a function locally",
        )?,
        initialization: Initialization::parse(
            &text("AWS_LAMBDA_INITIALIZATION_TYPE").unwrap_or_default(),
        ),
        concurrency: match text("AWS_LAMBDA_MAX_CONCURRENCY") {
            Some(count) => count
                .parse::<usize>()
                .with_context(|| format!("AWS_LAMBDA_MAX_CONCURRENCY=`{count}`"))?
                .max(1),
            None => 1,
        },
        directory: project.named().display().to_string(),
        began,
    };
    // One thread: the function's events take turns, and its share of a CPU is usually below one.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(live(&environment, &project));
    runtime.shutdown_background();
    ended
}

/// Runs the function. Errors from here on are reported to Lambda, too.
async fn live(environment: &Environment, project: &Project) -> anyhow::Result<()> {
    let mut stop = StopSignals::listen()?;
    // Lambda reads the log and replaces functions, so these have nothing to do, but would kill.
    let _ignored = [
        signal(SignalKind::hangup())?,
        signal(SignalKind::user_defined1())?,
        signal(SignalKind::user_defined2())?,
    ];
    let names = Names::default();
    let prepared = prepare(project, &names);
    let mut compiled = None;
    let prepared = prepared.map(|(directory, mut config)| {
        compiled = compiled::find(&mut config);
        writable::prepare(&config);
        (directory, config)
    });
    let settings = prepared
        .as_ref()
        .map(|(_, config)| config.lambda.clone())
        .unwrap_or_default();
    let boot = async {
        #[cfg_attr(not(feature = "secrets"), allow(unused_mut))]
        let (directory, mut config) = prepared?;
        #[cfg(feature = "secrets")]
        super::secrets::resolve(&mut config, variables()).await?;
        function(&directory, config, environment.concurrency, names).await
    };
    let shutdown = async move { stop.recv().await };
    let ended = lambda::run(environment, &settings, boot, shutdown).await;
    drop(compiled);
    ended
}

/// Reads the configuration and starts the log.
fn prepare(project: &Project, names: &Names) -> anyhow::Result<(PathBuf, Config)> {
    let directory = project.directory()?;
    let Loaded {
        mut config,
        file,
        unread,
        ..
    } = project.load()?;
    // The function's environment variables are meant for the application. APP_RUNTIME says how it
    // boots.
    config.engine.clear_env = false;
    for name in &config.lambda.env_defaults {
        if let Some(value) = text(name) {
            config.env.insert(name.clone(), value);
        }
    }
    laravel::remove_unneeded_defaults(
        &directory,
        &config.lambda.env_defaults,
        &mut config.env,
        text,
    );
    engine_setup::look_at_application(&directory, &mut config);
    if matches!(config.engine.warmup, Warmup::Auto | Warmup::Learn) {
        // It would take longer than it saves a function that serves few events.
        config.engine.warmup = Warmup::off();
    }
    // Lambda's default is `Text`. Managed instances accept only JSON.
    let says = |name, word: &str| text(name).is_some_and(|value| value == word);
    let asks_for_json = says("AWS_LAMBDA_LOG_FORMAT", "JSON")
        || says("AWS_LAMBDA_INITIALIZATION_TYPE", "lambda-managed-instances");
    if asks_for_json && text("SURUS_LOG_FORMAT").is_none() {
        config.log.format = Format::Json;
    }
    if let (Some(level), None) = (text("AWS_LAMBDA_LOG_LEVEL"), text("SURUS_LOG_LEVEL")) {
        config.log.level = match level.as_str() {
            "FATAL" => "error".into(),
            level => level.to_ascii_lowercase(),
        };
    }
    log::start_named(&config.log, names.clone())?;
    engines::restrict_process(&config.engine)?;
    config.http.set_budgets();
    log_files(file.as_deref(), unread.as_deref());
    Ok((directory, config))
}

/// Boots the application and the handler.
async fn function(
    project: &Path,
    mut config: Config,
    concurrency: usize,
    names: Names,
) -> anyhow::Result<Function> {
    // Lambda sends no more events than can run at once. The deadline limits their waiting time.
    config.engine.queue_timeout = Time::seconds(900);
    // Lambda shows two CPUs even if the function's share is less than one.
    config.engine.busy_poll = false;
    // Direct binding reads all of PHP's code; a start needs only a part.
    config.engine.direct_binding = false;
    let deadline_margin = config.lambda.deadline_margin.0;
    config.engine.kill_timeout.0 = config.engine.kill_timeout.0.min(deadline_margin / 2);
    let mut tree = open_tree(project, &config)?;
    tree.read_error_pages(&config.error_pages, false, false);
    let front = tree.site.front_controller();
    let handler = handler(project, &config, front.map(|front| &*front.filename))?;
    let metrics = Arc::new(Metrics::default());

    let is_application = handler.is_none() || front.is_some() || config.engine.script.is_some();
    let mut engines: BTreeMap<&'static str, Arc<dyn Engine>> = BTreeMap::new();
    let (mut engine, mut others) = (EVENTS, None);
    if is_application {
        let mut config = config.clone();
        let workers = config.engine.workers.unwrap_or(concurrency);
        config.engine.fix_workers(workers);
        engine = engine_setup::chosen(project, &config)?.name;
        let pools = engine_setup::pools(project, &config, &[])?;
        let pools = other_scripts::with_pool(pools, project)?;
        others = other_scripts::engine(&pools, "");
        for pool_config in pools {
            let name = pool_config.name;
            engines.insert(
                name,
                engine_setup::boot_one(&pool_config, project, &metrics).await?,
            );
        }
    }
    let handler = match handler {
        None => None,
        Some(file) => {
            let script = events::script(project, &config)?;
            let pool_config = for_events(project, &config, &file, &script, concurrency)?;
            let workers = engines::worker_count(&pool_config.config.engine)?;
            let one_by_one = config.lambda.batch == batch::BatchMode::Record;
            Some(Handler {
                report_batch_item_failures: config.lambda.report_batch_item_failures,
                takes_requests: AtomicBool::new(false),
                batches: one_by_one.then(|| Batches::new(&config.lambda, workers)),
                engine: engine_setup::boot_one(&pool_config, project, &metrics).await?,
                script: events::script_of(project, &script)?,
            })
        }
    };
    let application = is_application.then(|| Application {
        compress: config.compress.clone(),
        dav_scripts: DavScripts::default(),
        tree: arc_swap::ArcSwap::from_pointee(tree),
        engines,
        engine,
        others,
        prefix: "",
        metrics,
    });
    Ok(Function {
        application,
        handler,
        settings: config.lambda,
        names,
        next_event: AtomicU64::new(1),
    })
}

/// The PHP file for events that are not HTTP. None if the function's handler is the front
/// controller.
pub(super) fn handler(
    project: &Path,
    config: &Config,
    front: Option<&Path>,
) -> anyhow::Result<Option<PathBuf>> {
    if let Some(handler) = &config.lambda.handler {
        let file = project.join(handler);
        return match file.canonicalize() {
            Ok(file) => Ok(Some(file)),
            Err(error) => Err(error)
                .with_context(|| format!("cannot read {} (lambda.handler)", file.display())),
        };
    }
    let Some(named) = text("_HANDLER") else {
        return Ok(None);
    };
    let file = project.join(named).canonicalize().ok();
    Ok(file.filter(|file| front != Some(file) && is_php(file)))
}

/// Whether a file contains PHP. `_HANDLER` may also be any word, or Surus's own `bootstrap`.
fn is_php(file: &Path) -> bool {
    let mut line = Vec::new();
    let read =
        File::open(file).map(|file| BufReader::new(file.take(256)).read_until(b'\n', &mut line));
    let line = String::from_utf8_lossy(&line);
    read.is_ok() && (line.starts_with("<?php") || line.starts_with("#!") && line.contains("php"))
}

/// Settings of the pool that runs the handler.
pub(super) fn for_events(
    project: &Path,
    config: &Config,
    handler: &Path,
    script: &Path,
    concurrency: usize,
) -> anyhow::Result<PoolConfig> {
    let mut config = config.for_pool(EVENTS).unwrap_or_else(|| config.clone());
    // The records of one event use as many workers as the machine has CPU time for.
    if config.lambda.batch == batch::BatchMode::Whole {
        let workers = config.engine.workers.unwrap_or(concurrency);
        config.engine.fix_workers(workers);
    }
    events::pool(project, EVENTS, config, handler, script, "worker")
}

/// The environment variables whose names and values are UTF-8.
#[cfg(feature = "secrets")]
fn variables() -> impl Iterator<Item = (String, String)> {
    env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// An environment variable that is not empty.
fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}
