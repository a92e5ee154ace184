//! Performs the keeper's operations for the front end of `surus serve`, from the configuration that
//! the keeper has read.

use std::cell::Cell;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use surus_sys::openat2;
use surus_sys::privileges::{self, Identity};
use surus_sys::process::{self, KnownUsers};
use surus_sys::seqpacket::Seqpacket;
use tracing::warn;

use super::addresses::Addresses;
use super::adopted_trees::Layout;
use super::engine_setup::PlannedPool;
use super::keeper_children::{start_attempt, start_opener};
use super::kept_versions::{KeptPool, KeptSite, KeptVersion, SharedVersions};
use super::options::ServeArgs;
use super::work_part::WorkPart;
use super::{
    acme, config_trust, engine_setup, learned_pages, next_configuration, planned_text, reach, tls,
};
use crate::app::site::file_opener;
use crate::app::site::routes;
use crate::app::site::routes::Routes;
use crate::app::site::{Described, Site};
use crate::app::x_sendfile::SendFile;
use crate::config::reread::KEPT;
use crate::config::{Config, Loaded};
use crate::engines;
use crate::engines::{PoolPlan, keeper_tasks};
use crate::fronts::http::tls::acme::attempt::Attempt;
use crate::fronts::http::tls::acme::unstored::Unstored;
use crate::fronts::http::{Bound, SocketFile};
use crate::keeper::{self, Directories, PrivilegedOperations};
use crate::launcher::Role;

/// A directory that is served.
type Found = (Described, OwnedFd);

/// The keeper of a project.
pub struct ProjectKeeper {
    pub project: PathBuf,
    /// The command line. None in a test, which has none.
    pub args: Option<Arc<ServeArgs>>,
    pub versions: SharedVersions,
    /// The front end's user.
    pub front: Identity,
    pub sockets: Rc<Sockets>,
    pub queues: Option<WorkPart>,
    pub unstored: Arc<Unstored>,
}

/// An attempt to get a certificate, and the configuration with which it began.
pub struct KeptAttempt {
    attempt: Attempt,
    version: Rc<KeptVersion>,
}

/// What an installed PHP of a pool is started with.
pub struct KeptStarter {
    starter: keeper_tasks::PhpStarter,
    /// While it exists, the configuration counts as running.
    _pool: KeptPool,
}

/// The listening sockets, with which each front end is forked.
#[derive(Default)]
pub struct Sockets {
    open: Cell<Option<(Addresses<Bound>, Bound)>>,
    /// The files of closed sockets.
    files: Cell<Vec<SocketFile>>,
}

impl Sockets {
    pub fn keep(listeners: Addresses<Bound>, admin: Bound) -> Rc<Sockets> {
        Rc::new(Sockets {
            open: Cell::new(Some((listeners, admin))),
            files: Cell::default(),
        })
    }

    /// Takes the sockets of the application and of the admin listener, in a front end.
    pub fn take(&self) -> Option<(Addresses<Bound>, Bound)> {
        self.open.take()
    }

    fn close(&self) {
        if let Some((listeners, admin)) = self.open.take() {
            let files = listeners.close().into_iter().chain(admin.close());
            self.files.set(files.collect());
        }
    }
}

impl ProjectKeeper {
    /// Asks the installed PHPs of all pools, before the first front end exists.
    pub fn learn(&self) {
        let version = self.current();
        for (site, php) in version.plans.sites.iter().zip(&version.php) {
            let Some(php) = php else { continue };
            for planned in &version.plans.pools[site.pools.clone()] {
                keeper_tasks::learn(&planned.plan, &php.groups);
            }
        }
    }

    fn current(&self) -> Rc<KeptVersion> {
        self.versions.borrow().current()
    }

    fn site(&self, number: u32) -> anyhow::Result<KeptSite> {
        self.versions.borrow().site(number)
    }

    fn pool(&self, number: u32) -> anyhow::Result<KeptPool> {
        self.versions.borrow().pool(number)
    }

    /// Calls `operation` with the plan of a pool and PHP's user there.
    fn with_pool<T>(
        &self,
        pool: u32,
        operation: impl FnOnce(&PoolPlan, &Identity) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let pool = self.pool(pool)?;
        operation(&pool.planned()?.plan, pool.site.php()?)
    }

