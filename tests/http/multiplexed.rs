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
    let surus = serve(dir.path(), &[("write_timeout", "500ms")]);
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
