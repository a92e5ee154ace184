//! The sites that the front end of `surus serve` serves: how each boots, and how a new version
//! replaces it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tracing::{error, info};

use super::engine_setup::PlannedPool;
use super::learning::{self, Learner};
use super::site_plans::{Plans, SitePlan};
use super::{boot_engines, config_lint, engine_setup, keeper_tasks, revalidation};
use crate::app::by_host::ByHost;
use crate::app::error_pages::ErrorPages;
use crate::app::site::routes::{self, Routes};
use crate::app::x_sendfile::SendFile;
use crate::app::{Application, DocumentTree, STATIC};
use crate::config::Config;
use crate::engine::{Engine, Pending, Prepared};
use crate::fronts::admin::SiteEngines;
use crate::fronts::http::request::hosted::{Hosted, HostedSite};
use crate::keeper::Client;
use crate::observe::metrics::Metrics;
use crate::observe::status::SiteStatus;

/// Reloads some of the sites, or all.
pub(super) type ReloadHook = Arc<dyn Fn() -> Pending<'static, anyhow::Result<()>> + Send + Sync>;

/// All sites of the server.
pub(super) struct Served {
    pub sites: Vec<Arc<ServedSite>>,
}

/// A site, with its plan and the state of its application.
pub(super) struct ServedSite {
    plans: Arc<Plans>,
    number: u16,
    keeper: Option<Arc<Client>>,
    metrics: Arc<Metrics>,
    hosted: Arc<HostedSite>,
    /// Why there is no application yet.
    error: Mutex<Option<String>>,
    learners: Mutex<Vec<Arc<Learner>>>,
    /// Tasks that run as long as the site is served.
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// One boot with pages that are not compared yet, or one reload, at a time.
    booting: Arc<tokio::sync::Mutex<()>>,
}

/// A version that has booted and does not serve yet.
struct NextVersion {
    tree: DocumentTree,
    engines: Vec<Prepared>,
}

