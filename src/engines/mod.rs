//! The ways of running PHP.

mod backlog;
mod catalogue;
pub mod cgi_reply;
pub mod fastcgi;
mod ini;
pub mod keep;
mod overload;
mod params;
mod queue;
pub mod server_vars;
pub mod stock;
pub mod workers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Deserializer, Serialize};
use surus_sys::process::{self, User};
use tracing::info;

use crate::engine::Engine;
use crate::launcher::Launch;
use crate::observe::machine::Machine;
use crate::observe::metrics::Metrics;
use crate::spin::SPIN;
use crate::units::{self, Size, Time};
use queue::Bounds;
use stock::{Address, Stock, Way};
use workers::{Limits, Pool, Spec};

pub use catalogue::{CATALOGUE, Entry, Runs, find, known};
pub use workers::{Boot, FindScript, observe_sleep};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// An engine of the catalogue. When not set: `rewind` when the script calls `surus_serve()`, `classic` otherwise.
    #[serde(deserialize_with = "known")]
    pub name: Option<String>,
    /// The PHP file to boot, relative to the project, for the engines that boot one; `index.php` of the document root when not
    /// set. For `classic`: the file that answers what no other file does.
    pub script: Option<PathBuf>,
    /// URLs that are requested once after the boot, so that what they load is there for every event: `["/", "/login"]`.
    pub warmup: Vec<String>,
    /// PHP processes; from the CPUs and the memory that there are, when not set.
    #[serde(deserialize_with = "workers_of")]
    pub workers: Option<usize>,
    /// For `surus leaks`: an event with the header `Surus-Leaks` is answered with what the one before has left behind.
    #[serde(skip)]
    pub tells_leaks: bool,
    /// For `surus lambda profile`: memory in which PHP notes how its start goes.
    #[serde(skip)]
    pub profile: Option<Arc<std::fs::File>>,
    /// On `rewind` and `fork`: peers whose connections the boot may leave open for all workers to share, as the refusal names
    /// them: `["127.0.0.1:6379", "unix:/dev/log"]`.
    pub shared_sockets: Vec<String>,
    /// On `rewind`: compare all memory after each event with what it was, and replace a worker where it differs. Slow.
    pub paranoid: bool,
    /// Where one event comes at a time, and usually within 100 us, its worker looks for it that long before it sleeps, and Surus for the answer and for
    /// the next request, if there are two CPUs (four under a quota). Events that take long do not count. Saves what it takes to be woken; not on Lambda.
    pub spin: bool,
    /// PHP's library is made to call its own functions directly, and not by way of its table of symbols (`sapi/direct.c`). PHP takes a twentieth
    /// less time so; its library is read as a whole at the start, which Lambda's cold starts would feel.
    pub direct_calls: bool,
    /// On `standby` and `fork`: processes beyond `workers`, which serve as the others do.
    pub spares: usize,
    /// Events that may wait for a worker; more are refused at once.
    #[serde(deserialize_with = "queue")]
    pub queue: usize,
    /// How long an event may wait for a worker.
    pub queue_timeout: Time,
    /// Under overload, how long an event may wait for a worker; then the newest is served first.
    #[serde(deserialize_with = "queue_target")]
    pub queue_target: Time,
    /// Events that would wait longer than `queue_target` for so long are overload.
    pub queue_interval: Time,
    /// From asking PHP to end an event that is over its deadline to killing its process.
    pub kill_after: Time,
    /// Surus and PHP may write core dumps when they crash, as far as the limits allow with which
    /// Surus is started. A core dump contains what was in memory: passwords, keys, visitors' data.
    pub core_dumps: bool,
    /// How long PHP may take to start.
    #[serde(deserialize_with = "boot_timeout")]
    pub boot_timeout: Time,
    /// A worker is replaced after so many events; 0 for never.
    pub max_events: u64,
    /// A worker is replaced when it keeps more memory than this between events; 0 for no limit.
    pub max_memory: Size,
    /// Whom PHP runs as when Surus is started as root; `www-data` when not set.
    pub user: Option<String>,
    /// Its group; the user's own when not set.
    pub group: Option<String>,
    /// The PHP processes see no environment variables but those of `[env]`, `USER` and `HOME`.
    pub clear_env: bool,
    /// The `surus-php` to run, when not the one beside `surus`.
    pub php: Option<PathBuf>,
    /// On `cgi`: the php-cgi to run, when not the one in PATH.
    pub php_cgi: Option<PathBuf>,
    /// On `fpm`: the php-fpm to start, when not the one in PATH.
    pub php_fpm: Option<PathBuf>,
    /// On `cli` and `builtin`: the php to run, when not the one in PATH.
    pub php_cli: Option<PathBuf>,
    /// On `fpm`: a php-fpm that runs already, `127.0.0.1:9000` or `unix:/run/php/php-fpm.sock`; Surus starts one when not set.
    pub address: Option<Address>,
    /// The dynamic loader that starts `php`, with its libraries beside it, where PHP was brought along with all of its libraries;
    /// the system's when not set.
    pub loader: Option<PathBuf>,
    /// The php.ini to read, when not php-fpm's.
    pub ini_file: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            script: None,
            warmup: Vec::new(),
            workers: None,
            shared_sockets: Vec::new(),
            paranoid: false,
            spin: true,
            direct_calls: true,
            spares: 2,
            tells_leaks: false,
            profile: None,
            queue: 100_000,
            queue_timeout: Time::seconds(10),
            queue_target: Time::seconds(1),
            queue_interval: Time::seconds(5),
            kill_after: Time::seconds(1),
            core_dumps: false,
            boot_timeout: Time::seconds(60),
            max_events: 0,
            max_memory: Size(0),
            user: None,
            group: None,
            clear_env: true,
            php: None,
            php_cgi: None,
            php_fpm: None,
            php_cli: None,
            address: None,
            loader: None,
            ini_file: None,
        }
    }
}

