//! Workers that crash, and requests that end early or are malformed, over HTTP/3.

use bytes::Bytes;

use super::client::{Client, get, request, serve_h3};
use crate::wire::site;

#[tokio::test]
async fn crashed_worker_costs_one_request() {
    let dir = site();
    let script = "<?php posix_kill(getmypid(), 9);";
    std::fs::write(dir.path().join("crash.php"), script).unwrap();
    let late = "<?php echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9);";
    std::fs::write(dir.path().join("late.php"), late).unwrap();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    let post = || request("POST", "/crash.php").body(()).unwrap();
    assert_eq!(client.ask(post(), b"a").await.unwrap().status(), 502);
    assert_eq!(client.get("/index.php").await.status(), 200);
    // A truncated response does not look complete.
    let error = client.ask(get("/late.php"), b"").await.unwrap_err();
    assert!(error.to_string().contains("H3_INTERNAL_ERROR"), "{error}");
    assert_eq!(client.get("/index.php").await.status(), 200);
}

#[tokio::test]
async fn incomplete_body_does_not_reach_php() {
    let dir = site();
    let marker = "<?php file_put_contents(__DIR__ . '/ran', '1');";
    std::fs::write(dir.path().join("mark.php"), marker).unwrap();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    let post = |length: u32| {
        let post = request("POST", "/mark.php").header("content-length", length);
        post.body(()).unwrap()
    };
    // Shorter and longer than announced.
    for length in [100, 2] {
        match client.ask(post(length), b"half").await {
            Ok(answer) => assert_eq!(answer.status(), 400),
            Err(error) => assert!(error.to_string().contains("H3_MESSAGE_ERROR"), "{error}"),
        }
    }
    // Reset in the middle.
    let mut stream = client.requests.send_request(post(100)).await.unwrap();
    stream.send_data(Bytes::from_static(b"half")).await.unwrap();
    stream.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
    drop(stream);
    assert_eq!(client.get("/index.php").await.status(), 200);
    assert!(!dir.path().join("ran").exists());
}

#[tokio::test]
async fn malformed_requests_are_rejected() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[]);
    let mut client = Client::connect(&secure).await;
    for (name, value) in [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("te", "gzip"),
        ("content-length", "-1"),
    ] {
        let wrong = request("GET", "/index.php").header(name, value);
        let answer = client.ask(wrong.body(()).unwrap(), b"").await.unwrap();
        assert_eq!(answer.status(), 400, "{name}");
    }
    assert_eq!(client.get("/index.php").await.status(), 200);
}

#[tokio::test]
async fn cancelled_request_releases_its_worker() {
    let dir = site();
    let secure = serve_h3(dir.path(), &[("SURUS_HTTP_MAX_RESPONSE_BUFFER", "0")]);
    let mut client = Client::connect(&secure).await;
    let mut stream = client.send(get("/?mib=1000"), b"").await.unwrap();
    assert_eq!(stream.recv_response().await.unwrap().status(), 200);
    stream.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
    drop(stream);
    // There is one worker.
    assert_eq!(client.get("/index.php").await.status(), 200);
}
