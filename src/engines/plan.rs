//! Plans how to run a pool of PHP processes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use surus_sys::process::User;

use super::external::roadrunner::RelayKind;
use super::external::{self, ProgramKind};
use super::queue::Bounds;
use super::workers::{self, FindScript, RequestLimits, Spec};
use super::{EngineEntry, PhpProgram, Settings, busy_poll, process_range, program_of, user};

/// Tells the application which engine serves it.
const ENGINE: &str = "SURUS_ENGINE";

/// How to run a pool, derived from its settings.
#[derive(Clone)]
pub enum PoolPlan {
    /// With surus-php.
    SurusPhp {
        spec: Spec,
        limits: RequestLimits,
        queue: Bounds,
    },
    /// With an installed PHP.
    External {
        spec: external::PhpSpec,
        queue: Bounds,
    },
}

/// What this machine has for a pool.
#[derive(Debug, Clone)]
pub struct Found {
    /// PHP's program, and the dynamic loader that starts it.
    pub program: PathBuf,
    pub loader: Option<PathBuf>,
    /// The fewest and the most processes.
    pub workers: RangeInclusive<usize>,
    /// The longest busy poll.
    pub busy_poll: Duration,
    pub user: Option<User>,
}

/// Finds what a pool needs.
pub fn find_for(entry: &'static EngineEntry, settings: &Settings) -> anyhow::Result<Found> {
    let loader = settings.dynamic_loader.as_deref();
    let loader = loader.filter(|_| matches!(entry.runs, PhpProgram::SurusPhp));
    let loader =
        loader.map(|loader| external::command::find_configured(loader, "engine.dynamic_loader"));
    Ok(Found {
        program: program_of(entry, settings)?,
        loader: loader.transpose()?,
        workers: process_range(entry, settings)?,
        busy_poll: busy_poll(settings),
        user: user(settings)?,
    })
}

/// Plans how to run a pool.
pub fn plan(
    name: &'static str,
    entry: &'static EngineEntry,
    settings: &Settings,
    script: FindScript,
    ini: Vec<(String, String)>,
    env: BTreeMap<String, String>,
) -> anyhow::Result<PoolPlan> {
    let found = find_for(entry, settings)?;
    Ok(plan_with(name, entry, settings, found, script, ini, env))
}

/// Plans how to run a pool with what was found for it.
pub fn plan_with(
    name: &'static str,
    entry: &'static EngineEntry,
    settings: &Settings,
    found: Found,
    script: FindScript,
    ini: Vec<(String, String)>,
    mut env: BTreeMap<String, String>,
) -> PoolPlan {
    let workers = *found.workers.end();
    env.entry(ENGINE.into())
        .or_insert_with(|| entry.name.into());
    if let PhpProgram::External(way) = entry.runs {
        let spec = external::PhpSpec {
            name,
            way,
            program: found.program,
            address: settings.php_fpm_address.clone(),
            workers,
            max_requests: settings.max_requests,
            user: found.user,
            is_replaceable: settings.is_replaceable,
            names_foreign_files: way == ProgramKind::Fpm
                && external::names_foreign_files(&ini, &env),
            ini_file: settings.ini_file.clone(),
            ini,
            clear_env: settings.clear_env,
            env,
            boot_timeout: settings.boot_timeout.0,
            roadrunner: (way == ProgramKind::RoadRunner).then(|| {
                external::roadrunner::RoadRunnerSpec {
                    script,
                    arguments: settings.script_args.clone(),
                    directory: settings.project.clone(),
                    payloads: settings.roadrunner_payloads,
                    parses_forms: !settings.roadrunner_raw_body,
                    uploads: external::roadrunner::AcceptedUploads {
                        forbidden: settings.roadrunner_uploads_forbid.clone(),
                        allowed: settings.roadrunner_uploads_allow.clone(),
                    },
                    mode: settings.roadrunner_mode,
                    relay: settings.relay,
                    max_memory: settings.max_memory.0,
                }
            }),
            launch: None,
        };
        return PoolPlan::External {
            spec,
            queue: bounds(settings),
        };
    }
    let spec = Spec {
        name,
        engine: entry.name,
        program: found.program,
        loader: found.loader,
        workers,
        min_workers: *found.workers.start(),
        first_workers: *found.workers.start(),
        script: entry.boots_script().then_some(script),
        learned: settings.learned.clone(),
        warmup: settings.warmup.urls().to_vec(),
        reports_leaks: settings.reports_leaks,
        profile: settings.profile.clone(),
        shared_sockets: settings.shared_sockets.clone(),
        verify_restore: settings.verify_restore,
        direct_binding: settings.direct_binding,
        traces_slow: settings.slow_request.is_some(),
        busy_poll: found.busy_poll,
        max_requests: settings.max_requests,
        max_memory: settings.max_memory.0,
        user: found.user,
        ini_file: settings.ini_file.clone(),
        ini,
        clear_env: settings.clear_env,
        env,
        launch: None,
    };
    let limits = RequestLimits {
        queue_wait: settings.queue_timeout.0,
        kill_timeout: settings.kill_timeout.0,
        slow_request: settings.slow_request,
        boot: settings.boot_timeout.0,
        capacity: workers::capacity(spec.workers, settings.max_queue),
    };
    PoolPlan::SurusPhp {
        spec,
        limits,
        queue: bounds(settings),
    }
}