/// Limits what this process and all that it starts may do beside its work.
pub fn restrict_process(settings: &Settings) -> anyhow::Result<()> {
    match settings.core_dumps {
        true => Ok(()),
        false => surus_sys::process::forbid_core_dumps()
            .context("cannot forbid core dumps (engine.core_dumps)"),
    }
}

/// How to run a pool, worked out from its settings.
#[derive(Clone)]
pub enum Plan {
    /// In processes of our own.
    Ours {
        spec: Spec,
        limits: Limits,
        queue: Bounds,
    },
    /// By PHP as it is installed.
    Stock { spec: stock::Spec, queue: Bounds },
}

/// Boots an engine under a name that metrics, logs and the status show. `ini` and `env` are what PHP gets beside the settings; `script` finds what an engine boots that
/// boots a script, anew for each of its boots.
pub async fn boot(
    name: &'static str,
    entry: &'static Entry,
    settings: &Settings,
    script: FindScript,
    ini: Vec<(String, String)>,
    env: BTreeMap<String, String>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Arc<dyn Engine>> {
    let plan = plan(name, entry, settings, script, ini, env)?;
    boot_plan(plan, None, metrics).await
}

/// Works out how to run a pool.
pub fn plan(
    name: &'static str,
    entry: &'static Entry,
    settings: &Settings,
    script: FindScript,
    ini: Vec<(String, String)>,
    mut env: BTreeMap<String, String>,
) -> anyhow::Result<Plan> {
    // So that an application can say what serves it.
    env.entry("SURUS_ENGINE".into())
        .or_insert_with(|| entry.name.into());
    if let Runs::Stock(way) = entry.runs {
        let spec = stock::Spec {
            name,
            way,
            program: find_stock(way, settings)?,
            address: settings.address.clone(),
            workers: worker_count(settings)?,
            max_events: settings.max_events,
            user: user(settings)?,
            ini_file: settings.ini_file.clone(),
            ini,
            clear_env: settings.clear_env,
            env,
            boot_timeout: settings.boot_timeout.0,
            launch: None,
        };
        return Ok(Plan::Stock {
            spec,
            queue: bounds(settings),
        });
    }
    let spec = Spec {
        name,
        engine: entry.name,
        program: find_program(settings.php.as_deref())?,
        loader: settings.loader.clone(),
        workers: process_count(entry, settings)?,
        script: entry.boots_script.then_some(script),
        tells_leaks: settings.tells_leaks,
        profile: settings.profile.clone(),
        shared_sockets: settings.shared_sockets.clone(),
        paranoid: settings.paranoid,
        direct_calls: settings.direct_calls,
        spin: spin(settings),
        max_events: settings.max_events,
        max_memory: settings.max_memory.0,
        user: user(settings)?,
        ini_file: settings.ini_file.clone(),
        ini,
        clear_env: settings.clear_env,
        env,
        launch: None,
    };
    let limits = Limits {
        queue_wait: settings.queue_timeout.0,
        kill_after: settings.kill_after.0,
        boot: settings.boot_timeout.0,
        capacity: workers::capacity(spec.workers, settings.queue),
    };
    Ok(Plan::Ours {
        spec,
        limits,
        queue: bounds(settings),
    })
}

fn bounds(settings: &Settings) -> Bounds {
    Bounds {
        max_waiting: settings.queue,
        max_wait: settings.queue_timeout.0,
        target: settings.queue_target.0,
        interval: settings.queue_interval.0,
    }
}

/// Boots a pool as it is planned, with processes that `launch` starts, or this process.
pub async fn boot_plan(
    plan: Plan,
    launch: Option<Launch>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Arc<dyn Engine>> {
    Ok(match plan {
        Plan::Stock { mut spec, queue } => {
            spec.launch = launch;
            Arc::new(Stock::boot(spec, queue, metrics).await?)
        }
        Plan::Ours {
            mut spec,
            limits,
            queue,
        } => {
            spec.launch = launch;
            Arc::new(Pool::boot(spec, limits, queue, metrics).await?)
        }
    })
}

/// What an engine runs PHP by.
pub fn program_of(entry: &Entry, settings: &Settings) -> anyhow::Result<PathBuf> {
    match entry.runs {
        Runs::Ours => find_program(settings.php.as_deref()),
        Runs::Stock(way) => find_stock(way, settings),
    }
}

/// PHP as it is installed, for the engines that run it so.
fn find_stock(way: Way, settings: &Settings) -> anyhow::Result<PathBuf> {
    let (configured, setting, name, package) = match way {
        Way::Cgi => (&settings.php_cgi, "engine.php_cgi", "php-cgi", "php-cgi"),
        Way::Fpm => (&settings.php_fpm, "engine.php_fpm", "php-fpm", "php-fpm"),
        Way::Cli | Way::Builtin => (&settings.php_cli, "engine.php_cli", "php", "php-cli"),
    };
    if way == Way::Fpm && settings.address.is_some() {
        return Ok("php-fpm".into());
    }
    // With a version in the name, as distributions have it that know several; the newest first.
    let mut names = vec![name.to_string()];
    names.extend((2..=9).rev().map(|minor| format!("{name}8.{minor}")));
    stock::find(configured.as_deref(), setting, &names, package)
}

/// How long is looked for what comes next before one sleeps.
pub fn spin(settings: &Settings) -> Duration {
    match settings.spin && Machine::read().has_spare() {
        true => SPIN,
        false => Duration::ZERO,
    }
}

/// The processes that the engine has.
pub fn process_count(entry: &Entry, settings: &Settings) -> anyhow::Result<usize> {
    let spares = if entry.serves_one { settings.spares } else { 0 };
    Ok(worker_count(settings)? + spares)
}

/// The number of workers that is set, or two for each CPU: PHP waits for databases now and then.
pub fn worker_count(settings: &Settings) -> anyhow::Result<usize> {
    match settings.workers {
        Some(count) => check_workers(count).map(|()| count),
        None => {
            let machine = Machine::read();
            let count = machine.worker_count();
            info!(
                workers = count,
                cpus = machine.cpus,
                memory_mib = machine.memory >> 20,
                "number of workers chosen (engine.workers)"
            );
            Ok(count)
        }
    }
}

fn check_workers(count: usize) -> anyhow::Result<()> {
    match count {
        0 => bail!("engine.workers is 0; PHP needs at least 1"),
        1..=4096 => Ok(()),
        _ => bail!("engine.workers is {count}; more than 4096 are not supported"),
    }
}

/// Whom the workers become; none when we are not root and so cannot choose.
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

/// The same without a line in the log.
pub fn find_user(settings: &Settings) -> anyhow::Result<Option<User>> {
    if !process::has_other_users() {
        if settings.user.is_some() || settings.group.is_some() {
            bail!(
                "engine.user and engine.group need Surus to be started as root, in a user namespace with other users"
            );
        }
        return Ok(None);
    }
    let name = settings.user.as_deref().unwrap_or("www-data");
    let found = process::find_user(name, settings.group.as_deref())?.with_context(|| {
        format!(
            "there is no user `{name}`{}; set engine.user",
            settings
                .group
                .as_ref()
                .map_or(String::new(), |group| format!(" or no group `{group}`"))
        )
    })?;
    Ok(Some(found))
}

/// `surus-php8.x`: the one that is configured, or the newest beside `surus`, in `../libexec`, or in `../lib/surus`.
pub fn find_program(configured: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(program) = configured {
        if !program.is_file() {
            bail!(
                "engine.php names {}, which does not exist",
                program.display()
            );
        }
        return Ok(program.to_path_buf());
    }
    let us = std::env::current_exe().context("where is surus itself?")?;
    let beside = us.parent().unwrap_or(Path::new("/"));
    let places = [
        beside.to_path_buf(),
        beside.join("../libexec"),
        beside.join("../libexec/surus"),
        beside.join(".."),
    ];
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for place in &places {
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let minor = name
                .to_str()
                .and_then(|name| name.strip_prefix("surus-php8."))
                .and_then(|minor| minor.parse().ok());
            if let Some(minor) = minor {
                found.push((minor, entry.path()));
            }
        }
    }
    found.sort();
    found.pop().map(|(_, path)| path).with_context(|| {
        format!(
            "surus-php8.x not found in {}; build it (cargo build --release) or name it in engine.php",
            places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
        )
    })
}

/// A number of workers, or none, as they are written.
pub fn workers_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    units::checked_if_set(from, |count: &usize| check_workers(*count))
}

fn queue<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    units::number("engine.queue", 0..=10_000_000, from)
}

fn queue_target<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("engine.queue_target", from)
}

fn boot_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    units::wait("engine.boot_timeout", from)
}
