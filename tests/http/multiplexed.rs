//! Tests slow and silent HTTP/2 clients.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::common::Surus;
use crate::wire::{Wire, serve, site};

type Connection = http2::Connection<TokioIo<TcpStream>, Empty<Bytes>, TokioExecutor>;

async fn connect(surus: &Surus) -> (http2::SendRequest<Empty<Bytes>>, Connection) {
    let stream = TcpStream::connect(&surus.address).await.unwrap();
    http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap()
}

fn get(surus: &Surus, path: &str) -> http::Request<Empty<Bytes>> {
    http::Request::get(format!("{}{path}", surus.url))
        .body(Empty::new())
        .unwrap()
}

#[tokio::test]
async fn stalled_stream_releases_its_worker() {
    let dir = site();
    let timeout = ("send_timeout", "500ms");
    let surus = serve(dir.path(), &[timeout, ("max_response_buffer", "0")]);
    let (mut requests, connection) = connect(&surus).await;
    tokio::spawn(connection);
    stalls(surus, &mut requests).await;
}

#[tokio::test]
async fn stream_that_stalls_after_a_rest_releases_its_worker() {
    let dir = site();
    let timeout = ("send_timeout", "500ms");
    let surus = serve(dir.path(), &[timeout, ("max_response_buffer", "0")]);
    let (mut requests, connection) = connect(&surus).await;
    tokio::spawn(connection);
    let response = requests.send_request(get(&surus, "/")).await.unwrap();
    response.into_body().collect().await.unwrap();
    // Now the connection is checked only when it has been idle for too long.
    tokio::time::sleep(Duration::from_millis(900)).await;
    stalls(surus, &mut requests).await;
}

/// Does not read a response. This must end its request.
async fn stalls(surus: Surus, requests: &mut http2::SendRequest<Empty<Bytes>>) {
    let response = requests.send_request(get(&surus, "/?mib=100")).await;
    // Its body is not read: the stream's window stays closed, the socket open.
    let response = response.unwrap();
    let http_1 = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    // There is one worker: when this is answered, the stalled request has been aborted.
    let answer = tokio::task::spawn_blocking(move || {
        let answer = Wire::connect(&surus).ask(http_1);
        (answer.unwrap().status, surus)
    });
    let (status, _surus) = tokio::time::timeout(Duration::from_secs(30), answer)
        .await
        .expect("the worker is held by a client that does not read")
        .unwrap();
    assert_eq!(status, 200);
    assert!(response.into_body().collect().await.is_err());
}

#[tokio::test]
async fn slow_script_does_not_time_out_its_stream() {
    let dir = site();
    let surus = serve(dir.path(), &[("send_timeout", "200ms")]);
    let (mut requests, connection) = connect(&surus).await;
    tokio::spawn(connection);
    let response = requests.send_request(get(&surus, "/?drip=5")).await;
    let body = response.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "drip".repeat(5));
}

#[tokio::test]
async fn idle_http_2_connection_gets_goaway() {
    let dir = site();
    let surus = serve(dir.path(), &[("keep_alive_timeout", "500ms")]);
    // The server ends a connection whose request arrives too late.
    let mut attempts = 0;
    let (_requests, ended, response) = loop {
        let (mut requests, connection) = connect(&surus).await;
        let ended = tokio::spawn(connection);
        match requests.send_request(get(&surus, "/")).await {
            Ok(response) => break (requests, ended, response),
            Err(error) => assert!(attempts < 100, "{error}"),
        }
        attempts += 1;
    };
    assert_eq!(response.status(), 200);
    response.into_body().collect().await.unwrap();
    // Ended by GOAWAY and not only by the end of the socket: that is no error.
    tokio::time::timeout(Duration::from_secs(30), ended)
        .await
        .expect("still open")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn draining_finishes_streams_and_sends_goaway() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let (mut requests, connection) = connect(&surus).await;
    let ended = tokio::spawn(connection);
    let (mut idle, idle_connection) = connect(&surus).await;
    let idle_ended = tokio::spawn(idle_connection);
    // Otherwise the server may not know yet that it speaks HTTP/2.
    let response = idle.send_request(get(&surus, "/")).await.unwrap();
    response.into_body().collect().await.unwrap();
    let response = requests.send_request(get(&surus, "/?sleep=1500"));
    let response = tokio::spawn(response);
    let surus = {
        let log = tokio::task::spawn_blocking(move || {
            surus.wait_for_log(|log| log.contains("begun"));
            surus.signal("TERM");
            surus
        });
        log.await.unwrap()
    };
    let response = response.await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    response.into_body().collect().await.unwrap();
    // Both ended by GOAWAY.
    for ended in [ended, idle_ended] {
        tokio::time::timeout(Duration::from_secs(30), ended)
            .await
            .expect("still open")
            .unwrap()
            .unwrap();
    }
    let status = tokio::task::spawn_blocking(move || {
        let mut surus = surus;
        surus.wait()
    });
    assert!(status.await.unwrap().success());
}

