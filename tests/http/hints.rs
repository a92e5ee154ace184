//! Tests that `103 Early Hints` reach the client before the response.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::Request;

use crate::common::Surus;
use crate::wire::{Wire, serve};

/// Sends hints, and then the response when another request says so.
const HINTS: &str = r#"<?php
$name = $_GET['of'];
header("Link: </$name.css>; rel=preload", false);
header("Link: </$name.js>; rel=preload", false);
header('Set-Cookie: secret=1');
headers_send(103);
if (isset($_GET['twice'])) {
    header("Link: </$name.woff2>; rel=preload");
    headers_send(103);
}
while (isset($_GET['waits']) && !file_exists(__DIR__.'/go')) { usleep(1000); clearstatcache(); }
echo "answer of $name";
"#;

fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hints.php"), HINTS).unwrap();
    dir
}

async fn connect(surus: &Surus) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(&surus.address).await;
    let (requests, connection) = client::handshake(stream.unwrap()).await.unwrap();
    tokio::spawn(connection);
    requests
}

fn asks(requests: &mut SendRequest<Bytes>, path: &str) -> client::ResponseFuture {
    let request = Request::get(format!("http://a{path}")).body(()).unwrap();
    requests.send_request(request, true).unwrap().0
}

/// The links of the next hints.
async fn links(response: &mut client::ResponseFuture) -> Vec<String> {
    let hints = std::future::poll_fn(|cx| response.poll_informational(cx)).await;
    let hints = hints.expect("no more hints").unwrap();
    assert_eq!(hints.status(), 103);
    assert_eq!(
        hints.headers().len(),
        hints.headers().get_all("link").iter().count()
    );
    let links = hints.headers().get_all("link").iter();
    links
        .map(|link| link.to_str().unwrap().to_string())
        .collect()
}

async fn text(response: client::ResponseFuture) -> String {
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(piece) = body.data().await {
        text.extend_from_slice(&piece.unwrap());
    }
    String::from_utf8(text).unwrap()
}

fn expected(name: &str) -> [String; 2] {
    ["css", "js"].map(|kind| format!("</{name}.{kind}>; rel=preload"))
}

#[test]
fn http_1_1_early_hints_precede_the_response() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut stream = TcpStream::connect(&surus.address).unwrap();
    stream
        .write_all(b"GET /hints.php?of=a&waits HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let hints: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let [css, js] = expected("a").map(|link| format!("link: {link}"));
    assert_eq!(hints, ["HTTP/1.1 103 Early Hints".to_string(), css, js]);
    std::fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    assert!(lines.any(|line| line == "set-cookie: secret=1"));
}

#[tokio::test]
async fn http_2_early_hints_precede_the_response() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut requests = connect(&surus).await;
    let mut response = asks(&mut requests, "/hints.php?of=a&twice&waits");
    assert_eq!(links(&mut response).await, expected("a"));
    assert_eq!(links(&mut response).await, ["</a.woff2>; rel=preload"]);
    std::fs::write(dir.path().join("go"), "").unwrap();
    assert_eq!(text(response).await, "answer of a");
}

#[tokio::test]
async fn early_hints_belong_to_their_stream() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut requests = connect(&surus).await;
    let names: Vec<_> = (0..50).map(|number| format!("n{number}")).collect();
    let mut responses = Vec::new();
    for name in &names {
        responses.push(asks(&mut requests, &format!("/hints.php?of={name}")));
    }
    for (name, mut response) in names.iter().zip(responses) {
        assert_eq!(links(&mut response).await, expected(name));
        assert_eq!(text(response).await, format!("answer of {name}"));
    }
}

#[tokio::test]
async fn early_hints_to_a_closed_connection_do_no_harm() {
    let dir = site();
    let surus = serve(dir.path(), &[]);
    let mut requests = connect(&surus).await;
    for _ in 0..50 {
        // The client disconnects before, during and after the hints.
        drop(asks(&mut requests, "/hints.php?of=gone&twice"));
        let mut begun = asks(&mut requests, "/hints.php?of=begun&twice");
        links(&mut begun).await;
    }
    let mut response = asks(&mut requests, "/hints.php?of=a");
    assert_eq!(links(&mut response).await, expected("a"));
    assert_eq!(text(response).await, "answer of a");
}

#[test]
fn other_informational_statuses_do_not_end_the_response() {
    let dir = site();
    for (name, code) in [
        ("send", "headers_send(102);"),
        ("twice", "headers_send(100); headers_send(101);"),
        ("set", "http_response_code(102);"),
        ("line", "header('HTTP/1.1 102 Processing');"),
        ("status", "header('Status: 102 Processing');"),
    ] {
        let code = format!("<?php header('X-Test: 1'); {code} echo 'done';");
        std::fs::write(dir.path().join(format!("{name}.php")), code).unwrap();
    }
    let surus = serve(dir.path(), &[]);
    for name in ["send", "twice", "set", "line", "status"] {
        let mut wire = Wire::connect(&surus);
        let request = format!("GET /{name}.php HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = wire.ask(&request).expect("an answer");
        assert_eq!(answer.status, 200, "{name}");
        assert_eq!(answer.body, b"done", "{name}");
    }
}

#[tokio::test]
async fn http_2_expect_100_continue_gets_100() {
    let dir = site();
    std::fs::write(
        dir.path().join("body.php"),
        "<?php readfile('php://input');",
    )
    .unwrap();
    let surus = serve(dir.path(), &[]);
    let mut requests = connect(&surus).await;
    let post = |length: &str| {
        Request::post("http://a/body.php")
            .header("expect", "100-Continue")
            .header("content-length", length)
            .body(())
            .unwrap()
    };
    let (mut response, mut body) = requests.send_request(post("5"), false).unwrap();
    let said = std::future::poll_fn(|cx| response.poll_informational(cx)).await;
    assert_eq!(said.unwrap().unwrap().status(), 100);
    body.send_data("hello".into(), true).unwrap();
    assert_eq!(text(response).await, "hello");
    // A rejected body gets an error instead.
    let (response, _body) = requests.send_request(post("99999999999"), false).unwrap();
    assert_eq!(response.await.unwrap().status(), 413);
}
