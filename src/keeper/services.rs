//! The operations that the keeper performs for the front end, and their limits.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, ensure};
use surus_sys::process;
use surus_sys::seqpacket::Seqpacket;
use tracing::{debug, warn};

use super::message::{KeeperReply, KeeperRequest};
use super::processes::{ChildKind, EndedProcess, Processes};
use super::running::Running;
use super::{Directories, PrivilegedOperations, ServedDirectories};
use crate::launcher::Role;
use crate::observe::log;

/// The limit of running master processes per name of a pool: the current one, a booting one, and
/// some that drain. The oldest is killed for another one.
const MAX_MASTERS: usize = 16;
/// The limit of directories for installed PHPs, per name of a pool.
const MAX_RUNTIME_DIRS: usize = 16;
/// The limit of openers, per name of a site: one for each version of the directories that is still
/// in use.
const MAX_OPENERS: usize = 16;
/// The limit of running processes that report about PHP, per name of a pool: boots need one at a
/// time.
const MAX_PROBES: usize = 4;

/// The operations for the running front end, and the resources that it holds.
pub(super) struct Services<D: PrivilegedOperations> {
    operations: D,
    pub processes: Processes,
    /// Master processes that have not been killed, oldest first: name of the pool and process id.
    masters: Vec<(&'static str, u32)>,
    runtime_dirs: BTreeMap<u32, KeptRuntimeDir<D::PhpStarter>>,
    next_runtime_dir: u32,
    site_directories: BTreeMap<u32, Opened<D::Trees>>,
    next_site_directories: u32,
    /// The process that gets a certificate, and its attempt.
    attempt: Option<(u32, D::Attempt)>,
    /// Whether a front end has ever become ready.
    pub has_served: bool,
    /// The front end has just said that it is ready.
    pub is_ready: bool,
}

/// The directory that an installed PHP of a pool is started with.
struct KeptRuntimeDir<T> {
    pool: u32,
    name: &'static str,
    starter: T,
}

/// The directories that a front end serves from.
struct Opened<T> {
    site: u32,
    name: &'static str,
    trees: T,
    /// The opener of the directories, while it lives.
    opener: Option<u32>,
}

impl<D: PrivilegedOperations> Services<D> {
    pub fn new(operations: D) -> Services<D> {
        Services {
            operations,
            processes: Processes::default(),
            masters: Vec::new(),
            runtime_dirs: BTreeMap::new(),
            next_runtime_dir: 1,
            site_directories: BTreeMap::new(),
            next_site_directories: 1,
            attempt: None,
            has_served: false,
            is_ready: false,
        }
    }

    /// How long a front end may take to exit after it is asked to.
    pub fn shutdown_timeout(&self) -> Duration {
        self.operations.shutdown_timeout()
    }

    /// As [`PrivilegedOperations::queues_shutdown_timeout`].
    pub fn queues_shutdown_timeout(&self) -> Option<Duration> {
        self.operations.queues_shutdown_timeout()
    }

    /// As [`PrivilegedOperations::stop_listening`].
    pub fn stop_listening(&mut self) {
        self.operations.stop_listening();
    }

    /// As [`PrivilegedOperations::start_queues`].
    pub fn start_queues(&mut self) -> anyhow::Result<(u32, Seqpacket)> {
        self.operations.start_queues()
    }

    /// Closes the keeper's descriptors of the directories in a newly forked front end.
    pub fn leave_site_directories(&mut self) {
        self.site_directories.clear();
    }

    /// Releases the resources of an exited front end.
    pub fn clear(&mut self) {
        self.runtime_dirs.clear();
        self.site_directories.clear();
    }

