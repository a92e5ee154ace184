//! Tests idle persistent connections.

use super::memory::{MIB, resident, settles_at};
use crate::common::Surus;
use crate::tls::serve;
use crate::wire::{Wire, site};

const SETTINGS: [(&str, &str); 3] = [
    ("SURUS_HTTP_MAX_HEADER_SIZE", "128K"),
    ("SURUS_HTTP_KEEP_ALIVE_TIMEOUT", "1h"),
    ("SURUS_ENGINE_WORKERS", "1"),
];

/// Leaves `count` connections idle after a long request each: they may take `mib` together.
fn releases(surus: &Surus, count: u64, mib: u64, connect: impl Fn() -> Wire) {
    let long = "x".repeat(100_000);
    let head = format!("GET /static.txt HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n");
    let ask = |wire: &mut Wire| {
        let answer = wire.ask(&head).unwrap();
        assert_eq!((answer.status, &*answer.body), (200, &b"static"[..]));
    };
    let pid = surus.front();
    let before = resident(pid);
    let connections = (0..count).map(|_| {
        let mut wire = connect();
        ask(&mut wire);
        wire
    });
    let mut connections: Vec<Wire> = connections.collect();
    let grown = settles_at(pid, before + mib * MIB).saturating_sub(before) / MIB;
    assert!(grown <= mib, "{count} idle connections take {grown} MiB");
    connections.iter_mut().for_each(ask);
}

#[test]
fn idle_connection_releases_the_memory_of_its_last_request() {
    let dir = site();
    let surus = Surus::spawn(dir.path(), &[], &SETTINGS).unwrap();
    releases(&surus, 600, 16, || Wire::connect(&surus));
}

#[test]
fn idle_connection_of_tls_releases_the_memory_of_its_last_request() {
    let dir = site();
    let secure = serve(dir.path(), &SETTINGS);
    releases(&secure.surus, 300, 12, || secure.connect());
}
