//! Tests that requests reach PHP and responses arrive, to the byte.

use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body::Body as _;
use surus::event::{Body, Failure};

use super::subject::{bytes, time};
use crate::common::gate::until_there;

const OCTETS: &str = "application/octet-stream";

engine_contract! {
    fn simple_request_is_answered(engine) {
        let answer = engine.answer(engine.php("echo 'hello';")).await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    }

    fn query_post_and_cookies_arrive(engine) {
        let code = "header('Content-Type: text/plain'); echo json_encode([$_GET, $_POST, $_COOKIE, \
            $_SERVER['REQUEST_METHOD']]);";
        let ask = engine.php(code).query("a=1&b%5B%5D=2").header("cookie", "c=3; d=%20e")
            .post("application/x-www-form-urlencoded", "f=4&g=h%26i");
        assert_eq!(
            engine.answer(ask).await.unwrap().text(),
            r#"[{"a":"1","b":["2"]},{"f":"4","g":"h&i"},{"c":"3","d":" e"},"POST"]"#
        );
    }

    fn bodies_of_every_size_arrive_to_the_byte(engine) {
        let echo = engine.file("readfile('php://input');");
        for len in [0, 1, 65_535, 65_536, 65_537, 131_072, 1 << 20] {
            let body = bytes(len);
            let memory = engine
                .answer(engine.ask(&echo).post(OCTETS, body.clone()))
                .await
                .unwrap();
            assert!(memory.body == body, "{len} bytes from memory");
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&body).unwrap();
            let spooled = Body::Spooled {
                file: Arc::new(file.into()),
                len: len as u64,
            };
            let spooled = engine
                .answer(engine.ask(&echo).post_body(OCTETS, spooled))
                .await
                .unwrap();
            assert!(spooled.body == body, "{len} bytes from a file");
        }
    }

    fn responses_of_every_size_arrive_to_the_byte(engine) {
        const K: usize = 1024;
        let whole = bytes(20 * K * K);
        let source = engine.write("whole", "");
        std::fs::write(&source, &whole).unwrap();
        let at_once = engine.file(
            "echo file_get_contents(__DIR__.'/whole', false, null, 0, \
            (int)$_GET['n']);",
        );
        let in_pieces = engine.file(
            "$f = fopen(__DIR__.'/whole', 'r'); for ($n = (int)$_GET['n']; $n > 0; $n -= 1000) { \
                echo fread($f, min($n, 1000)); }",
        );
        for len in [
            0,
            1,
            8 * K - 1,
            8 * K,
            8 * K + 1,
            32 * K - 1,
            32 * K,
            32 * K + 1,
            64 * K - 1,
            64 * K,
            64 * K + 1,
            K * K,
            20 * K * K,
        ] {
            for file in [&at_once, &in_pieces] {
                let answer = engine
                    .answer(engine.ask(file).query(&format!("n={len}")))
                    .await
                    .unwrap();
                assert!(
                    answer.body == whole[..len],
                    "{len} bytes, got {}",
                    answer.body.len()
                );
            }
        }
    }

    fn status_and_headers_of_the_script_arrive(engine) {
        let code = "http_response_code(418); header('X-A: 1'); header('X-A: 2', false); \
            setcookie('k', 'v'); echo 'tea';";
        let answer = engine.answer(engine.php(code)).await.unwrap();
        assert_eq!(answer.status, 418);
        assert_eq!(answer.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(answer.headers["set-cookie"], "k=v");
    }

    fn flushed_output_arrives_before_the_script_ends(engine) {
        let gate = engine.writable().join("gate");
        let code = format!("echo 'first'; flush(); {} echo 'last';", until_there(&gate));
        let response = engine.send(engine.php(&code)).await.unwrap();
        let mut body = response.into_body();
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "first");
        std::fs::write(&gate, "").unwrap();
        let mut rest = Vec::new();
        while let Some(piece) = next(&mut body).await {
            rest.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(rest, b"last");
    }

    fn stalled_consumer_occupies_the_worker_and_bounded_memory(engine) {
        let count = engine.writable().join("count");
        let code = format!(
            "for ($i = 1; $i <= 800; $i++) {{ echo str_repeat('x', 65536); \
            file_put_contents('{}', $i); }}",
            count.display()
        );
        let response = engine.send(engine.php(&code)).await.unwrap();
        let written = || {
            std::fs::read_to_string(&count)
                .ok()
                .and_then(|n| n.parse().ok())
                .unwrap_or(0)
        };
        let mut last = 0;
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < Duration::from_secs(120), "{last} and no end");
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now: u32 = written();
            if now == last && now > 0 {
                break;
            }
            last = now;
        }
        assert!(
            last < 100,
            "{last} of 800 pieces were taken from a worker whose client reads \
            none"
        );
        let mut body = response.into_body();
        let mut len = 0;
        while let Some(piece) = next(&mut body).await {
            len += piece.unwrap().len();
        }
        assert_eq!(len, 800 * 65536);
    }

    fn response_spooled_to_a_file_occupies_no_worker(engine) {
        let engine = engine.workers(1);
        let numbers = "foreach (array_chunk(range(0, (1 << 20) - 1), 1 << 10) as $some) {
            echo vsprintf(str_repeat(\"%015d\\n\", 1 << 10), $some);
        }";
        let expected: String = (0..1 << 20).map(|i| format!("{i:015}\n")).collect();
        let slow = engine.send(engine.php(numbers).spooled(1 << 30)).await.unwrap();
        let quick = engine.php("echo 'quick';");
        assert_eq!(engine.answer(quick).await.expect("it waits for no client").text(), "quick");
        // Half of it is in the file, and PHP waits with the rest.
        let half = engine.send(engine.php(numbers).spooled(8 << 20)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        for slow in [slow, half] {
            let mut body = slow.into_body();
            let mut got = Vec::new();
            while let Some(piece) = next(&mut body).await {
                got.extend_from_slice(&piece.unwrap());
            }
            assert!(got == expected.as_bytes(), "{} bytes", got.len());
        }
    }

    fn stalled_consumer_does_not_block_other_requests(engine) {
        let engine = engine.workers(1);
        // From sizes that fit into pipes and channels to those that do not; a worker that has sent
        // its whole response is free.
        for len in [100_000, 300_000, 500_000, 600_000, 650_000, 700_000] {
            let slow = engine
                .send(engine.php(&format!(
                    "echo str_repeat('x', \
                {len});"
                )))
                .await
                .unwrap();
            // Waits until the worker is free, because only then the next request is sent.
            let pool = engine.pool().await;
            for _ in 0..100 {
                use surus::observe::status::WorkerState;
                if pool
                    .status()
                    .workers
                    .iter()
                    .all(|worker| matches!(worker.state, WorkerState::Idle))
                {
                    let quick = engine.php("echo 'quick';");
                    assert_eq!(
                        engine
                            .answer(quick)
                            .await
                            .expect(
                                "the next answer does not wait \
                        for a slow client"
                            )
                            .text(),
                        "quick"
                    );
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let mut body = slow.into_body();
            let mut got = 0;
            while let Some(piece) = next(&mut body).await {
                got += piece.unwrap().len();
            }
            assert_eq!(got, len);
        }
    }

    fn many_and_large_headers_arrive_and_too_many_are_rejected(engine) {
        let count = engine.file(
            "echo count(array_filter(array_keys($_SERVER), fn($k) => \
            str_starts_with($k, 'HTTP_X_N'))), ' ', strlen($_SERVER['HTTP_X_LARGE'] ?? '');",
        );
        let with = |headers: usize, large: usize| {
            let mut ask = engine.ask(&count).header("x-large", vec![b'l'; large]);
            for n in 0..headers {
                let name = http::HeaderName::try_from(format!("x-n{n}")).unwrap();
                ask.request
                    .headers_mut()
                    .insert(name, http::HeaderValue::from_static("v"));
            }
            ask
        };
        assert_eq!(
            engine.answer(with(500, 60_000)).await.unwrap().text(),
            "500 60000"
        );
        for (headers, large) in [(2000, 1), (1, 65_536), (1, 300_000)] {
            let refused = engine.answer(with(headers, large)).await;
            assert!(
                matches!(&refused, Err(Failure::TooLarge(why)) if why.contains("headers")),
                "{refused:?}"
            );
        }
        let mut total = with(1, 1);
        for n in 0..10 {
            let name = http::HeaderName::try_from(format!("x-big{n}")).unwrap();
            total.request.headers_mut().insert(
                name,
                http::HeaderValue::from_bytes(&[b'b'; 30_000]).unwrap(),
            );
        }
        assert!(matches!(
            engine.answer(total).await,
            Err(Failure::TooLarge(_))
        ));
        assert_eq!(engine.text("echo 'fine';").await, "fine");
    }

    fn response_headers_may_be_large(engine) {
        let answer = engine
            .answer(engine.php(
                "for ($i = 0; $i < 40; $i++) header(\"X-$i: \
            \".str_repeat('v', 1000)); echo 'b';",
            ))
            .await
            .unwrap();
        let numbered = answer
            .headers
            .keys()
            .filter(|name| name.as_str().trim_start_matches("x-").parse::<u8>().is_ok());
        assert_eq!(numbered.count(), 40);
        assert_eq!(answer.text(), "b");
    }

    fn thousands_of_requests_get_their_own_responses(engine) {
        // A busy machine must not reject requests here.
        let engine = engine.with(|settings| {
            settings.queue_target = time(600_000);
            settings.queue_timeout = time(600_000);
        });
        let echo = engine.file("echo $_GET['n'];");
        // A process per request takes its time. tests/recovery shows that ten thousand leave
        // nothing behind.
        let many = match (engine.is_standing(), engine.entry.serves_one) {
            (true, false) => 250,
            (true, true) => 50,
            (false, _) => 8,
        };
        let (engine, echo) = (&engine, &echo);
        futures_util::future::join_all((0..8).map(|asker| async move {
            for n in 0..many {
                let mine = format!("{asker}-{n}");
                let ask = engine.ask(echo).query(&format!("n={mine}"));
                assert_eq!(engine.answer(ask).await.unwrap().text(), mine);
            }
        })).await;
    }

    fn missing_or_unreadable_script_gets_a_response(engine) {
        let missing = engine.dir.path().join("missing.php");
        let answer = engine.answer(engine.ask(&missing)).await.unwrap();
        assert_eq!(answer.status, 404);
        assert_eq!(engine.text("echo 'fine';").await, "fine");
    }
}

engine_contract! {
    surus_php:
    fn bodies_around_the_limit_of_the_request_ring_arrive_to_the_byte(engine) {
        let echo = engine.file("readfile('php://input');");
        // With its variables, a message of 16 KiB is the longest that goes through the ring.
        for len in (15_000..=16_384).step_by(8) {
            let body = bytes(len);
            let ask = engine.ask(&echo).post(OCTETS, body.clone());
            let answer = engine.answer(ask).await.unwrap();
            assert!(answer.body == body, "{len} bytes");
        }
    }

    fn early_hints_reach_the_front_end(engine) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut ask = engine.php("header('Link: </a.css>; rel=preload'); headers_send(103); echo \
            'done';");
        let hints = seen.clone();
        let hints = Arc::new(move |headers: &http::HeaderMap| {
            hints.lock().unwrap().push(headers["link"].clone());
        });
        ask.early_hints = Some(Arc::downgrade(&hints) as _);
        assert_eq!(engine.answer(ask).await.unwrap().text(), "done");
        assert_eq!(*seen.lock().unwrap(), ["</a.css>; rel=preload"]);
    }
}

async fn next(body: &mut surus::event::ResponseBody) -> Option<Result<bytes::Bytes, Failure>> {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
    Some(frame.map(|frame| frame.into_data().unwrap()))
}
