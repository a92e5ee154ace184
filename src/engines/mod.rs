//! The engines, which run PHP, and their settings.

pub mod boot_lock;
mod catalogue;
pub mod cgi;
pub mod external;
pub mod keeper_tasks;
pub mod learned;
mod overload;
mod php_ini;
mod plan;
mod queue;
mod response_spool;
pub mod surus_php;
pub mod unbooted;
mod warmup;
mod worker_range;
pub mod workers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer, Serialize};
use surus_sys::process::{self, User};
use tracing::info;

use crate::busy_poll::LONGEST_POLL;
use crate::engine::Engine;
use crate::launcher::Launch;
use crate::observe::metrics::Metrics;
use crate::observe::system::Machine;
use crate::units::{self, Size, Time};
use external::roadrunner::{Payloads, RelayKind};
use external::{ExternalEngine, FpmAddress, ProgramKind};
use workers::Pool;

pub use catalogue::{BootsIn, CATALOGUE, EngineEntry, PhpProgram, find, known};
pub use external::roadrunner::WorkerMode;
pub use learned::Learned;
pub use plan::{Found, PoolPlan, find_for, plan, plan_with};
pub use warmup::Warmup;
pub use worker_range::{min_workers_of, process_range, worker_count, workers_of};
pub use workers::{Boot, Code, FindScript, Linked, observe_parking};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The engine's name in the catalogue. By default `rewind` for scripts that boot, otherwise
    /// `classic` (docs/reference/engines.md).
    #[serde(deserialize_with = "known")]
    pub name: Option<String>,
    /// The PHP file to boot, relative to the project; by default `index.php` of the document root.
    /// For `classic`, the file that handles requests without a file of their own.
    pub script: Option<PathBuf>,
    /// On `roadrunner`: the arguments of the worker script.
    pub script_args: Vec<String>,
    /// On `roadrunner`: how requests are written for the workers, `json` or `protobuf`
    /// (roadrunner-http 3.5 and later).
    pub roadrunner_payloads: Payloads,
    /// On `roadrunner`: whether workers get the bodies of forms as they arrive. They then parse
    /// fields and files themselves.
    pub roadrunner_raw_body: bool,
    /// On `roadrunner`: extensions of uploaded files that arrive without content, with or without
    /// the dot. RoadRunner forbade some by default up to 2024.2 (`config/uploads.go` of its http
    /// plugin).
    pub roadrunner_uploads_forbid: Vec<String>,
    /// On `roadrunner`: the only extensions of uploaded files that workers get; by default all.
    pub roadrunner_uploads_allow: Vec<String>,
    /// On `roadrunner`: what the workers are asked for.
    #[serde(skip)]
    pub roadrunner_mode: WorkerMode,
    /// On `roadrunner`: how workers connect, `pipes`, `unix` or `tcp`.
    pub relay: RelayKind,
    /// The project's directory, in which workers of `roadrunner` run.
    #[serde(skip)]
    pub project: Option<PathBuf>,
    /// Whether another user than root can replace the configuration of a server that root starts.
    #[serde(skip)]
    pub is_replaceable: bool,
    /// What to request once after the boot, so that all later requests find their code loaded. With
    /// `auto`, a page that does not exist, if Surus knows the framework; `learn` adds learned
    /// pages. `["/", "/login"]` adds these URLs instead, and `[]` turns warm-ups off.
    pub warmup: Warmup,
    /// What requests teach the next boots; by default nothing.
    #[serde(skip)]
    pub learned: Option<Arc<Learned>>,
    /// The number of PHP processes; by default derived from CPUs and memory.
    #[serde(deserialize_with = "workers_of")]
    pub workers: Option<usize>,
    /// In place of `workers`: the least and the most PHP processes, between which the number adapts
    /// to the load. By default 1 and as many as `workers` would be.
    #[serde(deserialize_with = "min_workers_of")]
    pub min_workers: Option<usize>,
    #[serde(deserialize_with = "workers_of")]
    pub max_workers: Option<usize>,
    /// For `surus leaks`: the response to a request with the header `Surus-Leaks` lists what the
    /// previous request left behind.
    #[serde(skip)]
    pub reports_leaks: bool,
    /// For `surus lambda profile`: the memory for PHP's start-up trace.
    #[serde(skip)]
    pub profile: Option<Arc<std::fs::File>>,
    /// On `rewind` and `fork`: peers of connections that the boot may leave open for all workers to
    /// share. The names are those of the error message: `["127.0.0.1:6379", "unix:/dev/log"]`.
    #[serde(deserialize_with = "units::one_or_more")]
    pub shared_sockets: Vec<String>,
    /// On `rewind`: compares all memory with the checkpoint after each request and replaces a
    /// worker that differs. Slow.
    pub verify_restore: bool,
    /// Busy polling: with one request at a time, usually within 100 µs, workers and Surus poll that
    /// long before they block. Saves the wake-up latency. Needs two CPUs, or four under a quota.
    /// Not on Lambda and not in `surus work`.
    pub busy_poll: bool,
    /// Binds calls inside PHP's library directly instead of through its symbol table
    /// (`sapi/php/direct_binding.c`). PHP takes about 5% less time, but reads its whole library at
    /// the start, which slows down Lambda cold starts.
    pub direct_binding: bool,
    /// On `standby`, `fork`, `cgi` and `cli`: more processes that serve, in addition to `workers`.
    pub spare_workers: usize,
    /// How many requests may wait for a worker; more are rejected at once.
    #[serde(deserialize_with = "queue")]
    pub max_queue: usize,
    /// How long a request may wait for a worker.
    #[serde(deserialize_with = "queue_timeout")]
    pub queue_timeout: Time,
    /// Under overload, how long a request may wait for a worker; the newest is then served first.
    #[serde(deserialize_with = "queue_target")]
    pub queue_target: Time,
    /// For how long requests must wait longer than `queue_target` before that counts as overload.
    pub queue_interval: Time,
    /// How long PHP may take to stop a request after its deadline before its process is killed.
    pub kill_timeout: Time,
    /// How long PHP may run a request before its backtrace is logged (`http.slow_request`).
    #[serde(skip)]
    pub slow_request: Option<Duration>,
    /// Whether Surus and PHP may write core dumps when they crash, within Surus's resource limits.
    /// A core dump contains memory: passwords, keys, visitors' data.
    pub core_dumps: bool,
    /// How long PHP may take to start.
    #[serde(deserialize_with = "boot_timeout")]
    pub boot_timeout: Time,
    /// Whether it is an error if the application cannot be booted. `classic` serves it otherwise.
    pub must_boot: bool,
    /// After how many requests a worker is replaced; 0 for never.
    pub max_requests: u64,
    /// A worker that keeps more memory than this between requests is replaced; 0 for no limit.
    pub max_memory: Size,
    /// The user of PHP if Surus is started as root; `www-data` by default.
    pub user: Option<String>,
    /// The group of PHP; by default the user's own.
    pub group: Option<String>,
    /// Limits PHP's environment variables to those of `[env]`, `USER` and `HOME`.
    pub clear_env: bool,
    /// The `surus-php` to run; by default the newest in the usual places next to `surus`.
    pub surus_php: Option<PathBuf>,
    /// On `cgi`: the php-cgi to run; by default the one in PATH.
    pub php_cgi: Option<PathBuf>,
    /// On `fpm`: the php-fpm to start; by default the one in PATH.
    pub php_fpm: Option<PathBuf>,
    /// On `cli`, `builtin` and `roadrunner`: the php to run; by default the one in PATH.
    pub php_cli: Option<PathBuf>,
    /// On `fpm`: a php-fpm that already runs, `127.0.0.1:9000` or `unix:/run/php/php-fpm.sock`. By
    /// default Surus starts one.
    pub php_fpm_address: Option<FpmAddress>,
    /// The dynamic loader that starts `php` from a package with its own libraries; by default the
    /// system's.
    pub dynamic_loader: Option<PathBuf>,
    /// The php.ini to read; by default php-fpm's.
    pub ini_file: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            script: None,
            script_args: Vec::new(),
            roadrunner_payloads: Payloads::default(),
            roadrunner_raw_body: false,
            roadrunner_uploads_forbid: Vec::new(),
            roadrunner_uploads_allow: Vec::new(),
            roadrunner_mode: WorkerMode::default(),
            relay: RelayKind::default(),
            project: None,
            is_replaceable: false,
            warmup: Warmup::Auto,
            learned: None,
            workers: None,
            min_workers: None,
            max_workers: None,
            shared_sockets: Vec::new(),
            verify_restore: false,
            busy_poll: true,
            direct_binding: true,
            spare_workers: 2,
            reports_leaks: false,
            profile: None,
            max_queue: 100_000,
            queue_timeout: Time::seconds(10),
            queue_target: Time::seconds(1),
            queue_interval: Time::seconds(5),
            kill_timeout: Time::seconds(1),
            slow_request: None,
            core_dumps: false,
            boot_timeout: Time::seconds(60),
            must_boot: false,
            max_requests: 0,
            max_memory: Size(0),
            user: None,
            group: None,
            clear_env: true,
            surus_php: None,
            php_cgi: None,
            php_fpm: None,
            php_cli: None,
            php_fpm_address: None,
            dynamic_loader: None,
            ini_file: None,
        }
    }
}

