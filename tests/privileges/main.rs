//! Tests the rights of the front end, seen from `/proc`, and what a compromised front end can do
//! with them.
//!
//! This program is also the attacker: started with `HOSTILE_SURUS_FRONT`, it is a keeper with a
//! hostile front end. It has no test harness, because a keeper must be single-threaded when it
//! forks.
#![allow(clippy::unwrap_used)]

mod answers;
mod capabilities;
#[path = "../common/mod.rs"]
mod common;

mod conditions;
mod configured;
mod exchanged;
mod failures;
mod fifos;
mod fpm_paths;
mod hostile;
mod keys;
mod processes;
mod quic;
mod server;
mod siblings;
mod signals;
mod sites;
mod trust;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    (
        "memory_of_workers_cannot_be_opened_by_other_workers",
        siblings::memory_of_workers_cannot_be_opened_by_other_workers,
    ),
    (
        "limits_of_opener_and_master_process_cannot_be_changed_by_php",
        siblings::limits_of_opener_and_master_process_cannot_be_changed_by_php,
    ),
    (
        "front_end_started_by_root_has_no_privileges",
        processes::front_end_started_by_root_has_no_privileges,
    ),
    (
        "disabled_restrictions_are_off_and_logged",
        processes::disabled_restrictions_are_off_and_logged,
    ),
    (
        "http_user_is_applied_and_root_is_rejected",
        processes::http_user_is_applied_and_root_is_rejected,
    ),
    (
        "front_end_runs_as_www_data_if_neither_surus_exists_nor_php_runs_as_www_data",
        processes::front_end_runs_as_www_data_if_neither_surus_exists_nor_php_runs_as_www_data,
    ),
    (
        "exited_front_end_is_replaced_and_its_php_exits",
        processes::exited_front_end_is_replaced_and_its_php_exits,
    ),
    (
        "confined_front_end_speaks_http_3",
        quic::confined_front_end_speaks_http_3,
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
        "files_readable_only_by_php_are_served",
        answers::files_readable_only_by_php_are_served,
    ),
    (
        "project_unreadable_to_the_front_end_is_served_and_reloaded",
        answers::project_unreadable_to_the_front_end_is_served_and_reloaded,
    ),
    (
        "every_engine_serves_times_out_and_reloads_through_the_keeper",
        answers::every_engine_serves_times_out_and_reloads_through_the_keeper,
    ),
    (
        "php_fpm_unreachable_for_the_front_end_is_connected_by_the_keeper",
        answers::php_fpm_unreachable_for_the_front_end_is_connected_by_the_keeper,
    ),
    (
        "key_of_root_is_served_and_unreadable_for_the_front_end",
        keys::key_of_root_is_served_and_unreadable_for_the_front_end,
    ),
    (
        "key_that_php_may_replace_is_rejected",
        keys::key_that_php_may_replace_is_rejected,
    ),
    (
        "sites_run_php_as_their_own_users_and_the_front_end_as_another",
        sites::sites_run_php_as_their_own_users_and_the_front_end_as_another,
    ),
    ("quit_drains", signals::quit_drains),
    (
        "interrupt_of_the_process_group_drains",
        signals::interrupt_of_the_process_group_drains,
    ),
    (
        "repeated_signal_drains_as_one_does",
        signals::repeated_signal_drains_as_one_does,
    ),
    (
        "stray_signals_end_nothing",
        signals::stray_signals_end_nothing,
    ),
    ("usr2_reloads", signals::usr2_reloads),
    (
        "usr1_reopens_renamed_logs",
        signals::usr1_reopens_renamed_logs,
    ),
    (
        "failed_start_leaves_no_socket",
        signals::failed_start_leaves_no_socket,
    ),
    (
        "process_1_reaps_orphans_and_exits_on_a_signal",
        signals::process_1_reaps_orphans_and_exits_on_a_signal,
    ),
    (
        "unprivileged_process_1_reaps_orphans_and_forwards_signals",
        signals::unprivileged_process_1_reaps_orphans_and_forwards_signals,
    ),
    (
        "signals_ignored_or_blocked_by_the_starter_work",
        signals::signals_ignored_or_blocked_by_the_starter_work,
    ),
    (
        "exited_opener_is_replaced_and_a_stopped_one_resumed",
        failures::exited_opener_is_replaced_and_a_stopped_one_resumed,
    ),
    (
        "hanging_front_end_is_killed_after_the_grace_period",
        failures::hanging_front_end_is_killed_after_the_grace_period,
    ),
    (
        "php_of_a_killed_front_end_that_does_not_exit_is_killed",
        failures::php_of_a_killed_front_end_that_does_not_exit_is_killed,
    ),
    (
        "php_that_outlives_its_front_end_is_killed",
        failures::php_that_outlives_its_front_end_is_killed,
    ),
    (
        "reload_signals_during_the_start_do_not_end_the_front_end",
        failures::reload_signals_during_the_start_do_not_end_the_front_end,
    ),
    (
        "inherited_descriptors_do_not_reach_the_front_end",
        failures::inherited_descriptors_do_not_reach_the_front_end,
    ),
    (
        "server_of_root_in_a_namespace_without_other_users_is_one_process",
        failures::server_of_root_in_a_namespace_without_other_users_is_one_process,
    ),
    (
        "check_tests_the_spool_as_the_front_ends_user",
        failures::check_tests_the_spool_as_the_front_ends_user,
    ),
    (
        "socket_replaced_by_a_link_at_its_creation_changes_no_other_file",
        exchanged::socket_replaced_by_a_link_at_its_creation_changes_no_other_file,
    ),
    (
        "document_root_replaced_by_a_link_unreadable_to_php_is_rejected",
        exchanged::document_root_replaced_by_a_link_unreadable_to_php_is_rejected,
    ),
    (
        "socket_below_a_link_of_another_user_is_rejected",
        exchanged::socket_below_a_link_of_another_user_is_rejected,
    ),
    (
        "socket_below_directories_of_another_user_is_created",
        exchanged::socket_below_directories_of_another_user_is_created,
    ),
    (
        "directory_replaced_by_a_link_at_bind_creates_no_socket_elsewhere",
        exchanged::directory_replaced_by_a_link_at_bind_creates_no_socket_elsewhere,
    ),
    (
        "configuration_writable_by_php_is_rejected_for_root",
        trust::configuration_writable_by_php_is_rejected_for_root,
    ),
    (
        "file_of_another_sites_user_is_rejected_for_root",
        trust::file_of_another_sites_user_is_rejected_for_root,
    ),
    (
        "condition_on_a_file_of_php_denies_where_the_front_end_cannot_enter",
        conditions::condition_on_a_file_of_php_denies_where_the_front_end_cannot_enter,
    ),
    (
        "installed_php_is_asked_before_the_front_end_exists",
        sites::installed_php_is_asked_before_the_front_end_exists,
    ),
    (
        "replaceable_configuration_that_names_root_or_programs_is_rejected_for_root",
        trust::replaceable_configuration_that_names_root_or_programs_is_rejected_for_root,
    ),
    (
        "roadrunner_configuration_that_names_root_is_rejected_for_root",
        trust::roadrunner_configuration_that_names_root_is_rejected_for_root,
    ),
    (
        "program_in_a_directory_of_php_is_rejected_for_root",
        trust::program_in_a_directory_of_php_is_rejected_for_root,
    ),
    (
        "configuration_with_secrets_that_others_may_read_is_named",
        trust::configuration_with_secrets_that_others_may_read_is_named,
    ),
    (
        "program_or_ini_file_writable_by_php_is_rejected_for_root",
        trust::program_or_ini_file_writable_by_php_is_rejected_for_root,
    ),
    (
        "bare_program_is_looked_for_in_path_only",
        trust::bare_program_is_looked_for_in_path_only,
    ),
    (
        "php_settings_are_not_stored_where_another_user_can_replace_them",
        trust::php_settings_are_not_stored_where_another_user_can_replace_them,
    ),
    (
        "php_fpm_behind_a_link_of_another_user_is_rejected_for_root",
        trust::php_fpm_behind_a_link_of_another_user_is_rejected_for_root,
    ),
    (
        "root_without_a_needed_capability_is_rejected_with_its_name",
        capabilities::root_without_a_needed_capability_is_rejected_with_its_name,
    ),
    (
        "root_with_the_needed_capabilities_ends_its_processes",
        capabilities::root_with_the_needed_capabilities_ends_its_processes,
    ),
    (
        "every_engine_serves_with_the_capabilities_of_the_systemd_unit",
        capabilities::every_engine_serves_with_the_capabilities_of_the_systemd_unit,
    ),
    (
        "unreadable_directory_of_the_php_ini_is_rejected_with_its_name",
        configured::unreadable_directory_of_the_php_ini_is_rejected_with_its_name,
    ),
    (
        "php_fpm_with_code_of_php_runs_it_without_root",
        configured::php_fpm_with_code_of_php_runs_it_without_root,
    ),
    (
        "keeper_keeps_no_socket_of_an_unprivileged_php_fpm",
        configured::keeper_keeps_no_socket_of_an_unprivileged_php_fpm,
    ),
    (
        "killed_requests_of_a_stopped_php_fpm_hold_no_slot",
        configured::killed_requests_of_a_stopped_php_fpm_hold_no_slot,
    ),
    (
        "variables_of_the_configuration_reach_php_and_no_process_of_root",
        configured::variables_of_the_configuration_reach_php_and_no_process_of_root,
    ),
    (
        "stopped_php_fpm_is_replaced",
        configured::stopped_php_fpm_is_replaced,
    ),
    (
        "replaceable_configuration_runs_no_code_as_root",
        configured::replaceable_configuration_runs_no_code_as_root,
    ),
    (
        "every_process_of_surus_php_runs_as_phps_user",
        configured::every_process_of_surus_php_runs_as_phps_user,
    ),
    (
        "ini_file_unreadable_to_php_is_rejected_with_its_name",
        configured::ini_file_unreadable_to_php_is_rejected_with_its_name,
    ),
    (
        "ini_file_unreadable_to_an_installed_php_is_rejected_with_its_name",
        configured::ini_file_unreadable_to_an_installed_php_is_rejected_with_its_name,
    ),
    (
        "fifo_among_ini_files_does_not_block_the_keeper",
        fifos::fifo_among_ini_files_does_not_block_the_keeper,
    ),
    (
        "fifo_named_as_a_file_is_rejected_by_root",
        fifos::fifo_named_as_a_file_is_rejected_by_root,
    ),
    (
        "fifo_required_by_the_script_does_not_block_the_start",
        fifos::fifo_required_by_the_script_does_not_block_the_start,
    ),
    (
        "php_fpm_with_a_log_of_php_writes_no_file_of_root",
        fpm_paths::php_fpm_with_a_log_of_php_writes_no_file_of_root,
    ),
    (
        "php_fpm_with_paths_of_root_stays_root",
        fpm_paths::php_fpm_with_paths_of_root_stays_root,
    ),
    (
        "compromised_front_end_cannot_change_the_disabled_functions",
        hostile::command_line::compromised_front_end_cannot_change_the_disabled_functions,
    ),
    (
        "compromised_front_end_cannot_start_probes_without_end",
        hostile::command_line::compromised_front_end_cannot_start_probes_without_end,
    ),
    (
        "compromised_front_end_reaches_nothing",
        hostile::compromised_front_end_reaches_nothing,
    ),
    (
        "compromised_front_end_without_landlock_and_seccomp_reaches_nothing",
        hostile::compromised_front_end_without_landlock_and_seccomp_reaches_nothing,
    ),
];

fn main() -> ExitCode {
    if let Some(project) = std::env::var_os("HOSTILE_SURUS_FRONT") {
        return hostile::be_keeper(project.as_ref());
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<_> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let chosen = |(name, _): &&Test| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    };
    let tests: Vec<_> = TESTS.iter().filter(chosen).collect();
    if words.iter().any(|word| word == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let failed = run(&tests);
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::FAILURE
}

/// Runs `RUST_TEST_THREADS` tests at once, as the test harness does; returns the names of those
/// that failed.
fn run(tests: &[&Test]) -> Vec<&'static str> {
    let threads = std::env::var("RUST_TEST_THREADS").ok();
    let threads = threads
        .and_then(|threads| threads.parse().ok())
        .unwrap_or(2);
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, test)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let passed = std::panic::catch_unwind(test).is_ok();
                    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
                    if !passed {
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap()
}
