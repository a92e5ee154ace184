//! Decides which engines a configuration needs and what they boot, and boots them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};

use super::entry_script::{LARAVEL, Runtime, front, has_own_boot, runtime, script, serves};
use super::warm_ups::{self, WarmUpRequests};
use super::{boot_script, entry_script};
use crate::app::detect::{self, DetectedApplication, Framework};
use crate::app::host::HostPattern;
use crate::app::site::Site;
use crate::app::site::routes;
use crate::config::Config;
use crate::engine::Engine;
use crate::engines::{
    self, Boot, BootsIn, EngineEntry, FindScript, Found, Learned, Linked, PoolPlan, Warmup,
};
use crate::launcher::Launch;
use crate::observe::metrics::Metrics;

/// The directory that a project's path leads to. Paths below it stay in one release while a deploy
/// exchanges a link on the way.
pub fn release(project: &Path) -> PathBuf {
    project
        .canonicalize()
        .unwrap_or_else(|_| project.to_path_buf())
}

/// Looks at the application, and adds what its boot script needs to the configuration. The user's
/// configuration wins.
pub fn look_at_application(project: &Path, config: &mut Config) {
    entry_script::set_runtime_of_composer(project, config);
    let found = front(project, config).map(|front| detect::detect(project, &front));
    let found = found.unwrap_or(DetectedApplication::Unknown);
    let site = &mut config.site;
    site.no_php = site.no_php.take().or_else(|| found.uploads());
    config.application = match has_own_boot(project, config) {
        true => DetectedApplication::Own,
        false => found,
    };
    let boots = chosen(project, config).is_ok_and(|entry| entry.boots_script());
    if let (true, DetectedApplication::Known(framework)) = (boots, &config.application) {
        config.route.extend(boot_script::routes(framework.kind));
    }
}

/// Opens the application's directory.
pub fn open_site(project: &Path, config: &Config) -> anyhow::Result<Site> {
    let script = script(project, config);
    // A booted script answers for itself. URLs name the index.php that it stands for, if there is
    // one.
    let front = match &script {
        Some(_) if boots_script(project, config)? => {
            let site = Site::open(project, &config.site, None)?;
            if site.front_controller().is_some() {
                return Ok(site);
            }
            script
        }
        _ => script,
    };
    Site::open(project, &config.site, front.as_deref())
}

/// Opens the application's directory for a pool with a script that it does not boot: the script is
/// then that pool's front controller.
pub fn open_pool_site(project: &Path, config: &Config, pool: &str) -> anyhow::Result<Option<Site>> {
    let script = config.pool.get(pool).and_then(|pool| pool.script.as_ref());
    let (Some(script), Some(of_pool)) = (script, config.for_pool(pool)) else {
        return Ok(None);
    };
    if boots_script(project, &of_pool)? {
        return Ok(None);
    }
    let site = Site::open(project, &config.site, Some(&project.join(script)));
    site.map(Some)
        .with_context(|| format!("pool.{pool}.script"))
}

fn boots_script(project: &Path, config: &Config) -> anyhow::Result<bool> {
    Ok(chosen(project, config)?.boots_script())
}

/// The engine for requests for which no route names another.
pub fn chosen(project: &Path, config: &Config) -> anyhow::Result<&'static EngineEntry> {
    if let Some(name) = &config.engine.name {
        return bootable(engines::find(name)?, config);
    }
    let Some(entry) = script(project, config).or_else(|| front(project, config)) else {
        return engines::find("classic");
    };
    let boots = runtime(config).is_some()
        || serves(&entry)
        || entry_script::symfony_loop_script(project, config).is_some();
    engines::find(if boots { "rewind" } else { "classic" })
}

/// Whether `chosen` boots the script only because Symfony's Runtime may serve it in a loop. False
/// if the document root's `index.php` is another file, because `classic` would run that one.
fn is_guess(project: &Path, config: &Config) -> bool {
    let is_front = |script: &Path| {
        let real = script.canonicalize().ok();
        front(project, config).is_none_or(|front| front.canonicalize().ok() == real)
    };
    config.engine.name.is_none()
        && entry_script::symfony_loop_script(project, config)
            .is_some_and(|script| !serves(&script) && is_front(&script))
}

