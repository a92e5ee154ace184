//! Tests that `rewind`, and the other engines that isolate requests, leave nothing behind.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

#[allow(dead_code)]
#[path = "../apps"]
mod apps {
    pub mod client;
    pub mod examples;
    pub mod site;
}

mod extensions;
mod leak_report;
mod leaks;
mod soak;
