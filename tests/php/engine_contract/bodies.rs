//! Tests that a request body reaches its own script, whole or not at all, whatever the script does
//! with it.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use surus::engines::external::FpmAddress;
use surus::event::Body;

use super::selection::on_engine;
use super::subject::{Ask, Subject};

/// A record of FastCGI (section 3.3 of its specification).
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// A request for `script` in php-fpm's format.
fn request(script: &Path) -> Vec<u8> {
    let mut params = Vec::new();
    for (name, value) in [
        ("SCRIPT_FILENAME", script.to_str().unwrap()),
        ("SCRIPT_NAME", "/forged.php"),
        ("REQUEST_METHOD", "GET"),
    ] {
        params.extend([name.len() as u8, value.len() as u8]);
        params.extend([name, value].concat().bytes());
    }
    [
        record(9, b""),                       // GET_VALUES: Surus might wait for its answer
        record(1, &[0, 1, 1, 0, 0, 0, 0, 0]), // BEGIN_REQUEST of a responder, kept
        record(4, &params),
        record(4, b""),
        record(5, b""),
    ]
    .concat()
}

fn put(mut ask: Ask, body: &[u8]) -> Ask {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(body).unwrap();
    let body = Body::Spooled {
        file: Arc::new(file.into()),
        len: body.len() as u64,
    };
    ask = ask.post_body("application/octet-stream", body);
    *ask.request.method_mut() = http::Method::PUT;
    ask
}

/// Whether the next script responds soon.
async fn goes_on(engine: &Subject) {
    for _ in 0..3 {
        let next = engine.text("echo 'next';");
        let next = tokio::time::timeout(Duration::from_secs(60), next).await;
        assert_eq!(next.expect("an answer"), "next");
    }
}

/// A php-fpm that responds with its flags in BEGIN_REQUEST: keep the connection (1) or not (0).
fn says_whether_it_keeps(listener: UnixListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let (mut head, mut flags) = ([0; 8], 0);
            while stream.read_exact(&mut head).is_ok() {
                let [_, kind, _, _, high, low, padding, _] = head;
                let len = u16::from_be_bytes([high, low]) + u16::from(padding);
                let mut content = vec![0; len.into()];
                stream.read_exact(&mut content).unwrap();
                let answer = match (kind, len) {
                    (1, _) => {
                        flags = content[2];
                        Vec::new()
                    }
                    (5, 0) => {
                        let text = format!("Content-Type: text/plain\r\n\r\n{flags}");
                        [record(6, text.as_bytes()), record(3, &[0; 8])].concat()
                    }
                    (9, _) => record(10, b""),
                    _ => Vec::new(),
                };
                stream.write_all(&answer).unwrap();
            }
        });
    }
}

/// PHP before 8.2.36 or so leaves in the connection what a script has not read.
#[test]
fn php_fpm_connection_with_an_unread_body_is_not_reused() {
    on_engine("fpm", |engine| async move {
        let socket = engine.dir.path().join("fpm.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(|| says_whether_it_keeps(listener));
        let address = FpmAddress::try_from(format!("unix:{}", socket.display())).unwrap();
        let engine = engine.with(|settings| settings.php_fpm_address = Some(address));
        for _ in 0..2 {
            assert_eq!(engine.text("").await, "1");
            let answer = engine.answer(put(engine.php(""), b"body")).await.unwrap();
            assert_eq!(answer.text(), "0");
            let answer = engine
                .answer(engine.php("").post("text/plain", "body"))
                .await
                .unwrap();
            assert_eq!(answer.text(), "0");
        }
    });
}

engine_contract! {
    fn unread_body_does_not_reach_the_next_request(engine) {
        let engine = engine.workers(1);
        let traced = engine.writable().join("traced");
        let forged = engine.file(&format!("touch('{}'); echo 'forged';", traced.display()));
        // PHP reads 8 KiB at once, a record of at most 64 KiB, or nothing.
        for ahead in [8192, 65535, 0] {
            let body = [vec![b'x'; ahead], request(&forged)].concat();
            for code in [
                "fread(fopen('php://input', 'r'), 10); echo 'ok';",
                "fopen('php://input', 'r'); echo 'ok';",
                "echo 'ok';",
            ] {
                let answer = engine.answer(put(engine.php(code), &body)).await.unwrap();
                assert_eq!(answer.text(), "ok");
                goes_on(&engine).await;
                assert!(!traced.exists(), "{code} with {ahead} bytes ahead");
            }
        }
    }

    fn unread_body_does_not_block_the_response(engine) {
        let engine = engine.workers(1);
        let finish = if engine.finishes() { "fastcgi_finish_request();" } else { "" };
        for _ in 0..10 {
            let code = format!("echo 'ok'; {finish} fread(fopen('php://input', 'r'), 10);");
            let answer = engine.answer(put(engine.php(&code), &vec![b'x'; 4 << 20])).await.unwrap();
            assert_eq!(answer.text(), "ok");
            goes_on(&engine).await;
        }
    }

    fn client_that_closes_during_a_body_does_not_affect_the_next_request(engine) {
        let engine = engine.workers(1);
        let traced = engine.writable().join("traced");
        let code = format!(
            "file_put_contents('{}', $_SERVER['HTTP_X_WHO'] \
                .strlen(file_get_contents('php://input')).' ', FILE_APPEND);",
            traced.display()
        );
        const ROUNDS: u64 = 20;
        for n in 0..ROUNDS {
            let leaves = put(engine.php(&code).header("x-who", "a"), &vec![b'x'; 4 << 20]);
            let idle_timeout = Duration::from_micros(300 * n);
            let _ = tokio::time::timeout(idle_timeout, engine.answer(leaves)).await;
            engine
                .answer(engine.php(&code).header("x-who", "b"))
                .await
                .unwrap();
        }
        goes_on(&engine).await;
        let traced = std::fs::read_to_string(traced).unwrap();
        let (whole, next) = (format!("a{}", 4 << 20), "b0");
        assert!(
            traced
                .split_whitespace()
                .all(|who| who == whole || who == next),
            "{traced}"
        );
        assert_eq!(traced.matches(next).count() as u64, ROUNDS, "{traced}");
    }

    fn invalid_response_does_not_block_other_requests(engine) {
        let engine = engine.workers(1);
        for code in [
            "header('Status: abc'); echo str_repeat('x', 1 << 20);",
            "for ($n = 0; $n < 2000; $n++) header(\"x-$n: \".str_repeat('x', 600)); echo \
                str_repeat('x', 1 << 20);",
        ] {
            let _ = engine.answer(engine.php(code)).await;
            goes_on(&engine).await;
        }
    }
}
