//! Maps a worker's wait status to the reason of its exit: a metric label and a remedy.

use surus_sys::process;

/// Why a worker exited.
pub struct ExitReason {
    /// The label in metrics.
    pub label: &'static str,
    /// The exit is part of normal operation.
    pub expected: bool,
    /// How the application can avoid the replacement, if the worker was replaced in time.
    pub remedy: Option<&'static str>,
}

/// Why Surus killed a worker.
#[derive(Debug, Clone, Copy)]
pub enum Killed {
    /// It did not end its event in time.
    Timeout,
    /// It sent an invalid record.
    ProtocolError,
    /// It was stopped (SIGSTOP).
    Suspended,
}

/// Labels of exits that should never happen.
pub const UNEXPECTED: [&str; 9] = [
    "signal",
    "unexpected_exit",
    "boot_failed",
    "setup_failed",
    "protocol_error",
    "suspended",
    "verify_failed",
    "timeout",
    "no_descriptors",
];

/// The master process has killed it in a restart of all workers. Counted like a refresh of the PCRE
/// cache: planned, and without loss.
pub const RESTARTED: ExitReason = ExitReason {
    label: "pcre_refresh",
    expected: true,
    remedy: None,
};

/// Determines the reason from the wait status. The numbers are those of sapi/base/exit_status.h.
pub fn classify(wait_status: i32, killed: Option<Killed>) -> ExitReason {
    let status = process::exit_status(wait_status);
    if let Some((_, label, remedy)) = REPLACED.iter().find(|(known, ..)| Some(*known) == status) {
        return ExitReason {
            label,
            expected: true,
            remedy: Some(remedy),
        };
    }
    let (label, expected) = match status {
        Some(0) => ("drained", true),
        Some(100) => ("max_requests", true),
        Some(101) => ("max_memory", true),
        Some(102) => ("setup_failed", false),
        Some(103) => ("interrupted", true),
        Some(104) => ("single_use", true),
        Some(105) => ("boot_failed", false),
        Some(106) => ("fatal_error", true),
        Some(108) => ("verify_failed", false),
        Some(109) => ("pcre_refresh", true),
        Some(120) => ("no_descriptors", false),
        Some(121) => ("script_returned", true),
        Some(122) => ("priority_changed", true),
        Some(123) => ("scaled_down", true),
        Some(124) => ("boot_outdated", true),
        Some(_) => ("unexpected_exit", false),
        None => match killed {
            Some(Killed::Timeout) => ("timeout", false),
            Some(Killed::ProtocolError) => ("protocol_error", false),
            Some(Killed::Suspended) => ("suspended", false),
            None => ("signal", false),
        },
    };
    ExitReason {
        label,
        expected,
        remedy: (label == "no_descriptors").then_some(
            "close files and connections at the end of a request, or raise the limit of open files \
             (LimitNOFILE)",
        ),
    }
}

/// Why a worker could not be rewound and was replaced: exit status, metric label, remedy.
/// docs/reference/rewind.md has more.
const REPLACED: [(i32, &str, &str); 11] = [
    (107, "replaced", "see the line of the worker that says why"),
    (
        110,
        "replaced_signals",
        "set signal handlers and block signals in the boot, before surus_serve(), and read what is \
         blocked; an alarm that a request sets always costs a replacement",
    ),
    (
        111,
        "replaced_process",
        "wait for child processes before the answer ends (proc_close, pcntl_wait), or give such \
        work to a queue",
    ),
    (
        112,
        "replaced_thread",
        "an extension has left a thread running: a profiler or tracer belongs to `worker` or \
         `classic`, or has to be off here; a look-up of a host name that curl gave up needs an \
         address, or more time",
    ),
    (
        113,
        "replaced_identity",
        "change user, group, root, session or namespace in the boot, before surus_serve(); or \
        route such requests to `classic`",
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
        "an extension has changed memory that it had mapped in the boot: use it first in the \
         handler, or route such requests to `fork` or `classic`",
    ),
    (
        119,
        "replaced_memory",
        "a request took very much memory: lower memory_limit, or route it to `classic`",
    ),
];

#[cfg(test)]
mod tests {
    use super::{Killed, REPLACED, UNEXPECTED, classify};

    #[test]
    fn every_reason_is_documented() {
        let text = include_str!("../../../docs/reference/metrics.md");
        let exits = (0..256).map(|status| classify(status << 8, None));
        let kills = [Killed::Timeout, Killed::ProtocolError, Killed::Suspended].map(Some);
        let kills = kills
            .into_iter()
            .chain([None])
            .map(|killed| classify(9, killed));
        for why in exits.chain(kills) {
            assert_eq!(
                !why.expected,
                UNEXPECTED.contains(&why.label),
                "{}",
                why.label
            );
            let is_known = text.contains(&format!("`{}`", why.label));
            assert!(
                is_known || why.label.starts_with("replaced_"),
                "{}",
                why.label
            );
        }
    }

    #[test]
    fn replacement_has_a_remedy_and_a_crash_has_none() {
        assert!(classify(120 << 8, None).remedy.is_some());
        for crash in [classify(1 << 8, None), classify(11, None)] {
            assert!(crash.remedy.is_none(), "{}", crash.label);
        }
    }

    #[test]
    fn every_reason_for_a_replacement_is_documented() {
        let text = include_str!("../../../docs/reference/rewind.md");
        for (status, label, _) in REPLACED {
            assert!(
                text.contains(&format!("| `{label}` | {status} |")),
                "{label}"
            );
        }
    }
}
