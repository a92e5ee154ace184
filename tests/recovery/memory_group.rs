//! A control group that limits the memory of processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A memory control group of its own, of either version of the interface.
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// None if it cannot be created. `name` is the test's.
    pub fn with_limit(name: &str, bytes: u64) -> Option<MemoryGroup> {
        let name = format!("surus-test-{name}-{}", std::process::id());
        let groups = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        groups.iter().find_map(|(root, limit)| {
            let group = Path::new(root).join(&name);
            std::fs::create_dir(&group).ok()?;
            let group = MemoryGroup(group);
            std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }

    pub fn take(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// A command that becomes `surus` in the group.
    pub fn surus(&self) -> Command {
        let mut shell = Command::new("sh");
        let enter = format!(
            "echo $$ >{}/cgroup.procs && exec \"$0\" \"$@\"",
            self.0.display()
        );
        shell.args(["-c", &enter, env!("CARGO_BIN_EXE_surus")]);
        shell
    }

    /// How many of its processes the kernel has killed.
    pub fn oom_kills(&self) -> u32 {
        let files = ["memory.events", "memory.oom_control"];
        let mut texts = files
            .iter()
            .map(|file| std::fs::read_to_string(self.0.join(file)));
        let text = texts.find_map(Result::ok).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.unwrap().parse().unwrap()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A group can be removed shortly after its last process has exited.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
