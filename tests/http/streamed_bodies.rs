//! Tests bodies that PHP reads while they arrive (`http.stream_body`).

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::Surus;
use crate::wire::{Wire, text};

/// `?part` shows the first 16 KiB before it reads the rest; `?form` tells about a form; `?short`
/// reads nothing. The log says what the script has done.
const SCRIPT: &str = r#"<?php
error_log('script begun');
$mode = $_SERVER['QUERY_STRING'];
if ($mode === 'form') {
    echo $_POST['name'], ' ', hash_file('adler32', $_FILES['file']['tmp_name']);
} elseif ($mode === 'short') {
    echo 'short';
} elseif ($mode === 'crash') {
    fread(fopen('php://input', 'r'), 100);
    posix_kill(getmypid(), SIGKILL);
} else {
    $input = fopen('php://input', 'r');
    $all = hash_init('adler32');
    if ($mode === 'part') {
        hash_update($all, $first = fread($input, 8192));
        echo strlen($first), "\n";
        ob_flush();
        flush();
    }
    hash_update_stream($all, $input);
    echo hash_final($all);
}
error_log('script ended');
"#;

const ENGINES: [&str; 3] = ["classic", "worker", "rewind"];

fn serve(dir: &Path, engine: &str, env: &[(&str, &str)]) -> Surus {
    std::fs::write(dir.join("index.php"), SCRIPT).unwrap();
    let booted = "<?php surus_serve(function () { require __DIR__.'/index.php'; });";
    std::fs::write(dir.join("worker.php"), booted).unwrap();
    std::fs::write(
        dir.join("surus.toml"),
        "[[route]]\nprefix = \"/index.php\"\nstream_body = true\n",
    )
    .unwrap();
    let script = dir.join("worker.php");
    let args: &[&str] = match engine {
        "classic" => &["--workers", "1"],
        engine => &[
            "--engine",
            engine,
            "--workers",
            "1",
            "--script",
            script.to_str().unwrap(),
        ],
    };
    Surus::spawn(dir, args, env).unwrap_or_else(|log| panic!("{engine}\n{log}"))
}

fn head(method: &str, query: &str, len: usize, kind: &str) -> String {
    format!(
        "{method} /index.php?{query} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\n\
         Content-Length: {len}\r\n\r\n"
    )
}

/// As PHP's `hash("adler32", …)`.
fn hash(bytes: &[u8]) -> String {
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    format!("{b:04x}{a:04x}")
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn form(file: &[u8]) -> Vec<u8> {
    let part = "Content-Disposition: form-data; name=";
    let mut form = format!(
        "--b\r\n{part}\"name\"\r\n\r\nvalue\r\n--b\r\n{part}\"file\"; filename=\"f\"\r\n\r\n"
    )
    .into_bytes();
    form.extend_from_slice(file);
    form.extend_from_slice(b"\r\n--b--\r\n");
    form
}

const FORM: &str = "multipart/form-data; boundary=b";
const BINARY: &str = "application/octet-stream";

/// How often the script has come to a place, as far as the log has it.
fn times(surus: &Surus, place: &str) -> usize {
    surus.log().matches(&format!("script {place}")).count()
}

/// Waits until the log has a request that follows all others of the only worker.
fn settle(surus: &Surus, ended: usize) {
    surus.wait_for_log(|log| log.matches("script ended").count() >= ended);
}

fn works(surus: &Surus) {
    let answer = Wire::connect(surus)
        .ask("GET /index.php HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert_eq!(answer.status, 200);
}

#[test]
fn php_reads_a_body_while_it_arrives() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let surus = serve(dir.path(), engine, &[]);
        let body = bytes(3_000_000);
        let mut wire = Wire::connect(&surus);
        wire.send(head("PUT", "part", body.len(), BINARY));
        wire.send(&body[..100_000]);
        // Without this, the rest would never be sent.
        wire.begins();
        wire.send(&body[100_000..]);
        let answer = wire.answer().unwrap();
        let expected = format!("8192\n{}", hash(&body));
        assert_eq!(text(&answer.body), expected, "{engine}");
        works(&surus);
    }
}

#[test]
fn forms_and_bodies_arrive_whole() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let surus = serve(dir.path(), engine, &[]);
        // The first is small enough to be collected.
        for len in [10, 70_000, 2_000_000] {
            let file = bytes(len);
            let form = form(&file);
            let mut wire = Wire::connect(&surus);
            wire.send(head("POST", "form", form.len(), FORM));
            wire.send(&form);
            let answer = wire.answer().unwrap();
            assert_eq!(
                text(&answer.body),
                format!("value {}", hash(&file)),
                "{engine}"
            );

            wire.send(head("POST", "", file.len(), BINARY));
            wire.send(&file);
            let answer = wire.answer().unwrap();
            assert_eq!(text(&answer.body), hash(&file), "{engine}");
        }
    }
}

