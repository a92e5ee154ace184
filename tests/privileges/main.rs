//! Tests the rights of the process that reads requests, seen from `/proc`, and what a compromised
//! front end can do with them.
//!
//! This program is its own subject: started with `HOSTILE_SURUS_FRONT`, it is a keeper whose front
//! end is the attacker below. It has no test harness, because a keeper must have one thread when it
//! forks.
#![allow(clippy::unwrap_used)]

mod answers;
#[path = "../common/mod.rs"]
mod common;

mod exchanged;
mod failures;
mod hostile;
mod processes;
mod server;
mod signals;
mod trust;

use std::process::ExitCode;

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    (
        "front_of_root_has_no_privileges",
        processes::front_of_root_has_no_privileges,
    ),
    (
        "restrictions_that_are_switched_off_are_off_and_said_so",
        processes::restrictions_that_are_switched_off_are_off_and_said_so,
    ),
    (
        "front_user_is_the_configured_one_and_root_is_refused",
        processes::front_user_is_the_configured_one_and_root_is_refused,
    ),
    (
        "dead_front_is_replaced_and_its_php_ends",
        processes::dead_front_is_replaced_and_its_php_ends,
    ),
    (
        "killed_keeper_leaves_no_process",
        processes::killed_keeper_leaves_no_process,
    ),
    (
        "server_of_a_user_is_one_process",
        processes::server_of_a_user_is_one_process,
    ),
    (
        "files_that_only_php_may_read_are_served",
        answers::files_that_only_php_may_read_are_served,
    ),
    (
        "project_that_the_front_may_not_enter_is_served_and_reloaded",
        answers::project_that_the_front_may_not_enter_is_served_and_reloaded,
    ),
    (
        "every_engine_answers_is_interrupted_and_reloads_through_the_keeper",
        answers::every_engine_answers_is_interrupted_and_reloads_through_the_keeper,
    ),
    (
        "php_fpm_that_the_front_may_not_connect_to_is_connected_to_by_the_keeper",
        answers::php_fpm_that_the_front_may_not_connect_to_is_connected_to_by_the_keeper,
    ),
    ("quit_drains", signals::quit_drains),
    ("usr2_reloads", signals::usr2_reloads),
    (
        "usr1_reopens_renamed_logs",
        signals::usr1_reopens_renamed_logs,
    ),
    (
        "process_1_reaps_orphans_and_ends_by_a_signal",
        signals::process_1_reaps_orphans_and_ends_by_a_signal,
    ),
    (
        "process_1_that_is_not_root_reaps_orphans_and_passes_signals_on",
        signals::process_1_that_is_not_root_reaps_orphans_and_passes_signals_on,
    ),
    (
        "signals_that_the_starter_ignored_or_blocked_work",
        signals::signals_that_the_starter_ignored_or_blocked_work,
    ),
    (
        "opener_that_dies_or_stops_is_replaced",
        failures::opener_that_dies_or_stops_is_replaced,
    ),
    (
        "front_that_hangs_is_killed_after_the_grace_period",
        failures::front_that_hangs_is_killed_after_the_grace_period,
    ),
    (
        "reload_signals_during_the_start_of_a_front_do_not_end_it",
        failures::reload_signals_during_the_start_of_a_front_do_not_end_it,
    ),
    (
        "descriptors_of_the_starter_do_not_reach_the_front",
        failures::descriptors_of_the_starter_do_not_reach_the_front,
    ),
    (
        "root_of_a_namespace_without_other_users_is_one_process",
        failures::root_of_a_namespace_without_other_users_is_one_process,
    ),
    (
        "check_tests_the_spool_as_the_user_of_the_front",
        failures::check_tests_the_spool_as_the_user_of_the_front,
    ),
    (
        "socket_exchanged_for_a_link_at_its_creation_changes_no_other_file",
        exchanged::socket_exchanged_for_a_link_at_its_creation_changes_no_other_file,
    ),
    (
        "document_root_exchanged_for_a_link_that_php_may_not_follow_is_refused",
        exchanged::document_root_exchanged_for_a_link_that_php_may_not_follow_is_refused,
    ),
    (
        "socket_below_a_link_of_another_user_is_refused",
        exchanged::socket_below_a_link_of_another_user_is_refused,
    ),
    (
        "socket_below_directories_of_another_user_is_made_there",
        exchanged::socket_below_directories_of_another_user_is_made_there,
    ),
    (
        "directory_exchanged_for_a_link_at_the_bind_makes_no_socket_elsewhere",
        exchanged::directory_exchanged_for_a_link_at_the_bind_makes_no_socket_elsewhere,
    ),
    (
        "configuration_that_php_may_change_is_refused_to_root",
        trust::configuration_that_php_may_change_is_refused_to_root,
    ),
    (
        "program_or_ini_file_that_php_may_change_is_refused_to_root",
        trust::program_or_ini_file_that_php_may_change_is_refused_to_root,
    ),
    (
        "settings_of_php_are_not_kept_where_another_user_can_exchange_them",
        trust::settings_of_php_are_not_kept_where_another_user_can_exchange_them,
    ),
    (
        "php_fpm_behind_a_link_of_another_user_is_not_connected_to_by_root",
        trust::php_fpm_behind_a_link_of_another_user_is_not_connected_to_by_root,
    ),
    (
        "compromised_front_cannot_say_which_functions_are_disabled",
        hostile::command_line::compromised_front_cannot_say_which_functions_are_disabled,
    ),
    (
        "compromised_front_reaches_nothing",
        hostile::compromised_front_reaches_nothing,
    ),
    (
        "compromised_front_without_landlock_and_seccomp_reaches_nothing",
        hostile::compromised_front_without_landlock_and_seccomp_reaches_nothing,
    ),
];

fn main() -> ExitCode {
    if let Some(project) = std::env::var_os("HOSTILE_SURUS_FRONT") {
        return hostile::be_keeper(project.as_ref());
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let list = words.iter().any(|word| word == "--list");
    let filters: Vec<_> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let mut failed = Vec::new();
    for (name, test) in TESTS {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        if list {
            println!("{name}: test");
            continue;
        }
        println!("test {name} ...");
        if std::panic::catch_unwind(test).is_err() {
            failed.push(*name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::FAILURE
}
