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
    /// This machine, as `/proc` and the device tree describe it.
    pub fn this() -> Machine {
        let read = |file: &str| read_to_string(file).unwrap_or_default();
        let kib = field(&read("/proc/meminfo"), "MemTotal").and_then(|text| {
            let number = text.split_whitespace().next()?;
            number.parse::<u64>().ok()
        });
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: cpu(
                &read("/proc/cpuinfo"),
                &read("/sys/firmware/devicetree/base/model"),
            ),
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

/// Designs of Arm (`CPU implementer` 0x41) by their `CPU part`: those of servers in clouds and of
/// common boards.
const ARM_PARTS: [(&str, &str); 11] = [
    ("0xd03", "Cortex-A53"),
    ("0xd05", "Cortex-A55"),
    ("0xd07", "Cortex-A57"),
    ("0xd08", "Cortex-A72"),
    ("0xd0b", "Cortex-A76"),
    ("0xd0c", "Neoverse-N1"),
    ("0xd40", "Neoverse-V1"),
    ("0xd49", "Neoverse-N2"),
    ("0xd4f", "Neoverse-V2"),
    ("0xd84", "Neoverse-V3"),
    ("0xd8e", "Neoverse-N3"),
];

/// The model that QEMU gives every virtual machine of arm64.
const VIRTUAL_BOARD: &str = "linux,dummy-virt";

/// The model of the first CPU. `/proc/cpuinfo` of arm64 rarely names one, only numbers: those of
/// one design, or of several on a board with fast and slow cores. `board` is the model in the
/// device tree, which most servers lack.
fn cpu(cpuinfo: &str, board: &str) -> String {
    if let Some(model) = field(cpuinfo, "model name") {
        return model.to_string();
    }
    let implementer = field(cpuinfo, "CPU implementer");
    let mut parts: Vec<_> = fields(cpuinfo, "CPU part").collect();
    parts.sort_unstable();
    parts.dedup();
    let design = match parts[..] {
        [part] if implementer == Some("0x41") => {
            ARM_PARTS.iter().find(|(number, _)| *number == part)
        }
        _ => None,
    };
    let board = board.trim_matches(['\0', '\n', ' ']);
    match (design, implementer) {
        (Some((_, name)), _) => (*name).to_string(),
        _ if !board.is_empty() && board != VIRTUAL_BOARD => board.to_string(),
        (None, Some(implementer)) if !parts.is_empty() => {
            format!(
                "CPU implementer {implementer}, part {}",
                parts.join(" and ")
            )
        }
        _ => format!("unknown {} CPU", std::env::consts::ARCH),
    }
}

/// The value of the first line that begins with a name.
fn field<'a>(text: &'a str, name: &'a str) -> Option<&'a str> {
    fields(text, name).next()
}

/// The values of all lines that begin with a name.
fn fields<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = text.lines().filter(move |line| line.starts_with(name));
    lines.filter_map(|line| Some(line.split_once(':')?.1.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_named_by_its_model_design_board_or_numbers() {
        let arm = |implementer: &str, part: &str| {
            format!(
                "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\n\
                 CPU implementer\t: {implementer}\nCPU architecture: 8\nCPU variant\t: 0x3\n\
                 CPU part\t: {part}\nCPU revision\t: 1\n"
            )
        };
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\n\
                   model name\t: AMD EPYC 7B13\n";
        let twice = arm("0x41", "0xd0c") + &arm("0x41", "0xd0c");
        let mixed = arm("0x41", "0xd08") + &arm("0x41", "0xd03");
        let unknown = format!("unknown {} CPU", std::env::consts::ARCH);
        for (cpuinfo, board, expected) in [
            (x86.to_string(), "", "AMD EPYC 7B13"),
            (arm("0x41", "0xd0c"), "", "Neoverse-N1"),
            (arm("0x41", "0xd40"), "linux,dummy-virt\0", "Neoverse-V1"),
            (arm("0x41", "0xfff"), "A board\0", "A board"),
            (twice, "A board\0", "Neoverse-N1"),
            // Neither design stands for the machine.
            (mixed.clone(), "A board\0", "A board"),
            (mixed, "", "CPU implementer 0x41, part 0xd03 and 0xd08"),
            (
                arm("0x61", "0x022"),
                "linux,dummy-virt\0",
                "CPU implementer 0x61, part 0x022",
            ),
            // Another implementer counts its parts itself.
            (arm("0x61", "0xd0c"), "", "CPU implementer 0x61, part 0xd0c"),
            (String::new(), "\0", unknown.as_str()),
        ] {
            assert_eq!(cpu(&cpuinfo, board), expected, "{cpuinfo}{board}");
        }
    }
}
