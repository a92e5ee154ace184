//! Describes the machine that measured.

use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

/// Where a number was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// Model of the first CPU.
    pub cpu: String,
    /// Memory in GiB.
    pub memory_gib: u64,
    /// Kernel release.
    pub kernel: String,
}

impl Machine {
    /// This machine, as `/proc` describes it.
    pub fn this() -> Machine {
        let cpu = field("/proc/cpuinfo", "model name");
        let kib = field("/proc/meminfo", "MemTotal").and_then(|text| {
            let number = text.split_whitespace().next()?;
            number.parse::<u64>().ok()
        });
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: cpu.unwrap_or_else(|| "unknown CPU".into()),
            memory_gib: (kib.unwrap_or(0) + (1 << 19)) >> 20,
            kernel: read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| "unknown".into(), |text| text.trim().to_string()),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machine {
            cpus,
            cpu,
            memory_gib,
            kernel,
        } = self;
        write!(f, "{cpus} CPUs ({cpu}), {memory_gib} GiB, Linux {kernel}")
    }
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}
