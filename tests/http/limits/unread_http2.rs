//! Tests HTTP/2 clients whose windows are open, and that read nothing from their sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::{ResponseFuture, SendRequest};
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::memory::{MIB, Sampler, counted, wait_for_release};
use super::serve_patiently;
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
    // Otherwise the kernel takes megabytes for each connection.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(32 << 10).unwrap();
    let mut there = socket.connect(server.parse().unwrap()).await.unwrap();
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

const PAGE: &str = "
header('Content-Type: image/x-any');
echo str_repeat('x', 300_000);";

/// Clients that have asked for a page on all streams, and have read nothing of it.
struct Unread {
    dir: tempfile::TempDir,
    _surus: Surus,
    sampler: Sampler,
    is_cut: Arc<AtomicBool>,
    clients: Vec<SendRequest<Bytes>>,
    waiting: Vec<ResponseFuture>,
}

async fn request(client: &mut SendRequest<Bytes>, path: &str) -> ResponseFuture {
    std::future::poll_fn(|cx| client.poll_ready(cx))
        .await
        .unwrap();
    let request = Request::get(format!("http://a/{path}")).body(()).unwrap();
    client.send_request(request, true).unwrap().0
}

async fn unread(page: &str) -> Unread {
    let page = format!("<?php {page} error_log('page served');");
    let (dir, surus) = serve_patiently(&page, &[("SURUS_HTTP_BUFFER_MEMORY", "8M")]);
    let is_cut = Arc::<AtomicBool>::default();
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let socket = link(surus.address.clone(), is_cut.clone()).await;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(1 << 20)
            .initial_connection_window_size(1 << 30)
            .max_header_list_size(1 << 20);
        let (mut client, connection) = builder.handshake::<_, Bytes>(socket).await.unwrap();
        tokio::spawn(connection);
        let first = request(&mut client, "none.txt").await.await.unwrap();
        assert_eq!(first.status(), 404);
        clients.push(client);
    }
    let sampler = Sampler::start(surus.front());
    is_cut.store(true, Ordering::Relaxed);
    let mut waiting = Vec::new();
    for client in &mut clients {
        for _ in 0..STREAMS {
            waiting.push(request(client, "page.php").await);
        }
    }
    surus.wait_for_log(|log| log.matches("page served").count() >= CONNECTIONS * STREAMS);
    Unread {
        dir,
        _surus: surus,
        sampler,
        is_cut,
        clients,
        waiting,
    }
}

impl Unread {
    /// The counted bytes once every stream has as much as it may.
    async fn settled(&self) -> u64 {
        let (mut before, mut same) = (0, 0);
        while same < 10 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = counted(self.dir.path());
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
        before
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_responses_stay_within_the_budget() {
    let unread = unread(PAGE).await;
    let counted = unread.settled().await;
    let grown = unread.sampler.peak();
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
}

const LONG: &str = "header('X: '.str_repeat('x', 200_000));";
const MANY: &str = "for ($n = 0; $n < 900; $n++) header(\"X-$n: \".str_repeat('x', 200));";
const HINTS: &str = "
header('Link: </'.str_repeat('x', 15_000).'>');
for ($n = 0; $n < 4; $n++) headers_send(103);
header_remove('Link');";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_headers_and_hints_stay_within_the_budget() {
    for page in [LONG, MANY, HINTS] {
        let mut unread = unread(page).await;
        let counted = unread.settled().await;
        let grown = unread.sampler.peak() / MIB;
        eprintln!("grew by {grown} MiB, of which {counted} bytes are counted");
        // The budget, and what each of 960 streams costs otherwise.
        assert!(grown < 8 + 40, "grew by {grown} MiB");
        assert!((4 * MIB..10 * MIB).contains(&counted), "{counted}");
        let refusals = "surus_buffer_refusals_total{buffer=\"memory\"} ";
        assert!(metric(unread.dir.path(), refusals) > 0);
        // The links look again when their clients send something.
        unread.is_cut.store(false, Ordering::Relaxed);
        for client in &mut unread.clients {
            let path = "none.txt";
            unread.waiting.push(request(client, path).await);
        }
        let responses = join_all(std::mem::take(&mut unread.waiting)).await;
        let count = |status| {
            let statuses = responses.iter().map(|one| one.as_ref().unwrap().status());
            statuses.filter(|one| *one == status).count()
        };
        let (fine, refused) = (
            count(StatusCode::OK),
            count(StatusCode::SERVICE_UNAVAILABLE),
        );
        eprintln!("{fine} pages, {refused} refused");
        assert_eq!(fine + refused, CONNECTIONS * STREAMS);
        // Hints are left out, and their pages sent.
        assert!(
            fine > 20 && (refused > 0) == (page != HINTS),
            "{fine} {refused}"
        );
        wait_for_release(unread.dir.path());
    }
}
