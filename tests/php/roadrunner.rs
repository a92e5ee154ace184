//! Tests the engine `roadrunner`: requests, responses, and workers that violate the protocol.

mod forms;
mod server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use surus::engines::external::roadrunner::Payloads;
use surus::event::Failure;
use surus::observe::status::WorkerState;
use surus::units::Size;

use crate::engine_contract::selection::on_engine;
use crate::engine_contract::subject::{Ask, Subject, bytes, kill, lives, until};

const SCENES: &str = include_str!("roadrunner/scenes.php");

/// A case with workers that do what the request's path says; with both forms of payloads.
fn on_scenes<F: Future<Output = ()>>(case: impl Fn(Subject) -> F) {
    for payloads in [Payloads::Json, Payloads::Protobuf] {
        on_engine("roadrunner", |engine| {
            let engine = engine.boots(SCENES).workers(1);
            case(engine.with(|settings| settings.roadrunner_payloads = payloads))
        });
    }
}

fn scene(engine: &Subject, url: &str) -> Ask {
    let mut ask = engine.ask(&engine.dir.path().join("scene"));
    *ask.request.uri_mut() = url.parse().unwrap();
    ask
}

async fn play(engine: &Subject, url: &str) -> String {
    engine.answer(scene(engine, url)).await.unwrap().text()
}

async fn dump(engine: &Subject, ask: Ask) -> serde_json::Value {
    serde_json::from_slice(&engine.answer(ask).await.unwrap().body).unwrap()
}

#[test]
fn request_arrives_as_roadrunner_sends_it() {
    on_scenes(|engine| async move {
        let mut ask = scene(&engine, "/dump?a=1&b%5B%5D=2").post("text/plain", "the body");
        let headers = ask.request.headers_mut();
        for (name, value) in [
            ("x-twice", "1"),
            ("x-twice", "2"),
            ("cookie", "c=%20d; e"),
            ("cookie", "f=g=h; q=\"i\""),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let dump = dump(&engine, ask).await;
        assert_eq!(dump["remoteAddr"], "127.0.0.1");
        assert_eq!(dump["protocol"], "HTTP/1.1");
        assert_eq!(dump["method"], "POST");
        assert_eq!(dump["uri"], "http://example.test/dump?a=1&b%5B%5D=2");
        assert_eq!(dump["rawQuery"], "a=1&b%5B%5D=2");
        assert_eq!(dump["parsed"], false);
        assert_eq!(dump["uploads"], serde_json::Value::Null);
        assert_eq!(dump["body"], "dGhlIGJvZHk=");
        assert_eq!(
            dump["headers"]["X-Twice"],
            serde_json::json!(["MQ==", "Mg=="])
        );
        assert_eq!(
            dump["headers"]["Content-Length"],
            serde_json::json!(["OA=="])
        );
        assert!(dump["headers"].get("Host").is_none());
        let cookies = serde_json::json!({"c": " d", "f": "g=h", "q": "i"});
        assert_eq!(dump["cookies"], cookies);
    });
}

#[test]
fn header_that_is_not_utf8_arrives_to_the_byte_in_protobuf() {
    on_scenes(|engine| async move {
        let is_protobuf = engine.settings.roadrunner_payloads == Payloads::Protobuf;
        let dump = dump(&engine, scene(&engine, "/dump").header("x-byte", b"\xff")).await;
        let expected = if is_protobuf { "/w==" } else { "77+9" };
        assert_eq!(dump["headers"]["X-Byte"][0], expected);
    });
}

#[test]
fn status_and_headers_are_the_workers() {
    on_scenes(|engine| async move {
        let answer = engine.answer(scene(&engine, "/headers")).await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (201, "body"));
        let values: Vec<_> = answer.headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert_eq!(answer.headers.len(), 3, "{:?}", answer.headers);
    });
}

#[test]
fn noise_on_stdout_costs_nothing() {
    on_scenes(|engine| async move {
        let before = engine.pids().await;
        for url in ["/noise", "/binary", "/noise"] {
            assert_eq!(play(&engine, url).await, "noisy");
            assert_eq!(play(&engine, "/hello?n=1").await, "hello 1");
        }
        assert_eq!(engine.pids().await, before);
    });
}

