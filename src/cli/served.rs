//! The sites that the front end of `surus serve` serves: how each boots, and how a new version
//! replaces it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures_util::future::{join_all, select_all};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::info;

use super::access_logs::AccessLogs;
use super::engine_setup::PlannedPool;
use super::learning::{self, Learner};
use super::site_plans::{Plans, SitePlan};
use super::stop_signals::ENDING;
use super::{adopted_trees, boot_engines, config_lint, engine_setup, other_scripts, revalidation};
use crate::app::by_host::ByHost;
use crate::app::error_pages::ErrorPages;
use crate::app::site::routes::{self, Routes};
use crate::app::x_sendfile::SendFile;
use crate::app::{Application, DocumentTree, STATIC};
use crate::config::Config;
use crate::engine::{Change, Engine, Pending, Prepared};
use crate::engines::boot_lock::BootLock;
use crate::fronts::admin::SiteEngines;
use crate::fronts::http::Tls;
use crate::fronts::http::request::hosted::{FirstBoot, Hosted, HostedSite};
use crate::keeper::Client;
use crate::observe::metrics::Metrics;
use crate::observe::status::{EngineStatus, SiteStatus};

/// Reloads some of the sites, or all.
pub(super) type ReloadHook = Arc<dyn Fn() -> Pending<'static, anyhow::Result<()>> + Send + Sync>;

/// Numbers of workers by the names of pools.
pub(super) type PoolSizes = BTreeMap<String, usize>;

/// All sites of the server.
pub(super) struct Served {
    pub sites: Vec<Arc<ServedSite>>,
    pub logs: AccessLogs,
}

/// A site, with its plan and the state of its application.
pub(super) struct ServedSite {
    pub(super) plans: Arc<Plans>,
    number: u16,
    pub(super) keeper: Option<Arc<Client>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) hosted: Arc<HostedSite>,
    /// Why there is no application yet.
    pub(super) error: Mutex<Option<String>>,
    pub(super) learners: Mutex<Vec<Arc<Learner>>>,
    /// Another configuration has taken over, or the server shuts down.
    is_over: AtomicBool,
    /// Tasks that run as long as the site is served.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// One boot with pages that are not compared yet, or one reload, at a time.
    pub(super) booting: Arc<BootLock>,
    /// What a changed application calls.
    hook: OnceLock<ReloadHook>,
}

/// How long a site whose engine was exchanged waits before it looks at the new one.
const PAUSE: Duration = Duration::from_secs(1);

/// The status of a site until its first boot has ended.
const BOOTING: &str = "it is booting, and its requests wait";

/// A version that has booted and does not serve yet.
struct NextVersion {
    tree: DocumentTree,
    engines: Vec<Prepared>,
}

impl Served {
    /// All sites, of which none has booted.
    pub fn new(
        plans: &Arc<Plans>,
        keeper: &Option<Arc<Client>>,
        metrics: &Arc<Metrics>,
        logs: AccessLogs,
    ) -> Served {
        let mut sites = Vec::new();
        for ((number, plan), log) in (0..).zip(&plans.sites).zip(&logs.sites) {
            sites.push(Arc::new(ServedSite {
                plans: plans.clone(),
                number,
                keeper: keeper.clone(),
                metrics: metrics.clone(),
                hosted: Arc::new(HostedSite {
                    name: plan.name,
                    application: Default::default(),
                    unbooted_pages: Default::default(),
                    settings: plan.config.http.clone(),
                    spool: plan.config.http.response_spool(),
                    // Checked when the settings were read.
                    hsts: (plan.config.tls.hsts.as_ref()).and_then(|hsts| hsts.parse().ok()),
                    access_log: log.clone(),
                    static_label: match plan.prefix {
                        "" => STATIC,
                        prefix => format!("{prefix}{STATIC}").leak(),
                    },
                    first_boot: FirstBoot::default(),
                }),
                error: Mutex::new(Some(BOOTING.to_owned())),
                learners: Mutex::default(),
                is_over: AtomicBool::new(false),
                tasks: Mutex::default(),
                booting: Arc::default(),
                hook: OnceLock::new(),
            }));
        }
        Served { sites, logs }
    }

    /// Sets the metrics of all sites.
    pub fn report(&self) {
        for site in self
            .sites
            .iter()
            .filter(|site| !site.plan().name.is_empty())
        {
            site.metrics.sites.set(site.plan().name, site.is_served());
        }
    }