    /// Handles the exit of a child. `is_shutdown`: a shutdown was requested before.
    pub fn note(&mut self, ended: EndedProcess, is_shutdown: bool) {
        let EndedProcess {
            pid,
            kind,
            wait_status,
        } = ended;
        match kind {
            ChildKind::Opener { .. } => {
                let of = |opened: &Opened<D::Trees>| opened.opener == Some(pid);
                match wait_status {
                    // The front end has closed its end, so it no longer serves from these
                    // directories.
                    0 => self.site_directories.retain(|_, opened| !of(opened)),
                    _ => {
                        if let Some(opened) =
                            self.site_directories.values_mut().find(|opened| of(opened))
                        {
                            opened.opener = None;
                            let exit = process::describe_exit(wait_status);
                            warn!(pid, exit, "the opener has exited");
                        }
                    }
                }
            }
            ChildKind::Probe { runtime_dir, .. } if wait_status == 0 => {
                if let Some(dir) = self.runtime_dirs.get_mut(&runtime_dir)
                    && let Err(error) = self.operations.keep_probe_output(&mut dir.starter)
                {
                    warn!(
                        error = format!("{error:#}"),
                        "cannot read which functions PHP's settings disable"
                    );
                }
            }
            ChildKind::Acme => {
                if let Some((_, attempt)) = self.attempt.take_if(|(process, _)| *process == pid) {
                    self.operations.acquired(&attempt, wait_status, is_shutdown);
                }
            }
            ChildKind::Master(_) => self.masters.retain(|(_, master)| *master != pid),
            ChildKind::Probe { .. } | ChildKind::Request(_) | ChildKind::Server(_) => {}
        }
    }