    /// The configuration, if it has changed.
    fn next(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let used = self.current();
        let Some((read, changes)) = used.origin.read_changed()? else {
            return Ok(None);
        };
        if !self.versions.borrow_mut().may_plan(Instant::now()) {
            bail!(
                "{KEPT}: changed configurations were planned too often in the last seconds; reload \
                 again later"
            );
        }
        // A look-up may need the network, for which the keeper must not wait again and again.
        let plan = || self.plan(&used, read, changes.to_string());
        let (planned, known_users) = process::look_up_once(used.known_users.clone(), plan);
        let (text, next) = planned?;
        let mut versions = self.versions.borrow_mut();
        versions.offer(KeptVersion {
            known_users,
            ..next
        });
        Ok(Some(text))
    }

    /// Plans a changed configuration, and describes it to the front end.
    fn plan(
        &self,
        used: &KeptVersion,
        read: Loaded,
        changed: String,
    ) -> anyhow::Result<(Vec<u8>, KeptVersion)> {
        let args = self.args.as_ref().context("there is no command line")?;
        let loaded = args.load_again(read, &used.config).context(KEPT)?;
        let distrust = config_trust::warnings(&loaded);
        let before = self.versions.borrow().last();
        let before = Some(&*before.plans);
        let next = next_configuration::plan(&self.project, &used.config, loaded, changed, before)?;
        let text = planned_text::write(&next)?;
        let php = php_users(&next.config)?;
        if has_new_user(self.front.uid, &used.php, &php) {
            bail!(
                "{KEPT}: PHP of a site would have the user of the process that reads requests, \
                 which only a restart of Surus exchanges (http.user); name another one in \
                 engine.user"
            );
        }
        let forked = self.versions.borrow().forked();
        reach::check(&forked, &next.config, &next.plans)?;
        check_learned(&next.plans.pools)?;
        config_trust::report(distrust);
        warn_of_root(&php);
        let next = KeptVersion {
            config: next.config,
            origin: next.origin.context("the configuration has no origin")?,
            plans: next.plans,
            php,
            known_users: KnownUsers::default(),
        };
        Ok((text, next))
    }
}

/// Whether a site has this user in the next configuration, and none in the one in use.
fn has_new_user(uid: u32, used: &[Option<Identity>], next: &[Option<Identity>]) -> bool {
    let has = |php: &[Option<Identity>]| php.iter().flatten().any(|php| php.uid == uid);
    has(next) && !has(used)
}

/// An error if a pool needs an installed PHP that was not asked before scripts ran
/// ([`ProjectKeeper::learn`]).
fn check_learned(pools: &[PlannedPool]) -> anyhow::Result<()> {
    let is_new = |planned: &&PlannedPool| !keeper_tasks::is_learned(&planned.plan);
    match pools.iter().find(is_new) {
        None => Ok(()),
        Some(planned) => bail!(
            "{KEPT}: engine `{}` needs {}, and the start of Surus has not asked that PHP where its \
             ini files are; restart Surus",
            planned.pool_config.name,
            planned.plan.found().program.display()
        ),
    }
}

/// Opens the directories of a site that are served, in the order of
/// [`adopt`](super::adopted_trees::adopt). Returns the pools of
/// [`Layout::pool_sites`], too.
fn directories(project: &Path, config: &Config) -> anyhow::Result<(Vec<Found>, Vec<String>)> {
    let project = &engine_setup::release(project);
    let symlinks = config.site.symlinks;
    let mut found: Vec<Found> = Vec::new();
    let mut note = |site: Site| -> anyhow::Result<Site> {
        found.push((site.describe()?, site.dir()?));
        Ok(site)
    };
    let site = Arc::new(note(engine_setup::open_site(project, config)?)?);
    SendFile::open_by(site, &config.x_sendfile, &mut |directory| {
        note(Site::files_only(&project.join(directory), symlinks)?)
    })?;
    Routes::open(&config.route, &mut |root| {
        note(routes::files(root, &config.site)?)
    })?;
    let mut pool_sites = Vec::new();
    for name in routes::engines(&config.route) {
        if let Some(front) = engine_setup::open_pool_site(project, config, name)? {
            note(front)?;
            pool_sites.push(name.to_owned());
        }
    }
    if let Some(pages) = config.error_pages.open(project, symlinks)? {
        note(pages)?;
    }
    Ok((found, pool_sites))
}

impl PrivilegedOperations for ProjectKeeper {
    type PhpStarter = KeptStarter;
    type Trees = Vec<file_opener::OpenerTree>;
    type Attempt = KeptAttempt;

