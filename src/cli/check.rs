//! `surus check`: starts everything that `surus serve` starts, except serving, and prints the
//! findings.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;

use super::boot_proof::{self, BootVerdict};
use super::config_lint::{self, LintInput, contradictions, missing_extensions};
use super::engine_setup::{self, PoolConfig};
use super::findings::Findings;
use super::inherited::InheritedSockets;
use super::options::ServeArgs;
use super::value_lint::suspicious_values;
use super::work_part::WorkPart;
use super::{
    addresses, boot_script, config_trust, exposed_files, file_access, htaccess, other_scripts,
    running, served, site_plans, spool_access, tls, user_ini,
};
use crate::app::DocumentTree;
use crate::app::site::routes::Routes;
use crate::app::site::{Resolution, other_roots};
use crate::config::sites::SiteConfig;
use crate::config::{Config, SCHEDULE_POOL, WORK_POOL};
use crate::engine::Report;
use crate::engines::{self, EngineEntry};
use crate::keeper;
use crate::observe::metrics::Metrics;
use crate::observe::system::Machine;
use crate::observe::{log, reopen};

#[derive(Debug, clap::Args)]
pub struct Check {
    #[command(flatten)]
    args: ServeArgs,
    /// Boot the application with and without warm-ups, too, and compare the answers
    #[arg(long)]
    boot: bool,
}

pub fn run(Check { args, boot }: Check) -> anyhow::Result<()> {
    let project = args.app.project.directory()?;
    let loaded = args.load()?;
    let mut findings = Findings::default();
    if let Err(error) = loaded.config.log.filter() {
        findings.stop(&error);
    }
    if surus_sys::process::has_other_users()
        && let Err(error) = keeper::check_capabilities()
    {
        findings.stop(&error);
    }
    // Before there is another thread.
    let spool = spool_access::check_front_end(&loaded.config);
    // Shows PHP's own warnings, but no progress of Surus.
    log::start(&log::Settings {
        level: "warn".into(),
        ..loaded.config.log.clone()
    })?;
    match &loaded.file {
        Some(file) => findings.fine("configuration", file.display()),
        None => findings.fine("configuration", "defaults; no surus.toml found"),
    }
    if let Some(unread) = &loaded.unread {
        findings.note(format_args!(
            "{} is not read, because --config names another file",
            unread.display()
        ));
    }
    for warning in config_trust::warnings(&loaded) {
        findings.note(warning);
    }
    if let Some(roadrunner) = &loaded.roadrunner {
        findings.fine("RoadRunner", roadrunner.file.display());
        for setting in &roadrunner.ignored {
            findings.note(format_args!(
                "{setting} in {} has no counterpart and is ignored",
                roadrunner.file.display()
            ));
        }
        for limit in &roadrunner.own_limits {
            findings.note(format_args!(
                "{} sets no limit, and RoadRunner has none then: {limit} applies",
                roadrunner.file.display()
            ));
        }
    }
    match spool {
        Ok(warning) => warning.iter().for_each(|warning| findings.note(warning)),
        Err(error) => findings.stop(&error),
    }
    let checked = check(&project, &loaded.config, boot, &mut findings);
    super::block_on(async {
        checked.await;
        Ok(())
    })?;
    match findings.stops.len() {
        0 if findings.has_failed => {
            bail!("answers differ after the warm-ups, or cannot be compared (--boot)")
        }
        0 => Ok(()),
        count if !loaded.config.sites.is_empty() => bail!(
            "problems, marked ✗: {count}; those of a site leave it without its log or certificate, \
             or unserved, and any other would stop `surus serve`"
        ),
        1 => bail!("1 problem would stop `surus serve`, marked ✗"),
        stops => bail!("{stops} problems would stop `surus serve`, marked ✗"),
    }
}