#[test]
fn faulty_worker_costs_one_request_and_is_logged_with_its_fault() {
    on_scenes(|engine| async move {
        for (url, reason) in [
            ("/checksum", "a frame header has a wrong checksum"),
            (
                "/context",
                "a frame of 14 bytes says that 1000 of them are its context",
            ),
            ("/options", "a payload frame has 0 options; expected 1"),
            ("/words", "a frame header of 7 words; expected 3 or 4"),
            ("/message", "a control or error frame has 2097152 bytes"),
            ("/no-status", "invalid status 42"),
        ] {
            let failed = engine.answer(scene(&engine, url)).await;
            let is_named = matches!(&failed, Err(Failure::Malformed(why)) if why.contains(reason));
            assert!(is_named, "{url}: {failed:?}");
            assert_eq!(play(&engine, "/hello?n=1").await, "hello 1", "after {url}");
        }
    });
}

#[test]
fn half_frame_costs_one_request() {
    on_scenes(|engine| async move {
        let failed = engine.answer(scene(&engine, "/half")).await;
        let says = |how: &str| how.contains("status 3") && how.contains("in the middle of a frame");
        assert!(
            matches!(&failed, Err(Failure::WorkerCrashed(how)) if says(how)),
            "{failed:?}"
        );
        assert_eq!(play(&engine, "/hello?n=1").await, "hello 1");
        let failed = engine.answer(scene(&engine, "/half-body")).await;
        assert!(
            matches!(&failed, Err(Failure::WorkerCrashed(how)) if says(how)),
            "{failed:?}"
        );
        assert_eq!(play(&engine, "/hello?n=2").await, "hello 2");
    });
}

#[test]
fn frame_that_never_ends_ends_at_the_deadline() {
    on_scenes(|engine| async move {
        for url in ["/longer", "/silent", "/endless"] {
            let ask = scene(&engine, url).timeout(Duration::from_millis(400));
            let failed = engine.answer(ask.impatient()).await;
            assert!(matches!(failed, Err(Failure::TimedOut)), "{url}");
            assert_eq!(play(&engine, "/hello?n=1").await, "hello 1", "after {url}");
        }
    });
}

#[test]
fn killed_worker_costs_one_request() {
    on_scenes(|engine| async move {
        let failed = engine.answer(scene(&engine, "/kill")).await;
        assert!(
            matches!(&failed, Err(Failure::WorkerCrashed(how)) if how.contains("SIGKILL")),
            "{failed:?}"
        );
        assert_eq!(play(&engine, "/hello?n=1").await, "hello 1");
        let response = engine
            .send(scene(&engine, "/kill-during-response"))
            .await
            .unwrap();
        let body = response.into_body().collect().await;
        assert!(matches!(body, Err(Failure::WorkerCrashed(_))), "{body:?}");
        assert_eq!(play(&engine, "/hello?n=2").await, "hello 2");
    });
}

#[test]
fn killed_idle_worker_costs_no_request_and_is_replaced() {
    on_scenes(|engine| async move {
        for n in 0..3 {
            let pid = engine.pids().await[0];
            kill(pid, "KILL");
            if n == 0 {
                until("it has exited", || !lives(pid)).await;
            }
            assert_eq!(play(&engine, "/hello?n=1").await, "hello 1");
        }
        let pid = engine.pids().await[0];
        kill(pid, "KILL");
        let pool = engine.pool().await;
        until("another is there", || {
            let workers = pool.status().workers;
            workers.iter().all(|worker| worker.pid != pid)
        })
        .await;
    });
}

#[test]
fn second_response_is_dropped() {
    on_scenes(|engine| async move {
        for n in 0..20 {
            let first = play(&engine, &format!("/twice?n={n}")).await;
            assert_eq!(first, format!("first {n}"));
            assert_eq!(play(&engine, "/late-error").await, "answered");
            assert_eq!(
                play(&engine, &format!("/hello?n={n}")).await,
                format!("hello {n}")
            );
        }
    });
}

