//! Tests HTTP/1.1 clients that send many requests at once and read nothing from their sockets.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::memory::{MIB, Sampler, counted, wait_for_release};
use super::serve_patiently;

const CONNECTIONS: usize = 8;
const REQUESTS: usize = 120;
const HEADER: usize = 65_000;

/// Sends all requests; reads nothing. Its socket takes little.
async fn ask(address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(32 << 10).unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let requests = "GET /page.php HTTP/1.1\r\nHost: a\r\n\r\n".repeat(REQUESTS - 1);
    let last = "GET /page.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream
        .write_all((requests + last).as_bytes())
        .await
        .unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_headers_of_pipelined_requests_are_bounded_and_counted() {
    let page = format!("<?php http_response_code(204); header('X: '.str_repeat('x', {HEADER}));");
    let (dir, surus) = serve_patiently(&page, &[]);
    let sampler = Sampler::start(surus.front());
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(ask(&surus.address).await);
    }
    // Until one header section of each connection is being written.
    let each = (CONNECTIONS * HEADER) as u64;
    let until = Instant::now() + Duration::from_secs(60);
    while counted(dir.path()) < each {
        let bytes = counted(dir.path());
        assert!(Instant::now() < until, "{bytes} bytes are counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (kept, grown) = (counted(dir.path()), sampler.peak() / MIB);
    eprintln!("grew by {grown} MiB, of which {kept} bytes are counted");
    assert!(kept < each * 2, "{kept}");
    assert!(grown < 16, "grew by {grown} MiB");
    for client in &mut clients {
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text.matches("HTTP/1.1 204 ").count(), REQUESTS);
    }
    wait_for_release(dir.path());
}
