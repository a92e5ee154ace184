//! Bounds of what PHP and clients can make Surus keep, and of its memory after a peak.

mod compress;
mod core_dumps;
mod headers;
mod idle;
mod log;
mod memory;
mod stalled;
mod tight;
