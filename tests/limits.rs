//! Bounds of what PHP and clients can make Surus keep, and of its memory after a peak.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "limits/compress.rs"]
mod compress;
#[path = "limits/core_dumps.rs"]
mod core_dumps;
#[path = "limits/headers.rs"]
mod headers;
#[path = "limits/idle.rs"]
mod idle;
#[path = "limits/log.rs"]
mod log;
#[path = "limits/memory.rs"]
mod memory;
#[path = "limits/stalled.rs"]
mod stalled;
#[path = "limits/tight.rs"]
mod tight;
