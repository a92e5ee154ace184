//! Queues and schedules: `surus work`.
//!
//! A source takes jobs from a broker under a lease. The scheduler decides which job begins next, a
//! format makes it an [`Event`](crate::event::Event) for PHP and understands the result. [`front`]
//! drives them, extends the leases, and settles each job once its disposition is known.

pub mod backoff;
pub mod command;
pub mod crash_counts;
pub mod failed_jobs;
mod format;
pub mod front;
pub mod job;
pub mod messenger;
pub mod operation;
mod rate;
pub mod roadrunner;
pub mod runner;
mod scheduler;
pub mod settings;
pub mod source;
pub mod sources;

pub use rate::JobRate;
pub use scheduler::MAX_AHEAD;
pub use settings::{Format, Queue, Schedule, Settings};
