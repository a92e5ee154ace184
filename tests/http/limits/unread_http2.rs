//! Tests HTTP/2 clients whose windows are open, and that read nothing from their sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::memory::{MIB, Sampler};
use crate::common::Surus;
use crate::tls::metric;

const CONNECTIONS: usize = 8;
const STREAMS: usize = 120;

/// Forwards bytes to the server, and the server's to the client until the link is cut.
async fn link(server: String, is_cut: Arc<AtomicBool>) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (mut here, _) = listener.accept().await.unwrap();
    let mut there = TcpStream::connect(server).await.unwrap();
    tokio::spawn(async move {
        let (mut up, mut down) = (vec![0; 16_384], vec![0; 16_384]);
        loop {
            let reads = !is_cut.load(Ordering::Relaxed);
            tokio::select! {
                Ok(size) = here.read(&mut up) => {
                    if size == 0 || there.write_all(&up[..size]).await.is_err() {
                        return;
                    }
                }
                Ok(size) = there.read(&mut down), if reads => {
                    if size == 0 || here.write_all(&down[..size]).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    client
}

const PAGE: &str = "<?php
header('Content-Type: image/x-any');
echo str_repeat('x', 300_000);
error_log('page served');";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_responses_stay_within_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    std::fs::write(dir.path().join("page.php"), PAGE).unwrap();
    let settings = [
        ("SURUS_ACCESS_LOG_FORMAT", "off"),
        ("SURUS_ENGINE_WORKERS", "2"),
        ("SURUS_ENGINE_QUEUE_TIMEOUT", "10m"),
        ("SURUS_ENGINE_QUEUE_INTERVAL", "10m"),
        ("SURUS_HTTP_REQUEST_TIMEOUT", "10m"),
        ("SURUS_HTTP_SEND_TIMEOUT", "10m"),
        ("SURUS_HTTP_BUFFER_MEMORY", "8M"),
    ];
    let surus = Surus::spawn(dir.path(), &["--engine", "classic"], &settings).unwrap();
    let is_cut = Arc::<AtomicBool>::default();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let socket = link(surus.address.clone(), is_cut.clone()).await;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(1 << 20)
            .initial_connection_window_size(1 << 30);
        let (mut requests, connection) = builder.handshake::<_, Bytes>(socket).await.unwrap();
        tokio::spawn(connection);
        let first = Request::get("http://a/none.txt").body(()).unwrap();
        let first = requests.send_request(first, true).unwrap().0.await.unwrap();
        assert_eq!(first.status(), 404);
        clients.push(requests);
    }
    let sampler = Sampler::start(surus.front());
    is_cut.store(true, Ordering::Relaxed);
    let mut waiting = Vec::new();
    for requests in &mut clients {
        for _ in 0..STREAMS {
            std::future::poll_fn(|cx| requests.poll_ready(cx))
                .await
                .unwrap();
            let request = Request::get("http://a/page.php").body(()).unwrap();
            waiting.push(requests.send_request(request, true).unwrap().0);
        }
    }
    surus.wait_for_log(|log| log.matches("page served").count() >= CONNECTIONS * STREAMS);
    let counted = || metric(dir.path(), "surus_buffered_bytes{buffer=\"memory\"} ");
    let (mut before, mut same) = (0, 0);
    // Until every stream has as much as it may.
    while same < 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = counted();
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    let (counted, grown) = (counted(), sampler.peak());
    eprintln!(
        "grew by {} MiB, of which {} MiB are counted",
        grown / MIB,
        counted / MIB
    );
    // Each stream may keep a part, so that it does not stop; without a bound it keeps 64 KiB.
    assert!(
        counted < 8 * MIB + (CONNECTIONS * STREAMS) as u64 * (20 << 10),
        "{counted}"
    );
    drop((waiting, clients));
}