impl PoolPlan {
    /// What was found for the pool.
    pub fn found(&self) -> Found {
        match self {
            PoolPlan::SurusPhp { spec, .. } => Found {
                program: spec.program.clone(),
                loader: spec.loader.clone(),
                workers: spec.min_workers..=spec.workers,
                busy_poll: spec.busy_poll,
                user: spec.user.clone(),
            },
            PoolPlan::External { spec, .. } => Found {
                program: spec.program.clone(),
                loader: None,
                workers: spec.workers..=spec.workers,
                busy_poll: Duration::ZERO,
                user: spec.user.clone(),
            },
        }
    }

    /// Begins with this many workers, as far as the pool may have them.
    pub fn begin_with(&mut self, workers: usize) {
        if let PoolPlan::SurusPhp { spec, .. } = self {
            spec.first_workers = workers.clamp(spec.min_workers, spec.workers);
        }
    }

    /// The same pool on `classic`.
    pub fn unbooted(&self) -> PoolPlan {
        let mut plan = self.clone();
        if let PoolPlan::SurusPhp { spec, .. } = &mut plan {
            spec.engine = "classic";
            spec.script = None;
            spec.env.insert(ENGINE.into(), spec.engine.into());
        }
        plan
    }

    /// Whether workers connect to sockets of this process.
    pub fn listens(&self) -> bool {
        match self {
            PoolPlan::SurusPhp { .. } => false,
            PoolPlan::External { spec, .. } => {
                let relay = spec.roadrunner.as_ref().map(|worker| worker.relay);
                relay.is_some_and(|relay| relay != RelayKind::Pipes)
            }
        }
    }

    /// Whether the front end makes unix sockets of its own for this pool: to listen, or to connect
    /// to a php-fpm.
    pub fn has_unix_sockets(&self) -> bool {
        let is_fpm = |spec: &external::PhpSpec| {
            let is_tcp = matches!(spec.address, Some(external::FpmAddress::Tcp(_)));
            spec.way == external::ProgramKind::Fpm && !is_tcp
        };
        self.listens() || matches!(self, PoolPlan::External { spec, .. } if is_fpm(spec))
    }
}

fn bounds(settings: &Settings) -> Bounds {
    Bounds {
        max_waiting: settings.max_queue,
        max_wait: settings.queue_timeout.0,
        target: settings.queue_target.0,
        interval: settings.queue_interval.0,
    }
}
