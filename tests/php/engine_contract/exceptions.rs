//! The engines that are exempt from a case of the contract, and why.

use surus::engines::Entry;

/// What workers of RoadRunner do otherwise, as under RoadRunner, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("exit_is_an_answer", EXIT),
    ("what_an_exit_ends_is_the_script_and_not_the_process", EXIT),
    (
        "fatal_errors_and_uncaught_exceptions_answer_500_and_leave_a_usable_worker",
        EXIT,
    ),
    (
        "dropping_the_body_aborts_the_script_at_its_next_write",
        ABORT,
    ),
    ("ignore_user_abort_lets_the_script_end_its_work", ABORT),
    (
        "a_script_ends_at_its_next_write_when_its_client_has_gone",
        ABORT,
    ),
    ("an_exception_handler_ends_too", ABORT),
    (
        "a_shutdown_function_ends_and_those_behind_it_do_not_begin",
        ABORT,
    ),
    ("destructors_run_when_the_client_has_gone", ABORT),
    ("who_ignores_that_the_client_has_gone_runs_on", ABORT),
    ("a_session_is_written_when_the_client_has_gone", ABORT),
    ("a_function_of_phps_own_that_never_ends_is_cut_off", ABORT),
    ("a_load_that_ends_amid_answers_costs_no_process", ABORT),
    (
        "a_boot_that_fails_says_what_php_said_and_keeps_the_old_one",
        PRELOAD,
    ),
    ("a_file_that_changes_is_seen_and_kept_compiled", CODE),
];

const CODE: &str = "OPcache of command-line PHP looks for changed files once per process";
const EXIT: &str = "exit() and fatal errors end the process: the script is the worker's loop";
const ABORT: &str = "a stop frame tells the worker that its client has gone; PHP does not know";
const PRELOAD: &str = "command-line PHP preloads only with opcache.enable_cli";

pub fn is_exempt(entry: &Entry, name: &str) -> bool {
    let exception = EXCEPTIONS.iter().find(|(case, _)| *case == name);
    let exception = exception.filter(|_| !entry.runs_scripts());
    if let Some((_, why)) = exception {
        eprintln!("not on {}: {why}", entry.name);
    }
    exception.is_some()
}
