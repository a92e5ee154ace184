//! Tests the engines: the contract of all, and that PHP behaves in Surus as elsewhere.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod direct;
mod engine_contract;
mod oracle;
mod phpt;
mod pools;
mod random;
mod roadrunner;
mod scaling;
