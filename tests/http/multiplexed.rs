//! HTTP/2 clients that are slow or silent.

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
async fn a_client_that_takes_nothing_of_a_stream_gets_the_worker_taken_away() {
    let dir = site();
    let timeout = ("write_timeout", "500ms");
    let surus = serve(dir.path(), &[timeout, ("max_response_spool", "0")]);
    let (mut requests, connection) = connect(&surus).await;
    tokio::spawn(connection);
    let response = requests.send_request(get(&surus, "/?mib=100")).await;
    // Nothing of its body is read: the window of the stream stays closed, that of the connection's socket open.
    let response = response.unwrap();
    let http_1 = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    // The only worker: when this is answered, the other one has been given up.
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
async fn a_stream_that_php_is_slow_to_fill_is_left_alone() {
    let dir = site();
    let surus = serve(dir.path(), &[("write_timeout", "200ms")]);
    let (mut requests, connection) = connect(&surus).await;
    tokio::spawn(connection);
    let response = requests.send_request(get(&surus, "/?drip=5")).await;
    let body = response.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "drip".repeat(5));
}

#[tokio::test]
async fn who_says_nothing_for_long_is_told_to_go_away() {
    let dir = site();
    let surus = serve(dir.path(), &[("keep_alive", "500ms")]);
    let (mut requests, connection) = connect(&surus).await;
    let ended = tokio::spawn(connection);
    let response = requests.send_request(get(&surus, "/")).await.unwrap();
    assert_eq!(response.status(), 200);
    response.into_body().collect().await.unwrap();
    // Ended by GOAWAY and not by the socket's end alone: that is no error.
    tokio::time::timeout(Duration::from_secs(30), ended)
        .await
        .expect("still open")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn draining_answers_what_has_begun_and_tells_the_client_to_go_away() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let (mut requests, connection) = connect(&surus).await;
    let ended = tokio::spawn(connection);
    let (_idle, idle_connection) = connect(&surus).await;
    let idle_ended = tokio::spawn(idle_connection);
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
    // Ended by GOAWAY, both of them.
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
async fn idle_connections_make_room_and_busy_ones_stay() {
    let dir = site();
    let surus = serve(dir.path(), &[("max_connections", "4")]);
    let (mut busy, connection) = connect(&surus).await;
    tokio::spawn(connection);
    let response = tokio::spawn(busy.send_request(get(&surus, "/?sleep=1500")));
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
    assert_eq!(response.await.unwrap().unwrap().status(), 200);
    // One leaves for each that comes where three are beside the busy one, and is told so.
    for (_, ended) in idle.drain(..7) {
        tokio::time::timeout(Duration::from_secs(5), ended)
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
async fn more_header_lines_than_allowed_are_refused() {
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
