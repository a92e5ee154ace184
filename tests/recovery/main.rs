//! Tests what failures of a running `surus` may cost.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod auto_files;
mod boot_state;
mod boot_time;
mod booted;
mod boots;
mod children;
mod claims;
mod clients;
mod cpu_time_limit;
mod database_links;
mod front_user_ini;
mod growth;
mod idle_cpu;
mod includes;
mod kept_by_worker;
mod last_results;
mod locks;
mod log;
mod mappings;
mod memory_group;
mod missing_kernel_features;
mod opcache;
mod process_interference;
mod processes;
mod random_writes;
mod read_only;
mod records;
mod regex;
mod replaced;
mod request_bodies;
mod restore_failures;
mod revalidation;
mod rights;
mod rings;
mod same_size_changes;
mod scripts;
mod service_manager;
mod shared_memory;
mod shutdown;
mod site;
mod slow;
mod slow_requests;
mod snapshot;
mod start;
mod sub_directory;
mod syscall_watch;
mod warm_up_trials;
mod warm_ups;
mod worker_count;
