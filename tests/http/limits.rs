//! Tests the bounds of what PHP and clients make Surus keep, and its memory after a peak.

mod compress;
mod core_dumps;
mod headers;
mod idle;
mod log;
mod memory;
mod slow_disk;
mod stalled;
mod stalled_http3;
mod tight;
mod unread_http1;
mod unread_http2;
