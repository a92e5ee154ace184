//! Gets and renews certificates from authorities that speak ACME (RFC 8555).
//!
//! An [`Attempt`](attempt::Attempt) is for one domain. The process that owns the state directory
//! prepares it and keeps its results; a process without privileges speaks to the authority; the
//! front end answers the authority's validations. docs/internals/decisions.md says why.
//! Names that no authority can reach have certificates of this machine's own (`local.rs`).

pub mod answers;
pub mod attempt;
mod attempt_files;
mod http_client;
pub mod link;
pub mod local;
mod order;
pub mod schedule;
pub mod settings;
pub mod store;
pub mod unstored;

pub use settings::Settings;
