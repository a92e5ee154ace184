//! `surus lambda profile`: measures a cold start.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use surus_sys::{process, scoreboard::now_micros};

use super::runtime;
use crate::app::site::Site;
use crate::cli::engine_setup::PoolConfig;
use crate::cli::options;
use crate::cli::stdout::{self, say};
use crate::cli::{engine_setup, events, warm_ups};
use crate::config::Config;
use crate::engine::Engine;
use crate::event::{Event, Script};
use crate::fronts::records;
use crate::observe::log;
use crate::observe::metrics::Metrics;
use crate::profile::{self, MeasuredStart, StartupTrace, Timeline};

#[derive(Debug, clap::Args)]
pub struct Profile {
    #[command(flatten)]
    app: options::AppArgs,
    /// First request: /path?query, or a whole URL if the application depends on its host
    #[arg(long, value_name = "URL", default_value = "/")]
    url: String,
    /// Profile the handler (lambda.handler) with the event in this JSON file
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    event: Option<PathBuf>,
    /// Number of starts; the output shows the one with the median duration
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    starts: u32,
    /// Also draw the timeline into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Capacity for the trace of a start: a file takes about a hundred bytes.
const ROOM: u64 = 8 << 20;

pub fn run(args: Profile) -> anyhow::Result<()> {
    let project = args.app.project.directory()?;
    let loaded = args.app.load()?;
    log::start(&log::Settings {
        level: "warn".into(),
        ..loaded.config.log.clone()
    })?;
    let mut config = loaded.config;
    // Lambda gives a function one event at a time.
    config.engine.fix_workers(1);
    config.engine.spare_workers = 0;
    let (mut pool_config, first) = subject(&args, &project, config)?;
    let entry = pool_config.entry;

    let mut all = Vec::new();
    let mut version = String::new();
    for _ in 0..args.starts {
        let (measured, php) = crate::cli::block_on(start(&mut pool_config, &project, &first))?;
        all.push(measured);
        version = php;
    }
    all.sort_by_key(|measured| measured.surus + measured.first.1 - measured.requested);
    let median = all.swap_remove(all.len() / 2);
    let directory = project.canonicalize()?;
    let directory = directory
        .to_str()
        .context("the path of the project is not UTF-8")?;
    let name = project.file_name().unwrap_or_default().to_string_lossy();
    let timeline = Timeline::new(
        format!("cold start of {name} on {}", entry.name),
        directory,
        median,
    )?;
    stdout::print(profile::format(&timeline));
    say!(
        "\n{version}; the median of {} starts with a warm page cache, which Lambda does not have",
        args.starts
    );
    if let Some(path) = &args.svg {
        std::fs::write(path, profile::draw(&timeline))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The events of a profile.
enum First {
    /// `GET` of this URL.
    Url(String, Box<Site>),
    /// An event for the handler.
    Event(Bytes, Script),
}

impl First {
    fn event(&self) -> anyhow::Result<Event> {
        match self {
            First::Url(url, site) => warm_ups::get(url, site).context("--url"),
            First::Event(payload, script) => Ok(Event {
                id: 0,
                request: records::request::request(payload.clone()),
                script: script.clone(),
                origin: records::request::origin(),
                variables: Vec::new(),
                deadline: Instant::now() + Duration::from_secs(3600),
                idle_timeout: None,
                spool: None,
                completion_token: None,
                early_hints: None,
            }),
        }
    }

    /// For messages.
    fn name(&self) -> String {
        match self {
            First::Url(url, _) => format!("GET {url}"),
            First::Event(..) => "the event".into(),
        }
    }
}

/// The code to start and its events: the handler if an event is given or there is no application.
fn subject(args: &Profile, project: &Path, config: Config) -> anyhow::Result<(PoolConfig, First)> {
    let site = engine_setup::open_site(project, &config);
    let front = site.as_ref().ok().and_then(|site| site.front_controller());
    let is_application = front.is_some() || config.engine.script.is_some();
    let handler = runtime::handler(project, &config, front.map(|front| &*front.filename))?;
    if args.event.is_some() && handler.is_none() {
        bail!("--event: no handler; name its PHP file in [lambda] handler of surus.toml");
    }
    match handler {
        Some(handler) if args.event.is_some() || !is_application => {
            let payload = match &args.event {
                None => "{}".into(),
                Some(file) => std::fs::read(file)
                    .with_context(|| format!("cannot read {} (--event)", file.display()))?,
            };
            serde_json::from_slice::<serde::de::IgnoredAny>(&payload)
                .context("the event is not JSON (--event)")?;
            let script = events::script(project, &config)?;
            let pool_config = runtime::for_events(project, &config, &handler, &script, 1)?;
            let script = events::script_of(project, &script)?;
            Ok((pool_config, First::Event(payload.into(), script)))
        }
        _ => {
            let site = Box::new(site?);
            let entry = engine_setup::chosen(project, &config)?;
            let pool_config = PoolConfig {
                name: entry.name,
                entry,
                config,
                learned: Default::default(),
            };
            Ok((pool_config, First::Url(args.url.clone(), site)))
        }
    }
}

/// Measures one start with two events. Also returns the PHP version.
async fn start(
    pool_config: &mut PoolConfig,
    project: &Path,
    asks: &First,
) -> anyhow::Result<(MeasuredStart, String)> {
    let surus = own_start()?;
    let memory = File::from(
        process::writable_memory_file().context("cannot allocate memory for the profile")?,
    );
    memory
        .set_len(ROOM)
        .context("cannot allocate memory for the profile")?;
    let memory = Arc::new(memory);
    pool_config.config.engine.profile = Some(memory.clone());
    let before = now_micros();
    let pool = engine_setup::boot_one(pool_config, project, &Arc::new(Metrics::default())).await?;
    let ready = now_micros();
    let first = event(&*pool, asks).await?;
    let second = event(&*pool, asks).await?;
    let report = pool.report();
    let php = format!(
        "PHP {}, OPcache {}",
        report.get("php_running"),
        report.get("opcache")
    );
    pool.drain().await;
    let mut bytes = vec![0; usize::try_from(ROOM)?];
    memory.read_exact_at(&mut bytes, 0)?;
    let notes = StartupTrace::read(&bytes)?;
    Ok((
        MeasuredStart {
            surus,
            requested: before,
            ready,
            first,
            second,
            notes,
        },
        php,
    ))
}

/// When the event was sent, and when its response was complete.
async fn event(pool: &dyn Engine, asks: &First) -> anyhow::Result<(u64, u64)> {
    let event = asks.event()?;
    let sent = now_micros();
    let response = pool
        .handle(Box::new(event))
        .await
        .with_context(|| asks.name())?;
    let status = response.status();
    response
        .into_body()
        .collect()
        .await
        .with_context(|| asks.name())?;
    let answered = now_micros();
    if status >= StatusCode::INTERNAL_SERVER_ERROR {
        bail!(
            "{} failed with status {status}; see PHP's messages above",
            asks.name()
        );
    }
    Ok((sent, answered))
}

/// The duration of `surus --version`.
fn own_start() -> anyhow::Result<u64> {
    let program =
        std::env::current_exe().context("cannot determine the path of the surus executable")?;
    let began = now_micros();
    let status = Command::new(&program)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let took = now_micros() - began;
    if !status.success() {
        bail!("{} --version failed: {status}", program.display());
    }
    Ok(took)
}
