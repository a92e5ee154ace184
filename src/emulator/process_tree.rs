//! The process tree of an environment: finds, signals, kills and measures its processes.
//!
//! Orphans get new parents, so parentage alone does not find all processes. All inherit the address
//! of their Runtime API, which is unique per environment.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use surus_sys::signal::{self, Signal};

/// The processes of one environment.
#[derive(Debug, Clone)]
pub struct ProcessTree {
    /// The runtime and the external extensions.
    roots: Vec<u32>,
    /// The environment variable that all of them have.
    variable: Vec<u8>,
    /// The list of processes in the control group, if there is one.
    list: Option<PathBuf>,
}

impl ProcessTree {
    /// `address` is that of the Runtime API.
    pub fn new(address: &str, roots: Vec<u32>, list: Option<PathBuf>) -> ProcessTree {
        ProcessTree {
            roots,
            variable: format!("AWS_LAMBDA_RUNTIME_API={address}").into_bytes(),
            list,
        }
    }

    /// All running processes of the environment.
    pub fn processes(&self) -> Vec<u32> {
        let mut found: HashSet<u32> = HashSet::new();
        if let Some(list) = &self.list
            && let Ok(text) = std::fs::read_to_string(list)
        {
            found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        }
        let all = all_processes();
        found.extend(
            self.roots
                .iter()
                .filter(|root| all.iter().any(|p| p.pid == **root)),
        );
        let mut grew = true;
        while grew {
            let before = found.len();
            let children = all
                .iter()
                .filter(|p| found.contains(&p.parent))
                .map(|p| p.pid);
            let children: Vec<u32> = children.collect();
            found.extend(children);
            grew = found.len() > before;
        }
        found.extend(
            all.iter()
                .filter(|p| self.has_variable(p.pid))
                .map(|p| p.pid),
        );
        let zombies: HashSet<u32> = all.iter().filter(|p| p.is_zombie).map(|p| p.pid).collect();
        let mut found: Vec<u32> = found.difference(&zombies).copied().collect();
        found.sort_unstable();
        found
    }

    fn has_variable(&self, pid: u32) -> bool {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|v| v == self.variable))
    }

    /// Sends a signal to all processes.
    pub fn signal(&self, to_send: Signal) {
        for pid in self.processes() {
            let _ = signal::send(pid, to_send);
        }
    }

    /// Kills all processes, including those started meanwhile.
    pub fn kill(&self) {
        let limit = Instant::now() + Duration::from_secs(2);
        loop {
            let processes = self.processes();
            if processes.is_empty() || Instant::now() > limit {
                return;
            }
            for pid in processes {
                let _ = signal::send(pid, Signal::Kill);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Roots and processes that have children; the others are the workers of a runtime.
    pub fn parents(&self) -> Vec<u32> {
        let all = all_processes();
        let is_parent = |pid: u32| all.iter().any(|p| p.parent == pid && !p.is_zombie);
        let mut parents = self.processes();
        parents.retain(|pid| self.roots.contains(pid) || is_parent(*pid));
        parents
    }

    /// The process with the most memory, which the OOM killer would choose.
    pub fn largest(&self) -> Option<u32> {
        self.processes()
            .into_iter()
            .max_by_key(|pid| ProcessMemory::read(*pid).map_or(0, |memory| memory.resident))
    }

    /// The highest memory use in bytes, as far as `/proc` shows it. Shared memory counts once;
    /// memory that a process has returned also counts.
    pub fn peak_memory(&self) -> u64 {
        self.processes()
            .into_iter()
            .filter_map(ProcessMemory::read)
            .map(|memory| memory.share + memory.peak.saturating_sub(memory.resident))
            .sum()
    }
}

struct Process {
    pid: u32,
    parent: u32,
    is_zombie: bool,
}

fn all_processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name may contain any byte, so parse after its last parenthesis.
            let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
            let state = fields.next()?;
            Some(Process {
                pid,
                parent: fields.next()?.parse().ok()?,
                is_zombie: matches!(state, "Z" | "X"),
            })
        })
        .collect()
}

/// Bytes.
struct ProcessMemory {
    resident: u64,
    peak: u64,
    /// The proportional set size (PSS).
    share: u64,
}

impl ProcessMemory {
    fn read(pid: u32) -> Option<ProcessMemory> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |text: &str, name: &str| -> Option<u64> {
            let line = text.lines().find(|line| line.starts_with(name))?;
            let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kilobytes << 10)
        };
        let resident = field(&status, "VmRSS:")?;
        let peak = field(&status, "VmHWM:").unwrap_or(resident);
        // Not readable for processes of other users.
        let share = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .ok()
            .and_then(|text| field(&text, "Pss:"))
            .unwrap_or(resident);
        Some(ProcessMemory {
            resident,
            peak,
            share,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn started(script: &str, address: &str) -> std::process::Child {
        std::process::Command::new("sh")
            .args(["-c", script])
            .env("AWS_LAMBDA_RUNTIME_API", address)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn first_line(child: &mut std::process::Child) -> String {
        use std::io::BufRead;
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        line.trim().to_string()
    }

    #[test]
    fn descendants_and_orphans_are_found_and_killed() {
        let address = "127.0.0.1:1-tree-test";
        // The inner sleep is orphaned; `env -i` removes the variable but keeps the parent.
        let mut child = started("(sleep 61 & echo $!) ; env -i /bin/sleep 62", address);
        let orphan: u32 = first_line(&mut child).parse().unwrap();
        let tree = ProcessTree::new(address, vec![child.id()], None);
        // Only three processes remain after the shells in between have exited.
        let command = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_there = |processes: &[u32]| {
            let has = |end: &[u8]| processes.iter().any(|pid| command(*pid).ends_with(end));
            processes.len() == 3 && has(b"sleep\x0061\0") && has(b"sleep\x0062\0")
        };
        let limit = Instant::now() + Duration::from_secs(30);
        let mut processes = tree.processes();
        while !is_there(&processes) {
            assert!(Instant::now() < limit, "{processes:?}");
            std::thread::sleep(Duration::from_millis(5));
            processes = tree.processes();
        }
        assert!(processes.contains(&child.id()) && processes.contains(&orphan));
        assert!(!processes.contains(&std::process::id()));
        assert!(tree.peak_memory() > 0);
        assert_eq!(tree.parents(), [child.id()]);
        tree.kill();
        assert_eq!(tree.processes(), Vec::<u32>::new());
        child.wait().unwrap();
    }
}
