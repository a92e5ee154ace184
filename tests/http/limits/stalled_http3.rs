//! Tests HTTP/3 clients that request much and acknowledge nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::UdpSocket;

use super::memory::{MIB, Sampler};
use crate::http3::client::{Client, get, serve_h3};

const CONNECTIONS: usize = 48;
const REQUESTS: usize = 4;

/// Forwards packets to the server, and its packets to the client until the link is cut.
async fn link(server: SocketAddr, is_cut: Arc<AtomicBool>) -> SocketAddr {
    let of_client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let of_server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    of_server.connect(server).await.unwrap();
    let address = of_client.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        let mut client = None;
        loop {
            tokio::select! {
                Ok((size, from)) = of_client.recv_from(&mut up) => {
                    client = Some(from);
                    let _ = of_server.send(&up[..size]).await;
                }
                Ok(size) = of_server.recv(&mut down) => {
                    if let Some(client) = client.filter(|_| !is_cut.load(Ordering::Relaxed)) {
                        let _ = of_client.send_to(&down[..size], client).await;
                    }
                }
            }
        }
    });
    address
}

const PAGE: &str = "<?php
header('Content-Type: image/x-any');
echo str_repeat('x', 400_000);
error_log('page served');";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unacknowledged_responses_stay_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    std::fs::write(dir.path().join("page.php"), PAGE).unwrap();
    let settings = [
        ("SURUS_ACCESS_LOG_FORMAT", "off"),
        ("SURUS_ENGINE_QUEUE_TIMEOUT", "10m"),
        ("SURUS_HTTP_REQUEST_TIMEOUT", "10m"),
        ("SURUS_HTTP_SEND_TIMEOUT", "10m"),
        ("SURUS_HTTP_BUFFER_MEMORY", "8M"),
        ("SURUS_HTTP_KEEP_ALIVE_TIMEOUT", "10m"),
    ];
    let server = serve_h3(dir.path(), &settings);
    let is_cut = Arc::<AtomicBool>::default();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let address = link(server.address.parse().unwrap(), is_cut.clone()).await;
        let config = server.config(&[&rustls::version::TLS13]);
        let mut client = Client::connect_at(address, config).await.unwrap();
        assert_eq!(client.get("/none.txt").await.status(), 404);
        clients.push(client);
    }
    let sampler = Sampler::start(server.surus.front());
    is_cut.store(true, Ordering::Relaxed);
    let mut streams = Vec::new();
    for client in &mut clients {
        for _ in 0..REQUESTS {
            streams.push(client.send(get("/page.php"), b"").await.unwrap());
        }
        // One client at a time, so that the later ones find no memory left.
        server
            .surus
            .wait_for_log(|log| log.matches("page served").count() >= streams.len());
    }
    let counted = || server.metric(dir.path(), "surus_buffered_bytes{buffer=\"memory\"} ");
    for _ in 0..100 {
        if counted() >= 7 * MIB {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let (counted, grown) = (counted(), sampler.peak());
    eprintln!(
        "grew by {} MiB, of which {counted} bytes are counted",
        grown / MIB
    );
    // Without a common bound, each connection keeps 1 MiB.
    assert!(grown < 28 * MIB, "grew by {} MiB", grown / MIB);
    // Each connection may keep a little more, so that it does not stop.
    let most = 8 * MIB + CONNECTIONS as u64 * (32 << 10);
    assert!((2 * MIB..most).contains(&counted), "{counted}");
    drop((streams, clients));
}
