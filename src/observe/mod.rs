//! Logs, metrics and status of Surus.

pub mod job_metrics;
pub mod log;
pub mod log_context;
pub mod log_format;
pub mod log_writer;
pub mod message;
pub mod metrics;
pub mod php_log;
pub mod rate_limit;
pub mod reopen;
pub mod status;
pub mod system;
