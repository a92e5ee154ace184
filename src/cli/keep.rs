//! What the keeper of `surus serve` does for its front, from the configuration that it has read.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use surus_sys::confine::Reach;
use surus_sys::fork;
use surus_sys::privileges::{self, Identity};
use surus_sys::process::User;
use surus_sys::seqpacket::Seqpacket;
use tracing::error;

use super::boot::{self, Planned};
use crate::config::Config;
use crate::engines::{self, Plan, keep, stock};
use crate::fronts::http::Place;
use crate::fronts::http::send_file::SendFile;
use crate::fronts::site::opener::{self, Opener};
use crate::fronts::site::route::{self, Routes};
use crate::fronts::site::{Described, Reader, Site};
use crate::keeper::{self, Duties};
use crate::launcher::Role;

/// What the front learns of the directories whose descriptors it gets.
#[derive(Serialize, Deserialize)]
struct Layout {
    /// In the order of [`adopt`].
    described: Vec<Described>,
    /// Pools with a front controller of their own, whose directories are the last.
    fronts: Vec<String>,
}

/// The keeper of a project.
pub struct Kept {
    project: PathBuf,
    config: Config,
    plans: Arc<Vec<Planned>>,
    front: Identity,
    /// PHP's user.
    php: User,
}

impl Kept {
    pub fn new(
        project: &Path,
        config: &Config,
        plans: Arc<Vec<Planned>>,
        front: Identity,
        php: User,
    ) -> Kept {
        Kept {
            project: project.to_path_buf(),
            config: config.clone(),
            plans,
            front,
            php,
        }
    }

    fn plan(&self, pool: u16) -> anyhow::Result<&Plan> {
        let planned = self.plans.get(usize::from(pool));
        Ok(&planned.context("there is no such pool")?.plan)
    }

    fn identity(&self) -> anyhow::Result<Identity> {
        Identity::of(&self.php).with_context(|| {
            format!(
                "cannot read the supplementary groups of user {} (engine.user)",
                self.php.name
            )
        })
    }
}

impl Duties for Kept {
    type Home = keep::Home;

    fn place(&mut self) -> anyhow::Result<keeper::Place> {
        let symlinks = self.config.site.symlinks;
        let mut found: Vec<(Described, OwnedFd)> = Vec::new();
        let mut note = |site: Site| -> anyhow::Result<Site> {
            found.push((site.describe()?, site.dir()?));
            Ok(site)
        };
        // In the order of `adopt`.
        let site = Arc::new(note(boot::open_site(&self.project, &self.config)?)?);
        SendFile::open_by(site, &self.config.send_file, &mut |directory| {
            note(Site::of_files(&self.project.join(directory), symlinks)?)
        })?;
        let routes = Routes::open(&self.config.route, &mut |root| {
            note(route::files(root, &self.config.site)?)
        })?;
        let mut fronts = Vec::new();
        for name in routes.engines() {
            if let Some(front) = boot::open_front(&self.project, &self.config, name)? {
                note(front)?;
                fronts.push(name.to_owned());
            }
        }
        let (front, opener) = Seqpacket::blocking_pair().context("cannot make a socket pair")?;
        let trees: Vec<_> = found
            .iter()
            .map(|(described, dir)| Ok(described.tree(dir.try_clone()?, symlinks)))
            .collect::<std::io::Result<_>>()?;
        let opener = start_opener(opener, &trees, &self.identity()?)?;
        let (described, dirs): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        Ok(keeper::Place {
            text: serde_json::to_vec(&Layout { described, fronts })?,
            fds: [front].into_iter().chain(dirs).collect(),
            opener,
        })
    }

    fn pools(&self) -> u16 {
        u16::try_from(self.plans.len()).unwrap_or(u16::MAX)
    }

    fn most(&self, pool: u16) -> usize {
        self.plan(pool).map_or(0, keep::most)
    }

    fn template(&mut self, pool: u16, fds: Vec<OwnedFd>) -> anyhow::Result<u32> {
        let groups = self.identity()?.groups;
        keep::template(self.plan(pool)?, fds, Some(&groups))
    }

    fn home(&mut self, pool: u16) -> anyhow::Result<(PathBuf, keep::Home)> {
        keep::home(self.plan(pool)?, self.front.uid)
    }