#[test]
fn error_frame_fails_the_request_and_keeps_the_worker() {
    on_scenes(|engine| async move {
        let before = engine.pids().await;
        let failed = engine.answer(scene(&engine, "/error")).await;
        let is_said = |why: &str| why == "the application failed";
        assert!(
            matches!(&failed, Err(Failure::Thrown(why)) if is_said(why)),
            "{failed:?}"
        );
        assert_eq!(play(&engine, "/hello?n=1").await, "hello 1");
        assert_eq!(engine.pids().await, before);
    });
}

#[test]
fn worker_that_stops_loses_no_request() {
    on_scenes(|engine| async move {
        let mark = engine.writable().join("mark");
        let url = format!("/stop?mark={}", mark.display());
        assert_eq!(play(&engine, &url).await, "another worker's");
        let mut pids = Vec::new();
        for _ in 0..5 {
            pids.push(play(&engine, "/exit-after").await);
        }
        pids.sort();
        pids.dedup();
        assert_eq!(pids.len(), 5, "each worker serves one request");
        for (round, query) in ["together=1&", ""].into_iter().enumerate() {
            let file = |name: &str| engine.writable().join(format!("{name}{round}"));
            let (sent, end, runs) = (file("sent"), file("end"), file("runs"));
            let files = format!("sent={}&end={}", sent.display(), end.display());
            play(&engine, &format!("/stop-after?{query}{files}")).await;
            until("the worker has sent what follows its response", || {
                sent.exists()
            })
            .await;
            play(&engine, &format!("/append?file={}", runs.display())).await;
            until("the stopped worker has ended by itself", || end.exists()).await;
            let runs = std::fs::read_to_string(runs).unwrap();
            assert_eq!(runs.lines().count(), 1, "it runs no other request");
        }
    });
}

#[test]
fn worker_that_stops_when_a_request_is_on_its_way_loses_no_request() {
    on_scenes(|engine| async move {
        for then in ["serve", "exit", "hang"] {
            let runs = engine.writable().join(then);
            let first = play(&engine, &format!("/stop-late?then={then}")).await;
            let append = format!("/append?file={}", runs.display());
            assert_eq!(play(&engine, &append).await, "appended");
            let runs = std::fs::read_to_string(runs).unwrap();
            assert_eq!(runs.lines().count(), 1, "{then}");
            if then != "serve" {
                assert_ne!(runs.trim_end(), first, "{then}");
            }
            assert_ne!(play(&engine, "/pid").await, first, "{then}");
        }
    });
}

#[test]
fn stream_arrives_piece_by_piece() {
    on_scenes(|engine| async move {
        let gate = engine.writable().join("gate");
        let url = format!("/stream?gate={}", gate.display());
        let response = engine.send(scene(&engine, &url)).await.unwrap();
        assert_eq!(response.headers()["x-a"], "1");
        let mut body = response.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "piece 0,");
        std::fs::write(&gate, "").unwrap();
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!(rest, "piece 1,piece 2,last");
        let whole = "piece 0,piece 1,piece 2,last";
        assert_eq!(play(&engine, "/stream?heads=1").await, whole);
        assert_eq!(play(&engine, "/seen").await, "pong pong");
    });
}

#[test]
fn stream_without_a_client_is_stopped() {
    on_scenes(|engine| async move {
        let before = engine.pids().await;
        drop(engine.send(scene(&engine, "/until-stopped")).await.unwrap());
        assert_eq!(play(&engine, "/seen").await, "stopped");
        assert_eq!(engine.pids().await, before);
    });
}

#[test]
fn informational_response_becomes_early_hints() {
    on_scenes(|engine| async move {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let hints = seen.clone();
        let hints = Arc::new(move |headers: &http::HeaderMap| {
            hints.lock().unwrap().push(headers["link"].clone());
        });
        let mut ask = scene(&engine, "/hint");
        ask.early_hints = Some(Arc::downgrade(&hints) as _);
        assert_eq!(engine.answer(ask).await.unwrap().text(), "after a hint");
        assert_eq!(*seen.lock().unwrap(), ["</a.css>; rel=preload"]);
    });
}

