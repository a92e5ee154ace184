//! Performs the keeper's operations for the front end of `surus serve`, from the configuration that
//! the keeper has read.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use surus_sys::confine::AccessRules;
use surus_sys::openat2;
use surus_sys::privileges::{self, Identity};
use surus_sys::seqpacket::Seqpacket;
use tracing::{error, warn};

use super::addresses::Addresses;
use super::engine_setup::PlannedPool;
use super::keeper_children::{start_attempt, start_opener};
use super::site_plans::Plans;
use super::work_part::WorkPart;
use super::{acme, engine_setup, learned_pages, tls};
use crate::app::DocumentTree;
use crate::app::error_pages::ErrorPages;
use crate::app::site::file_opener;
use crate::app::site::file_opener::Opener;
use crate::app::site::routes;
use crate::app::site::routes::Routes;
use crate::app::site::{AccessCheck, Described, Site};
use crate::app::x_sendfile::SendFile;
use crate::config::Config;
use crate::config::reread::ConfigOrigin;
use crate::engines;
use crate::engines::{PoolPlan, external, keeper_tasks};
use crate::fronts::http::tls::acme::attempt::Attempt;
use crate::fronts::http::{Bound, SocketFile};
use crate::keeper::{self, Client, Directories, PrivilegedOperations};
use crate::launcher::Role;

/// Describes to the front end the directories whose descriptors it gets.
#[derive(Serialize, Deserialize)]
struct Layout {
    /// In the order of [`adopt`].
    described: Vec<Described>,
    /// Pools with a front controller of their own, whose directories are the last.
    pool_sites: Vec<String>,
}

/// A directory that is served.
type Found = (Described, OwnedFd);

/// The keeper of a project.
pub struct ProjectKeeper {
    pub project: PathBuf,
    /// What is common to all sites.
    pub config: Config,
    /// How the configuration was read.
    pub origin: Arc<ConfigOrigin>,
    pub plans: Arc<Plans>,
    pub users: Users,
    pub sockets: Rc<Sockets>,
    pub queues: Option<WorkPart>,
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
        for pool in 0..self.pools() {
            if let (Ok(plan), Ok(php)) = (self.plan(pool), self.php_of_pool(pool)) {
                keeper_tasks::learn(plan, &php.groups);
            }
        }
    }

    fn plan(&self, pool: u16) -> anyhow::Result<&PoolPlan> {
        Ok(&self.plans.pool(pool)?.plan)
    }

    /// PHP's user in a site, and in the pools of one.
    fn php_of(&self, site: u16) -> anyhow::Result<&Identity> {
        let php = self.users.php.get(usize::from(site));
        let php = php.with_context(|| format!("there is no site {site}"))?;
        php.as_ref()
            .context("the site has no user for PHP (engine.user)")
    }

    fn php_of_pool(&self, pool: u16) -> anyhow::Result<&Identity> {
        self.php_of(self.plans.site_of(pool)?)
    }
}

/// Opens the directories of a site that are served, in the order of [`adopt`]. Returns the pools of
/// [`Layout::pool_sites`], too.
fn directories(project: &Path, config: &Config) -> anyhow::Result<(Vec<Found>, Vec<String>)> {
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
    if let Some(pages) = engine_setup::open_error_site(project, config)? {
        note(pages)?;
    }
    Ok((found, pool_sites))
}

impl PrivilegedOperations for ProjectKeeper {
    type PhpStarter = keeper_tasks::PhpStarter;
    type Trees = Vec<file_opener::OpenerTree>;
    type Attempt = Attempt;

    fn shutdown_timeout(&self) -> Duration {
        self.config.http.shutdown_delay.0 + self.config.http.shutdown_timeout.0
    }

    fn sites(&self) -> u16 {
        u16::try_from(self.plans.sites.len()).unwrap_or(u16::MAX)
    }

