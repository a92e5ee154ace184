//! Tests the bounds of what PHP and clients make Surus keep, and its memory after a peak.

mod compress;
mod core_dumps;
mod headers;
mod idle;
mod log;
pub mod memory;
mod short_bodies;
mod slow_disk;
mod stalled;
mod stalled_http3;
mod tight;
mod unread_http1;
mod unread_http2;

use crate::common::Surus;

/// Serves one page on `classic` with limits of time that no client reaches. It buffers headers and
/// bodies for clients that do not read.
fn serve_patiently(page: &str, more: &[(&str, &str)]) -> (tempfile::TempDir, Surus) {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    std::fs::write(dir.path().join("page.php"), page).unwrap();
    let mut settings = vec![
        ("SURUS_ACCESS_LOG_FORMAT", "off"),
        ("SURUS_ENGINE_WORKERS", "2"),
        ("SURUS_ENGINE_QUEUE_TIMEOUT", "10m"),
        ("SURUS_ENGINE_QUEUE_INTERVAL", "10m"),
        ("SURUS_HTTP_REQUEST_TIMEOUT", "10m"),
        ("SURUS_HTTP_SEND_TIMEOUT", "10m"),
    ];
    settings.extend(more);
    let surus = Surus::spawn(dir.path(), &["--engine", "classic"], &settings).unwrap();
    (dir, surus)
}
