//! Free ports for servers that must know theirs before they start.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A port of 127.0.0.1 on which nothing listens. Linux gives it to no connection and to no socket
/// without a port meanwhile (`ip_local_port_range`), and no other test of this process gets it.
pub fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let tried = TRIED.fetch_add(1, Relaxed);
        let port = 20_000 + (std::process::id() + tried * 101) % 10_000;
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// `127.0.0.1:PORT` with such a port.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}