    /// Performs one request. Returns errors that cannot be reported in a reply.
    pub fn serve(
        &mut self,
        front: &mut Running,
        request: KeeperRequest,
        mut fds: Vec<OwnedFd>,
    ) -> anyhow::Result<()> {
        let done = |id, number, text, fds| Ok((KeeperReply::Done { id, number, text }, fds));
        let started = |id, pid| (KeeperReply::Started { id, pid }, Vec::new());
        match request {
            KeeperRequest::Master { id, pool } => {
                let pid = self.master(pool, fds);
                front.answer(id, pid.map(|pid| started(id, pid)));
            }
            KeeperRequest::RuntimeDir { id, pool } => {
                let runtime_dir = self.runtime_dir(pool).and_then(|(number, path)| {
                    done(id, number, path.display().to_string(), Vec::new())
                });
                front.answer(id, runtime_dir);
            }
            KeeperRequest::CloseRuntimeDir { runtime_dir } => {
                let runtime_dir = self.runtime_dirs.remove(&runtime_dir);
                runtime_dir.context("unknown directory")?;
            }
            KeeperRequest::Php {
                id,
                runtime_dir,
                role,
            } => {
                let pid = self.php(runtime_dir, role, fds);
                front.answer(id, pid.map(|pid| started(id, pid)));
            }
            KeeperRequest::Signal { pid, which } => {
                ensure!(fds.len() <= 1, "a signal with {} descriptors", fds.len());
                match self.processes.signal(pid, fds.pop(), which) {
                    // The process may have exited a moment ago.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        debug!(
                            pid,
                            ?which,
                            "not signalled: not a process of this front end"
                        )
                    }
                    Err(error) => debug!(pid, ?which, %error, "cannot signal"),
                    Ok(()) => {}
                }
            }
            KeeperRequest::Connect { id, pool } => {
                let connected = self.operations.connect(pool);
                let connected = connected.and_then(|fd| done(id, 0, String::new(), vec![fd]));
                front.answer(id, connected);
            }
            KeeperRequest::SiteDirectories { id, site } => {
                let directories = self.site_directories(site).and_then(|directories| {
                    let mut fds = vec![process::memory_file(&directories.text)?];
                    fds.extend(directories.fds);
                    done(id, directories.number, String::new(), fds)
                });
                front.answer(id, directories);
            }
            KeeperRequest::Certificates { id, first_site } => {
                let read = self.operations.certificates(first_site);
                let read = read.and_then(|file| done(id, 0, String::new(), vec![file]));
                front.answer(id, read);
            }
            KeeperRequest::Configuration { id } => {
                let next = self.operations.configuration();
                let next = next.and_then(|file| done(id, 0, String::new(), Vec::from_iter(file)));
                front.answer(id, next);
            }
            KeeperRequest::Acme {
                id,
                domain,
                is_asked,
            } => {
                let pid = self.acme(domain, is_asked, fds);
                front.answer(id, pid.map(|pid| started(id, pid)));
            }
            KeeperRequest::Pages {
                id,
                pool,
                keep,
                text,
            } => {
                let set = self.operations.pages(pool, keep, &text);
                let set = set.and_then(|()| done(id, 0, String::new(), Vec::new()));
                front.answer(id, set);
            }
            KeeperRequest::Opener { id, directories } => {
                let socket = self.opener(directories);
                let socket = socket.and_then(|fd| done(id, directories, String::new(), vec![fd]));
                front.answer(id, socket);
            }
            KeeperRequest::Configured { id, first_site } => {
                let used = self.operations.configured(first_site);
                front.answer(id, used.and_then(|()| done(id, 0, String::new(), vec![])));
            }
            KeeperRequest::Ready => {
                debug!(pid = front.pid, "the front end is ready");
                self.has_served = true;
                log::has_started();
                self.is_ready = true;
            }
        }
        Ok(())
    }

    /// Opens the directories of all sites. An error if those of no site can be opened.
    pub fn all_site_directories(
        &mut self,
    ) -> anyhow::Result<Vec<anyhow::Result<ServedDirectories>>> {
        let sites = self.operations.begin_front_end();
        let mut all: Vec<_> = sites.map(|site| self.site_directories(site)).collect();
        match all.iter().position(Result::is_ok) {
            None if !all.is_empty() => all.swap_remove(0).map(|_| all),
            _ => Ok(all),
        }
    }

    /// Opens the served directories of a site and starts their opener.
    fn site_directories(&mut self, site: u32) -> anyhow::Result<ServedDirectories> {
        let name = self.operations.site_name(site)?;
        let of_site = self
            .site_directories
            .values()
            .filter(|opened| opened.name == name);
        // A killed opener does not report that its directories are unused.
        if of_site.count() >= MAX_OPENERS {
            let is_used = |opened: &Opened<_>| opened.name != name || opened.opener.is_some();
            self.site_directories.retain(|_, opened| is_used(opened));
        }
        let Directories { text, fds, trees } = self.operations.site_directories(site)?;
        let number = self.next_site_directories;
        self.next_site_directories = self.next_site_directories.wrapping_add(1);
        let (pid, socket) = self.start_opener(site, name, &trees)?;
        let opener = Some(pid);
        let opened = Opened {
            site,
            name,
            trees,
            opener,
        };
        self.site_directories.insert(number, opened);
        Ok(ServedDirectories {
            number,
            text,
            fds: [socket].into_iter().chain(fds).collect(),
        })
    }

    fn opener(&mut self, directories: u32) -> anyhow::Result<OwnedFd> {
        let mut opened = self
            .site_directories
            .remove(&directories)
            .with_context(|| format!("no site has an opener with the number {directories}"))?;
        if let Some(pid) = opened.opener.take() {
            debug!(pid, "no answer from the opener; killing it");
            self.processes.kill(pid);
        }
        let started = self.start_opener(opened.site, opened.name, &opened.trees);
        opened.opener = started.as_ref().ok().map(|(pid, _)| *pid);
        self.site_directories.insert(directories, opened);
        started.map(|(_, socket)| socket)
    }

    fn start_opener(
        &mut self,
        site: u32,
        name: &'static str,
        trees: &D::Trees,
    ) -> anyhow::Result<(u32, OwnedFd)> {
        let kind = ChildKind::Opener { site: name };
        ensure!(
            self.processes.count(kind) < MAX_OPENERS,
            "{MAX_OPENERS} versions of the directories are in use already"
        );
        let (pid, socket) = self.operations.opener(site, trees)?;
        self.processes.started(pid, kind);
        Ok((pid, socket))
    }

    fn acme(&mut self, domain: u16, is_asked: bool, mut fds: Vec<OwnedFd>) -> anyhow::Result<u32> {
        ensure!(
            self.attempt.is_none(),
            "a process that gets a certificate runs already"
        );
        let socket = fds.pop().filter(|socket| {
            fds.is_empty() && process::kind(socket) == process::DescriptorKind::Seqpacket
        });
        let socket = socket.context("no socket for the process that gets a certificate")?;
        let (pid, attempt) = self.operations.acme(domain, is_asked, socket)?;
        self.processes.started(pid, ChildKind::Acme);
        self.attempt = Some((pid, attempt));
        Ok(pid)
    }

    fn master(&mut self, pool: u32, fds: Vec<OwnedFd>) -> anyhow::Result<u32> {
        let name = self.operations.pool_name(pool)?;
        let kind = ChildKind::Master(name);
        // Killed ones may take a while to exit.
        ensure!(
            self.processes.count(kind) < 2 * MAX_MASTERS,
            "{MAX_MASTERS} killed master processes of this pool have not exited yet"
        );
        self.make_room(name);
        let pid = self.operations.master(pool, fds)?;
        self.processes.started(pid, kind);
        self.masters.push((name, pid));
        Ok(pid)
    }

    /// Kills the pool's oldest master process if there are too many. Scripts can have each one
    /// replaced and keep it from draining, but must not keep another one from starting.
    fn make_room(&mut self, pool: &str) {
        let mut of_pool = self.masters.iter().filter(|(of, _)| *of == pool);
        let Some((_, oldest)) = of_pool.next().copied() else {
            return;
        };
        if of_pool.count() + 1 >= MAX_MASTERS {
            warn!(
                pid = oldest,
                "too many master processes still have requests in flight; the oldest is killed"
            );
            self.processes.kill(oldest);
            self.masters.retain(|(_, pid)| *pid != oldest);
        }
    }

    fn runtime_dir(&mut self, pool: u32) -> anyhow::Result<(u32, std::path::PathBuf)> {
        let name = self.operations.pool_name(pool)?;
        let of_pool = self.runtime_dirs.values().filter(|dir| dir.name == name);
        ensure!(
            of_pool.count() < MAX_RUNTIME_DIRS,
            "{MAX_RUNTIME_DIRS} directories of this pool are there already"
        );
        let (path, starter) = self.operations.runtime_dir(pool)?;
        let number = self.next_runtime_dir;
        self.next_runtime_dir = self.next_runtime_dir.wrapping_add(1);
        let dir = KeptRuntimeDir {
            pool,
            name,
            starter,
        };
        self.runtime_dirs.insert(number, dir);
        Ok((number, path))
    }

    fn php(&mut self, number: u32, role: Role, fds: Vec<OwnedFd>) -> anyhow::Result<u32> {
        let found = self.runtime_dirs.get_mut(&number);
        let dir = found.context("unknown directory")?;
        let name = dir.name;
        let kinds = [ChildKind::Request(name), ChildKind::Server(name)];
        let running: usize = kinds.iter().map(|kind| self.processes.count(*kind)).sum();
        ensure!(
            running < self.operations.max_processes(name),
            "this pool already runs as many PHP processes as allowed"
        );
        let kind = match role {
            Role::Request => kinds[0],
            Role::Server => kinds[1],
            Role::Probe => {
                ensure!(
                    self.processes.probes(name) < MAX_PROBES,
                    "{MAX_PROBES} processes report about this pool's PHP already"
                );
                ChildKind::Probe {
                    pool: name,
                    runtime_dir: number,
                }
            }
        };
        let pid = self.operations.php(dir.pool, &mut dir.starter, role, fds)?;
        self.processes.started(pid, kind);
        Ok(pid)
    }
}

#[cfg(test)]
mod tests;
