//! Boots the engines of `surus serve`, and reports how each runs PHP.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use tracing::{info, warn};

use super::engine_setup::PlannedPool;
use super::{boot_script, config_lint, engine_setup, entry_script, user_ini};
use crate::engine::{Engine, Prepared, Report};
use crate::engines::boot_lock::BootLock;
use crate::engines::unbooted::{BootFunction, Unbooted};
use crate::keeper::Client;
use crate::launcher::Launch;
use crate::observe::metrics::Metrics;

type Engines = BTreeMap<&'static str, Arc<dyn Engine>>;

/// Boots the pools of a site. `keeper` starts their processes, if there is one, and has the number
/// `first` for the first pool. An application that cannot be booted is served by `classic`, and
/// booted later under the site's lock.
pub async fn boot(
    plans: &[PlannedPool],
    first: u32,
    keeper: &Option<Arc<Client>>,
    metrics: &Arc<Metrics>,
    booting: &Arc<BootLock>,
) -> anyhow::Result<Engines> {
    let mut booted: Engines = BTreeMap::new();
    for planned in plans {
        let name = planned.pool_config.name;
        if booted.contains_key(name) {
            continue; // A plan for the case that an application cannot be booted.
        }
        let otherwise = planned.otherwise.and_then(|number| plans.get(number));
        let boot = booter(plans, planned, first, keeper, metrics);
        let (pool_config, pool) = match (boot().await, otherwise) {
            (Ok(pool), _) => {
                if let Some(framework) = planned.pool_config.framework() {
                    info!(
                        engine = name,
                        application = %framework,
                        script = boot_script::name(framework.kind),
                        "application booted by Surus's script"
                    );
                }
                (&planned.pool_config, pool)
            }
            (Err(error), Some(otherwise)) => {
                warn!(
                    engine = name,
                    error = format!("{error:#}"),
                    "the application cannot be booted; `classic` serves it instead; see the \
                     error and what PHP has logged above, name a boot script (engine.script), or \
                     choose an engine (engine.name)"
                );
                let classic = booter(plans, otherwise, first, keeper, metrics)().await?;
                let instead = otherwise.pool_config.entry.name;
                let pool: Arc<dyn Engine> =
                    Arc::new(Unbooted::new(name, classic, instead, boot, booting.clone()));
                (&otherwise.pool_config, pool)
            }
            (Err(error), None) => return Err(error),
        };
        let report = pool.report();
        match report.get("opcache") {
            "on" => {}
            _ if !pool_config.entry.is_standing() || !pool_config.entry.runs_scripts() => {}
            "file cache only" => warn!(
                "OPcache uses no shared memory (opcache.file_cache_only), so every request reads \
                 its compiled files from disk"
            ),
            state => warn!(
                opcache = state,
                "PHP runs without OPcache, so every request compiles its files"
            ),
        }
        if pool_config.entry.name == "classic"
            && pool_config.config.engine.name.is_none()
            && let Some(file) =
                entry_script::names_frankenphp_worker(&planned.project, &pool_config.config)
        {
            warn!(
                engine = name,
                file = %file.display(),
                "`classic` runs a script for every request, but this file looks like a worker \
                 script of FrankenPHP; if it is one, name it in engine.script, and choose an \
                 engine that boots it, such as engine.name = \"rewind\""
            );
        }
        if pool_config.entry.name == "rewind"
            && pool_config.config.engine.name.is_none()
            && let Some(script) =
                entry_script::symfony_loop_script(&planned.project, &pool_config.config)
        {
            info!(
                engine = name,
                script = %script.display(),
                "Symfony's Runtime serves engine.script in a loop, so `rewind` boots it; \
                 engine.name selects another engine"
            );
        }
        // Others have the setting for the pools next to them.
        if pool_config.entry.boots_script()
            && let Some(reason) = pool_config.unused_warmup()
        {
            warn!(engine = name, reason, "engine.warmup has no effect");
        }
        let user_ini = report.get("user_ini.filename");
        for (setting, file) in user_ini::unrun(&planned.project, pool_config, user_ini) {
            warn!(
                engine = name,
                setting,
                file,
                "a file that .user.ini names does not run: command-line PHP reads no .user.ini; \
                 call it in the application for each request, or use another engine"
            );
        }
        for setting in config_lint::unknown_settings(&report, &pool_config.config) {
            warn!(
                engine = name,
                setting,
                "PHP has no such setting ([php] or -d): check its spelling, and that its extension \
                 is loaded"
            );
        }
        let status = pool.status();
        info!(
            engine = name,
            instead = status.instead,
            php = report.get("php_running"),
            ini = report.get("ini_file"),
            opcache = report.get("opcache"),
            workers = status.workers.len(),
            "PHP is ready"
        );
        booted.insert(name, pool);
    }
    Ok(booted)
}

/// Boots the pool `name` again, for a reload. Refuses what [`boot`] refuses.
pub async fn prepare(
    plans: &[PlannedPool],
    name: &str,
    engine: &Arc<dyn Engine>,
) -> anyhow::Result<Prepared> {
    // If the boot in place of `classic` succeeds, its `BootFunction` has checked it.
    let is_unbooted = engine.status().instead.is_some();
    let prepared = engine.prepare().await?;
    let number = plans.iter().position(|plan| plan.pool_config.name == name);
    if let Some(number) = number.filter(|_| !is_unbooted) {
        let refused = refuse_unread(&plans[number], number == 0, prepared.report().clone()).await;
        refused.context("the reload failed; the old version keeps running")?;
    }
    Ok(prepared)
}

/// Refuses a pool if a `.user.ini` that it does not read names files to run around requests, such
/// as firewalls. Searches on a thread of its own, because many directories may have to be read.
async fn refuse_unread(planned: &PlannedPool, is_main: bool, report: Report) -> anyhow::Result<()> {
    let (project, pool) = (planned.project.clone(), planned.pool_config.clone());
    let search = move || {
        let unread = user_ini::unread_by(&project, &pool, is_main, &report)?;
        Some((unread.obstacle(), unread.limit()))
    };
    let engine = planned.pool_config.name;
    match tokio::task::spawn_blocking(search).await? {
        Some((Some(why), _)) => bail!("engine `{engine}`: {why}"),
        Some((None, Some(reason))) => warn!(
            engine,
            reason,
            "some .user.ini files were not examined, and files that they name may not run; if \
             access is missing, run `surus check` as root"
        ),
        Some((None, None)) | None => {}
    }
    Ok(())
}

/// Boots the pool of a plan, as often as it is called.
fn booter(
    plans: &[PlannedPool],
    planned: &PlannedPool,
    first: u32,
    keeper: &Option<Arc<Client>>,
    metrics: &Arc<Metrics>,
) -> BootFunction {
    let number = plans.iter().position(|plan| std::ptr::eq(plan, planned));
    let pool = number.and_then(|number| first.checked_add(u32::try_from(number).ok()?));
    let by = keeper.clone().zip(pool);
    let is_main = number == Some(0);
    let (planned, metrics) = (planned.clone(), metrics.clone());
    Arc::new(move || {
        let (planned, metrics) = (planned.clone(), metrics.clone());
        let launch = by.clone().map(|(by, pool)| Launch { by, pool });
        Box::pin(async move {
            let pool = engine_setup::boot_planned(&planned, launch, &metrics).await?;
            match refuse_unread(&planned, is_main, pool.report()).await {
                Ok(()) => Ok(pool),
                Err(error) => {
                    pool.drain().await;
                    Err(error)
                }
            }
        })
    })
}
