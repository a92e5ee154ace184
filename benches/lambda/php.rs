//! How much CPU time have the processes used that run PHP?

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The workers of one function.
pub struct Workers(Vec<u32>);

impl Workers {
    /// The workers of the runtime that uses the Runtime API at this address, a child of this
    /// process.
    pub fn of(api: SocketAddr) -> Workers {
        let mark = format!("AWS_LAMBDA_RUNTIME_API={api}").into_bytes();
        let all = processes();
        let is_ours =
            |pid: u32| all[&pid].parent == std::process::id() && environment_has(pid, &mark);
        let runtime = all.keys().copied().find(|pid| is_ours(*pid));
        let workers = all.iter().filter(|(pid, process)| {
            // Ours, or one as it is installed.
            (process.name == "surus worker" || process.name.starts_with("php"))
                && runtime.is_some_and(|runtime| descends(&all, **pid, runtime))
        });
        Workers(workers.map(|(pid, _)| *pid).collect())
    }

    /// Of all of them since they began; 0 for one that has ended.
    pub fn cpu(&self) -> Duration {
        self.0.iter().map(|pid| cpu_of(*pid)).sum()
    }
}

struct Process {
    name: String,
    parent: u32,
}

fn processes() -> HashMap<u32, Process> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    pids.filter_map(|pid| Some((pid, process(pid)?))).collect()
}

/// None when it has ended meanwhile.
fn process(pid: u32) -> Option<Process> {
    // "pid (name) state parent …"; a name may have brackets and spaces in it.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(") ")?;
    Some(Process {
        name: head.split_once(" (")?.1.to_string(),
        parent: tail.split(' ').nth(1)?.parse().ok()?,
    })
}

fn descends(all: &HashMap<u32, Process>, mut pid: u32, from: u32) -> bool {
    while let Some(process) = all.get(&pid) {
        if process.parent == from {
            return true;
        }
        pid = process.parent;
    }
    false
}

fn environment_has(pid: u32, variable: &[u8]) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
        environment
            .split(|byte| *byte == 0)
            .any(|one| one == variable)
    })
}

/// Linux counts it in nanoseconds (Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat).
fn cpu_of(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}