impl Served {
    /// Boots all sites. One that cannot be booted does not stop the others; an error if none can.
    pub async fn boot(
        plans: &Arc<Plans>,
        trees: Vec<anyhow::Result<DocumentTree>>,
        keeper: &Option<Arc<Client>>,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Served> {
        let mut sites = Vec::new();
        for (number, plan) in (0..).zip(&plans.sites) {
            sites.push(Arc::new(ServedSite {
                plans: plans.clone(),
                number,
                keeper: keeper.clone(),
                metrics: metrics.clone(),
                hosted: Arc::new(HostedSite {
                    name: plan.name,
                    application: Default::default(),
                    settings: plan.config.http.clone(),
                    static_label: match plan.prefix {
                        "" => STATIC,
                        prefix => format!("{prefix}{STATIC}").leak(),
                    },
                }),
                error: Mutex::default(),
                learners: Mutex::default(),
                tasks: Mutex::default(),
                booting: Arc::default(),
            }));
        }
        let boots = sites.iter().zip(trees).map(|(site, tree)| async {
            site.withdraw().await;
            let tree = site.is_planned().and(tree);
            let booted = match tree {
                Ok(tree) => site.boot(tree).await,
                Err(error) => Err(error),
            };
            booted.inspect_err(|error| site.record_failure(error))
        });
        let booted = join_all(boots).await;
        let mut served = 0;
        let mut failed = None;
        for result in booted {
            match result {
                Ok(()) => served += 1,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if served == 0 => Err(error),
            _ => Ok(Served { sites }),
        }
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
    pub fn engines(&self) -> Vec<SiteEngines> {
        let of = |site: &Arc<ServedSite>| SiteEngines {
            status: site.status(),
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

    /// Starts the tasks that notice changes of the applications and those that learn from requests.
    /// A changed application reloads its own site, or calls what `reload` returns for it.
    pub fn watch(&self, reload: impl Fn(Arc<ServedSite>) -> Option<ReloadHook>) {
        for site in &self.sites {
            site.watch(reload(site.clone()));
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

    /// Waits until all requests have been answered, and ends the engines.
    pub async fn drain(&self) {
        let engines: Vec<_> = self.sites.iter().flat_map(|site| site.engines()).collect();
        join_all(engines.iter().map(|engine| engine.drain())).await;
    }

    /// Stops what [`Served::watch`] has started.
    pub fn unwatch(&self) {
        for site in &self.sites {
            let mut tasks = site.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.drain(..).for_each(|task| task.abort());
        }
    }
}

impl ServedSite {
    fn plan(&self) -> &SitePlan {
        &self.plans.sites[usize::from(self.number)]
    }

    /// The plans of its pools, each with the pool's number.
    fn pools(&self) -> impl Iterator<Item = (u16, &PlannedPool)> {
        let range = self.plan().pools.clone();
        let numbers = range
            .clone()
            .filter_map(|number| u16::try_from(number).ok());
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
        }
    }

    /// Reports why the site cannot be served: in the log, its metric and its status.
    fn record_failure(&self, error: &anyhow::Error) {
        let site = self.plan().name;
        if site.is_empty() {
            return; // The server does not start.
        }
        let error = format!("{error:#}");
        error!(
            site,
            error, "the site cannot be booted; its hosts get status 503 until a reload succeeds"
        );
        self.metrics.sites.set(site, false);
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Makes the first boot use no page that another front end has learned.
    async fn withdraw(&self) {
        for (number, planned) in self.pools().filter(|(_, it)| it.asked.learns()) {
            let keeper = self.keeper.clone().map(|keeper| (keeper, number));
            let pages = learning::withdraw(planned, &keeper).await;
            planned.asked.learned.propose(pages);
        }
    }

    /// Fails if the site needs a restart with another configuration.
    fn is_planned(&self) -> anyhow::Result<()> {
        match &self.plan().error {
            None => Ok(()),
            Some(error) => bail!("{error}; once that is corrected, restart Surus"),
        }
    }

    /// Boots for the first time.
    async fn boot(&self, mut tree: DocumentTree) -> anyhow::Result<()> {
        let plan = self.plan();
        let pools = &self.plans.pools[plan.pools.clone()];
        let first = u16::try_from(plan.pools.start).context("too many pools")?;
        let engines = boot_engines::boot(pools, first, &self.keeper, &self.metrics).await?;
        let displays_errors = config_lint::displays_errors(engines.values());
        let reads_source = self.keeper.is_none();
        tree.read_error_pages(&plan.config.error_pages, displays_errors, reads_source);
        let application = Arc::new(Application {
            tree: arc_swap::ArcSwap::from_pointee(tree),
            engine: plan.main,
            prefix: plan.prefix,
            engines,
            metrics: self.metrics.clone(),
            compress: plan.config.compress.clone(),
        });
        *self.learners.lock().unwrap_or_else(PoisonError::into_inner) = self.learners(&application);
        let is_first = self.hosted.application.set(application).is_ok();
        if !is_first {
            return Err(anyhow!("the application has booted already"));
        }
        if !plan.name.is_empty() {
            self.metrics.sites.set(plan.name, true);
        }
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Boots the application again and switches to it. If that fails, the running version goes on.
    pub async fn reload(self: Arc<Self>) -> anyhow::Result<()> {
        // A task, so that a failed reload restores the learned pages also if its caller was
        // dropped.
        let reload = tokio::spawn(async move {
            let _booting = self.booting.lock().await;
            if self.hosted.application.get().is_none() {
                let booted = async {
                    self.is_planned()?;
                    self.boot(self.open().await?).await
                };
                booted
                    .await
                    .inspect_err(|error| self.record_failure(error))?;
                self.watch(None);
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
            Ok(())
        });
        reload.await?
    }

    /// Opens the site's directories again, because a symbolic link to them may have changed.
    async fn open(&self) -> anyhow::Result<DocumentTree> {
        let plan = self.plan();
        match &self.keeper {
            Some(keeper) => {
                let directories = keeper.site_directories(self.number).await?;
                let (tree, opener) = keeper_tasks::adopt(&plan.config, directories)?;
                keeper_tasks::attend(keeper, opener);
                Ok(tree)
            }
            None => open_tree(&plan.project, &plan.config),
        }
    }

    /// Boots the engines again. The running version goes on.
    async fn prepare(&self) -> anyhow::Result<NextVersion> {
        let tree = self.open().await?;
        let mut engines = Vec::new();
        for engine in self.engines() {
            engines.push(engine.prepare().await?);
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
    fn learners(&self, application: &Arc<Application>) -> Vec<Arc<Learner>> {
        let plan = self.plan();
        let learner = |(number, planned): (u16, &PlannedPool)| {
            let name = planned.asked.name;
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
            planned.asked.learns().then(|| Arc::new(learner))
        };
        self.pools().filter_map(learner).collect()
    }

    /// As [`Served::watch`].
    fn watch(self: &Arc<Self>, reload: Option<ReloadHook>) {
        let learners = self.learners.lock();
        let learners = learners.unwrap_or_else(PoisonError::into_inner).clone();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.extend(learners.into_iter().map(|it| tokio::spawn(it.run())));
        let site = self.clone();
        let reload = move || -> Pending<'static, anyhow::Result<()>> {
            match &reload {
                Some(reload) => reload(),
                None => Box::pin(site.clone().reload()),
            }
        };
        tasks.push(tokio::spawn(revalidation::run(self.engines(), reload)));
    }
}

/// Opens the application's directory, and the directories from which routes send files.
pub(super) fn open_tree(project: &Path, config: &Config) -> anyhow::Result<DocumentTree> {
    let site = Arc::new(engine_setup::open_site(project, config)?);
    let send_file = SendFile::open(
        project,
        site.clone(),
        config.site.symlinks,
        &config.x_sendfile,
    )?;
    let routes = Routes::new(&config.route, &config.site)?;
    let mut pool_sites = BTreeMap::new();
    for name in routes::engines(&config.route) {
        if let Some(front) = engine_setup::open_pool_site(project, config, name)? {
            pool_sites.insert(name.to_owned(), Arc::new(front));
        }
    }
    Ok(DocumentTree {
        site,
        pool_sites,
        send_file,
        routes,
        error_site: engine_setup::open_error_site(project, config)?,
        error_pages: ErrorPages::default(),
    })
}
