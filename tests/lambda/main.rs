//! `surus lambda`: as a runtime, in the emulator, as a package, and what it says of templates.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

#[allow(dead_code)]
#[path = "../apps"]
mod apps {
    pub mod blog;
    pub mod client;
    pub mod database;
    pub mod examples;
    pub mod laravel_installed;
    pub mod site;
}

#[allow(dead_code)]
#[path = "../php/oracle"]
mod oracle {
    pub mod answer;
    pub mod compare;
    pub mod corpus;
    pub mod http;
    pub mod request;
    pub mod watch;
}

mod batches;
mod check;
#[cfg(feature = "deploy")]
mod deploy;
mod dev;
mod emulator;
mod events;
mod package;
mod profile;
mod runtime;
mod simulator;
mod sqs;
mod templates;
