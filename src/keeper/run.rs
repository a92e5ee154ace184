//! The keeper's life: starts the front, answers it, passes signals on, reaps children, and starts another front if one dies.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use surus_sys::fork::{self, Forked};
use surus_sys::privileges;
use surus_sys::process;
use surus_sys::seqpacket::Seqpacket;
use surus_sys::signals::{self, Signals, Told};
use tracing::{debug, error, warn};

use super::message::{MOST_BYTES, Reply, Request};
use super::processes::{Kind, Processes};
use super::{Duties, Place};
use crate::launcher::Role;
use crate::observe::rarely::Rarely;
use crate::observe::reopen::Logs;

/// Templates of one pool that may run at once: the current one, one that boots, and some that drain.
const MOST_TEMPLATES: usize = 16;
/// Directories for installed PHPs that may be there at once, for each pool.
const MOST_HOMES: usize = 16;
/// Processes that open files for the front: one for each version of the directories that is still in use.
const MOST_OPENERS: usize = 16;
/// Answers that may wait for the front to read them; it is not read from meanwhile.
const MOST_WAITING: usize = 256;
/// PHP may take so long to end when its front has ended.
const LAST: Duration = Duration::from_secs(2);
/// The pause between two attempts to kill what does not end.
const AGAIN: Duration = Duration::from_millis(100);
/// A front that is told to end at once may take so long.
const AT_ONCE: Duration = Duration::from_secs(1);
/// A front that has lived so long did not die of its start.
const SETTLED: Duration = Duration::from_secs(60);
/// The pause before the next front.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// In the front's process: what it has from the keeper.
pub struct Front {
    /// The other end is the keeper's.
    pub socket: OwnedFd,
    pub place: Place,
    /// The keeper.
    pub keeper: u32,
}

/// Which process [`Keeper::run`] returns in.
pub enum Outcome {
    /// The front, which has all of the keeper's rights until it gives them up.
    Front(Front),
    /// The keeper, with the status to exit with.
    Ended(u8),
}

/// Signals that ask for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    No,
    Asked,
    AtOnce(Instant),
}

pub struct Keeper<D: Duties> {
    duties: D,
    signals: Signals,
    logs: Logs,
    processes: Processes,
    homes: BTreeMap<u32, (u16, D::Home)>,
    next_home: u32,
    end: End,
    /// A front has been ready once.
    has_served: bool,
}

/// The front that runs.
struct Running {
    pid: u32,
    socket: Seqpacket,
    /// Nothing more is read from it.
    is_closed: bool,
    waiting: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    since: Instant,
}

impl<D: Duties> Keeper<D> {
    /// Takes the signals. The process must have one thread, and keep one.
    pub fn new(duties: D) -> anyhow::Result<Keeper<D>> {
        Ok(Keeper {
            duties,
            signals: Signals::take().context("cannot receive signals")?,
            logs: Logs::remember(),
            processes: Processes::default(),
            homes: BTreeMap::new(),
            next_home: 1,
            end: End::No,
            has_served: false,
        })
    }