#[test]
fn worker_above_its_memory_is_replaced() {
    on_scenes(|engine| async move {
        let engine = engine.with(|settings| settings.max_memory = Size(80 << 20));
        let mut pids = std::collections::BTreeSet::new();
        for _ in 0..40 {
            pids.insert(play(&engine, "/memory").await);
        }
        assert!((2..40).contains(&pids.len()), "{pids:?}");
    });
}

#[test]
fn worker_connects_by_each_relay() {
    use surus::engines::external::roadrunner::RelayKind;
    for (relay, address) in [
        (RelayKind::Pipes, "pipes"),
        (RelayKind::Unix, "unix:///"),
        (RelayKind::Tcp, "tcp://127.0.0.1:"),
    ] {
        on_engine("roadrunner", |engine| async move {
            let engine = engine.boots(SCENES).workers(3);
            let engine = engine.with(|settings| settings.relay = relay);
            let named = play(&engine, "/relay").await;
            assert!(named.starts_with(address), "{named}");
            for n in 0..10 {
                let expected = format!("hello {n}");
                assert_eq!(play(&engine, &format!("/hello?n={n}")).await, expected);
            }
            let large = bytes(3 << 20);
            let ask = scene(&engine, "/dump").post("text/plain", large.clone());
            let dump = dump(&engine, ask).await;
            assert_eq!(
                dump["body"].as_str().unwrap().len(),
                large.len().div_ceil(3) * 4
            );
            assert_eq!(play(&engine, "/noise").await, "noisy");
            let failed = engine.answer(scene(&engine, "/kill")).await;
            assert!(
                matches!(failed, Err(Failure::WorkerCrashed(_))),
                "{failed:?}"
            );
            for _ in 0..3 {
                assert_eq!(play(&engine, "/hello?n=1").await, "hello 1");
            }
        });
    }
}

#[test]
fn script_that_is_no_worker_stops_the_boot_with_its_words() {
    on_engine("roadrunner", |engine| async move {
        for (script, words) in [
            (
                "<?php echo 'the words of PHP'; exit(7);",
                "the words of PHP",
            ),
            (
                "<?php fwrite(STDERR, 'said on stderr'); exit(7);",
                "said on stderr",
            ),
            ("<?php throw new Exception('thrown');", "thrown"),
            (
                "<?php fwrite(STDOUT, pack('CCVVCC', 0x13, 1, 2, 3, 0, 0).'{}'); sleep(9);",
                "checksum",
            ),
        ] {
            let engine = Subject::boots(engine_again(&engine), script).with(|settings| {
                settings.relay = surus::engines::external::roadrunner::RelayKind::Pipes
            });
            let error = engine.try_boot().await.err().expect("it cannot boot");
            assert!(format!("{error:#}").contains(words), "{script}: {error:#}");
        }
    });
}

#[test]
fn file_that_php_would_run_once_per_worker_stops_the_boot() {
    on_engine("roadrunner", |engine| async move {
        for setting in ["auto_prepend_file", "auto_append_file"] {
            let engine = engine_again(&engine).boots(SCENES);
            let file = engine.write("guard.php", "<?php echo 'said by the guard';");
            let engine = engine.ini(setting, file.to_str().unwrap());
            let error = engine.try_boot().await.err().expect("it cannot boot");
            let error = format!("{error:#}");
            for words in [setting, "cannot run for every request", "guard.php"] {
                assert!(error.contains(words), "{error}");
            }
        }
        let unset = engine.boots(SCENES).ini("auto_prepend_file", "");
        unset.try_boot().await.map(drop).unwrap();
    });
}

/// The same engine, not booted yet.
fn engine_again(engine: &Subject) -> Subject {
    crate::engine_contract::subject::subject(engine.entry)
}

#[test]
fn worker_is_idle_after_each_scene() {
    on_scenes(|engine| async move {
        for url in ["/hello", "/error", "/no-status", "/half", "/stop-after"] {
            let _ = engine.answer(scene(&engine, url)).await;
            let pool = engine.pool().await;
            until("it is idle", || {
                let workers = pool.status().workers;
                workers
                    .iter()
                    .all(|worker| matches!(worker.state, WorkerState::Idle))
            })
            .await;
        }
    });
}