    /// Boots all sites, and returns when the first of them is served. The others go on meanwhile,
    /// and those that fail are tried again. An error if none can be served.
    pub async fn boot(&self, trees: Vec<anyhow::Result<DocumentTree>>) -> anyhow::Result<()> {
        let (sender, mut receiver) = mpsc::channel(self.sites.len().max(1));
        for (site, tree) in self.sites.iter().zip(trees) {
            let begun = tokio::spawn(site.clone().begin(tree, sender.clone()));
            site.lock_tasks().push(begun);
        }
        drop(sender);
        let mut failed = None;
        while let Some(booted) = receiver.recv().await {
            match booted {
                Ok(()) => return Ok(()),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| anyhow!("no site can be served")))
    }

    /// The sites by host.
    pub fn hosted(&self) -> Hosted {
        match &self.sites[..] {
            [only] if only.plan().name.is_empty() => ByHost::only(only.hosted.clone()),
            sites => ByHost::new(
                sites
                    .iter()
                    .map(|site| (site.plan().hosts.clone(), site.hosted.clone())),
                sites.iter().position(|site| site.plan().is_default),
            ),
        }
    }

    /// The sites for the admin listener, as they are now.
    pub fn engines(&self, tls: Option<&Tls>) -> Vec<SiteEngines> {
        let of = |site: &Arc<ServedSite>| SiteEngines {
            status: SiteStatus {
                certificate_error: tls.and_then(|tls| tls.site_error(site.plan().name)),
                ..site.status()
            },
            engines: site.engines(),
        };
        self.sites.iter().map(of).collect()
    }

    /// Boots all sites again. Those that fail keep their running version.
    pub async fn reload(&self) -> anyhow::Result<()> {
        let reloads = self.sites.iter().map(|site| site.clone().reload());
        let mut failed = Vec::new();
        for (site, reloaded) in self.sites.iter().zip(join_all(reloads).await) {
            match reloaded {
                Ok(()) => {}
                Err(error) if site.plan().name.is_empty() => return Err(error),
                Err(error) => failed.push(format!("{}: {error:#}", site.plan().name)),
            }
        }
        match failed.len() {
            0 => Ok(()),
            count => bail!(
                "{count} of {} sites cannot be reloaded and stay as they are: {}",
                self.sites.len(),
                failed.join("; ")
            ),
        }
    }

    /// Has a changed application call what `reload` returns for its site. By default, it reloads
    /// that site.
    pub fn set_hooks(&self, reload: impl Fn(Arc<ServedSite>) -> ReloadHook) {
        for site in &self.sites {
            // Set once, before the boots.
            let _ = site.hook.set(reload(site.clone()));
        }
    }

    /// The sites by the directories of their applications.
    pub fn by_directory(&self) -> BTreeMap<PathBuf, Vec<Arc<ServedSite>>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for site in &self.sites {
            let directory = site.plan().project.clone();
            all.entry(directory).or_default().push(site.clone());
        }
        all
    }

    fn all_engines(&self) -> Vec<Arc<dyn Engine>> {
        self.sites.iter().flat_map(|site| site.engines()).collect()
    }

    /// How many workers each pool has, or should have.
    pub fn pool_sizes(&self) -> PoolSizes {
        let engines = self.all_engines();
        let all = engines.iter().map(|engine| engine.status());
        let size = |status: EngineStatus| {
            let target = status.scaling.map(|scaling| scaling.target);
            (status.engine, target.unwrap_or(status.workers.len()))
        };
        all.map(size).collect()
    }

    /// Waits until all requests have been answered, and ends the engines.
    pub async fn drain(&self) {
        let engines = self.all_engines();
        join_all(engines.iter().map(|engine| engine.drain())).await;
    }

    /// The same for sites that others have replaced ([`Engine::retire`]).
    pub async fn retire(&self) {
        let engines = self.all_engines();
        join_all(engines.iter().map(|engine| engine.retire())).await;
    }

    /// Ends the tasks of all sites: those that boot, that notice changes, and that learn. Requests
    /// that wait for a boot are answered.
    pub fn end_tasks(&self) {
        for site in &self.sites {
            site.is_over.store(true, Ordering::Release);
            site.lock_tasks().drain(..).for_each(|task| task.abort());
            site.hosted.first_boot.end();
        }
    }
}

