//! Why has a worker ended?

use surus_sys::process;

/// Why a worker ended.
pub struct Why {
    /// As metrics name it.
    pub label: &'static str,
    /// It ended as it should.
    pub expected: bool,
    /// What spares the application a replaced worker.
    pub remedy: Option<&'static str>,
}

/// Why we have killed a worker.
#[derive(Debug, Clone, Copy)]
pub enum Killed {
    /// It did not end its event.
    Late,
    /// It said what no worker says.
    Broken,
    /// Somebody has stopped it.
    Suspended,
}

/// Reasons for which no worker should end.
pub const WRONG: [&str; 9] = [
    "signal",
    "exit",
    "boot",
    "setup",
    "broken",
    "suspended",
    "differs",
    "timeout",
    "no_descriptors",
];

/// So that another takes its place.
pub const RENEWED: Why = Why {
    label: "renewed",
    expected: true,
    remedy: None,
};

/// From its wait status; the numbers are those of sapi/base/exit_status.h.
pub fn of(wait_status: i32, killed: Option<Killed>) -> Why {
    let status = process::exit_status(wait_status);
    if let Some((_, label, remedy)) = REPLACED.iter().find(|(known, ..)| Some(*known) == status) {
        return Why {
            label,
            expected: true,
            remedy: Some(remedy),
        };
    }
    let (label, expected) = match status {
        Some(0) => ("drained", true),
        Some(100) => ("max_events", true),
        Some(101) => ("max_memory", true),
        Some(102) => ("setup", false),
        Some(103) => ("stopped", true),
        Some(104) => ("served", true),
        Some(105) => ("boot", false),
        Some(106) => ("failed", true),
        Some(108) => ("differs", false),
        Some(109) => ("renewed", true),
        Some(120) => ("no_descriptors", false),
        Some(121) => ("ended", true),
        Some(_) => ("exit", false),
        None => match killed {
            Some(Killed::Late) => ("timeout", false),
            Some(Killed::Broken) => ("broken", false),
            Some(Killed::Suspended) => ("suspended", false),
            None => ("signal", false),
        },
    };
    Why {
        label,
        expected,
        remedy: None,
    }
}

/// Why a worker could not be rewound and was replaced: exit status, as metrics name it, and what to
/// do about it. In more words in docs/rewind.md.
const REPLACED: [(i32, &str, &str); 11] = [
    (107, "replaced", "see the line of the worker that says why"),
    (
        110,
        "replaced_signals",
        "set signal handlers and block signals in the boot, before surus_serve(), and read what is blocked; an alarm that a request \
         sets always costs a replacement",
    ),
    (
        111,
        "replaced_process",
        "wait for child processes before the answer ends (proc_close, pcntl_wait), or give such work to a queue",
    ),
    (
        112,
        "replaced_thread",
        "an extension has left a thread running: a profiler or tracer belongs to `worker` or `classic`, or has to be off here; a \
         look-up of a host name that curl gave up needs an address, or more time",
    ),
    (
        113,
        "replaced_identity",
        "change user, group, root, session or namespace in the boot, before surus_serve(); or route such requests to `classic`",
    ),
    (
        114,
        "replaced_limits",
        "set priority and limits in the boot, before surus_serve()",
    ),
    (
        115,
        "replaced_native",
        "load extensions in php.ini; route requests that use FFI to `fork` or `classic`",
    ),
    (
        116,
        "replaced_descriptor",
        "leave open in the handler what the boot has opened, or open it in the handler",
    ),
    (
        117,
        "replaced_directory",
        "boot in a working directory that is not removed",
    ),
    (
        118,
        "replaced_mappings",
        "an extension has changed memory that it had mapped in the boot: use it first in the handler, or route such requests to \
         `fork` or `classic`",
    ),
    (
        119,
        "replaced_memory",
        "a request took very much memory: lower memory_limit, or route it to `classic`",
    ),
];

#[cfg(test)]
mod tests {
    use super::{Killed, REPLACED, WRONG, of};

    #[test]
    fn every_reason_is_documented() {
        let text = include_str!("../../../docs/observing.md");
        let exits = (0..256).map(|status| of(status << 8, None));
        let kills = [Killed::Late, Killed::Broken, Killed::Suspended].map(Some);
        let kills = kills.into_iter().chain([None]).map(|killed| of(9, killed));
        for why in exits.chain(kills) {
            assert_eq!(!why.expected, WRONG.contains(&why.label), "{}", why.label);
            let is_known = text.contains(&format!("`{}`", why.label));
            assert!(
                is_known || why.label.starts_with("replaced_"),
                "{}",
                why.label
            );
        }
    }

    #[test]
    fn every_reason_for_a_replacement_is_documented() {
        let text = include_str!("../../../docs/rewind.md");
        for (status, label, _) in REPLACED {
            assert!(
                text.contains(&format!("| `{label}` | {status} |")),
                "{label}"
            );
        }
    }
}
