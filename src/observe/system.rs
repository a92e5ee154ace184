//! The CPUs and memory that the cgroup allows.

use std::path::{Path, PathBuf};

/// What this process may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// A cgroup may allow fractions.
    pub cpus: f64,
    /// Whether the CPUs come from a quota: a process that has used it up is throttled.
    pub is_limited: bool,
    /// Bytes. None if nothing limits it that can be read.
    pub memory: Option<u64>,
}

/// Memory to plan for one worker of an ordinary application.
const PER_WORKER: u64 = 64 << 20;

impl Machine {
    /// Reads the current limits. A limit that cannot be read counts as none.
    pub fn read() -> Machine {
        Machine::below(Path::new("/"))
    }

    fn below(root: &Path) -> Machine {
        let cpus = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        let quota = cgroup(root)
            .iter()
            .filter_map(|dir| cpu_quota(dir))
            .fold(f64::INFINITY, f64::min);
        let memory = cgroup(root)
            .iter()
            .filter_map(|dir| memory_limit(dir))
            .min();
        let total = meminfo(root, "MemTotal:");
        Machine {
            cpus: cpus.min(quota).max(0.01),
            is_limited: quota.is_finite(),
            memory: memory.into_iter().chain(total).min(),
        }
    }

    /// Whether a CPU can be spared for busy polling.
    pub fn has_spare(&self) -> bool {
        self.cpus >= if self.is_limited { 4.0 } else { 2.0 }
    }

    /// Two workers per CPU, because PHP sometimes waits for databases; fewer if memory is short.
    pub fn worker_count(&self) -> usize {
        let by_cpu = (self.cpus * 2.0).ceil() as u64;
        let by_memory = self
            .memory
            .map_or(u64::MAX, |memory| memory / 2 / PER_WORKER);
        by_cpu.min(by_memory).clamp(2, 512) as usize
    }
}

/// What is left of the memory of the machine or of the cgroup, whichever has less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    available: u64,
    total: u64,
}

/// The share of the memory that stays free when workers are added: one sixteenth.
const RESERVE: u64 = 16;
/// The least that a worker needs.
const LEAST: u64 = 1 << 20;

impl Memory {
    /// None if it cannot be read.
    pub fn read() -> Option<Memory> {
        Memory::below(Path::new("/"))
    }

    #[cfg(test)]
    pub fn of(available: u64, total: u64) -> Memory {
        Memory { available, total }
    }

    fn below(root: &Path) -> Option<Memory> {
        let machine = Memory {
            available: meminfo(root, "MemAvailable:")?,
            total: meminfo(root, "MemTotal:")?,
        };
        let cgroups = cgroup(root);
        let cgroups = cgroups.iter().filter_map(|dir| {
            let total = memory_limit(dir)?;
            let used =
                number(dir, "memory.current").or_else(|| number(dir, "memory.usage_in_bytes"))?;
            // The kernel reclaims file pages before it refuses memory.
            let files = stat(dir, "inactive_file").unwrap_or_default();
            Some(Memory {
                available: total.saturating_sub((used as u64).saturating_sub(files)),
                total,
            })
        });
        cgroups
            .chain([machine])
            .min_by_key(|memory| memory.available)
    }

    /// How many of `added` processes of this size fit, next to what others are about to use.
    pub fn fits(&self, added: usize, each: u64, promised: u64) -> usize {
        let free = self.available.saturating_sub(self.total / RESERVE);
        let free = free.saturating_sub(promised);
        usize::try_from(free / each.max(LEAST))
            .unwrap_or(added)
            .min(added)
    }
}

/// The memory of a process, of which shared pages count in proportion. None if it may not be read.
pub fn proportional_size(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    kibibytes(&text, "Pss:")
}

/// The resident memory of a process without files and shared memory. Pages that it shares with its
/// parent since the fork count in full. Processes of other users can be read, too.
pub fn anonymous_size(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = text.split(' ').skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(resident.saturating_sub(shared) * surus_sys::process::page_size())
}

/// How many processes of this machine the kernel has killed for lack of memory.
pub fn oom_kills() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?;
    count.trim().parse().ok()
}

fn stat(directory: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(directory.join("memory.stat")).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(key, _)| *key == name)?;
    value.parse().ok()
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

fn meminfo(root: &Path, name: &str) -> Option<u64> {
    kibibytes(
        &std::fs::read_to_string(root.join("proc/meminfo")).ok()?,
        name,
    )
}

/// The bytes in the line `name 12 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
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
        let machine = Machine::below(root.path());
        assert_eq!(machine.cpus, 0.5);
        assert_eq!(machine.memory, Some(512 << 20));
        assert_eq!(machine.worker_count(), 2);
    }

    #[test]
    fn memory_for_more_workers_is_the_rest_of_the_tightest_limit() {
        let meminfo = "MemTotal: 16777216 kB\nMemFree: 9 kB\nMemAvailable: 8388608 kB\n";
        let machine = root(&[("proc/meminfo", meminfo)]);
        let memory = Memory::below(machine.path()).unwrap();
        // 8 GiB without a sixteenth of 16 GiB.
        assert_eq!(memory.fits(1000, 64 << 20, 0), 112);
        assert_eq!(memory.fits(3, 64 << 20, 0), 3);
        assert_eq!(memory.fits(1000, 64 << 20, 7 << 30), 0);
        assert_eq!(memory.fits(1000, 64 << 20, 6 << 30), 16);
        let limited = root(&[
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/meminfo", meminfo),
            ("sys/fs/cgroup/a/memory.max", "536870912\n"),
            ("sys/fs/cgroup/a/memory.current", "402653184\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 1\ninactive_file 100663296\n",
            ),
        ]);
        let memory = Memory::below(limited.path()).unwrap();
        // 512 - 384 + 96 MiB without 32 MiB.
        assert_eq!(memory.fits(1000, 64 << 20, 0), 3);
        assert_eq!(memory.fits(1000, 512 << 20, 0), 0);
        assert!(
            memory.fits(1000, 0, 0) <= 192,
            "a size that is not known yet"
        );
        let none = root(&[("proc/meminfo", "MemTotal: 16777216 kB\n")]);
        assert_eq!(Memory::below(none.path()), None);
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
        let machine = Machine::below(root.path());
        assert_eq!(machine.cpus, 0.29);
        assert_eq!(machine.memory, Some(1 << 30));
    }

    #[test]
    fn little_memory_reduces_workers() {
        assert_eq!(
            Machine {
                cpus: 8.0,
                is_limited: false,
                memory: Some(1 << 30)
            }
            .worker_count(),
            8
        );
        assert_eq!(
            Machine {
                cpus: 8.0,
                is_limited: false,
                memory: Some(64 << 30)
            }
            .worker_count(),
            16
        );
        assert_eq!(
            Machine {
                cpus: 0.1,
                is_limited: false,
                memory: Some(64 << 20)
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
            memory: None,
        };
        assert!(!machine(1.0, false).has_spare());
        assert!(machine(2.0, false).has_spare());
        assert!(!machine(2.0, true).has_spare());
        assert!(machine(4.0, true).has_spare());
    }
}
