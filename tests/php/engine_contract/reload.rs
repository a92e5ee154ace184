//! Tests reloads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::subject::{kill, lives, parent, until};
use crate::common::gate::until_there;

engine_contract! {
    fn reload_under_load_loses_no_request(engine) {
        let hello = engine.file("usleep(1000); echo 'hello';");
        let pool = engine.pool().await;
        let before = engine.pids().await;
        let starter = engine.starter(&before);
        let done = AtomicBool::new(false);
        let load = futures_util::future::join_all((0..6).map(|asker| {
            let (engine, hello, done) = (&engine, &hello, &done);
            async move {
                while !done.load(Ordering::Relaxed) {
                    let mut ask = engine.ask(hello);
                    if asker % 2 == 0 {
                        ask = ask.post("text/plain", "x");
                    }
                    assert_eq!(engine.answer(ask).await.unwrap().text(), "hello");
                }
            }
        }));
        let reloads = async {
            for _ in 0..4 {
                pool.reload().await.unwrap();
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            done.store(true, Ordering::Relaxed);
        };
        tokio::join!(load, reloads);
        for pid in before.iter().chain(&starter) {
            until("the old processes end", || !lives(*pid)).await;
        }
        assert_eq!(pool.status().generation, 5);
    }

    fn reload_during_recycling_loses_no_request(engine) {
        let engine = engine.with(|settings| settings.max_requests = 2);
        let hello = engine.file("echo 'hello';");
        let pool = engine.pool().await;
        let done = AtomicBool::new(false);
        let load = futures_util::future::join_all((0..6).map(|_| {
            let (engine, hello, done) = (&engine, &hello, &done);
            async move {
                while !done.load(Ordering::Relaxed) {
                    let ask = engine.ask(hello).post("text/plain", "x");
                    assert_eq!(engine.answer(ask).await.unwrap().text(), "hello");
                }
            }
        }));
        let reloads = async {
            for _ in 0..4 {
                pool.reload().await.unwrap();
            }
            done.store(true, Ordering::Relaxed);
        };
        tokio::join!(load, reloads);
    }

    fn request_running_during_a_reload_ends_in_the_old_generation(engine) {
        let engine = engine.workers(4);
        let go = engine.writable().join("reloaded");
        let running = engine.occupy(2, &format!("{} echo getmypid();", until_there(&go))).await;
        let before = engine.pids().await;
        engine.pool().await.reload().await.unwrap();
        let after: u32 = engine.text("echo getmypid();").await.parse().unwrap();
        assert!(!before.contains(&after));
        std::fs::write(&go, "").unwrap();
        for task in running {
            let pid: u32 = task.await.unwrap().unwrap().text().parse().unwrap();
            assert!(before.contains(&pid), "{pid} is not one of {before:?}");
        }
    }

    fn unreadable_ini_file_stops_the_boot(engine) {
        let missing = "/nonexistent/php.ini";
        let engine = engine.with(|settings| settings.ini_file = Some(missing.into()));
        let error = engine.try_boot().await.err().expect("it must not boot with another ini file \
            than asked for");
        assert!(format!("{error:#}").contains("/nonexistent/php.ini"), "{error:#}");
    }

    fn reload_that_ends_after_a_drain_starts_no_process(engine) {
        let pool = engine.pool().await;
        let reload = tokio::spawn({ let pool = pool.clone(); async move { pool.reload().await } });
        tokio::time::sleep(Duration::from_millis(5)).await;
        pool.drain().await;
        let _ = reload.await.unwrap();
        assert!(pool.status().workers.is_empty(), "{:?}", pool.status());
        assert!(pool.ready().is_err());
    }
}

engine_contract! {
    surus_php:
    fn killed_master_process_is_replaced_without_losing_a_request(engine) {
        let pids = engine.pids().await;
        let master = parent(pids[0]);
        let gate = engine.writable().join("gate");
        let code = format!("{} echo 'done';", until_there(&gate));
        let running = engine.occupy(2, &code).await;
        kill(master, "KILL");
        let mut waiting = Vec::new();
        for _ in 0..6 {
            waiting.push(engine.start(engine.php("echo 'waited';").post("text/plain", "x")).await);
        }
        std::fs::write(&gate, "").unwrap();
        for task in running {
            assert_eq!(task.await.unwrap().unwrap().text(), "done");
        }
        for task in waiting {
            assert_eq!(task.await.unwrap().unwrap().text(), "waited");
        }
        for pid in pids {
            until("the orphans end", || !lives(pid)).await;
        }
    }
}

engine_contract! {
    standing:
    fn failed_reload_reports_php_error_and_keeps_the_old_generation(engine) {
        let preload = engine.write("preload.php", "<?php");
        let engine = engine
            .ini("opcache.preload", preload.to_str().unwrap())
            .ini("opcache.preload_user", "root")
            .ini("opcache.enable", "1");
        let before = engine.pids().await;
        let pool = engine.pool().await;
        engine.write("preload.php", "<?php throw new Exception('the words of PHP');");
        let error = format!("{:#}", pool.reload().await.unwrap_err());
        assert!(error.contains("the words of PHP"), "{error}");
        assert_eq!(engine.pids().await, before);
        assert_eq!(engine.text("echo 'old';").await, "old");
        engine.write("preload.php", "<?php");
        pool.reload().await.unwrap();
        assert_ne!(engine.pids().await, before);
    }
}
