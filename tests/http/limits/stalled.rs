//! Tests HTTP/2 clients that request much and read nothing.

use bytes::Bytes;
use h2::client::{self, ResponseFuture};
use http::Request;

use super::memory::{MIB, Sampler, resident, settles_at};
use crate::common::Surus;

const CONNECTIONS: usize = 24;
const STREAMS: usize = 125;

/// Sends requests on one connection and reads the headers only. Its window is too small for the
/// bodies.
async fn ask(
    address: String,
) -> (
    client::SendRequest<Bytes>,
    Vec<http::Response<h2::RecvStream>>,
) {
    let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    let (mut requests, connection) = client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut waiting: Vec<ResponseFuture> = Vec::new();
    for n in 0..STREAMS {
        requests = requests.ready().await.unwrap();
        let request = Request::get(format!("http://a/page.php?n={n}"));
        let request = request.header("accept-encoding", "zstd").body(()).unwrap();
        waiting.push(requests.send_request(request, true).unwrap().0);
    }
    let mut answers = Vec::new();
    for answer in waiting {
        answers.push(answer.await.unwrap());
    }
    (requests, answers)
}

/// Stalls 3,000 streams; returns by how many MiB Surus grew, and how many streams stayed.
async fn stall(page: &str, settings: &[(&str, &str)]) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    std::fs::write(dir.path().join("page.php"), page).unwrap();
    let mut all = vec![
        ("SURUS_ACCESS_LOG_FORMAT", "off"),
        ("SURUS_ENGINE_WORKERS", "4"),
        ("SURUS_ENGINE_MAX_QUEUE", "10000"),
        ("SURUS_ENGINE_QUEUE_TIMEOUT", "10m"),
        ("SURUS_HTTP_REQUEST_TIMEOUT", "10m"),
        ("SURUS_ENGINE_QUEUE_INTERVAL", "10m"),
        // Takes longer under other load; the clients disconnect by themselves.
        ("SURUS_HTTP_SEND_TIMEOUT", "10m"),
    ];
    all.extend(settings);
    let surus = Surus::spawn(dir.path(), &["--engine", "classic"], &all).unwrap();
    let before = resident(surus.front());
    let sampler = Sampler::start(surus.front());
    let clients = (0..CONNECTIONS).map(|_| tokio::spawn(ask(surus.address.clone())));
    let answers = futures_util::future::join_all(clients).await;
    for (_, answers) in answers.iter().map(|answers| answers.as_ref().unwrap()) {
        assert!(answers.iter().all(|answer| answer.status() == 200));
    }
    let peak = sampler.peak();
    drop(answers);
    let pid = surus.front();
    let settled = tokio::task::spawn_blocking(move || settles_at(pid, before + 48 * MIB));
    let after = settled.await.unwrap().saturating_sub(before);
    (peak / MIB, after / MIB)
}

const WHOLE: &str = "<?php header('Content-Type: image/x-any'); echo str_repeat('x', 200_000);";
const STREAMED: &str = "<?php
flush();
foreach (range(1, 20) as $n) {
    echo random_bytes(10_000), str_repeat('y', 50_000);
    flush();
}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_responses_stay_within_the_budget_and_memory_is_released() {
    for page in [WHOLE, STREAMED] {
        let (peak, after) = stall(page, &[("SURUS_HTTP_BUFFER_MEMORY", "32M")]).await;
        eprintln!("grew by {peak} MiB, {after} stayed");
        // The budget, and the cost of each of 3,000 streams besides its body.
        assert!(peak < 32 + 128, "grew by {peak} MiB");
        assert!(after <= 48, "{after} MiB stayed");
    }
}