/// The engine, or `classic` if it cannot boot the application.
fn bootable(entry: &'static EngineEntry, config: &Config) -> anyhow::Result<&'static EngineEntry> {
    match boot_script::obstacle(entry, &config.application) {
        Some(why) if config.engine.must_boot => bail!("engine `{}`: {why}", entry.name),
        Some(_) => engines::find("classic"),
        None => Ok(entry),
    }
}

/// A pool of PHP processes that the configuration asks for.
#[derive(Clone)]
pub struct PoolConfig {
    /// The pool's name, or its engine's.
    pub name: &'static str,
    pub entry: &'static EngineEntry,
    /// The configuration as the pool sees it.
    pub config: Config,
    /// Which pages its boots are warmed up by, in addition to the configured ones.
    pub learned: Arc<Learned>,
}

impl PoolConfig {
    /// The framework whose boot script boots the pool. None if a script of the user's does.
    pub fn framework(&self) -> Option<&Framework> {
        let boots = self.entry.boots_script() && self.entry.runs_scripts();
        boot_script::find(&self.config.application).filter(|_| boots)
    }

    /// Whether no request for another script than the front controller gets here.
    pub fn leaves_others(&self) -> bool {
        let kind = self.framework().map(|framework| framework.kind);
        kind.is_some_and(|kind| boot_script::leaves_others(kind, self.name, &self.config.route))
    }

    /// Whether to warm up without URLs: the boot script then discards what a warm-up leaves.
    fn warms_up_alone(&self) -> bool {
        let discards = match self.framework() {
            Some(framework) => !boot_script::is_checkpoint(framework),
            None => matches!(
                runtime(&self.config),
                Some(Runtime::Symfony | Runtime::Laravel)
            ),
        };
        discards && self.entry.isolates && !self.config.engine.warmup.is_off()
    }

    /// Whether requests may teach Surus by which pages to warm up. Only in a process that all
    /// workers are forked from is that done once, and its result the same for all.
    pub fn learns(&self) -> bool {
        self.config.engine.warmup == Warmup::Learn && self.can_learn()
    }

    /// Whether requests could teach Surus, if the configuration said so.
    pub fn could_learn(&self) -> bool {
        self.config.engine.warmup == Warmup::Auto && self.can_learn()
    }

    fn can_learn(&self) -> bool {
        self.entry.boots_in == BootsIn::Master && self.warms_up_alone()
    }

    /// Why `engine.warmup` does nothing, although it asks for something. None if it does.
    pub fn unused_warmup(&self) -> Option<String> {
        let warmup = &self.config.engine.warmup;
        let has_urls = !warmup.urls().is_empty();
        let engine = self.entry.name;
        let because = match self.framework() {
            _ if !has_urls && *warmup != Warmup::Learn => return None,
            Some(framework) if boot_script::is_checkpoint(framework) => format!(
                "{framework} boots up to where it looks at the visitor, and no request can come \
                 before that"
            ),
            _ if !self.entry.boots_script() && has_urls => format!(
                "`{engine}` boots no script that could be warmed up; `rewind`, `fork`, `standby` \
                 and `worker` do"
            ),
            _ if !has_urls && !self.can_learn() => format!(
                "only `rewind` and `fork` learn pages, of applications that Surus's scripts for \
                 Symfony and Laravel boot; this is `{engine}`"
            ),
            _ => return None,
        };
        Some(because)
    }

    /// Whether `classic` serves the application if it cannot be booted. Not if the user has
    /// configured the boot script, because the user then has to know.
    pub fn may_be_unbooted(&self, project: &Path) -> bool {
        let boots = self.entry.boots_script() && self.entry.runs_scripts();
        let is_own = self.config.application == DetectedApplication::Own;
        boots
            && !self.config.engine.must_boot
            && (!is_own || self.entry.name == "rewind" && is_guess(project, &self.config))
    }

    /// The same pool on `classic`.
    fn unbooted(&self) -> anyhow::Result<PoolConfig> {
        Ok(PoolConfig {
            entry: engines::find("classic")?,
            ..self.clone()
        })
    }
}

/// The configured engine, and the engines and pools that routes name, each once. `hosts` are those
/// of the `[[site]]`.
pub fn pools(
    project: &Path,
    config: &Config,
    hosts: &[HostPattern],
) -> anyhow::Result<Vec<PoolConfig>> {
    let main = chosen(project, config)?;
    let learned = || Arc::new(Learned::of_hosts(warm_ups::named_hosts(config, hosts)));
    let mut all = vec![PoolConfig {
        name: main.name,
        entry: main,
        config: config.clone(),
        learned: learned(),
    }];
    for name in routes::engines(&config.route) {
        if all.iter().any(|pool| pool.name == name) {
            continue;
        }
        all.push(match config.for_pool(name) {
            Some(config) => PoolConfig {
                // Leaked because pool names, like engine names, are needed until the program exits.
                name: name.to_string().leak(),
                entry: chosen(project, &config)?,
                config,
                learned: learned(),
            },
            None => {
                let entry = engines::find(name)
                    .context("a [[route]] names neither an engine nor a [pool]")?;
                PoolConfig {
                    name: entry.name,
                    entry: bootable(entry, config)?,
                    config: config.clone(),
                    learned: learned(),
                }
            }
        });
    }
    Ok(all)
}

/// A pool and its plan.
#[derive(Clone)]
pub struct PlannedPool {
    pub project: PathBuf,
    pub pool_config: PoolConfig,
    pub plan: PoolPlan,
    /// The number of the plan to follow if this one's application cannot be booted.
    pub otherwise: Option<usize>,
}

/// Plans how to run the pools. Those that are only run instead of others come last.
pub fn plan_all(pool_configs: Vec<PoolConfig>, project: &Path) -> anyhow::Result<Vec<PlannedPool>> {
    let plans = pool_configs
        .into_iter()
        .map(|pool_config| plan(pool_config, project));
    let mut plans = plans.collect::<anyhow::Result<Vec<_>>>()?;
    for index in 0..plans.len() {
        if plans[index].pool_config.may_be_unbooted(project) {
            let unbooted = plans[index].pool_config.unbooted()?;
            plans[index].otherwise = Some(plans.len());
            plans.push(PlannedPool {
                project: project.to_path_buf(),
                pool_config: unbooted,
                plan: plans[index].plan.unbooted(),
                otherwise: None,
            });
        }
    }
    Ok(plans)
}

/// Plans how to run a pool.
pub fn plan(pool_config: PoolConfig, project: &Path) -> anyhow::Result<PlannedPool> {
    let found = engines::find_for(pool_config.entry, &pool_config.config.engine);
    let found = found.with_context(|| format!("engine `{}`", pool_config.name))?;
    Ok(plan_with(pool_config, project, found))
}

/// The same with what was found for it.
pub fn plan_with(pool_config: PoolConfig, project: &Path, found: Found) -> PlannedPool {
    let ini = pool_config.config.php.iter();
    let settings = engines::Settings {
        project: Some(project.to_path_buf()),
        learned: pool_config.learns().then(|| pool_config.learned.clone()),
        ..pool_config.config.engine.clone()
    };
    let plan = engines::plan_with(
        pool_config.name,
        pool_config.entry,
        &settings,
        found,
        finder(project.to_path_buf(), pool_config.clone()),
        ini.flat_map(|(name, value)| {
            value
                .entries()
                .into_iter()
                .map(|value| (name.clone(), value))
        })
        .collect(),
        pool_config.config.env.clone(),
    );
    PlannedPool {
        project: project.to_path_buf(),
        pool_config,
        plan,
        otherwise: None,
    }
}

/// Plans and boots a pool.
pub async fn boot_one(
    pool_config: &PoolConfig,
    project: &Path,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Arc<dyn Engine>> {
    let planned = plan(pool_config.clone(), project)?;
    boot_planned(&planned, None, metrics).await
}

/// Boots a pool. `launch` starts its processes, or this process does.
pub async fn boot_planned(
    planned: &PlannedPool,
    launch: Option<Launch>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Arc<dyn Engine>> {
    let booted = engines::boot_plan(planned.plan.clone(), launch, metrics.clone());
    booted
        .await
        .with_context(|| format!("engine `{}`", planned.pool_config.name))
}

/// The PHP file that an engine boots, and its site.
pub fn script_and_site(project: &Path, config: &Config) -> anyhow::Result<(PathBuf, Site)> {
    let site = open_site(project, config)?;
    let script = match script(project, config) {
        Some(script) => script
            .canonicalize()
            .with_context(|| match script.ends_with(LARAVEL) {
                true => format!(
                    "APP_RUNTIME is Laravel's, but {LARAVEL} is missing: install \
                                 the Composer package surus/surus (docs/guides/laravel.md)"
                ),
                false => format!("cannot find {} (engine.script)", script.display()),
            })?,
        None => match site.front_controller() {
            Some(front) => front.filename.to_path_buf(),
            None => bail!(
                "no index.php in {}; name the PHP file to boot in engine.script or with --script",
                site.root().display()
            ),
        },
    };
    Ok((script, site))
}

/// The requests that warm a boot up.
pub fn warm_up_requests(pool_config: &PoolConfig, site: &Site) -> anyhow::Result<WarmUpRequests> {
    if pool_config
        .framework()
        .is_some_and(boot_script::is_checkpoint)
    {
        return Ok(WarmUpRequests::default());
    }
    let learned = match pool_config.learns() {
        true => pool_config.learned.pages(),
        false => Vec::new(),
    };
    let alone = pool_config.warms_up_alone();
    let warmup = &pool_config.config.engine.warmup;
    warm_ups::requests(&learned, warmup, alone, pool_config.leaves_others(), site)
}

fn finder(project: PathBuf, pool_config: PoolConfig) -> FindScript {
    let was_called = AtomicBool::new(false);
    Arc::new(move || {
        let config = &pool_config.config;
        // Only once, because a link may change at any time. If it does, the boot is outdated.
        let target = project.canonicalize().ok();
        let release = target.as_deref().unwrap_or(&project);
        let (script, site) = script_and_site(release, config)?;
        let document_root = site
            .root()
            .to_str()
            .context("the document root is not UTF-8")?;
        let framework = pool_config.framework();
        // Before the first boot, the start has looked at the application.
        if was_called.swap(true, Ordering::Relaxed)
            && let Some(framework) = framework
        {
            boot_script::check(framework, pool_config.entry, release, &script)?;
        }
        let warmup = warm_up_requests(&pool_config, &site)?;
        Ok(Boot {
            code: framework
                .map(|framework| boot_script::code(framework, release))
                .transpose()?,
            leaves_others: pool_config.leaves_others(),
            script,
            project: target.map(|target| Linked {
                path: project.clone(),
                target,
            }),
            document_root: document_root.to_string(),
            warmup: warmup.events,
            left_to_others: warmup.left_to_others,
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn script_that_symfony_serves_in_a_loop_is_booted_by_default() {
        let project = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = project.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "public/index.php",
            "<?php require_once dirname(__DIR__).'/vendor/autoload_runtime.php';
            return fn () => new Kernel;",
        );
        write(
            "vendor/autoload_runtime.php",
            r"<?php $_ENV['APP_RUNTIME'] ?? 'Symfony\\Component\\Runtime\\SymfonyRuntime';",
        );
        let chosen = |config: &Config| chosen(project.path(), config).unwrap().name;
        let mut config = Config::default();
        config.engine.script = Some("public/index.php".into());
        assert_eq!(chosen(&config), "classic", "before Symfony 7.4");
        write(
            "vendor/symfony/runtime/Runner/FrankenPhpWorkerRunner.php",
            "<?php",
        );
        assert_eq!(chosen(&config), "rewind");
        let has_fallback = |config: &Config| {
            let mut config = config.clone();
            look_at_application(project.path(), &mut config);
            let pools = pools(project.path(), &config, &[]).unwrap();
            pools[0].may_be_unbooted(project.path())
        };
        assert!(has_fallback(&config));
        config.engine.must_boot = true;
        assert!(!has_fallback(&config), "engine.must_boot");
        config.engine.must_boot = false;
        config.engine.name = Some("rewind".into());
        assert!(!has_fallback(&config), "the user's choice");
        config.engine.name = None;
        write(
            "public/app.php",
            "<?php require_once dirname(__DIR__).'/vendor/autoload_runtime.php';",
        );
        config.engine.script = Some("public/app.php".into());
        assert_eq!(chosen(&config), "rewind");
        assert!(!has_fallback(&config), "not the front controller");
        config.engine.script = Some("public/index.php".into());
        config
            .env
            .insert("APP_RUNTIME".into(), r"App\Runtime".into());
        assert_eq!(chosen(&config), "classic", "another runtime");
        config.env.clear();
        config.engine.name = Some("worker".into());
        assert_eq!(chosen(&config), "worker");
        config.engine.name = None;
        config.engine.script = None;
        assert_eq!(chosen(&config), "classic");
    }
}