#[tokio::test]
async fn idle_http_2_connections_are_evicted_and_busy_ones_stay() {
    let dir = site();
    let surus = serve(dir.path(), &[("max_connections", "4")]);
    let (mut busy, connection) = connect(&surus).await;
    tokio::spawn(connection);
    let response = tokio::spawn(busy.send_request(get(&surus, "/?until=go")));
    let mut idle = Vec::new();
    for _ in 0..10 {
        let (mut requests, connection) = connect(&surus).await;
        let ended = tokio::spawn(connection);
        let response = requests.send_request(get(&surus, "/static.txt")).await;
        let response = response.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.unwrap();
        idle.push((requests, ended));
    }
    std::fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(response.await.unwrap().unwrap().status(), 200);
    // For each new connection, one of the three idle ones gets GOAWAY; the busy one stays.
    for (_, ended) in idle.drain(..7) {
        tokio::time::timeout(Duration::from_secs(60), ended)
            .await
            .expect("still open")
            .unwrap()
            .unwrap();
    }
    for (requests, _) in &mut idle {
        let response = requests.send_request(get(&surus, "/static.txt")).await;
        assert_eq!(response.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn too_many_header_lines_are_rejected() {
    let dir = site();
    let surus = serve(dir.path(), &[("max_headers", "20")]);
    let (mut requests, connection) = connect(&surus).await;
    tokio::spawn(connection);
    for (many, status) in [(20, 200), (21, 431), (20, 200)] {
        let mut request = get(&surus, "/static.txt");
        for _ in 0..many {
            let value = http::HeaderValue::from_static("y");
            request.headers_mut().append("x", value);
        }
        let response = requests.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{many}");
    }
}

#[tokio::test]
async fn bodies_larger_than_the_window_arrive_complete_in_both_directions() {
    let dir = site();
    let echo =
        "<?php header('Content-Length: '.$_SERVER['CONTENT_LENGTH']); readfile('php://input');";
    std::fs::write(dir.path().join("echo.php"), echo).unwrap();
    let surus = serve(dir.path(), &[]);
    let stream = TcpStream::connect(&surus.address).await.unwrap();
    let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let content: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    for length in [Some(content.len()), None] {
        let mut request = http::Request::post("http://a/echo.php");
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let (response, mut body) = requests
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        let sent = content.clone();
        tokio::spawn(async move {
            body.send_data(sent.into(), false).unwrap();
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-trailer", http::HeaderValue::from_static("1"));
            body.send_trailers(trailers).unwrap();
        });
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-length"], "5000000");
        assert!(response.headers().contains_key("date"));
        let mut body = response.into_body();
        let mut received = Vec::new();
        while let Some(piece) = body.data().await {
            let piece: Bytes = piece.unwrap();
            body.flow_control().release_capacity(piece.len()).unwrap();
            received.extend_from_slice(&piece);
        }
        assert!(received == content);
    }
}

#[tokio::test]
async fn head_response_has_the_length_and_no_body() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let (mut requests, connection) = connect(&surus).await;
    tokio::spawn(connection);
    for (path, status) in [("/static.txt", 200), ("/", 200), ("/.hidden", 404)] {
        let mut request = get(&surus, path);
        *request.method_mut() = http::Method::HEAD;
        let response = requests.send_request(request).await.unwrap();
        assert_eq!(response.status(), status);
        if path == "/static.txt" {
            assert_eq!(response.headers()["content-length"], "6");
        }
        assert!(
            response
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes()
                .is_empty()
        );
    }
}

#[tokio::test]
async fn truncated_response_resets_its_stream() {
    let dir = site();
    let dies = "<?php echo str_repeat('begun', 9999); flush(); posix_kill(getmypid(), 9);";
    std::fs::write(dir.path().join("dies.php"), dies).unwrap();
    let surus = serve(dir.path(), &[]);
    let (mut requests, connection) = connect(&surus).await;
    tokio::spawn(connection);
    let response = requests.send_request(get(&surus, "/dies.php")).await;
    let response = response.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.is_err());
    // The connection has others.
    let response = requests.send_request(get(&surus, "/static.txt")).await;
    let body = response.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "static");
}