async fn check(project: &Path, config: &Config, compares_boots: bool, findings: &mut Findings) {
    bind(project, config, findings).await;
    tls::report(project, config, findings);
    WorkPart::check(project, config, findings).await;
    let (access_log, errors) = (&config.access_log.file, &config.log.file);
    if let Err(error) = reopen::check(project, access_log.as_deref(), errors.as_deref()) {
        findings.stop(&error);
    }
    let (sites, is_single) = (site_plans::all(config), config.sites.is_empty());
    for site in &sites {
        if !is_single {
            let others = site.is_default.then(|| "all other hosts".to_owned());
            let hosts = site.hosts.iter().map(ToString::to_string).chain(others);
            let hosts = hosts.collect::<Vec<_>>().join(", ");
            findings.fine("site", format_args!("{}, for {hosts}", site.name));
        }
        let project = site.directory(project);
        findings.site.clone_from(&site.name);
        let log = site
            .config
            .access_log
            .file
            .as_deref()
            .filter(|_| !is_single);
        if let Err(error) = reopen::check(project, log, None) {
            findings.stop(&error);
        }
        check_site(project, site, compares_boots, findings).await;
    }
    findings.site.clear();
    if !is_single && !sites.iter().any(|site| site.is_default) {
        findings.note(
            "requests to hosts that no [[site]] has get status 421, because none has `default = \
             true`",
        );
    }
}

async fn check_site(
    project: &Path,
    SiteConfig { config, hosts, .. }: &SiteConfig,
    compares_boots: bool,
    findings: &mut Findings,
) {
    match served::open_tree(project, config) {
        Ok(tree) => {
            site(project, config, &tree, findings);
            file_access::report(config, &tree.site, findings);
            if config.site.htaccess {
                let roots = std::iter::once(tree.site.root()).chain(tree.routes.roots());
                for problem in htaccess::problems_below(roots) {
                    findings.note(problem);
                }
            }
            routes(&tree.routes, config, findings);
        }
        Err(error) => findings.stop(&error),
    }
    if let Some(obstacle) = boot_script::configured_obstacle(config) {
        findings.note(format_args!(
            "the application cannot be booted, and `classic` will serve it: {obstacle}"
        ));
    }
    let pools = engine_setup::pools(project, config, hosts);
    match pools.and_then(|pools| other_scripts::with_pool(pools, project)) {
        Ok(all) => {
            if let Some(engine) = other_scripts::engine(&all, "")
                && let Some(scripts) = other_scripts::find(&all, project)
            {
                findings.fine("other scripts", format_args!("{scripts}: `{engine}`"));
            }
            for name in config.pool.keys() {
                if all.first().is_some_and(|main| main.name == name) {
                    findings.note(format_args!(
                        "[pool.{name}] has no effect, because `{name}` is the main engine, which \
                         [engine], [php] and [env] set up"
                    ));
                }
                let is_of_queues = [WORK_POOL, SCHEDULE_POOL].contains(&name.as_str());
                if !is_of_queues && !all.iter().any(|pool| pool.name == name) {
                    findings.note(format_args!(
                        "[pool.{name}] is not started: no [[route]] has engine = \"{name}\""
                    ));
                }
            }
            for (number, pool) in all.into_iter().enumerate() {
                engine(pool, number == 0, project, compares_boots, findings).await;
            }
        }
        Err(error) => findings.stop(&error),
    }
}

async fn bind(project: &Path, config: &Config, findings: &mut Findings) {
    let names = addresses::configured(config);
    let address = config.admin.address(project);
    if running::is_running(&address, project).await {
        match addresses::check(config) {
            Ok(()) => findings.fine("listens on", names),
            Err(error) => findings.stop(&error),
        }
        findings.note(format_args!(
            "surus is already running for this project (admin listener: {address})"
        ));
        return;
    }
    match addresses::bind(config, InheritedSockets::default())
        .and_then(|_| config.admin.bind(project))
    {
        Ok(_) => findings.fine("listens on", names),
        Err(error) => findings.stop(&error),
    }
}

fn site(project: &Path, config: &Config, tree: &DocumentTree, findings: &Findings) {
    let (site, root) = (&tree.site, tree.site.root());
    findings.fine("document root", root.display());
    let uploads = config.site.no_php.as_deref().unwrap_or_default();
    if !uploads.is_empty() {
        let uploads = uploads.join(", ");
        findings.fine("no PHP", format_args!("below {uploads} (site.no_php)"));
    }
    let others = other_roots(project, &config.site);
    if !others.is_empty() {
        findings.note(format_args!(
            "{} has an index.php, too, but {} is served, which comes first in the order of \
             site.root; set site.root to choose",
            others.join(" and "),
            root.display()
        ));
    }
    // Rules of .htaccess files may name another one, or none.
    match site.resolve("/a-path-that-no-application-has/surus-check") {
        Resolution::Script(script) => {
            findings.fine("front controller", script.filename.display());
        }
        _ if site.front_controller().is_some() => findings.note(
            "a URL without a file gets 404: no .htaccess rule sends it to a front controller, or \
             site.fallback is false",
        ),
        _ => findings.note(
            "no front controller, so a URL without a file gets 404; name one with --script, or put \
             an index.php into the document root",
        ),
    }
    let holds_project = project.canonicalize().is_ok_and(|project| project == root);
    for sentence in exposed_files::problems(tree, holds_project) {
        findings.note(sentence);
    }
}

