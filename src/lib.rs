//! Library of the `surus` program, which runs PHP applications. ARCHITECTURE.md is the map.
#![forbid(unsafe_code)]

pub mod app;
#[cfg(any(feature = "secrets", feature = "sqs"))]
pub mod aws;
pub mod budget;
pub mod busy_poll;
pub mod cli;
pub mod config;
pub mod connect;
pub mod deploy;
pub mod emulator;
pub mod engine;
pub mod engines;
pub mod event;
pub mod fronts;
pub mod keeper;
pub mod launcher;
pub mod observe;
pub mod package;
pub mod private_files;
pub mod profile;
pub mod spool;
pub mod units;
pub mod warmer;
