//! What may go wrong with a running `surus`, and what it may cost.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "faults/site.rs"]
mod site;

#[path = "faults/auto_files.rs"]
mod auto_files;
#[path = "faults/booted.rs"]
mod booted;
#[path = "faults/boots.rs"]
mod boots;
#[path = "faults/calls.rs"]
mod calls;
#[path = "faults/children.rs"]
mod children;
#[path = "faults/claims.rs"]
mod claims;
#[path = "faults/clients.rs"]
mod clients;
#[path = "faults/ends.rs"]
mod ends;
#[path = "faults/held.rs"]
mod held;
#[path = "faults/lacking.rs"]
mod lacking;
#[path = "faults/left.rs"]
mod left;
#[path = "faults/limit.rs"]
mod limit;
#[path = "faults/locks.rs"]
mod locks;
#[path = "faults/log.rs"]
mod log;
#[path = "faults/mappings.rs"]
mod mappings;
#[path = "faults/opcache.rs"]
mod opcache;
#[path = "faults/preload.rs"]
mod preload;
#[path = "faults/processes.rs"]
mod processes;
#[path = "faults/putting_back.rs"]
mod putting_back;
#[path = "faults/regex.rs"]
mod regex;
#[path = "faults/replaced.rs"]
mod replaced;
#[path = "faults/rest.rs"]
mod rest;
#[path = "faults/rights.rs"]
mod rights;
#[path = "faults/rings.rs"]
mod rings;
#[path = "faults/scripts.rs"]
mod scripts;
#[path = "faults/shared_memory.rs"]
mod shared_memory;
#[path = "faults/slow.rs"]
mod slow;
#[path = "faults/snapshot.rs"]
mod snapshot;
#[path = "faults/start.rs"]
mod start;
#[path = "faults/swapped.rs"]
mod swapped;