impl ServedSite {
    pub(super) fn plan(&self) -> &SitePlan {
        &self.plans.sites[usize::from(self.number)]
    }

    /// Whether its application has booted.
    pub(super) fn is_served(&self) -> bool {
        self.hosted.application.get().is_some()
    }

    /// The plans of its pools, each with the keeper's number.
    pub(super) fn pools(&self) -> impl Iterator<Item = (u32, &PlannedPool)> {
        let range = self.plan().pools.clone();
        let first = self.plans.first_pool;
        let numbers = range
            .clone()
            .filter_map(move |number| first.checked_add(u32::try_from(number).ok()?));
        numbers.zip(&self.plans.pools[range])
    }

    pub fn engines(&self) -> Vec<Arc<dyn Engine>> {
        let application = self.hosted.application.get();
        let engines = application.into_iter().flat_map(|it| it.engines.values());
        engines.cloned().collect()
    }

    fn status(&self) -> SiteStatus {
        let plan = self.plan();
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        SiteStatus {
            is_queues: false,
            site: plan.name.to_owned(),
            hosts: plan.hosts.iter().map(ToString::to_string).collect(),
            is_default: plan.is_default,
            error: error.clone(),
            certificate_error: None,
        }
    }

    pub(super) fn lock_tasks(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Boots the application again and switches to it. If that fails, the running version goes on.
    pub async fn reload(self: Arc<Self>) -> anyhow::Result<()> {
        // A task, so that the learned pages are compared with the new version also if the caller
        // was dropped.
        let reload = tokio::spawn(async move {
            let _booting = self.booting.lock().await;
            if self.is_over.load(Ordering::Acquire) {
                bail!(ENDING);
            }
            if self.hosted.application.get().is_none() {
                self.boot_again().await?;
            } else {
                let learners = self.learners.lock();
                let learners = learners.unwrap_or_else(PoisonError::into_inner).clone();
                learning::prove_again(&learners, async { self.change_over(self.prepare().await?) })
                    .await?;
            }
            match self.plan().name {
                "" => info!("reloaded"),
                site => info!(site, "reloaded"),
            }
            self.clone().warn_of_new_scripts();
            Ok(())
        });
        reload.await?
    }

    /// Warns of scripts that no pool runs, because the start has not found them.
    fn warn_of_new_scripts(self: Arc<Self>) {
        let Some(application) = self.hosted.application.get() else {
            return;
        };
        let main = application.engines.get(application.engine);
        let is_booted = main.is_some_and(|main| main.status().instead.is_none());
        if is_booted && application.others.is_none() {
            tokio::task::spawn_blocking(move || {
                if let Some((_, main)) = self.pools().next() {
                    other_scripts::warn_of_new(&main.pool_config, &self.plan().project);
                }
            });
        }
    }

    /// Opens the site's directories again, because a symbolic link to them may have changed.
    pub(super) async fn open(&self) -> anyhow::Result<DocumentTree> {
        let plan = self.plan();
        match &self.keeper {
            Some(keeper) => {
                let number = self.plans.first_site.saturating_add(self.number.into());
                let directories = keeper.site_directories(number).await?;
                let (tree, opener) = adopted_trees::adopt(&plan.config, directories)?;
                adopted_trees::attend(keeper, opener);
                Ok(tree)
            }
            None => open_tree(&plan.project, &plan.config),
        }
    }

    /// Boots the engines again. The running version goes on.
    async fn prepare(&self) -> anyhow::Result<NextVersion> {
        let tree = self.open().await?;
        let pools = &self.plans.pools[self.plan().pools.clone()];
        let mut engines = Vec::new();
        if let Some(application) = self.hosted.application.get() {
            for (name, engine) in &application.engines {
                engines.push(boot_engines::prepare(pools, name, engine).await?);
            }
        }
        Ok(NextVersion { tree, engines })
    }

    /// Serves the new version. The files change after the engines.
    fn change_over(&self, next: NextVersion) -> anyhow::Result<()> {
        for engine in next.engines {
            engine.change_over()?;
        }
        let application = self.hosted.application.get();
        let application = application.context("the site has not booted")?;
        let displays_errors = config_lint::displays_errors(application.engines.values());
        let mut tree = next.tree;
        tree.read_error_pages(
            &self.plan().config.error_pages,
            displays_errors,
            self.keeper.is_none(),
        );
        application.tree.store(Arc::new(tree));
        Ok(())
    }

    /// A learner for each pool that learns by which pages to warm up.
    pub(super) fn learners(&self, application: &Arc<Application>) -> Vec<Arc<Learner>> {
        let plan = self.plan();
        let learner = |(number, planned): (u32, &PlannedPool)| {
            let name = planned.pool_config.name;
            let engine = application.engines.get(name)?.clone();
            let pool = name.strip_prefix(plan.prefix).unwrap_or(name);
            let application = application.clone();
            let learner = Learner {
                project: plan.project.clone(),
                planned: planned.clone(),
                keeper: self.keeper.clone().map(|keeper| (keeper, number)),
                engine,
                booting: self.booting.clone(),
                site: Box::new(move || {
                    let tree = application.tree.load();
                    let own = tree.pool_sites.get(pool);
                    own.unwrap_or(&tree.site).clone()
                }),
            };
            planned.pool_config.learns().then(|| Arc::new(learner))
        };
        self.pools().filter_map(learner).collect()
    }

    /// Starts the tasks that notice changes of the application and those that learn from requests.
    pub(super) fn watch(self: &Arc<Self>) {
        let learners = self.learners.lock();
        let learners = learners.unwrap_or_else(PoisonError::into_inner).clone();
        let mut tasks = self.lock_tasks();
        tasks.extend(learners.into_iter().map(|it| tokio::spawn(it.run())));
        let site = self.clone();
        let reload = move || -> Pending<'static, anyhow::Result<()>> {
            match site.hook.get() {
                Some(reload) => reload(),
                None => Box::pin(site.clone().reload()),
            }
        };
        let site = self.clone();
        let moved = move |known| -> Pending<'static, Change> {
            let site = site.clone();
            Box::pin(async move { site.moved(known).await })
        };
        tasks.push(tokio::spawn(revalidation::run(
            self.engines(),
            moved,
            reload,
        )));
    }

    /// Returns when an engine has booted from another directory than files are served from: a link
    /// has changed, and the engine has booted for another reason.
    async fn moved(&self, known: Option<u64>) -> Change {
        loop {
            let boots = self.engines();
            let mut boots: Vec<_> = boots.iter().filter_map(|engine| engine.boots()).collect();
            let is_new = |change: &Change| Some(change.number) != known;
            if self.find_moved().is_some_and(|change| is_new(&change)) {
                // A reload changes first the engines, and then the files.
                let _booting = self.booting.lock_in_background().await;
                if let Some(change) = self.find_moved().filter(is_new) {
                    return change;
                }
                continue;
            }
            if boots.is_empty() {
                return std::future::pending().await;
            }
            let changed = boots.iter_mut().map(|boot| Box::pin(boot.changed()));
            if select_all(changed).await.0.is_err() {
                // Another engine serves instead.
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn find_moved(&self) -> Option<Change> {
        let application = self.hosted.application.get()?;
        let tree = application.tree.load();
        let (project, root) = (&self.plan().project, tree.site.root());
        let mut engines = application.engines.values();
        engines.find_map(|engine| revalidation::link_change(&engine.report(), project, root))
    }
}

/// Opens the application's directory, and the directories from which routes send files.
pub(super) fn open_tree(project: &Path, config: &Config) -> anyhow::Result<DocumentTree> {
    let project = &engine_setup::release(project);
    let site = Arc::new(engine_setup::open_site(project, config)?);
    let send_file = SendFile::open(
        project,
        site.clone(),
        config.site.symlinks,
        &config.x_sendfile,
    )?;
    let routes = Routes::open(&config.route, &mut |root| {
        Ok(routes::files(root, &config.site)?.of_site(&site))
    })?;
    let mut pool_sites = BTreeMap::new();
    for name in routes::engines(&config.route) {
        if let Some(front) = engine_setup::open_pool_site(project, config, name)? {
            pool_sites.insert(name.to_owned(), Arc::new(front.of_site(&site)));
        }
    }
    Ok(DocumentTree {
        site,
        pool_sites,
        send_file,
        routes,
        error_site: config.error_pages.open(project, config.site.symlinks)?,
        error_pages: ErrorPages::default(),
    })
}
