//! Tests that short bodies of requests and responses count, and keep nothing but themselves.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::{Request, Response};

use super::log::get_with;
use super::memory::{MIB, Sampler, counted, wait_for_release};
use super::serve_patiently;

const STREAMS: usize = 120;

const PAGE: &str = "<?php
header('Content-Type: image/x-any');
while ($_SERVER['REQUEST_METHOD'] === 'POST' && !file_exists(__DIR__.'/go')) {
    usleep(5000);
    clearstatcache();
}
echo str_repeat('x', (int) ($_GET['length'] ?? 10));";

/// A client whose streams may receive headers only.
async fn client(address: &str) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut builder = Builder::new();
    builder.initial_window_size(0);
    let (requests, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    requests
}

/// The head of a response whose body stays with Surus.
async fn head(client: &mut SendRequest<Bytes>, length: usize) -> Response<RecvStream> {
    let mut ready = client.clone().ready().await.unwrap();
    let request = Request::get(format!("http://a/page.php?length={length}"));
    let answer = ready.send_request(request.body(()).unwrap(), true);
    let response = answer.unwrap().0.await.unwrap();
    assert_eq!(response.status(), 200);
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_short_responses_count_and_are_not_refused() {
    const LENGTH: usize = 3900;
    let (dir, surus) = serve_patiently(PAGE, &[("SURUS_HTTP_BUFFER_MEMORY", "1M")]);
    let mut held = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = client(&surus.address).await;
        for _ in 0..STREAMS {
            held.push(head(&mut client, LENGTH).await);
        }
        clients.push(client);
    }
    let counted = counted(dir.path());
    let all = (held.len() * LENGTH) as u64;
    assert!((all..all + MIB).contains(&counted), "{counted} of {all}");
    drop((held, clients));
    wait_for_release(dir.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_short_response_does_not_keep_the_block_that_it_shared() {
    let (_dir, surus) = serve_patiently(PAGE, &[("SURUS_ENGINE_WORKERS", "1")]);
    let sampler = Sampler::start(surus.front());
    let mut held = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = client(&surus.address).await;
        for _ in 0..STREAMS {
            held.push(head(&mut client, 1000).await);
            // These fill the rest of the block.
            for length in [15_000, 15_000, 15_000, 60_000] {
                let path = format!("/page.php?length={length}");
                let address = surus.address.clone();
                let get = move || get_with(&address, &path, "").len();
                let got = tokio::task::spawn_blocking(get).await.unwrap();
                assert!(got > length);
            }
        }
        clients.push(client);
    }
    let grown = sampler.peak() / MIB;
    eprintln!("grew by {grown} MiB");
    // A block of 64 KiB for each would be 30 MiB.
    assert!(grown < 15, "grew by {grown} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_bodies_of_requests_that_wait_count() {
    const LENGTH: usize = 3000;
    let (dir, surus) = serve_patiently(PAGE, &[("SURUS_ENGINE_WORKERS", "1")]);
    let client = client(&surus.address).await;
    let mut waiting = Vec::new();
    for _ in 0..STREAMS {
        let mut ready = client.clone().ready().await.unwrap();
        let request = Request::post("http://a/page.php").body(()).unwrap();
        let (answer, mut body) = ready.send_request(request, false).unwrap();
        body.send_data(Bytes::from(vec![b'x'; LENGTH]), true)
            .unwrap();
        waiting.push(answer);
    }
    // The worker has some of them already.
    let most = ((STREAMS - 20) * LENGTH) as u64;
    let until = Instant::now() + Duration::from_secs(60);
    while counted(dir.path()) < most {
        let bytes = counted(dir.path());
        assert!(Instant::now() < until, "{bytes} bytes are counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::write(dir.path().join("go"), "").unwrap();
    for answer in waiting {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    drop(client);
    wait_for_release(dir.path());
}
