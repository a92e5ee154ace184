//! `surus serve`: runs the keeper and the front end until a signal stops them.

use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use tracing::{info, warn};

use super::front_end::{FrontEnd, KeeperHandle, run_front_end};
use super::inherited::InheritedSockets;
use super::keeper_tasks::{ProjectKeeper, Sockets};
use super::kept_versions::{KeptVersion, KeptVersions};
use super::options::{ServeArgs, log_files};
use super::reconfigure::OwnSource;
use super::served::open_tree;
use super::site_plans::{Plans, SitePlan};
use super::work_part::WorkPart;
use super::{access_logs, addresses, adopted_trees, config_trust, keeper_tasks, reach, watch};
use crate::engines;
use crate::fronts::http::tls::acme::store::Store;
use crate::keeper::{self, Keeper, KeeperOutcome, confine};
use crate::observe::log;
use crate::observe::reopen::{self, SiteLogs};

#[derive(Debug, clap::Args)]
pub struct Serve {
    #[command(flatten)]
    args: ServeArgs,
    /// Boot again when a file changes, and reload the page in browsers; for development
    #[arg(long)]
    watch: bool,
}

pub fn run(Serve { args, watch }: Serve) -> anyhow::Result<()> {
    // Before anything is opened.
    let inherited = InheritedSockets::take()?;
    let project = args.app.project.directory()?;
    let loaded = args.load()?;
    let distrust = config_trust::warnings(&loaded);
    let (mut config, origin) = (loaded.config, loaded.origin);
    let args = Arc::new(args);
    // As root, a keeper process keeps the privileges and reads nothing from the network. It has one
    // thread, so that it can safely fork another front end.
    let is_kept = surus_sys::process::has_other_users();
    if watch {
        watch::check(&config, is_kept, !inherited.is_empty())?;
        watch::show_errors(&mut config);
    }
    inherited.apply(&mut config);
    if let Some(status) = keeper::init::run()? {
        std::process::exit(status.into());
    }
    match is_kept {
        true => log::start_direct(&config.log)?,
        false => log::start(&config.log)?,
    }
    if !is_kept && surus_sys::process::is_root() {
        warn!(
            "this user namespace has no user but root, so that PHP and the process that reads \
             requests are not separated; map more users into it (/etc/subuid), or start Surus as a \
             user"
        );
    }
    config_trust::report(distrust);
    let open_files =
        surus_sys::process::raise_open_files().context("cannot raise the limit of open files")?;
    config.http.fit_connections(open_files);
    engines::restrict_process(&config.engine)?;
    if is_kept && let Err(error) = config.telemetry.look_up() {
        let error = format!("{error:#}");
        warn!(error, "requests are not traced (telemetry.endpoint)");
        config.telemetry.endpoint = None;
    }
    let admin = config.admin.address(&project);
    let watching = watch.then(|| watch::Watching::new(args.clone(), loaded.file.clone(), &admin));
    log_files(loaded.file.as_deref(), loaded.unread.as_deref());
    if let Some(roadrunner) = &loaded.roadrunner {
        roadrunner.log();
    }
    if !inherited.is_empty() {
        let addresses = addresses::configured(&config);
        info!(
            addresses,
            "sockets of the service manager are used (LISTEN_FDS)"
        );
    }
    let listeners = addresses::bind(&config, inherited)?;
    let admin = config.admin.bind(&project)?;
    let queues = WorkPart::of_server(&project, &config)?;
    // A single site that cannot be opened stops the start before anything is planned.
    let mut trees = Vec::new();
    if config.sites.is_empty() {
        trees.push(Ok(open_tree(&project, &config)?));
    }
    let plans = Arc::new(Plans::new(&project, &config)?);
    plans.prepare();
    let (access_log, errors) = (&config.access_log.file, &config.log.file);
    reopen::lead_to(&project, access_log.as_deref(), errors.as_deref())?;
    let site_logs = access_logs::open(&project, &config);
    if !is_kept {
        if !config.sites.is_empty() {
            let open = |site: &SitePlan| open_tree(&site.project, &site.config);
            trees.extend(plans.sites.iter().map(open));
        }
        let unstored = Arc::default();
        let ended = run_front_end(FrontEnd {
            source: Some(Arc::new(OwnSource {
                project: project.clone(),
                args,
                current: Mutex::new((config.clone(), origin)),
                is_watched: watching.is_some(),
            })),
            project,
            config,
            listeners,
            admin,
            trees,
            plans,
            keeper: None,
            site_logs,
            queues,
            watching: watching.clone(),
            unstored: Arc::clone(&unstored),
        });
        Store::store_last(&unstored);
        ended?;
        return watching.map_or(Ok(()), |watching| watching.restart());
    }
    drop(trees);
    let sockets = Sockets::keep(listeners, admin);
    let (php, user, known_users) = keeper_tasks::users(&config)?;
    let versions = KeptVersions::new(KeptVersion {
        config,
        origin,
        plans,
        php,
        known_users,
    });
    let run = |front: keeper::ForkedFrontEnd| {
        let (listeners, admin) = sockets.take().context("the front end was started twice")?;
        // A reload may have replaced those of the start.
        let version = versions.borrow().current();
        let (config, plans) = (&version.config, &version.plans);
        let mut trees = Vec::new();
        let mut openers = Vec::new();
        for (site, directories) in plans.sites.iter().zip(front.directories) {
            let adopted =
                directories.and_then(|directories| adopted_trees::adopt(&site.config, directories));
            trees.push(adopted.map(|(tree, opener)| {
                openers.push(opener);
                tree
            }));
        }
        log::start_writer(&config.log)?;
        run_front_end(FrontEnd {
            project: project.clone(),
            config: config.clone(),
            source: None,
            listeners,
            admin,
            trees,
            plans: plans.clone(),
            keeper: Some(KeeperHandle {
                socket: front.socket,
                openers,
                signals: front.signals,
            }),
            site_logs: site_logs.clone(),
            queues: None,
            watching: None,
            unstored: Arc::default(),
        })
    };
    let kept = ProjectKeeper {
        project: project.clone(),
        args: Some(args),
        versions: versions.clone(),
        front: user,
        sockets: sockets.clone(),
        queues,
        unstored: Arc::default(),
    };
    match keep(kept, site_logs.clone(), run)? {
        0 => Ok(()),
        status => {
            // The front end has already reported the failure. Dropping the sockets removes their
            // files.
            drop(sockets);
            std::process::exit(status.into());
        }
    }
}

