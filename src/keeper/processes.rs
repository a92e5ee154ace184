//! Tracks the processes that the keeper started, and decides which of them a front end may signal.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use surus_sys::fork;
use surus_sys::process::{self, Pid};
use tracing::{error, warn};

use crate::launcher::ProcessSignal;
use crate::observe::rate_limit::LineRate;

/// Background processes of PHP scripts count as orphans, too.
const MAX_ORPHANS: usize = 256;

/// The purpose of a child. Names stand for sites and pools, because the limits hold across
/// configurations. Each of those has its own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildKind {
    /// The opener of a site: opens files as PHP's user.
    Opener { site: &'static str },
    /// Gets a certificate.
    Acme,
    /// The master process of a pool.
    Master(&'static str),
    /// Reports about a pool's PHP, for the directory with this number.
    Probe {
        pool: &'static str,
        runtime_dir: u32,
    },
    /// A pool's installed PHP that serves one request.
    Request(&'static str),
    /// A pool's installed PHP that serves many requests. Its process group is killed when it exits.
    Server(&'static str),
}

/// A child that has exited and is reaped.
#[derive(Debug, Clone, Copy)]
pub struct EndedProcess {
    pub pid: u32,
    pub kind: ChildKind,
    pub wait_status: i32,
}

/// The front end's children, by process id. The kernel cannot reuse an id for another process or
/// process group before [`Processes::reap`], because no other code reaps them.
#[derive(Debug, Default)]
pub struct Processes {
    children: BTreeMap<u32, ChildKind>,
    /// Workers that outlived their master process, each with a pidfd: the kernel may reuse their
    /// process numbers.
    orphans: Vec<Pid>,
}

impl Processes {
    pub fn started(&mut self, pid: u32, kind: ChildKind) {
        self.children.insert(pid, kind);
    }

    /// Reaps the children that have exited. Their process groups are handled first.
    pub fn reap(&mut self) -> Vec<EndedProcess> {
        self.orphans.retain(|orphan| !orphan.has_ended());
        let mut all = Vec::new();
        for (pid, kind) in &self.children {
            if !fork::has_ended(*pid) {
                continue;
            }
            match kind {
                ChildKind::Server(_) => drop(process::kill_group(*pid)),
                ChildKind::Master(_) => {
                    let room = MAX_ORPHANS.saturating_sub(self.orphans.len());
                    self.orphans.extend(process::members(*pid, room));
                }
                ChildKind::Opener { .. }
                | ChildKind::Acme
                | ChildKind::Probe { .. }
                | ChildKind::Request(_) => {}
            }
            let (pid, kind) = (*pid, *kind);
            all.extend(fork::reap(pid).map(|wait_status| EndedProcess {
                pid,
                kind,
                wait_status,
            }));
        }
        for ended in &all {
            self.children.remove(&ended.pid);
        }
        all
    }

    pub fn count(&self, kind: ChildKind) -> usize {
        let of_kind = self.children.values().filter(|other| **other == kind);
        of_kind.count()
    }

    /// The number of a pool's probes that run.
    pub fn probes(&self, pool: &str) -> usize {
        let is_one =
            |kind: &&ChildKind| matches!(kind, ChildKind::Probe { pool: of, .. } if *of == pool);
        self.children.values().filter(is_one).count()
    }

    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Kills the process if it is still a child.
    pub fn kill(&self, pid: u32) {
        if self.children.contains_key(&pid) {
            let _ = process::kill(pid);
        }
    }

    /// Signals a child, a child's child, or a worker that outlived its master process.
    pub fn signal(&self, pid: u32, pidfd: Option<OwnedFd>, which: ProcessSignal) -> io::Result<()> {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let is_child = self.children.contains_key(&pid);
        if which == ProcessSignal::KillGroup {
            return match is_child {
                true => process::kill_group(pid),
                false => Err(denied()),
            };
        }
        if let Some(orphan) = self.orphans.iter().find(|orphan| orphan.get() == pid) {
            return send(orphan, which);
        }
        if !is_child && !self.is_below(pid) {
            return Err(denied());
        }
        let pidfd = match pidfd {
            Some(pidfd) => Some(pidfd),
            None => process::pidfd(pid)?,
        };
        if let Some(pidfd) = &pidfd {
            // The checks above read /proc by process id. The pidfd is still valid for this id, so
            // they read about the same process.
            let is_same = process::pid_of(pidfd) == Some(pid);
            if !is_same || (!is_child && !self.is_below(pid)) || process::pid_of(pidfd) != Some(pid)
            {
                return Err(denied());
            }
        }
        send(&Pid::new(pid, pidfd), which)
    }

    fn is_below(&self, pid: u32) -> bool {
        // 0 and 1 are never children; values above `i32::MAX` are not process ids.
        if pid <= 1 || pid > i32::MAX.cast_unsigned() || pid == std::process::id() {
            return false;
        }
        let found = process::parent_and_group(pid);
        found.is_some_and(|(parent, _)| self.children.contains_key(&parent))
    }

    /// Resumes openers that were stopped: they run as PHP's user, so a script can do that. The
    /// kernel notifies a parent by SIGCHLD (signal(7)). One that a debugger holds is left alone.
    pub fn resume_stopped_openers(&self) {
        static REPORTED: LineRate = LineRate::new();
        for (pid, kind) in &self.children {
            let is_opener = matches!(kind, ChildKind::Opener { .. });
            if !is_opener || process::state(*pid) != Some('T') {
                continue;
            }
            REPORTED.log(Instant::now(), |left_out| {
                warn!(pid, left_out, "the opener was stopped (SIGSTOP); resumed");
            });
            if let Err(error) = process::resume(*pid) {
                error!(pid, %error, "cannot resume the opener");
            }
        }
    }

    /// Terminates the children of an exited front end. Master processes and openers detect the exit
    /// themselves, unless a script has stopped them.
    pub fn end_all(&self) {
        for (pid, kind) in &self.children {
            let _ = process::resume(*pid);
            let _ = match kind {
                // The server terminates its own children.
                ChildKind::Server(_) => process::terminate(*pid),
                ChildKind::Request(_) | ChildKind::Probe { .. } | ChildKind::Acme => {
                    process::kill_group(*pid)
                }
                ChildKind::Master(_) | ChildKind::Opener { .. } => Ok(()),
            };
        }
    }

    /// Kills all children with their process groups. Background processes of scripts that an exited
    /// child left behind live on, as under php-fpm.
    pub fn kill_all(&self) {
        for pid in self.children.keys() {
            let _ = process::kill_group(*pid);
        }
    }
}

fn send(process: &Pid, which: ProcessSignal) -> io::Result<()> {
    match which {
        ProcessSignal::Stop => process.stop(),
        ProcessSignal::Suspend => process.suspend(),
        ProcessSignal::Resume => process.resume(),
        ProcessSignal::Terminate => process.terminate(),
        ProcessSignal::Kill | ProcessSignal::KillGroup => process.kill(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    const ALL: [ProcessSignal; 6] = [
        ProcessSignal::Stop,
        ProcessSignal::Suspend,
        ProcessSignal::Resume,
        ProcessSignal::Terminate,
        ProcessSignal::Kill,
        ProcessSignal::KillGroup,
    ];

    #[test]
    fn signal_to_foreign_process_is_rejected() {
        let mut foreign = Command::new("sleep").arg("60").spawn().unwrap();
        let processes = Processes::default();
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
    fn signal_with_foreign_pidfd_is_rejected_and_descendants_are_signalled() {
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
        processes.started(child.id(), ChildKind::Master("a"));
        let pidfd = |pid| process::pidfd(pid).unwrap();
        let own = std::fs::File::open("/dev/null").unwrap();
        for wrong in [pidfd(foreign.id()), Some(own.into())] {
            assert!(processes.signal(below, wrong, ProcessSignal::Kill).is_err());
        }
        assert!(
            processes
                .signal(below, pidfd(below), ProcessSignal::Resume)
                .is_ok()
        );
        assert!(
            processes
                .signal(child.id(), None, ProcessSignal::Kill)
                .is_ok()
        );
        reap_one(&mut processes);
        assert!(child.wait().is_err(), "the child is reaped");
        // Its parent has exited; it was in the master process's group.
        let orphans = processes.orphans.iter().map(Pid::get);
        assert_eq!(orphans.collect::<Vec<_>>(), [below]);
        assert!(processes.signal(below, None, ProcessSignal::Kill).is_ok());
        assert!(
            processes
                .signal(child.id(), None, ProcessSignal::KillGroup)
                .is_err()
        );
        until(|| processes.orphans[0].has_ended());
        // Another process that gets this process id is not signalled.
        processes.reap();
        assert!(processes.signal(below, None, ProcessSignal::Kill).is_err());
        assert!(foreign.try_wait().unwrap().is_none());
        foreign.kill().unwrap();
        foreign.wait().unwrap();
    }

    #[test]
    fn exited_child_keeps_its_process_id_until_reaped() {
        let mut child = Command::new("true").process_group(0).spawn().unwrap();
        let mut processes = Processes::default();
        processes.started(child.id(), ChildKind::Server("a"));
        until(|| fork::has_ended(child.id()));
        assert!(
            processes
                .signal(child.id(), None, ProcessSignal::Resume)
                .is_ok()
        );
        assert!(processes.children.contains_key(&child.id()));
        let ended = processes.reap();
        assert_eq!((ended.len(), ended[0].pid), (1, child.id()));
        assert!(processes.is_empty() && child.wait().is_err());
        assert!(
            processes
                .signal(child.id(), None, ProcessSignal::Resume)
                .is_err()
        );
    }

    #[test]
    fn stopped_child_ends_with_its_front_end() {
        let mut child = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .unwrap();
        let mut processes = Processes::default();
        processes.started(child.id(), ChildKind::Server("a"));
        let mut stop = Command::new("kill");
        stop.args(["-STOP", &child.id().to_string()]);
        assert!(stop.status().unwrap().success());
        until(|| process::state(child.id()) == Some('T'));
        processes.end_all();
        reap_one(&mut processes);
        assert!(child.wait().is_err(), "the child is reaped");
    }

    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn reap_one(processes: &mut Processes) -> EndedProcess {
        loop {
            if let Some(ended) = processes.reap().pop() {
                return ended;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