    fn php(
        &mut self,
        pool: u16,
        home: &keep::Home,
        role: Role,
        disabled: &str,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<u32> {
        keep::php(self.plan(pool)?, home, role, disabled, fds)
    }

    fn connect(&mut self, pool: u16) -> anyhow::Result<OwnedFd> {
        keep::connect(self.plan(pool)?)
    }
}

/// Starts the process that opens files as PHP's user. It ends when the front closes the other end of its socket.
fn start_opener(
    socket: OwnedFd,
    trees: &[opener::Tree],
    identity: &Identity,
) -> anyhow::Result<u32> {
    let keeper = std::process::id();
    let mut keep = vec![socket.as_fd()];
    keep.extend(trees.iter().map(opener::Tree::dir));
    let run = || {
        privileges::set_name(c"surus opener");
        // Where PHP is root, what it may read takes root's capabilities.
        let given_up = match identity.uid {
            0 => Ok(true),
            _ => privileges::give_up(identity),
        };
        let given_up = given_up.and_then(|_| privileges::leave_terminal());
        if let Err(error) = given_up.and_then(|_| privileges::end_with(keeper)) {
            error!(%error, "cannot become PHP's user (engine.user)");
            return 1;
        }
        match socket.try_clone() {
            Ok(socket) => opener::run(socket, trees),
            Err(error) => error!(%error, "cannot open files for the front"),
        }
        0
    };
    fork::fork_into(&keep, run).context("cannot fork the process that opens files")
}

/// In the front: serves from the directories that the keeper has opened.
pub fn adopt(config: &Config, place: keeper::Place) -> anyhow::Result<Place> {
    let Layout { described, fronts } = serde_json::from_slice(&place.text)?;
    let mut fds = place.fds.into_iter();
    let socket = fds.next().context("no socket of an opener came")?;
    let opener = Opener::new(socket)?;
    if fds.len() != described.len() {
        bail!("{} directories came for {}", fds.len(), described.len());
    }
    let mut all = described.into_iter().zip(fds).zip(0..);
    let mut next = || {
        let ((described, dir), tree) = all.next().context("a directory is missing")?;
        Ok::<_, anyhow::Error>((described, dir, Reader::new(opener.clone(), tree)))
    };
    let (described, dir, reader) = next()?;
    let site = Arc::new(Site::adopt(&config.site, described, dir, reader)?);
    let mut files = |_: &Path| {
        let (described, dir, reader) = next()?;
        let symlinks = config.site.symlinks;
        Ok(Site::adopt_files(symlinks, described, dir, reader))
    };
    let send_file = SendFile::open_by(site.clone(), &config.send_file, &mut files)?;
    let routes = Routes::open(&config.route, &mut |root| {
        files(root)?.hiding(&config.site.hidden)
    })?;
    let mut adopted = BTreeMap::new();
    for name in fronts {
        let (described, dir, reader) = next()?;
        let front = Site::adopt(&config.site, described, dir, reader)?;
        adopted.insert(name, Arc::new(front));
    }
    Ok(Place {
        site,
        fronts: adopted,
        send_file,
        routes,
    })
}

/// What the front of a project reaches.
pub fn reach(
    project: &Path,
    config: &Config,
    place: &keeper::Place,
    plans: &[Planned],
) -> anyhow::Result<Reach> {
    let Layout { described, .. } = serde_json::from_slice(&place.text)?;
    let mut reach = keeper::reach();
    let served = described
        .iter()
        .map(|described| PathBuf::from(&described.path));
    reach.reads.extend(served);
    // A reload may find the project elsewhere, usually beside where it is now. Elsewhere, every file is opened by PHP's user.
    if let Ok(real) = project.canonicalize()
        && real != project
    {
        let beside = real.parent().filter(|parent| *parent != Path::new("/"));
        reach.reads.extend(beside.map(Path::to_path_buf));
    }
    let spool = config.http.spool.clone();
    reach.writes.push(spool.unwrap_or_else(std::env::temp_dir));
    reach.writes.push(std::env::temp_dir());
    let mut ports = Some(Vec::new());
    for planned in plans {
        match &planned.plan {
            Plan::Stock { spec, .. } if spec.way == stock::Way::Builtin => ports = None,
            Plan::Stock { spec, .. } => {
                if let (Some(stock::Address::Tcp(address)), Some(ports)) =
                    (&spec.address, &mut ports)
                {
                    ports.push(address.port());
                }
            }
            Plan::Ours { .. } => {}
        }
    }
    reach.connects = ports;
    Ok(reach)
}

/// PHP's user and the front's.
pub fn users(config: &Config) -> anyhow::Result<(User, Identity)> {
    let php = engines::find_user(&config.engine)?.context("only root has a keeper")?;
    let confinement = confinement(config);
    let front = keeper::identity(&confinement, php.uid)?;
    Ok((php, front))
}

/// What the front is to lose.
pub fn confinement(config: &Config) -> keeper::Confinement {
    keeper::Confinement {
        user: config.http.user.clone(),
        landlock: config.http.landlock,
        seccomp: config.http.seccomp,
    }
}
