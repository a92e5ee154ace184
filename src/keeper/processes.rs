//! The processes that the keeper has started, and which processes a front may signal.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use surus_sys::process::{self, Pid};

use crate::launcher::Which;

/// What a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Opens files as PHP's user.
    Opener,
    /// The template process of a pool.
    Template(u16),
    /// An installed PHP of a pool, for one request.
    Event(u16),
    /// An installed PHP of a pool, for many; no child of it outlives it.
    Server(u16),
}

/// Children for the front, by their number. None of the numbers can become another process's before [`Processes::ended`],
/// because the keeper has not reaped it.
#[derive(Debug, Default)]
pub struct Processes {
    children: BTreeMap<u32, Kind>,
    /// Children that have ended before others of their process group. As long as one is left, no other group gets the number.
    groups: BTreeSet<u32>,
}

impl Processes {
    pub fn started(&mut self, pid: u32, kind: Kind) {
        self.children.insert(pid, kind);
    }

    /// Forgets a child that has been reaped. Was it one?
    pub fn ended(&mut self, pid: u32) -> bool {
        let kind = self.children.remove(&pid);
        if matches!(kind, Some(Kind::Server(_))) && process::has_group(pid) {
            let _ = process::kill_group(pid);
        }
        let known = kind.is_some();
        if known {
            self.groups.insert(pid);
        }
        self.groups.retain(|group| process::has_group(*group));
        known
    }

    pub fn count(&self, kind: Kind) -> usize {
        let of_kind = self.children.values().filter(|other| **other == kind);
        of_kind.count()
    }

    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Signals a process of ours: a child, a child's child, or one that is left of a child's process group.
    pub fn signal(&mut self, pid: u32, pidfd: Option<OwnedFd>, which: Which) -> io::Result<()> {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let is_child = self.children.contains_key(&pid);
        if which == Which::KillGroup {
            return match is_child {
                true => process::kill_group(pid),
                false => Err(denied()),
            };
        }
        if !is_child && !self.is_below(pid) {
            return Err(denied());
        }
        let pidfd = match pidfd {
            Some(pidfd) => Some(pidfd),
            None => process::pidfd(pid)?,
        };
        if let Some(pidfd) = &pidfd {
            // What was read of the process above was read of this one: its number was its own, and is still.
            let is_same = process::pid_of(pidfd) == Some(pid);
            if !is_same || (!is_child && !self.is_below(pid)) || process::pid_of(pidfd) != Some(pid)
            {
                return Err(denied());
            }
        }
        let process = Pid::new(pid, pidfd);
        match which {
            Which::Stop => process.stop(),
            Which::Resume => process.resume(),
            Which::Terminate => process.terminate(),
            Which::Kill | Which::KillGroup => process.kill(),
        }
    }

    fn is_below(&mut self, pid: u32) -> bool {
        // 0 and 1 are never children, and -1 and others of that kind are no numbers of processes.
        if pid <= 1 || pid > i32::MAX.cast_unsigned() || pid == std::process::id() {
            return false;
        }
        self.groups.retain(|group| process::has_group(*group));
        process::parent_and_group(pid).is_some_and(|(parent, group)| {
            self.children.contains_key(&parent) || self.groups.contains(&group)
        })
    }

    /// Has all end whose front is gone. A template and an opener see that for themselves.
    pub fn end_all(&self) {
        for (pid, kind) in &self.children {
            let _ = match kind {
                // It ends its own children.
                Kind::Server(_) => process::terminate(*pid),
                Kind::Event(_) => process::kill_group(*pid),
                Kind::Template(_) | Kind::Opener => Ok(()),
            };
        }
    }

    /// Ends all at once, with their process groups. What a script has started and a child has left behind lives on, as under
    /// php-fpm.
    pub fn kill_all(&self) {
        for pid in self.children.keys() {
            let _ = process::kill_group(*pid);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    const ALL: [Which; 5] = [
        Which::Stop,
        Which::Resume,
        Which::Terminate,
        Which::Kill,
        Which::KillGroup,
    ];

    #[test]
    fn foreign_processes_are_not_signalled() {
        let mut foreign = Command::new("sleep").arg("60").spawn().unwrap();
        let mut processes = Processes::default();
        let own = std::process::id();
        let parent = std::os::unix::process::parent_id();
        for pid in [foreign.id(), own, parent, 0, 1, 2, u32::MAX, 1 << 31] {
            for which in ALL {
                assert!(
                    processes.signal(pid, None, which).is_err(),
                    "{pid} {which:?}"
                );
            }
        }
        assert!(foreign.try_wait().unwrap().is_none());
        foreign.kill().unwrap();
        foreign.wait().unwrap();
    }

    #[test]
    fn child_and_its_child_are_signalled_and_a_pidfd_of_another_is_refused() {
        use std::io::BufRead;
        let mut command = Command::new("sh");
        command
            .args(["-c", "sleep 60 & echo $!; wait"])
            .process_group(0);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufReader::new(out).read_line(&mut line).unwrap();
        let below: u32 = line.trim().parse().unwrap();
        let mut foreign = Command::new("sleep").arg("60").spawn().unwrap();
        let mut processes = Processes::default();
        processes.started(child.id(), Kind::Template(0));
        let pidfd = |pid| process::pidfd(pid).unwrap();
        let own = std::fs::File::open("/dev/null").unwrap();
        for wrong in [pidfd(foreign.id()), Some(own.into())] {
            assert!(processes.signal(below, wrong, Which::Kill).is_err());
        }
        assert!(processes.signal(below, pidfd(below), Which::Resume).is_ok());
        assert!(processes.signal(child.id(), None, Which::Kill).is_ok());
        child.wait().unwrap();
        assert!(processes.ended(child.id()));
        // Its parent is gone; its process group tells.
        assert!(processes.signal(below, None, Which::Kill).is_ok());
        assert!(
            processes
                .signal(child.id(), None, Which::KillGroup)
                .is_err()
        );
        assert!(foreign.try_wait().unwrap().is_none());
        foreign.kill().unwrap();
        foreign.wait().unwrap();
    }
}
