//! Tests responses that wait for a slow disk, because there is no memory for them.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, StatusCode};

use super::memory::{MIB, Sampler};
use crate::common::Surus;
use crate::common::preload::Preload;
use crate::tls::metric;

const CONNECTIONS: usize = 8;
const STREAMS: usize = 120;
const LENGTH: usize = 30_000;

/// Short enough to arrive at once, so it is not streamed.
const PAGE: &str = "<?php header('Content-Type: image/x-any'); echo str_repeat('x', 30_000);";

/// The statuses and lengths of the responses; `refused` counts those with 503.
async fn ask(address: String, refused: Arc<AtomicUsize>) -> Vec<(StatusCode, usize)> {
    let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 30);
    let (mut requests, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(connection);
    let mut waiting = Vec::new();
    for _ in 0..STREAMS {
        requests = requests.ready().await.unwrap();
        let request = Request::get("http://a/page.php").body(()).unwrap();
        let answer = requests.send_request(request, true).unwrap().0;
        let refused = refused.clone();
        waiting.push(async move {
            let answer = answer.await.unwrap();
            let status = answer.status();
            if status == 503 {
                refused.fetch_add(1, Ordering::SeqCst);
            }
            let (mut body, mut length) = (answer.into_body(), 0);
            while let Some(piece) = body.data().await {
                length += piece.unwrap().len();
            }
            (status, length)
        });
    }
    join_all(waiting).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_that_wait_for_the_disk_are_bounded_and_later_ones_get_503() {
    let library = Preload::compile("http/limits/slow_disk.c");
    let dir = tempfile::tempdir().unwrap();
    let temp = dir.path().join("temp");
    std::fs::create_dir(&temp).unwrap();
    for (path, mode) in [(dir.path(), 0o755), (&temp, 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::write(dir.path().join("page.php"), PAGE).unwrap();
    let hold = dir.path().join("hold");
    std::fs::write(&hold, "").unwrap();
    let settings = [
        ("SURUS_ACCESS_LOG_FORMAT", "off"),
        ("SURUS_ENGINE_QUEUE_TIMEOUT", "10m"),
        ("SURUS_ENGINE_QUEUE_INTERVAL", "10m"),
        ("SURUS_HTTP_REQUEST_TIMEOUT", "10m"),
        ("SURUS_HTTP_SEND_TIMEOUT", "10m"),
        ("SURUS_HTTP_BUFFER_MEMORY", "0"),
        ("SURUS_HTTP_TEMP_DIR", temp.to_str().unwrap()),
        ("LD_PRELOAD", library.path()),
        ("HELD_DIRECTORY", temp.to_str().unwrap()),
        ("HOLD", hold.to_str().unwrap()),
    ];
    let args = ["--engine", "classic", "--workers", "2"];
    let surus = Surus::spawn(dir.path(), &args, &settings).unwrap();
    let sampler = Sampler::start(surus.front());
    let refused = Arc::<AtomicUsize>::default();
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| tokio::spawn(ask(surus.address.clone(), refused.clone())))
        .collect();
    let moving = || metric(dir.path(), "surus_buffered_bytes{buffer=\"moving\"} ");
    for _ in 0..6000 {
        if refused.load(Ordering::SeqCst) > 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let (held, grown) = (moving(), sampler.peak());
    eprintln!("grew by {} MiB, {} MiB wait", grown / MIB, held / MIB);
    assert!(refused.load(Ordering::SeqCst) > 0, "all wait");
    assert!(held > 8 * MIB && held <= 16 * MIB, "{held}");
    std::fs::remove_file(&hold).unwrap();
    let answers: Vec<_> = join_all(clients)
        .await
        .into_iter()
        .flat_map(Result::unwrap)
        .collect();
    assert!(
        answers
            .iter()
            .all(|answer| answer.0 == 503 || *answer == (StatusCode::OK, LENGTH))
    );
    let complete = answers.iter().filter(|answer| answer.0 == 200).count();
    assert!(complete >= 100, "{complete}");
    assert_eq!(moving(), 0);
}