fn routes(routes: &Routes, config: &Config, findings: &Findings) {
    if !config.route.is_empty() {
        findings.fine("routes", config.route.len());
    }
    for number in routes.endless_redirects() {
        findings.note(format_args!(
            "the redirect of [[route]] number {number} leads to the same rule, so browsers follow \
             it until they give up"
        ));
    }
}

/// Boots PHP like `surus serve`, with one worker.
async fn engine(
    pool: PoolConfig,
    is_main: bool,
    project: &Path,
    compares_boots: bool,
    findings: &mut Findings,
) {
    let config = &pool.config;
    let machine = Machine::read();
    let range = engines::process_range(pool.entry, &config.engine);
    let workers = match range.and_then(|_| engines::worker_count(&config.engine)) {
        Ok(workers) => workers,
        Err(error) => return findings.stop(&error),
    };
    let mut one = PoolConfig {
        config: config.clone(),
        ..pool
    };
    one.config.engine.fix_workers(1);
    let pool = match engine_setup::boot_one(&one, project, &Arc::new(Metrics::default())).await {
        Ok(pool) => pool,
        Err(error) if one.may_be_unbooted(project) => {
            return findings.note(format_args!(
                "the application cannot be booted, and `classic` will serve it: {error:#}"
            ));
        }
        Err(error) => return findings.stop(&error),
    };
    let report = pool.report();
    pool.drain().await;

    findings.fine(
        "engine",
        format_args!("{}: {}", one.name, one.entry.what_happens),
    );
    if let Some(framework) = one.framework() {
        let script = boot_script::name(framework.kind);
        findings.fine("boot script", format_args!("{script}, for {framework}"));
    }
    let why = match config.engine.workers {
        Some(_) => "engine.workers".to_string(),
        None if config.engine.scales() => {
            "at most: engine.min_workers and engine.max_workers, by load".to_string()
        }
        None => {
            let limit = |bytes: u64| format!(", limited by {} MiB of memory", bytes >> 20);
            format!(
                "two for each of {} CPUs{}; set engine.workers to change it",
                machine.cpus,
                machine.memory.map_or_else(String::new, limit)
            )
        }
    };
    findings.fine("workers", format_args!("{workers} ({why})"));
    php(one.entry, &report, config, findings);
    let facts = LintInput {
        config,
        php: &|name| report.get(name).to_string(),
        workers,
        // An unknown limit causes no finding.
        memory: machine.memory.unwrap_or(u64::MAX),
        open_files: surus_sys::process::raise_open_files().unwrap_or(u64::MAX),
    };
    for sentence in contradictions(&facts)
        .into_iter()
        .chain(suspicious_values(&facts))
    {
        findings.note(sentence);
    }
    // Pools next to the main one have the setting of that one.
    if (is_main || one.entry.boots_script())
        && let Some(why) = one.unused_warmup()
    {
        findings.note(format_args!("engine.warmup has no effect: {why}"));
    }
    match one.entry.boots_script() && one.entry.runs_scripts() {
        true if compares_boots => warm_ups(project, &one, findings).await,
        false if compares_boots => findings.fine(
            "boot",
            format_args!("none: `{}` runs the script in each request", one.entry.name),
        ),
        _ => {}
    }
    for (setting, file) in user_ini::unrun(project, &one, report.get("user_ini.filename")) {
        findings.note(format_args!(
            "{setting} ({file}) in a .user.ini does not run on `{}`: command-line PHP reads no \
             such file; call it in the application for each request, or use another engine",
            one.name
        ));
    }
    if one.entry.boots_script() && one.entry.runs_scripts() {
        if let Some(unread) = user_ini::unread_by(project, &one, is_main, &report) {
            unread.report(&one, one.may_be_unbooted(project), findings);
        }
        auto_files(project, &one, &report, findings);
    }
    match missing_extensions(project, report.get("extensions")) {
        Ok(missing) => {
            for extension in missing {
                findings.note(format_args!(
                    "composer.json requires ext-{extension}, which PHP does not have; install it \
                     for this PHP, or enable it in its ini file"
                ));
            }
        }
        Err(error) => findings.note(format_args!("composer.json cannot be read: {error}")),
    }
}