    fn shutdown_timeout(&self) -> Duration {
        let version = self.current();
        let http = &version.config.http;
        http.shutdown_delay.0 + http.shutdown_timeout.0
    }

    fn begin_front_end(&mut self) -> Range<u32> {
        let version = self.versions.borrow_mut().fork();
        let plans = &version.plans;
        let count = u32::try_from(plans.sites.len()).unwrap_or(u32::MAX);
        plans.first_site..plans.first_site.saturating_add(count)
    }

    fn site_directories(&mut self, site: u32) -> anyhow::Result<Directories<Self::Trees>> {
        let site = self.site(site)?;
        let (site, php) = (site.plan(), site.php()?);
        let symlinks = site.config.site.symlinks;
        let (mut found, pool_sites) = directories(&site.project, &site.config)?;
        // PHP's user may have put a link on the way, to where only root may go.
        if php.uid != 0 {
            privileges::with_access_of(php, || reopen(&mut found))
                .context(
                    "cannot become PHP's user (engine.user); a server that is started as root \
                     needs the capabilities CAP_SETUID, CAP_SETGID and CAP_KILL",
                )?
                .with_context(|| {
                    format!(
                        "PHP's user ({php}, engine.user) must be able to enter what is served; \
                         change the permissions or the owner of the directory, or of those above it"
                    )
                })?;
        }
        // The project is among the directories for X-Sendfile.
        let site = found.first().map(|(site, _)| site.clone());
        for (described, _) in &mut found {
            described.hide_as(&site);
        }
        let trees = found
            .iter()
            .map(|(described, dir)| Ok(described.tree(dir.try_clone()?, symlinks)))
            .collect::<std::io::Result<_>>()?;
        let (described, fds): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        Ok(Directories {
            text: serde_json::to_vec(&Layout {
                described,
                pool_sites,
            })?,
            fds,
            trees,
        })
    }

    fn opener(&mut self, site: u32, trees: &Self::Trees) -> anyhow::Result<(u32, OwnedFd)> {
        let (front, opener) = Seqpacket::blocking_pair().context("cannot make a socket pair")?;
        let pid = start_opener(opener, trees, self.site(site)?.php()?)?;
        Ok((pid, front))
    }

