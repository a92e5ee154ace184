//! Gives a sandbox the CPU share and the memory of the function, with control groups of version 1
//! or 2.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};

/// Lambda gives one full CPU per 1,769 MB.
const MB_PER_CPU: u64 = 1769;
/// Microseconds.
const PERIOD: u64 = 100_000;

/// The control groups of one sandbox; removed when dropped.
#[derive(Debug)]
pub struct Cgroup {
    cpu: PathBuf,
    memory: PathBuf,
    is_v2: bool,
    megabytes: u64,
}

impl Cgroup {
    /// Creates the groups below Surus's own. `root` is `/` except in tests.
    pub fn new(root: &Path, megabytes: u64) -> anyhow::Result<Cgroup> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("surus-lambda-{}-{number}", std::process::id());
        let (cpu, memory, is_v2) = find_parents(root)?;
        let group = Cgroup {
            cpu: cpu.join(&name),
            memory: memory.join(&name),
            is_v2,
            megabytes,
        };
        for directory in [&group.cpu, &group.memory] {
            if !directory.is_dir() {
                std::fs::create_dir(directory).with_context(|| {
                    format!("cannot create the control group {}", directory.display())
                })?;
            }
        }
        // The files of a controller are missing when the parent has not enabled it; this write then
        // fails.
        group.set_cpu(None)?;
        let limit = (megabytes << 20).to_string();
        let file = if is_v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        write(&group.memory.join(file), &limit)?;
        Ok(group)
    }

    /// Checks that this machine allows the limits, with a process that only sleeps.
    pub fn try_out(megabytes: u64) -> anyhow::Result<()> {
        let group = Cgroup::new(Path::new("/"), megabytes)?;
        let mut idle = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .context("cannot start sleep(1)")?;
        let tried = group.add(idle.id()).and_then(|()| group.throttle());
        let _ = idle.kill();
        let _ = idle.wait();
        tried
    }

    /// The CPU share for this amount of memory.
    pub fn share(megabytes: u64) -> f64 {
        megabytes as f64 / MB_PER_CPU as f64
    }

    /// Moves a process into the groups; its later children follow.
    pub fn add(&self, pid: u32) -> anyhow::Result<()> {
        write(&self.cpu.join("cgroup.procs"), &pid.to_string())?;
        if self.memory != self.cpu {
            write(&self.memory.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    /// Limits the CPU share from now on.
    pub fn throttle(&self) -> anyhow::Result<()> {
        self.set_cpu(Some(self.megabytes * PERIOD / MB_PER_CPU))
    }

    /// Removes the CPU limit, as during initialization.
    pub fn unthrottle(&self) -> anyhow::Result<()> {
        self.set_cpu(None)
    }

    fn set_cpu(&self, quota: Option<u64>) -> anyhow::Result<()> {
        // The kernel accepts at least one millisecond.
        let quota = quota.map(|quota| quota.max(1000));
        if self.is_v2 {
            let quota = quota.map_or("max".into(), |quota| quota.to_string());
            return write(&self.cpu.join("cpu.max"), &format!("{quota} {PERIOD}"));
        }
        write(&self.cpu.join("cpu.cfs_period_us"), &PERIOD.to_string())?;
        let quota = quota.map_or("-1".into(), |quota| quota.to_string());
        write(&self.cpu.join("cpu.cfs_quota_us"), &quota)
    }

    /// The highest memory use of the processes, in bytes.
    pub fn peak_memory(&self) -> Option<u64> {
        let file = if self.is_v2 {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        let text = std::fs::read_to_string(self.memory.join(file)).ok()?;
        text.trim().parse().ok()
    }

    /// Whether the OOM killer has killed a process of the group.
    pub fn was_out_of_memory(&self) -> bool {
        let file = if self.is_v2 {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = std::fs::read_to_string(self.memory.join(file)).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.strip_prefix("oom_kill "))
            .any(|count| count.trim() != "0")
    }

    /// The file that lists the processes.
    pub fn list(&self) -> PathBuf {
        self.cpu.join("cgroup.procs")
    }
}

impl Cgroup {
    /// Removes the groups after their processes have been killed.
    pub fn remove(&self) {
        // Removal fails while the group has processes. They are killed by now, but the kernel may
        // need a moment to notice.
        for _ in 0..50 {
            let _ = std::fs::remove_dir(&self.cpu);
            let _ = std::fs::remove_dir(&self.memory);
            if !self.cpu.exists() && !self.memory.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Finds where groups for CPU and memory can be created, and whether that is version 2.
fn find_parents(root: &Path) -> anyhow::Result<(PathBuf, PathBuf, bool)> {
    let base = root.join("sys/fs/cgroup");
    let file = root.join("proc/self/cgroup");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}", file.display()))?;
    let of = |controller: &str| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let is_it = controllers.split(',').any(|name| name == controller);
            is_it.then(|| base.join(controllers).join(path.trim_start_matches('/')))
        })
    };
    if let (Some(cpu), Some(memory)) = (of("cpu"), of("memory")) {
        return Ok((cpu, memory, false));
    }
    let path = text.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(path) = path else {
        bail!(
            "{} lists no control group with the cpu and memory controllers",
            file.display()
        );
    };
    // In version 2, a group with processes of its own enables no controllers for its children, so
    // use the nearest ancestor that enables them.
    let own = base.join(path.trim_start_matches('/'));
    let gives = |directory: &Path| {
        let text = std::fs::read_to_string(directory.join("cgroup.subtree_control"));
        text.is_ok_and(|text| {
            ["cpu", "memory"]
                .iter()
                .all(|controller| text.split_whitespace().any(|given| given == *controller))
        })
    };
    let mut place: &Path = &own;
    loop {
        if gives(place) {
            return Ok((place.to_path_buf(), place.to_path_buf(), true));
        }
        match place.parent() {
            Some(parent) if parent.starts_with(&base) => place = parent,
            _ => bail!(
                "no control group above {} enables cpu and memory in cgroup.subtree_control",
                own.display()
            ),
        }
    }
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let written: io::Result<()> = std::fs::write(file, text);
    written.with_context(|| format!("cannot write `{text}` to {}", file.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A directory that looks like the files of a version 2 hierarchy.
    fn machine(own: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        std::fs::write(root.path().join("proc/self/cgroup"), own).unwrap();
        for (name, text) in files {
            let path = root.path().join("sys/fs/cgroup").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn ancestor_that_enables_controllers_selects_version_2() {
        let root = machine(
            "0::/user/me\n",
            &[
                ("user/me/cgroup.subtree_control", ""),
                ("user/cgroup.subtree_control", "cpu memory pids\n"),
            ],
        );
        let group = Cgroup::new(root.path(), 1769).unwrap();
        assert!(
            group
                .cpu
                .starts_with(root.path().join("sys/fs/cgroup/user"))
        );
        let read = |file: &str| std::fs::read_to_string(group.cpu.join(file)).unwrap();
        assert_eq!(read("cpu.max"), "max 100000");
        assert_eq!(read("memory.max"), (1769u64 << 20).to_string());
        group.throttle().unwrap();
        assert_eq!(read("cpu.max"), "100000 100000");
    }

    #[test]
    fn separate_controller_hierarchies_select_version_1() {
        let root = machine(
            "2:memory:/a\n1:cpu,cpuacct:/b\n0::/\n",
            &[("memory/a/x", ""), ("cpu,cpuacct/b/x", "")],
        );
        let group = Cgroup::new(root.path(), 512).unwrap();
        group.throttle().unwrap();
        let read = |file: &str| std::fs::read_to_string(group.cpu.join(file)).unwrap();
        assert_eq!(read("cpu.cfs_quota_us"), "28942");
        group.unthrottle().unwrap();
        assert_eq!(read("cpu.cfs_quota_us"), "-1");
    }

    #[test]
    fn missing_controllers_are_reported_with_the_group() {
        let root = machine("0::/mine\n", &[("mine/cgroup.subtree_control", "pids\n")]);
        let error = Cgroup::new(root.path(), 128).unwrap_err().to_string();
        assert!(error.contains("mine"), "{error}");
        assert!(error.contains("subtree_control"), "{error}");
    }
}
