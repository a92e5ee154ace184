//! Tests what failures of a running `surus` may cost.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod auto_files;
mod booted;
mod boots;
mod calls;
mod children;
mod claims;
mod clients;
mod ends;
mod held;
mod lacking;
mod left;
mod limit;
mod locks;
mod log;
mod mappings;
mod opcache;
mod preload;
mod process_interference;
mod processes;
mod putting_back;
mod random_writes;
mod regex;
mod replaced;
mod rest;
mod rights;
mod rings;
mod scripts;
mod shared_memory;
mod site;
mod slow;
mod snapshot;
mod start;
mod swapped;