    fn site_directories(&mut self, site: u16) -> anyhow::Result<Directories<Self::Trees>> {
        let php = self.php_of(site)?;
        let site = self.plans.site(site)?;
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

    fn opener(&mut self, site: u16, trees: &Self::Trees) -> anyhow::Result<(u32, OwnedFd)> {
        let (front, opener) = Seqpacket::blocking_pair().context("cannot make a socket pair")?;
        let pid = start_opener(opener, trees, self.php_of(site)?)?;
        Ok((pid, front))
    }

    fn pools(&self) -> u16 {
        u16::try_from(self.plans.pools.len()).unwrap_or(u16::MAX)
    }

    fn max_processes(&self, pool: u16) -> usize {
        self.plan(pool).map_or(0, keeper_tasks::max_processes)
    }

    fn master(&mut self, pool: u16, fds: Vec<OwnedFd>) -> anyhow::Result<u32> {
        keeper_tasks::master(self.plan(pool)?, fds, &self.php_of_pool(pool)?.groups)
    }

    fn runtime_dir(&mut self, pool: u16) -> anyhow::Result<(PathBuf, keeper_tasks::PhpStarter)> {
        let groups = &self.php_of_pool(pool)?.groups;
        keeper_tasks::runtime_dir(self.plan(pool)?, self.users.front.uid, groups)
    }

    fn php(
        &mut self,
        pool: u16,
        php: &mut keeper_tasks::PhpStarter,
        role: Role,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<u32> {
        keeper_tasks::php(self.plan(pool)?, php, role, fds)
    }

    fn keep_probe_output(&mut self, php: &mut keeper_tasks::PhpStarter) -> anyhow::Result<()> {
        keeper_tasks::keep_probe_output(php)
    }

    fn certificates(&mut self) -> anyhow::Result<OwnedFd> {
        tls::read_apart(&self.project, &self.config)
    }

    fn check_configuration(&self) -> anyhow::Result<()> {
        self.origin.check()
    }

    fn acme(
        &mut self,
        domain: u16,
        is_asked: bool,
        socket: OwnedFd,
    ) -> anyhow::Result<(u32, Attempt)> {
        let attempt = acme::prepare(&self.project, &self.config, domain, is_asked)?;
        let confinement = confinement(&self.config);
        let pid = start_attempt(&attempt, socket, &confinement, &self.users.front)?;
        Ok((pid, attempt))
    }

    fn acquired(&mut self, attempt: &Attempt, wait_status: i32) {
        let status = surus_sys::process::exit_status(wait_status);
        attempt.keep(&self.config.acme, &self.project, status);
    }

    fn pages(&mut self, pool: u16, keep: bool, text: &str) -> anyhow::Result<()> {
        let (planned, site) = (self.plans.pool(pool)?, self.plans.site_of(pool)?);
        let pages = planned.pool_config.learned.parse(text)?;
        if keep {
            let project = &self.plans.site(site)?.project;
            return learned_pages::keep(project, &planned.pool_config, &pages);
        }
        planned.pool_config.learned.set_pages(pages);
        Ok(())
    }

    fn connect(&mut self, pool: u16) -> anyhow::Result<OwnedFd> {
        keeper_tasks::connect(self.plan(pool)?)
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

/// The shortest time between two replacements of an opener.
const PAUSE: Duration = Duration::from_millis(500);

/// In the front end: asks the keeper to replace the opener of a document root that has exited or
/// does not answer.
pub fn attend(keeper: &Arc<Client>, (directories, opener): (u32, Arc<Opener>)) {
    let (keeper, failures) = (keeper.clone(), opener.failures());
    let opener = Arc::downgrade(&opener);
    tokio::spawn(async move {
        loop {
            failures.notified().await;
            let Some(opener) = opener.upgrade() else {
                return;
            };
            if opener.recover().await {
                continue;
            }
            let replaced = keeper.opener(directories).await;
            if let Err(error) = replaced.and_then(|socket| Ok(opener.replace(socket)?)) {
                error!(error = format!("{error:#}"), "cannot replace the opener");
                failures.notify_one();
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
}

/// In the front end: serves from the directories that the keeper has opened. Returns what
/// [`attend`] takes, too.
pub fn adopt(
    config: &Config,
    directories: keeper::ServedDirectories,
) -> anyhow::Result<(DocumentTree, (u32, Arc<Opener>))> {
    let number = directories.number;
    let Layout {
        described,
        pool_sites,
    } = serde_json::from_slice(&directories.text)?;
    let mut fds = directories.fds.into_iter();
    let socket = fds
        .next()
        .context("the keeper sent no socket of an opener")?;
    let opener = Opener::new(socket)?;
    if fds.len() != described.len() {
        bail!(
            "the keeper sent {} directories and described {}",
            fds.len(),
            described.len()
        );
    }
    let mut all = described.into_iter().zip(fds).zip(0..);
    let mut next = || {
        let ((described, dir), tree) = all.next().context("the keeper sent too few directories")?;
        Ok::<_, anyhow::Error>((described, dir, AccessCheck::new(opener.clone(), tree)))
    };
    let (described, dir, reader) = next()?;
    let site = Arc::new(Site::adopt(&config.site, described, dir, reader)?);
    let mut files = |_: &Path| {
        let (described, dir, reader) = next()?;
        let symlinks = config.site.symlinks;
        Ok(Site::adopt_files(symlinks, described, dir, reader))
    };
    let send_file = SendFile::open_by(site.clone(), &config.x_sendfile, &mut files)?;
    let routes = Routes::open(&config.route, &mut |root| {
        let files = files(root)?.protected(&config.site)?;
        Ok(files.of_site(&site))
    })?;
    let mut adopted = BTreeMap::new();
    for name in pool_sites {
        let (described, dir, reader) = next()?;
        let front = Site::adopt(&config.site, described, dir, reader)?.of_site(&site);
        adopted.insert(name, Arc::new(front));
    }
    let error_site = match &config.error_pages.directory {
        Some(_) => {
            let (described, dir, reader) = next()?;
            let symlinks = config.site.symlinks;
            Some(Site::adopt_files(symlinks, described, dir, reader))
        }
        None => None,
    };
    let tree = DocumentTree {
        site,
        pool_sites: adopted,
        send_file,
        routes,
        error_site,
        error_pages: ErrorPages::default(),
    };
    Ok((tree, (number, opener)))
}

/// What the front end of a project reaches.
pub fn reach(
    config: &Config,
    all: &[anyhow::Result<keeper::ServedDirectories>],
    plans: &[PlannedPool],
) -> anyhow::Result<AccessRules> {
    let mut reach = keeper::reach();
    for directories in all.iter().flatten() {
        let Layout { described, .. } = serde_json::from_slice(&directories.text)?;
        // The first descriptor is the socket to the opener.
        for (described, dir) in described.iter().zip(directories.fds.iter().skip(1)) {
            let path = PathBuf::from(&described.path);
            reach.trees.push((path, dir.try_clone()?));
        }
    }
    // A reload may find a project elsewhere. There, every file is opened by the opener.
    let spool = config.http.temp_dir.clone();
    reach.writes.push(spool.unwrap_or_else(std::env::temp_dir));
    reach.writes.push(std::env::temp_dir());
    reach.writes.dedup();
    let mut ports = Some(Vec::new());
    for planned in plans {
        match &planned.plan {
            PoolPlan::External { spec, .. } if spec.way == external::ProgramKind::Builtin => {
                ports = None
            }
            PoolPlan::External { spec, .. } => {
                if let (Some(external::FpmAddress::Tcp(address)), Some(ports)) =
                    (&spec.address, &mut ports)
                {
                    ports.push(address.port());
                }
            }
            PoolPlan::SurusPhp { .. } => {}
        }
    }
    if let (Some(port), Some(ports)) = (config.telemetry.port(), &mut ports) {
        ports.push(port);
    }
    reach.connects = ports;
    reach.listens = plans.iter().any(|planned| planned.plan.listens());
    reach.has_unix_sockets = plans.iter().any(|planned| planned.plan.has_unix_sockets());
    Ok(reach)
}

/// The users of a server that root starts.
pub struct Users {
    /// PHP's user in each site, with its groups as they were at the start: a look-up may need the
    /// network. None if a `[[site]]` names a user that cannot be used.
    php: Vec<Option<Identity>>,
    pub front: Identity,
}

/// PHP's users and the front end's.
pub fn users(config: &Config) -> anyhow::Result<Users> {
    keeper::check_capabilities()?;
    let php = match &config.sites[..] {
        [] => vec![Some(php_user(config)?)],
        // Errors are reported where the sites are planned.
        sites => sites
            .iter()
            .map(|site| php_user(&site.config).ok())
            .collect(),
    };
    let uids: Vec<u32> = php.iter().flatten().map(|php| php.uid).collect();
    let front = keeper::identity(&confinement(config), &uids)?;
    if uids.contains(&0) {
        warn!(
            "PHP runs as root (engine.user): an attacker who takes over a script or the process \
                that reads requests is root; name another user"
        );
    }
    Ok(Users { php, front })
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