/// In HTTP/2 they are errors.
#[tokio::test]
async fn connection_headers_are_not_forwarded() {
    let dir = site();
    let names = [
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Transfer-Encoding",
        "Upgrade",
        "TE",
    ];
    let sends: String = names
        .iter()
        .map(|name| format!("header('{name}: x');"))
        .collect();
    std::fs::write(
        dir.path().join("relays.php"),
        format!("<?php {sends} echo 'relayed';"),
    )
    .unwrap();
    let surus = serve(dir.path(), &[]);
    let (mut requests, connection) = connect(&surus).await;
    tokio::spawn(connection);
    let response = requests
        .send_request(get(&surus, "/relays.php"))
        .await
        .unwrap();
    for name in names {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "relayed");
}

/// A client of the h2 crate: it controls its windows.
async fn narrow(
    surus: &Surus,
    window: u32,
) -> (h2::client::SendRequest<Bytes>, tokio::task::JoinHandle<()>) {
    try_narrow(surus, window).await.unwrap()
}

async fn try_narrow(
    surus: &Surus,
    window: u32,
) -> Result<(h2::client::SendRequest<Bytes>, tokio::task::JoinHandle<()>), h2::Error> {
    let stream = TcpStream::connect(&surus.address).await.unwrap();
    let mut client = h2::client::Builder::new();
    let client = client.initial_window_size(window).handshake(stream);
    let (requests, connection) = client.await?;
    let connection = tokio::spawn(async move { drop(connection.await) });
    Ok((requests.ready().await?, connection))
}

fn ask(requests: &mut h2::client::SendRequest<Bytes>, path: &str) -> h2::client::ResponseFuture {
    let request = http::Request::get(format!("http://a{path}"));
    requests
        .send_request(request.body(()).unwrap(), true)
        .unwrap()
        .0
}

#[tokio::test]
async fn slowly_reading_http_2_client_is_not_idle() {
    let dir = site();
    std::fs::write(dir.path().join("long.txt"), [b'x'; 60_000]).unwrap();
    let surus = serve(dir.path(), &[("keep_alive_timeout", "300ms")]);
    // The server ends a connection whose request arrives too late.
    let mut attempts = 0;
    let (_requests, mut body) = loop {
        if let Ok((mut requests, _)) = try_narrow(&surus, 20_000).await
            && let Ok(response) = ask(&mut requests, "/long.txt").await
        {
            break (requests, response.into_body());
        }
        attempts += 1;
        assert!(attempts < 100, "no response");
    };
    let mut length = 0;
    while let Some(piece) = body.data().await {
        let piece = piece.expect("what was promised comes");
        length += piece.len();
        // Each time longer than the idle timeout.
        tokio::time::sleep(Duration::from_millis(50 + piece.len() as u64 / 10)).await;
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    assert_eq!(length, 60_000);
}

#[tokio::test]
async fn http_2_client_with_a_zero_window_times_out() {
    let dir = site();
    std::fs::write(dir.path().join("long.txt"), [b'x'; 60_000]).unwrap();
    let surus = serve(dir.path(), &[("send_timeout", "500ms")]);
    let (mut requests, connection) = narrow(&surus, 0).await;
    let response = ask(&mut requests, "/long.txt").await.unwrap();
    assert_eq!(response.headers()["content-length"], "60000");
    tokio::time::timeout(Duration::from_secs(20), connection)
        .await
        .expect("its connection is closed")
        .unwrap();
}

#[tokio::test]
async fn http_2_response_without_a_body_sends_none() {
    let dir = site();
    let code = "<?php http_response_code((int) $_GET['status']); echo 'more';";
    std::fs::write(dir.path().join("none.php"), code).unwrap();
    let surus = serve(dir.path(), &[]);
    let (mut requests, _connection) = narrow(&surus, 20_000).await;
    for status in [204, 304] {
        let path = format!("/none.php?status={status}");
        let response = ask(&mut requests, &path).await.unwrap();
        assert_eq!(response.status(), status);
        assert!(!response.headers().contains_key("content-length"));
        assert!(response.into_body().is_end_stream());
    }
}