    fn site_name(&self, site: u32) -> anyhow::Result<&'static str> {
        Ok(self.site(site)?.plan().name)
    }

    fn pool_name(&self, pool: u32) -> anyhow::Result<&'static str> {
        Ok(self.pool(pool)?.planned()?.pool_config.name)
    }

    fn max_processes(&self, pool: &str) -> usize {
        let versions = self.versions.borrow();
        let pools = versions
            .running(Instant::now())
            .flat_map(|version| &version.plans.pools);
        let pools = pools.filter(|planned| planned.pool_config.name == pool);
        // Each limit is for two boots, so that it is enough for a pool and its successor.
        let limits = pools.map(|planned| keeper_tasks::max_processes(&planned.plan));
        limits.max().unwrap_or_default()
    }

    fn master(&mut self, pool: u32, fds: Vec<OwnedFd>) -> anyhow::Result<u32> {
        self.with_pool(pool, |plan, php| {
            keeper_tasks::master(plan, fds, &php.groups)
        })
    }

    fn runtime_dir(&mut self, pool: u32) -> anyhow::Result<(PathBuf, KeptStarter)> {
        let (path, starter) = self.with_pool(pool, |plan, php| {
            keeper_tasks::runtime_dir(plan, self.front.uid, &php.groups)
        })?;
        let starter = KeptStarter {
            starter,
            _pool: self.pool(pool)?,
        };
        Ok((path, starter))
    }

    fn php(
        &mut self,
        pool: u32,
        php: &mut KeptStarter,
        role: Role,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<u32> {
        self.with_pool(pool, |plan, _| {
            keeper_tasks::php(plan, &mut php.starter, role, fds)
        })
    }

    fn keep_probe_output(&mut self, php: &mut KeptStarter) -> anyhow::Result<()> {
        keeper_tasks::keep_probe_output(&mut php.starter)
    }

    fn certificates(&mut self, first_site: u32) -> anyhow::Result<OwnedFd> {
        let version = self.versions.borrow().version(first_site)?;
        tls::read_apart(&self.project, &version.config, &self.unstored)
    }

    fn configuration(&mut self) -> anyhow::Result<Option<OwnedFd>> {
        let text = self.next()?;
        let file = |text: Vec<u8>| process::memory_file(&text);
        Ok(text.map(file).transpose()?)
    }

    fn configured(&mut self, first_site: u32) -> anyhow::Result<()> {
        self.versions.borrow_mut().apply(first_site, Instant::now())
    }

    fn acme(
        &mut self,
        domain: u16,
        is_asked: bool,
        socket: OwnedFd,
    ) -> anyhow::Result<(u32, KeptAttempt)> {
        let version = self.current();
        let config = &version.config;
        let attempt = acme::prepare(&self.project, config, domain, is_asked, &self.unstored)?;
        let pid = start_attempt(&attempt, socket, &confinement(config), &self.front)?;
        Ok((pid, KeptAttempt { attempt, version }))
    }

    fn acquired(&mut self, ended: &KeptAttempt, wait_status: i32, is_shutdown: bool) {
        let KeptAttempt { attempt, version } = ended;
        let status = process::exit_status(wait_status);
        attempt.keep(&version.config.acme, &self.project, status, is_shutdown);
    }

    fn pages(&mut self, pool: u32, keep: bool, text: &str) -> anyhow::Result<()> {
        let pool = self.pool(pool)?;
        let planned = pool.planned()?;
        let pages = planned.pool_config.learned.parse(text)?;
        if keep {
            let project = &pool.site.plan().project;
            return learned_pages::keep(project, &planned.pool_config, &pages);
        }
        planned.pool_config.learned.set_pages(pages);
        Ok(())
    }

    fn connect(&mut self, pool: u32) -> anyhow::Result<OwnedFd> {
        self.with_pool(pool, |plan, _| keeper_tasks::connect(plan))
    }

    fn queues_shutdown_timeout(&self) -> Option<Duration> {
        self.queues.as_ref().map(|queues| queues.shutdown_timeout())
    }

    fn stop_listening(&mut self) {
        self.sockets.close();
        if let Some(queues) = &mut self.queues {
            queues.stop_listening();
        }
    }

    fn start_queues(&mut self) -> anyhow::Result<(u32, Seqpacket)> {
        let queues = self.queues.as_ref().context("there are no queues")?;
        let (ours, theirs) = Seqpacket::pair().context("cannot make a socket pair")?;
        Ok((queues.fork(&theirs)?, ours))
    }
}

/// Opens the directories again, with the rights that this process has now.
fn reopen(found: &mut [Found]) -> anyhow::Result<()> {
    for (described, dir) in found {
        let path = Path::new(&described.path);
        *dir = openat2::directory(path)
            .with_context(|| format!("cannot enter the directory {}", path.display()))?;
    }
    Ok(())
}

/// PHP's user in each site, the front end's, and the users that were looked up.
pub fn users(config: &Config) -> anyhow::Result<(Vec<Option<Identity>>, Identity, KnownUsers)> {
    keeper::check_capabilities()?;
    let (found, known) = process::look_up_once(KnownUsers::default(), || {
        let php = php_users(config)?;
        let uids: Vec<u32> = php.iter().flatten().map(|php| php.uid).collect();
        let front = keeper::identity(&confinement(config), &uids)?;
        anyhow::Ok((php, front))
    });
    let (php, front) = found?;
    warn_of_root(&php);
    Ok((php, front, known))
}

fn warn_of_root(php: &[Option<Identity>]) {
    if php.iter().flatten().any(|php| php.uid == 0) {
        warn!(
            "PHP runs as root (engine.user): an attacker who takes over a script or the process \
             that reads requests is root; name another user"
        );
    }
}

fn php_users(config: &Config) -> anyhow::Result<Vec<Option<Identity>>> {
    Ok(match &config.sites[..] {
        [] => vec![Some(php_user(config)?)],
        // Errors are reported where the sites are planned.
        sites => sites
            .iter()
            .map(|site| php_user(&site.config).ok())
            .collect(),
    })
}

fn php_user(config: &Config) -> anyhow::Result<Identity> {
    let php = engines::find_user(&config.engine)?.context("only root has a keeper")?;
    Identity::new(&php).with_context(|| {
        format!(
            "cannot read the supplementary groups of user {} (engine.user)",
            php.name
        )
    })
}

/// The rights that the front end drops.
pub fn confinement(config: &Config) -> keeper::Confinement {
    keeper::Confinement {
        user: config.http.user.clone(),
        landlock: config.http.landlock,
        seccomp: config.http.seccomp,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