/// Runs the keeper of a project with a front end that has the usual privileges but runs `front`.
/// For tests.
pub fn keep_other(
    project: &Path,
    front: impl FnOnce(keeper::ForkedFrontEnd) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let loaded = crate::config::load(project, None, crate::config::env::read()?.into_iter(), None)?;
    let config = loaded.config;
    log::start_direct(&config.log)?;
    let plans = Arc::new(Plans::new(project, &config)?);
    let (php, user, known_users) = keeper_tasks::users(&config)?;
    let kept = ProjectKeeper {
        project: project.to_path_buf(),
        args: None,
        versions: KeptVersions::new(KeptVersion {
            config,
            origin: loaded.origin,
            plans,
            php,
            known_users,
        }),
        front: user,
        sockets: Rc::default(),
        queues: None,
        unstored: Arc::default(),
    };
    keep(kept, SiteLogs::default(), front)
}

/// Runs a keeper. Returns in the front-end process when `run` returns, and in the keeper at
/// shutdown.
fn keep(
    kept: ProjectKeeper,
    logs: SiteLogs,
    run: impl FnOnce(keeper::ForkedFrontEnd) -> anyhow::Result<()>,
) -> anyhow::Result<u8> {
    let (versions, user) = (kept.versions.clone(), kept.front.clone());
    let unstored = kept.unstored.clone();
    kept.learn();
    match Keeper::new(kept, logs)?.run()? {
        KeeperOutcome::Ended(status) => {
            Store::store_last(&unstored);
            Ok(status)
        }
        KeeperOutcome::FrontEnd(front) => {
            // The front end must not have account keys.
            drop(unstored);
            let version = versions.borrow().current();
            let (config, pools) = (&version.config, &version.plans.pools);
            let reach = reach::reach(config, &front.directories, pools)?;
            confine(
                &keeper_tasks::confinement(config),
                &user,
                front.keeper,
                &reach,
            )?;
            run(front).map(|()| 0)
        }
    }
}