/// Reports which answers the warm-ups change.
async fn warm_ups(project: &Path, pool: &PoolConfig, findings: &mut Findings) {
    if !pool.entry.isolates {
        return findings.note(format_args!(
            "--boot compares nothing on `{}`, which keeps what requests leave; see `surus leaks`",
            pool.name
        ));
    }
    match boot_proof::compare(pool, project).await {
        Ok(verdicts) => verdicts.iter().for_each(|verdict| match verdict {
            BootVerdict::Same(page) => findings.fine("warm-ups", page),
            BootVerdict::LeftOut(what) => findings.note(what),
            BootVerdict::Changed(what) => findings.fail(what),
        }),
        Err(error) => findings.fail(format_args!("answers cannot be compared: {error:#}")),
    }
}

/// Reports files that PHP runs around every request, such as firewalls. They do not run in the
/// boot.
fn auto_files(project: &Path, pool: &PoolConfig, report: &Report, findings: &Findings) {
    let Ok((script, site)) = engine_setup::script_and_site(project, &pool.config) else {
        return;
    };
    let user_ini = report.get("user_ini.filename");
    for (name, what, place) in [
        ("auto_prepend_file", "prepended file", "before"),
        ("auto_append_file", "appended file", "after"),
    ] {
        let of_directory = user_ini::value(site.root(), &script, user_ini, name);
        let value = of_directory.unwrap_or_else(|| report.get(name).to_string());
        if !value.is_empty() {
            findings.fine(
                what,
                format_args!(
                    "{value}, runs {place} every request, and not in the boot or its warm-ups"
                ),
            );
        }
    }
}

fn php(entry: &EngineEntry, report: &Report, config: &Config, findings: &Findings) {
    findings.fine("PHP", report.get("php_running"));
    if let Ok(program) = engines::program_of(entry, &config.engine) {
        findings.fine("run by", program.display());
    }
    match report.get("direct_binding") {
        "" => (),
        "other library" => findings.note(
            "direct binding is off (engine.direct_binding): PHP's library differs from the one \
             that surus-php was built with; PHP takes about 5% longer; rebuild surus-php (cargo \
             clean --release -p surus-php && cargo build --release)",
        ),
        state if state.starts_with("failed") => findings.note(format_args!(
            "direct binding is off (engine.direct_binding), so PHP takes about 5% longer: {state}"
        )),
        state => findings.fine("direct binding", state),
    }
    match report.get("ini_file") {
        "" => findings
            .note("PHP found no php.ini and uses its own defaults; name a file in engine.ini_file"),
        file => findings.fine("php.ini", file),
    }
    match report.get("opcache") {
        "on" => findings.fine("OPcache", "on"),
        _ if !entry.runs_scripts() => findings.fine(
            "OPcache",
            "off; workers compile their files once (\"opcache.enable_cli\" = true in [php])",
        ),
        _ if !entry.is_standing() => findings.fine(
            "OPcache",
            "no effect in an engine that starts a process for each request",
        ),
        "file cache only" => findings.note(
            "OPcache uses no shared memory (opcache.file_cache_only), so every request reads its \
             compiled files from disk; set [php] \"opcache.file_cache_only\" = false",
        ),
        state => findings.note(format_args!(
            "OPcache is {state}, so every request compiles its files; install it, and set [php] \
             \"opcache.enable\" = true"
        )),
    }
    for name in config_lint::unknown_settings(report, config) {
        findings.note(config_lint::unknown_setting(name));
    }
    let extensions = report.get("extensions").trim_end_matches(',');
    findings.fine("extensions", extensions.replace(',', ", "));
    let limits = [
        (
            "http.request_timeout",
            config.http.request_timeout.to_string(),
        ),
        ("http.max_body_size", config.http.max_body_size.to_string()),
        ("engine.max_queue", config.engine.max_queue.to_string()),
        ("memory_limit", report.get("memory_limit").to_string()),
        ("post_max_size", report.get("post_max_size").to_string()),
        (
            "upload_max_filesize",
            report.get("upload_max_filesize").to_string(),
        ),
        (
            "max_execution_time",
            report.get("max_execution_time").to_string(),
        ),
    ];
    let limits: Vec<_> = limits
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    findings.fine("limits", limits.join(", "));
}