#[test]
fn body_that_is_cut_off_ends_its_request() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let surus = serve(dir.path(), engine, &[("SURUS_HTTP_BODY_TIMEOUT", "1s")]);
        let form = form(&bytes(1_000_000));
        for (query, kind) in [("", BINARY), ("form", FORM)] {
            // The client leaves.
            let mut wire = Wire::connect(&surus);
            wire.send(head("PUT", query, form.len(), kind));
            wire.send(&form[..500_000]);
            drop(wire);
            works(&surus);
            // The client sends no more.
            let mut wire = Wire::connect(&surus);
            wire.send(head("POST", query, form.len(), kind));
            wire.send(&form[..500_000]);
            assert_eq!(wire.answer().unwrap().status, 408, "{engine}");
            assert!(wire.answer().is_none());
            works(&surus);
        }
        // Those of `works` alone.
        settle(&surus, 4);
        assert_eq!(times(&surus, "ended"), 4, "{engine}");
        // The script has not begun for POST forms, which PHP parses before.
        assert!(times(&surus, "begun") <= 7, "{engine}");
    }
}

/// Each byte arrives within `http.body_timeout`, so only `http.request_timeout` bounds the request.
#[test]
fn slow_body_gets_504_at_the_deadline_and_its_worker_is_free() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let surus = serve(dir.path(), engine, &[("SURUS_HTTP_REQUEST_TIMEOUT", "3s")]);
        let form = form(&bytes(1_000_000));
        for (query, kind) in [("", BINARY), ("form", FORM)] {
            let mut wire = Wire::connect(&surus);
            wire.send(head("POST", query, form.len(), kind));
            wire.send(&form[..100_000]);
            let begun = Instant::now();
            let mut rest = form[100_000..].chunks(1);
            while !wire.can_read() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{engine}");
                wire.send(rest.next().unwrap());
                std::thread::sleep(Duration::from_millis(100));
            }
            assert_eq!(wire.answer().unwrap().status, 504, "{engine}");
            assert!(begun.elapsed() >= Duration::from_secs(2), "{engine}");
            // On a busy machine, a request that follows may reach its own deadline.
            let is_free = (0..20).any(|_| {
                let next = Wire::connect(&surus).ask("GET /index.php HTTP/1.1\r\nHost: a\r\n\r\n");
                next.unwrap().status == 200
            });
            assert!(is_free, "{engine}: {}", surus.log());
        }
    }
}

#[test]
fn response_before_the_end_of_the_body_ends_the_connection() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let surus = serve(dir.path(), engine, &[]);
        let mut wire = Wire::connect(&surus);
        wire.send(head("PUT", "short", 1_000_000, BINARY));
        wire.send(bytes(100_000));
        let answer = wire.answer().unwrap();
        assert_eq!(text(&answer.body), "short", "{engine}");
        assert_eq!(answer.header("connection"), Some("close"));
        works(&surus);
    }
}

#[test]
fn request_whose_body_was_read_is_not_repeated() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().unwrap();
        let surus = serve(dir.path(), engine, &[]);
        let mut wire = Wire::connect(&surus);
        wire.send(head("PUT", "crash", 1_000_000, BINARY));
        wire.send(bytes(100_000));
        assert_eq!(wire.answer().unwrap().status, 502, "{engine}");
        works(&surus);
        settle(&surus, 1);
        assert_eq!(times(&surus, "begun"), 2, "{engine}");
    }
}

#[test]
fn bodies_are_collected_unless_a_route_asks() {
    let dir = tempfile::tempdir().unwrap();
    let surus = serve(dir.path(), "classic", &[]);
    std::fs::write(dir.path().join("other.php"), SCRIPT).unwrap();
    let body = bytes(200_000);
    // A body without a length, and a path without the route.
    let chunk = format!("{:x}\r\n", body.len());
    let chunked = "PUT /index.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let plain = head("PUT", "", body.len(), BINARY).replace("index", "other");
    let heads = [(chunked.to_owned() + &chunk, "\r\n0\r\n\r\n"), (plain, "")];
    for (number, (head, end)) in heads.into_iter().enumerate() {
        let mut wire = Wire::connect(&surus);
        wire.send(&head);
        wire.send(&body[..150_000]);
        // The only worker is free.
        works(&surus);
        settle(&surus, 2 * number + 1);
        assert_eq!(times(&surus, "begun"), 2 * number + 1);
        wire.send(&body[150_000..]);
        wire.send(end);
        assert_eq!(text(&wire.answer().unwrap().body), hash(&body));
    }
}

#[tokio::test]
async fn body_of_http_2_arrives_while_php_runs() {
    use bytes::Bytes;
    use http_body_util::{BodyExt, StreamBody};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let dir = tempfile::tempdir().unwrap();
    let surus = serve(dir.path(), "rewind", &[]);
    let body = Bytes::from(bytes(1_000_000));
    let (sender, pieces) = tokio::sync::mpsc::channel(1);
    let stream = tokio::net::TcpStream::connect(&surus.address)
        .await
        .unwrap();
    let connected =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut requests, connection) = connected.unwrap();
    tokio::spawn(connection);
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async {
        let piece: Bytes = pieces.recv().await?;
        Some((
            Ok::<_, std::io::Error>(hyper::body::Frame::data(piece)),
            pieces,
        ))
    });
    let request = http::Request::put(format!("{}/index.php?part", surus.url))
        .header("content-length", body.len())
        .body(StreamBody::new(Box::pin(pieces)))
        .unwrap();
    sender.send(body.slice(..100_000)).await.unwrap();
    // The response begins first.
    let response = requests.send_request(request).await.unwrap();
    sender.send(body.slice(100_000..)).await.unwrap();
    drop(sender);
    let answer = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text(&answer), format!("8192\n{}", hash(&body)));
}
