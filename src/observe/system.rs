//! The CPUs and memory that the cgroup allows.

use std::path::{Path, PathBuf};

/// What this process may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// A cgroup may allow fractions.
    pub cpus: f64,
    /// Whether the CPUs come from a quota: a process that has used it up is throttled.
    pub is_limited: bool,
    /// Bytes.
    pub memory: u64,
}

/// Memory to plan for one worker of an ordinary application.
const PER_WORKER: u64 = 64 << 20;

impl Machine {
    /// Reads the current limits. A limit that cannot be read counts as none.
    pub fn read() -> Machine {
        Machine::of(Path::new("/"))
    }

    fn of(root: &Path) -> Machine {
        let cpus = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        let quota = cgroup(root)
            .iter()
            .filter_map(|dir| cpu_quota(dir))
            .fold(f64::INFINITY, f64::min);
        let memory = cgroup(root)
            .iter()
            .filter_map(|dir| memory_limit(dir))
            .min();
        let total = memory_total(root).unwrap_or(u64::MAX);
        Machine {
            cpus: cpus.min(quota).max(0.01),
            is_limited: quota.is_finite(),
            memory: memory.unwrap_or(u64::MAX).min(total),
        }
    }

    /// Whether a CPU can be spared for busy polling.
    pub fn has_spare(&self) -> bool {
        self.cpus >= if self.is_limited { 4.0 } else { 2.0 }
    }

    /// Two workers per CPU, because PHP sometimes waits for databases; fewer if memory is short.
    pub fn worker_count(&self) -> usize {
        let by_cpu = (self.cpus * 2.0).ceil() as u64;
        let by_memory = self.memory / 2 / PER_WORKER;
        by_cpu.min(by_memory).clamp(2, 512) as usize
    }
}

/// The directories of this process's cgroup and of its parents, version 2 and version 1; each may
/// set a limit.
fn cgroup(root: &Path) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let base = root.join("sys/fs/cgroup").join(controllers);
        let mut path = Path::new(path.trim_start_matches('/'));
        loop {
            directories.push(base.join(path));
            match path.parent() {
                Some(parent) => path = parent,
                None => break,
            }
        }
    }
    directories
}

fn number(directory: &Path, file: &str) -> Option<f64> {
    std::fs::read_to_string(directory.join(file))
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn cpu_quota(directory: &Path) -> Option<f64> {
    if let Ok(text) = std::fs::read_to_string(directory.join("cpu.max")) {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
    }
    let quota = number(directory, "cpu.cfs_quota_us").filter(|quota| *quota > 0.0)?;
    Some(quota / number(directory, "cpu.cfs_period_us")?)
}

fn memory_limit(directory: &Path) -> Option<u64> {
    let limit =
        number(directory, "memory.max").or_else(|| number(directory, "memory.limit_in_bytes"))?;
    Some(limit as u64)
}

fn memory_total(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn tightest_cgroup_limit_applies() {
        let root = root(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/meminfo", "MemTotal:       16777216 kB\n"),
            ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "536870912\n"),
        ]);
        let machine = Machine::of(root.path());
        assert_eq!(machine.cpus, 0.5);
        assert_eq!(machine.memory, 512 << 20);
        assert_eq!(machine.worker_count(), 2);
    }

    #[test]
    fn cgroup_version_1_limits_are_read() {
        let root = root(&[
            ("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n"),
            (
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                "1073741824\n",
            ),
            ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "29000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n"),
        ]);
        let machine = Machine::of(root.path());
        assert_eq!(machine.cpus, 0.29);
        assert_eq!(machine.memory, 1 << 30);
    }

    #[test]
    fn little_memory_reduces_workers() {
        assert_eq!(
            Machine {
                cpus: 8.0,
                is_limited: false,
                memory: 1 << 30
            }
            .worker_count(),
            8
        );
        assert_eq!(
            Machine {
                cpus: 8.0,
                is_limited: false,
                memory: 64 << 30
            }
            .worker_count(),
            16
        );
        assert_eq!(
            Machine {
                cpus: 0.1,
                is_limited: false,
                memory: 64 << 20
            }
            .worker_count(),
            2
        );
    }

    #[test]
    fn quota_needs_more_cpus_for_busy_polling() {
        let machine = |cpus, is_limited| Machine {
            cpus,
            is_limited,
            memory: u64::MAX,
        };
        assert!(!machine(1.0, false).has_spare());
        assert!(machine(2.0, false).has_spare());
        assert!(!machine(2.0, true).has_spare());
        assert!(machine(4.0, true).has_spare());
    }
}
