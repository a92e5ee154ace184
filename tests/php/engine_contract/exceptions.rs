//! The engines that are exempt from a case of the contract, and why.

use surus::engines::EngineEntry;

/// Where workers of RoadRunner behave differently, as under RoadRunner, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("exit_ends_the_response", EXIT),
    ("exit_ends_the_script_and_not_the_process", EXIT),
    (
        "fatal_errors_and_uncaught_exceptions_answer_500_and_leave_a_usable_worker",
        EXIT,
    ),
    ("dropped_body_aborts_the_script_at_its_next_write", ABORT),
    ("ignore_user_abort_lets_the_script_finish", ABORT),
    ("script_of_a_closed_client_ends_at_its_next_write", ABORT),
    ("exception_handler_of_a_closed_client_ends", ABORT),
    (
        "shutdown_function_of_a_closed_client_ends_and_later_ones_are_skipped",
        ABORT,
    ),
    ("destructors_run_when_the_client_has_closed", ABORT),
    ("script_with_ignore_user_abort_continues", ABORT),
    ("session_of_a_closed_client_is_written", ABORT),
    ("endless_internal_function_is_aborted", ABORT),
    ("clients_that_close_during_responses_cost_no_process", ABORT),
    (
        "failed_reload_reports_php_error_and_keeps_the_old_generation",
        PRELOAD,
    ),
    ("changed_file_is_recompiled_and_cached", CODE),
];

const CODE: &str = "OPcache of command-line PHP looks for changed files once per process";
const EXIT: &str = "exit() and fatal errors end the process: the script is the worker's loop";
const ABORT: &str =
    "a stop frame tells the worker that its client has closed the request; PHP does not know";
const PRELOAD: &str = "command-line PHP preloads only with opcache.enable_cli";

pub fn is_exempt(entry: &EngineEntry, name: &str) -> bool {
    let exception = EXCEPTIONS.iter().find(|(case, _)| *case == name);
    let exception = exception.filter(|_| !entry.runs_scripts());
    if let Some((_, why)) = exception {
        eprintln!("not on {}: {why}", entry.name);
    }
    exception.is_some()
}

#[test]
fn every_exception_names_a_case() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/php/engine_contract");
    let files = std::fs::read_dir(directory).unwrap();
    let cases: String = files
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    for (case, _) in EXCEPTIONS {
        assert!(cases.contains(&format!("fn {case}(")), "{case}");
    }
}
