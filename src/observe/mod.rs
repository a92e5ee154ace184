//! Logs, metrics and status of Surus.

pub mod log;
pub mod machine;
pub mod message;
pub mod metrics;
pub mod named;
pub mod php;
pub mod rarely;
pub mod reopen;
pub mod status;
pub mod writer;
