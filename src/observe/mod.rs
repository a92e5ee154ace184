//! Logs, metrics and status of Surus.

pub mod acme_metrics;
pub mod activity;
pub mod bounded;
mod engine_label;
pub mod first_lines;
pub mod job_metrics;
mod journal;
pub mod latencies;
pub mod log;
pub mod log_context;
pub mod log_format;
pub mod log_writer;
pub mod message;
pub mod metrics;
pub mod php_log;
pub mod printable;
pub mod rate_limit;
pub mod reopen;
pub mod scaling_metrics;
pub mod service_manager;
pub mod site_metrics;
pub mod slowest;
pub mod snapshot;
pub mod status;
pub mod system;
pub mod trace_metrics;
pub mod traces;