    /// Keeps fronts running until it is told to end, or the first one fails to start.
    pub fn run(mut self) -> anyhow::Result<Outcome> {
        let mut pause = PAUSES.0;
        loop {
            let place = match self.place() {
                Err(error) if self.has_served => {
                    error!("cannot start another front: {error:#}");
                    None
                }
                place => Some(place?),
            };
            if let Some(place) = place {
                let (ours, theirs) = Seqpacket::pair().context("cannot make a socket pair")?;
                let keeper = std::process::id();
                match fork::fork().context("cannot fork the front")? {
                    Forked::Child => {
                        drop(ours);
                        self.signals.give_back();
                        return Ok(Outcome::Front(Front {
                            socket: theirs,
                            place,
                            keeper,
                        }));
                    }
                    Forked::Parent(pid) => {
                        drop((place, theirs));
                        privileges::set_name(c"surus keeper");
                        let began = Instant::now();
                        let status = self.keep(pid, ours);
                        if let Some(code) = self.over(status) {
                            return Ok(Outcome::Ended(code));
                        }
                        error!(
                            pid,
                            how = process::describe_exit(status.into_raw()),
                            "the front has died; another one is started"
                        );
                        if began.elapsed() > SETTLED {
                            pause = PAUSES.0;
                        }
                    }
                }
            }
            let until = Instant::now() + pause;
            pause = (pause * 2).min(PAUSES.1);
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                signals::wait(&[self.signals.as_fd()], None, Some(left));
                self.hear(None);
                if self.end != End::No {
                    return Ok(Outcome::Ended(0));
                }
            }
        }
    }

    /// The status to exit with, if a front's end is the end of all.
    fn over(&self, status: ExitStatus) -> Option<u8> {
        let is_over = self.end != End::No || !self.has_served;
        is_over.then(|| status_of(status))
    }

    /// Serves a front until it has ended, and ends what it has started.
    fn keep(&mut self, pid: u32, socket: Seqpacket) -> ExitStatus {
        let mut front = Running {
            pid,
            socket,
            is_closed: false,
            waiting: VecDeque::new(),
            since: Instant::now(),
        };
        let status = loop {
            let limit = match self.end {
                End::AtOnce(when) => Some(when.saturating_duration_since(Instant::now())),
                _ => None,
            };
            let out = (!front.waiting.is_empty()).then(|| front.socket.as_fd());
            let listens = !front.is_closed && front.waiting.len() < MOST_WAITING;
            let all = [self.signals.as_fd(), front.socket.as_fd()];
            signals::wait(&all[..if listens { 2 } else { 1 }], out, limit);
            if let Some(status) = self.hear(Some(&mut front)) {
                break ExitStatus::from_raw(status);
            }
            if let End::AtOnce(when) = self.end
                && Instant::now() >= when
            {
                let _ = process::kill(front.pid);
            }
            self.listen(&mut front);
            front.flush();
        };
        debug!(pid, lived = ?front.since.elapsed(), "the front has ended");
        drop(front);
        self.end_all();
        status
    }

    /// Ends what a front that is gone has left. Its templates see for themselves that it is gone.
    fn end_all(&mut self) {
        self.processes.end_all();
        let until = Instant::now() + LAST;
        while !self.processes.is_empty() {
            match until.checked_duration_since(Instant::now()) {
                Some(left) => signals::wait(&[self.signals.as_fd()], None, Some(left)),
                None => {
                    self.processes.kill_all();
                    signals::wait(&[self.signals.as_fd()], None, Some(AGAIN));
                }
            }
            self.hear(None);
        }
        self.homes.clear();
    }

    /// Reads the signals that wait. Returns how the front has ended, if it has.
    fn hear(&mut self, mut front: Option<&mut Running>) -> Option<i32> {
        let mut ended = None;
        while let Some(told) = self.signals.read() {
            let pid = front.as_ref().map(|front| front.pid);
            match told {
                Told::Child => {}
                Told::End | Told::Drain => {
                    self.end = match self.end {
                        End::No => End::Asked,
                        _ => End::AtOnce(Instant::now() + AT_ONCE),
                    };
                    let _ = pid.map(process::terminate);
                }
                Told::Reload => {
                    let _ = pid.map(process::hang_up);
                }
                Told::Reopen => match (self.logs.reopen(), &mut front) {
                    (Ok(fds), Some(front)) => front.send(&Reply::Reopen, fds.into()),
                    (Ok(_), None) => {}
                    (Err(error), _) => warn!(%error, "cannot reopen the logs"),
                },
            }
        }
        // One signal may stand for many children, and as process 1 there are others' children, too.
        while let Some((pid, wait_status)) = fork::reap() {
            if front.as_ref().is_some_and(|front| front.pid == pid) {
                ended = Some(wait_status);
            } else if self.processes.ended(pid)
                && let Some(front) = &mut front
            {
                front.send(&Reply::Exited { pid, wait_status }, Vec::new());
            }
        }
        ended
    }

    /// Answers what the front asks.
    fn listen(&mut self, front: &mut Running) {
        let mut buffer = [0; MOST_BYTES + 1];
        // So that signals are heard whatever the front sends.
        for _ in 0..64 {
            if front.is_closed || front.waiting.len() >= MOST_WAITING {
                return;
            }
            let received = match front.socket.receive(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    debug!(%error, "cannot hear the front");
                    front.is_closed = true;
                    return;
                }
            };
            if received.len == 0 && received.fds.is_empty() {
                // It is about to end; or it has sent an empty message, which no front of ours does, and is heard no more.
                front.is_closed = true;
                return;
            }
            let request = match received.is_whole {
                true => Request::decode(&buffer[..received.len]).map_err(anyhow::Error::from),
                false => Err(anyhow::anyhow!("a message that is too large")),
            };
            let done = request.and_then(|request| self.serve(front, request, received.fds));
            if let Err(error) = done {
                static SAID: Rarely = Rarely::new();
                if SAID.is_time(Instant::now()) {
                    warn!(
                        front = front.pid,
                        "refused what the front asked for: {error:#}"
                    );
                }
            }
        }
    }

    /// Does one thing. An error is one that no answer can be given to.
    fn serve(
        &mut self,
        front: &mut Running,
        request: Request,
        mut fds: Vec<OwnedFd>,
    ) -> anyhow::Result<()> {
        match request {
            Request::Template { id, pool } => {
                let started = self.template(pool, fds);
                front.answer(id, started.map(|pid| (Reply::Started { id, pid }, None)));
            }
            Request::Home { id, pool } => {
                let home = self.home(pool).map(|(number, path)| {
                    let text = path.display().to_string();
                    (Reply::Done { id, number, text }, None)
                });
                front.answer(id, home);
            }
            Request::CloseHome { home } => {
                let home = self.homes.remove(&home);
                home.context("there is no such directory")?;
            }
            Request::Php {
                id,
                home,
                role,
                disabled,
            } => {
                let started = self.php(home, role, &disabled, fds);
                front.answer(id, started.map(|pid| (Reply::Started { id, pid }, None)));
            }
            Request::Signal { pid, which } => {
                ensure!(fds.len() <= 1, "a signal with {} descriptors", fds.len());
                match self.processes.signal(pid, fds.pop(), which) {
                    // It may have ended a moment ago.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        debug!(pid, ?which, "not signalled: no process of this front")
                    }
                    Err(error) => debug!(pid, ?which, %error, "cannot signal"),
                    Ok(()) => {}
                }
            }
            Request::Connect { id, pool } => {
                let connected = self.known(pool).and_then(|()| self.duties.connect(pool));
                let text = String::new();
                let done = |fd| {
                    (
                        Reply::Done {
                            id,
                            number: 0,
                            text,
                        },
                        Some(vec![fd]),
                    )
                };
                front.answer(id, connected.map(done));
            }
            Request::Place { id } => {
                let place = self.place().and_then(|place| {
                    let mut fds = vec![process::memory_file(&place.text)?];
                    fds.extend(place.fds);
                    let number = u32::try_from(fds.len())?;
                    Ok((number, fds))
                });
                // More descriptors than one message carries go in several.
                match place {
                    Ok((number, mut fds)) => {
                        while fds.len() > surus_sys::seqpacket::MOST_DESCRIPTORS {
                            let rest = fds.split_off(surus_sys::seqpacket::MOST_DESCRIPTORS);
                            let text = "more".into();
                            front.send(&Reply::Done { id, number, text }, fds);
                            fds = rest;
                        }
                        let text = String::new();
                        front.send(&Reply::Done { id, number, text }, fds);
                    }
                    Err(error) => front.answer(id, Err(error)),
                }
            }
            Request::Ready => {
                debug!(front = front.pid, "the front is ready");
                self.has_served = true;
            }
        }
        Ok(())
    }

    fn place(&mut self) -> anyhow::Result<Place> {
        ensure!(
            self.processes.count(Kind::Opener) < MOST_OPENERS,
            "{MOST_OPENERS} versions of the directories are in use already"
        );
        let place = self.duties.place()?;
        self.processes.started(place.opener, Kind::Opener);
        Ok(place)
    }

    fn known(&self, pool: u16) -> anyhow::Result<()> {
        match pool < self.duties.pools() {
            true => Ok(()),
            false => bail!("there is no pool {pool}"),
        }
    }

    fn template(&mut self, pool: u16, fds: Vec<OwnedFd>) -> anyhow::Result<u32> {
        self.known(pool)?;
        let kind = Kind::Template(pool);
        ensure!(
            self.processes.count(kind) < MOST_TEMPLATES,
            "{MOST_TEMPLATES} templates of this pool run already"
        );
        let pid = self.duties.template(pool, fds)?;
        self.processes.started(pid, kind);
        Ok(pid)
    }

    fn home(&mut self, pool: u16) -> anyhow::Result<(u32, std::path::PathBuf)> {
        self.known(pool)?;
        let of_pool = self.homes.values().filter(|(other, _)| *other == pool);
        ensure!(
            of_pool.count() < MOST_HOMES,
            "{MOST_HOMES} directories of this pool are there already"
        );
        let (path, home) = self.duties.home(pool)?;
        let number = self.next_home;
        self.next_home = self.next_home.wrapping_add(1);
        self.homes.insert(number, (pool, home));
        Ok((number, path))
    }

    fn php(
        &mut self,
        home: u32,
        role: Role,
        disabled: &str,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<u32> {
        let (pool, home) = self
            .homes
            .get(&home)
            .context("there is no such directory")?;
        let kinds = [Kind::Event(*pool), Kind::Server(*pool)];
        let running: usize = kinds.iter().map(|kind| self.processes.count(*kind)).sum();
        ensure!(
            running < self.duties.most(*pool),
            "as many PHP processes of this pool run as may"
        );
        let pid = self.duties.php(*pool, home, role, disabled, fds)?;
        let kind = match role {
            Role::Server => kinds[1],
            Role::Probe | Role::Event => kinds[0],
        };
        self.processes.started(pid, kind);
        Ok(pid)
    }
}

/// The status to exit with in the place of a process.
pub(super) fn status_of(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(1)).unwrap_or(1)
}

impl Running {
    /// Sends an answer, or why there is none.
    fn answer(&mut self, id: u32, done: anyhow::Result<(Reply, Option<Vec<OwnedFd>>)>) {
        match done {
            Ok((reply, fds)) => self.send(&reply, fds.unwrap_or_default()),
            Err(error) => {
                let why = format!("{error:#}");
                self.send(&Reply::Failed { id, why }, Vec::new());
            }
        }
    }

    fn send(&mut self, reply: &Reply, fds: Vec<OwnedFd>) {
        self.waiting.push_back((reply.encode(), fds));
        self.flush();
    }

    /// Sends as much as the front takes.
    fn flush(&mut self) {
        while let Some((message, fds)) = self.waiting.front() {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            match self.socket.send_with(message, &fds) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // It has ended, or was never to have it.
                Ok(()) | Err(_) => drop(self.waiting.pop_front()),
            }
        }
    }
}