/// Restricts this process and its children, as configured.
pub fn restrict_process(settings: &Settings) -> anyhow::Result<()> {
    match settings.core_dumps {
        true => Ok(()),
        false => surus_sys::process::forbid_core_dumps()
            .context("cannot forbid core dumps (engine.core_dumps)"),
    }
}

/// Boots an engine; `name` is for metrics, logs and the status. `ini` and `env` are additions to
/// the settings. `script` finds the script to boot, again for each boot.
pub async fn boot(
    name: &'static str,
    entry: &'static EngineEntry,
    settings: &Settings,
    script: FindScript,
    ini: Vec<(String, String)>,
    env: BTreeMap<String, String>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Arc<dyn Engine>> {
    let plan = plan(name, entry, settings, script, ini, env)?;
    boot_plan(plan, None, metrics).await
}

/// Boots a pool as planned. `launch` starts its processes; without it, this process does.
pub async fn boot_plan(
    plan: PoolPlan,
    launch: Option<Launch>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Arc<dyn Engine>> {
    Ok(match plan {
        PoolPlan::External { mut spec, queue } => {
            spec.launch = launch;
            Arc::new(ExternalEngine::boot(spec, queue, metrics).await?)
        }
        PoolPlan::SurusPhp {
            mut spec,
            limits,
            queue,
        } => {
            spec.launch = launch;
            Arc::new(Pool::boot(spec, limits, queue, metrics).await?)
        }
    })
}

/// The PHP program of an engine.
pub fn program_of(entry: &EngineEntry, settings: &Settings) -> anyhow::Result<PathBuf> {
    match entry.runs {
        PhpProgram::SurusPhp => surus_php::find(settings.surus_php.as_deref()),
        PhpProgram::External(way) => find_external(way, settings),
    }
}

/// Finds the installed PHP of an external engine.
fn find_external(way: ProgramKind, settings: &Settings) -> anyhow::Result<PathBuf> {
    let (configured, setting, name, package) = match way {
        ProgramKind::Cgi => (&settings.php_cgi, "engine.php_cgi", "php-cgi", "php-cgi"),
        ProgramKind::Fpm => (&settings.php_fpm, "engine.php_fpm", "php-fpm", "php-fpm"),
        ProgramKind::Cli | ProgramKind::Builtin | ProgramKind::RoadRunner => {
            (&settings.php_cli, "engine.php_cli", "php", "php-cli")
        }
    };
    if way == ProgramKind::Fpm && settings.php_fpm_address.is_some() {
        return Ok("php-fpm".into());
    }
    // Distributions that support several versions have the version in the name; try the newest
    // first.
    let mut names = vec![name.to_string()];
    names.extend((2..=9).rev().map(|minor| format!("{name}8.{minor}")));
    external::find(configured.as_deref(), setting, &names, package)
}

/// How long to busy-poll before blocking.
pub fn busy_poll(settings: &Settings) -> Duration {
    match settings.busy_poll && Machine::read().has_spare() {
        true => LONGEST_POLL,
        false => Duration::ZERO,
    }
}

/// The user of the workers; None without root, because only root can change the user.
pub fn user(settings: &Settings) -> anyhow::Result<Option<User>> {
    let found = find_user(settings)?;
    if let (Some(found), None) = (&found, &settings.user) {
        info!(
            user = found.name,
            "started as root; PHP runs as this user (engine.user)"
        );
    }
    Ok(found)
}

/// Like `user`, but logs nothing.
pub fn find_user(settings: &Settings) -> anyhow::Result<Option<User>> {
    if !process::has_other_users() {
        if settings.user.is_some() || settings.group.is_some() {
            bail!(
                "engine.user and engine.group need Surus to be started as root, in a user \
                 namespace with other users"
            );
        }
        return Ok(None);
    }
    let name = settings.user.as_deref().unwrap_or("www-data");
    let found = process::find_user(name, settings.group.as_deref())?.with_context(|| {
        format!(
            "unknown user `{name}`{}; set engine.user",
            settings
                .group
                .as_ref()
                .map_or(String::new(), |group| format!(" or group `{group}`"))
        )
    })?;
    Ok(Some(found))
}

fn queue<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    units::number("engine.max_queue", 0..=10_000_000, from)
}

fn queue_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("engine.queue_timeout", from)
}

fn queue_target<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("engine.queue_target", from)
}

fn boot_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("engine.boot_timeout", from)
}
