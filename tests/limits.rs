//! Bounds of what PHP and clients can make Surus keep, and of its memory after a peak.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "limits/log.rs"]
mod log;
#[path = "limits/memory.rs"]
mod memory;
#[path = "limits/stalled.rs"]
mod stalled;
