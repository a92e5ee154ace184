//! Tests requests that end by errors, crashes, deadlines or disconnected clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use surus::event::{Failure, Response};
use surus::observe::status::WorkerState;

use super::subject::{Ask, Subject, kill, lives, time, until};
use crate::common::gate::until_there;

const SEGFAULT: &str = "posix_kill(posix_getpid(), 11); while (true) {}";

/// AddressSanitizer turns a segmentation fault into an exit status.
fn under_a_sanitizer() -> bool {
    std::env::var_os("ASAN_OPTIONS").is_some()
}

/// The response that begins before its deadline. On a busy machine, a process needs time to start.
async fn begun(engine: &Subject, ask: Ask) -> Response {
    for timeout in [400, 4000] {
        let timeout = Duration::from_millis(timeout);
        if let Ok(response) = engine.send(ask.clone().timeout(timeout)).await {
            return response;
        }
    }
    engine
        .send(ask.timeout(Duration::from_secs(40)))
        .await
        .unwrap()
}

engine_contract! {
    fn exit_ends_the_response(engine) {
        assert_eq!(engine.text("echo 'before'; exit(3); echo 'after';").await, "before");
        assert_eq!(engine.text("register_shutdown_function(function () { echo 'down'; }); \
            exit('said ');").await, "said down");
    }

    fn fatal_errors_and_uncaught_exceptions_answer_500_and_leave_a_usable_worker(engine) {
        let engine = engine.workers(1).ini("display_errors", "0").ini("memory_limit", "128M");
        let before = engine.pids().await;
        for code in ["undefined_function();", "throw new Exception('x');", "$x = str_repeat('x', 1 \
            << 40);", "if (", "exit(1 << 70);;;throw new TypeError;"] {
            let answer = engine.answer(engine.php(code)).await.unwrap();
            assert!(answer.status == 500 || code.starts_with("exit"), "{code}: {}", answer.status);
            assert_eq!(engine.text("echo 'fine';").await, "fine");
        }
        if engine.process_goes_on() {
            assert_eq!(engine.pids().await, before);
        }
    }

    fn crash_costs_one_request(engine) {
        for _ in 0..3 {
            let crashed = engine.answer(engine.php(SEGFAULT)).await;
            assert!(
                matches!(&crashed, Err(Failure::WorkerCrashed(how))
                    if engine.says_how(how, "SIGSEGV") || under_a_sanitizer()),
                "{crashed:?}"
            );
            assert_eq!(engine.text("echo 'hello';").await, "hello");
        }
    }

    fn crash_during_the_body_is_a_body_error(engine) {
        let response = engine.send(engine.php(&format!("echo 'begun'; flush(); usleep(100000); \
            {SEGFAULT}"))).await.unwrap();
        let body = response.into_body().collect().await;
        assert!(matches!(body, Err(Failure::WorkerCrashed(_))), "{body:?}");
        assert_eq!(engine.text("echo 'hello';").await, "hello");
    }

    fn crash_does_not_affect_concurrent_requests(engine) {
        let engine = engine.workers(4);
        let gate = engine.writable().join("gate");
        let code = format!("{} echo 'done';", until_there(&gate));
        let others = engine.occupy(3, &code).await;
        let crashed = engine.answer(engine.php(SEGFAULT)).await;
        assert!(matches!(crashed, Err(Failure::WorkerCrashed(_))));
        std::fs::write(&gate, "").unwrap();
        for other in others {
            assert_eq!(other.await.unwrap().unwrap().text(), "done");
        }
    }

    fn deadline_in_php_code_times_out_and_the_worker_continues(engine) {
        // On a busy machine, a script may end long after it was asked to.
        let engine = engine.workers(1).with(|settings| settings.kill_timeout = time(60_000));
        let before = engine.pids().await;
        for code in ["while (true) {}", "sleep(30);", "while (true) usleep(1000);", "function f() \
            { f2(); } function f2() { while (true) strlen('x'); } f();"] {
            let began = Instant::now();
            let over = engine.answer(engine.php(code).timeout(Duration::from_millis(300))).await;
            assert!(matches!(over, Err(Failure::TimedOut)), "{code}: {over:?}");
            assert!(began.elapsed() < Duration::from_secs(25));
            assert_eq!(engine.text("echo 'next';").await, "next");
        }
        if engine.process_goes_on() {
            assert_eq!(engine.pids().await, before, "no process had to be killed");
        }
    }

    fn response_streaming_past_its_deadline_is_truncated(engine) {
        let engine = engine.workers(1);
        let ask = engine.php("echo 'begun'; flush(); sleep(300); echo 'never';");
        let body = begun(&engine, ask).await.into_body().collect().await;
        assert!(
            matches!(body, Err(Failure::TimedOut)),
            "a cut answer must not look complete: {body:?}"
        );
        assert_eq!(engine.text("echo 'next';").await, "next");
    }

    fn buffered_response_gets_no_more_time_per_chunk(engine) {
        let engine = engine.workers(1);
        let ask = engine.php("while (true) { echo 'piece'; flush(); usleep(10000); }");
        let body = begun(&engine, ask.impatient()).await.into_body().collect().await;
        assert!(matches!(body, Err(Failure::TimedOut)), "{body:?}");
        assert_eq!(engine.text("echo 'next';").await, "next");
    }

    fn request_is_in_flight_until_work_after_the_response_ends(engine) {
        if !engine.finishes() {
            return;
        }
        let engine = engine.workers(1);
        let (gate, trace) = (engine.writable().join("gate"), engine.writable().join("trace"));
        let code = format!(
            "register_shutdown_function(function () {{ file_put_contents('{}', 'done'); }});
             echo 'answer'; fastcgi_finish_request(); {}",
            trace.display(), until_there(&gate)
        );
        let (ask, tracker) = engine.php(&code).held();
        assert_eq!(engine.answer(ask).await.unwrap().text(), "answer");
        assert_eq!(tracker.len(), 1, "PHP still runs");
        std::fs::write(&gate, "").unwrap();
        tracker.wait().await;
        assert_eq!(std::fs::read_to_string(&trace).unwrap(), "done");
    }

    fn work_after_the_response_has_no_deadline(engine) {
        if !engine.finishes() || !engine.runs_surus_php() {
            return;
        }
        let engine = engine.workers(1).with(|settings| settings.kill_timeout = time(100));
        let (gate, trace) = (engine.writable().join("gate"), engine.writable().join("trace"));
        for end in ["fastcgi_finish_request(); \
            $work();", "register_shutdown_function('fastcgi_finish_request'); \
            register_shutdown_function($work); exit;"] {
            let code = format!(
                "$work = function () {{ {} file_put_contents('{}', 'done'); }}; echo 'answer'; \
                    {end}",
                until_there(&gate), trace.display()
            );
            // On a busy machine, a script may not have responded by its deadline.
            let mut answer = String::new();
            for timeout in [400, 4000, 40_000] {
                let timeout = Duration::from_millis(timeout);
                if let Ok(response) = engine.answer(engine.php(&code).timeout(timeout)).await {
                    answer = response.text();
                    tokio::time::sleep(timeout + Duration::from_millis(300)).await;
                    break;
                }
            }
            assert_eq!(answer, "answer");
            std::fs::write(&gate, "").unwrap();
            until("it is done", || trace.exists()).await;
            std::fs::remove_file(&gate).unwrap();
            std::fs::remove_file(&trace).unwrap();
            assert_eq!(engine.text("echo 'next';").await, "next");
        }
    }

    fn request_ends_with_its_worker(engine) {
        let engine = engine
            .workers(1)
            .with(|settings| settings.kill_timeout = time(200));
        for (code, finishes) in [
            (SEGFAULT, false),
            (
                "echo 'answer'; fastcgi_finish_request(); posix_kill(posix_getpid(), 11); while \
                (true) {}",
                true,
            ),
            (
                "echo 'answer'; fastcgi_finish_request(); while (true) {}",
                true,
            ),
            ("while (true) {}", false),
        ] {
            // As on Lambda, where everything must be done by then.
            // On a busy machine, a process may not have begun by its deadline.
            let mut answered = false;
            for timeout in [400, 4000, 40_000] {
                let timeout = Duration::from_millis(timeout);
                let (ask, tracker) = engine.php(code).timeout(timeout).impatient().held();
                answered = engine.answer(ask).await.is_ok();
                tracker.wait().await;
                if answered == finishes {
                    break;
                }
            }
            assert_eq!(answered, finishes, "{code}");
            assert_eq!(engine.text("echo 'next';").await, "next");
        }
    }

    fn dropped_body_aborts_the_script_at_its_next_write(engine) {
        let engine = engine.workers(1);
        let trace = engine.writable().join("trace");
        let code = format!(
            "register_shutdown_function(function () {{ file_put_contents('{0}', 'status \
                '.connection_status(), FILE_APPEND); }});
             echo 'begun'; flush(); for ($i = 0; $i < 200; $i++) {{ usleep(20000); echo 'x'; \
             flush(); }} file_put_contents('{0}', 'ran on');",
            trace.display()
        );
        let response = engine.send(engine.php(&code)).await.unwrap();
        drop(response);
        until("the script sees it", || trace.exists()).await;
        assert_eq!(engine.text("echo 'next';").await, "next");
        assert_eq!(std::fs::read_to_string(&trace).unwrap(), "status 1");
    }

    fn ignore_user_abort_lets_the_script_finish(engine) {
        let engine = engine.workers(1);
        let trace = engine.writable().join("trace");
        let code = format!(
            "ignore_user_abort(true); echo 'begun'; flush(); \
                for ($i = 0; $i < 3000 && !connection_aborted(); $i++) {{ \
                usleep(20000); echo 'x'; flush(); }} file_put_contents('{}', 'ran on \
                '.connection_aborted());",
            trace.display()
        );
        drop(engine.send(engine.php(&code)).await.unwrap());
        until("the script ends", || trace.exists()).await;
        assert_eq!(engine.text("echo 'next';").await, "next");
        assert_eq!(std::fs::read_to_string(&trace).unwrap(), "ran on 1");
    }

    fn request_dropped_before_its_start_never_runs(engine) {
        let engine = engine.workers(1);
        let gate = engine.writable().join("gate");
        let running = engine.occupy(1, &until_there(&gate)).await;
        let trace = engine.writable().join("trace");
        let mut dropped = Vec::new();
        for _ in 0..4 {
            dropped.push(engine.start(engine.php(&format!("touch('{}');", trace.display()))).await);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        for task in dropped {
            task.abort();
            assert!(task.await.is_err());
        }
        std::fs::write(&gate, "").unwrap();
        for task in running {
            task.await.unwrap().unwrap();
        }
        assert_eq!(engine.text("echo 'next';").await, "next");
        assert!(!trace.exists());
    }

    fn hanging_boot_times_out_and_leaves_no_process(engine) {
        let pid = engine.writable().join("pid");
        let preload = engine.write("preload.php", &format!("<?php file_put_contents('{}', \
            getmypid()); while (true) {{ usleep(1000); }}", pid.display()));
        let mut engine = engine
            .ini("opcache.preload", preload.to_str().unwrap()).ini("opcache.preload_user", "root")
            .ini("opcache.enable", "1").ini("opcache.enable_cli", "1");
        // On a busy machine, PHP may not have begun by then.
        let mut began = String::new();
        for timeout in [2000, 8000, 30_000] {
            engine.settings.boot_timeout = time(timeout);
            let error = engine.try_boot().await.err().expect("it cannot boot");
            assert!(format!("{error:#}").contains("engine.boot_timeout"), "{error:#}");
            began = std::fs::read_to_string(&pid).unwrap_or_default();
            if !began.is_empty() {
                break;
            }
        }
        assert_ne!(began, "", "it did run");
        let process = format!("/proc/{began}");
        until("its process has exited", || !std::path::Path::new(&process).exists()).await;
    }
}

engine_contract! {
    standing:
    fn deadline_in_uninterruptible_code_kills_the_worker(engine) {
        let engine = engine.workers(1).with(|settings| settings.kill_timeout = time(200));
        let began = engine.writable().join("began");
        let touch = format!("touch('{}');", began.display());
        for code in [
            format!("ini_set('pcre.jit', 0); ini_set('pcre.backtrack_limit', -1); {touch} \
                preg_match('/(a+)+$/', str_repeat('a', 40).'b');"),
            format!("register_shutdown_function(function () {{ while (true) {{}} }}); {touch} \
                while (true) {{}}"),
        ] {
            // On a busy machine, a script may not begin by its deadline.
            for timeout in [300, 3000, 30_000] {
                let before = engine.pids().await;
                let ask = engine.php(&code).timeout(Duration::from_millis(timeout));
                let over = engine.answer(ask).await;
                assert!(matches!(over, Err(Failure::TimedOut)), "{over:?}");
                assert_eq!(engine.text("echo 'next';").await, "next");
                if began.exists() {
                    assert_ne!(engine.pids().await, before);
                    until("the killed worker has exited", || !lives(before[0])).await;
                    break;
                }
            }
            std::fs::remove_file(&began).expect("it began");
        }
    }

    fn stopped_process_is_replaced(engine) {
        let engine = engine.workers(1).with(|settings| settings.kill_timeout = time(200));
        let pid = engine.pids().await[0];
        let running = engine.start(engine.php("while (true) \
            usleep(10000);").timeout(Duration::from_millis(500))).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        kill(pid, "STOP");
        assert!(matches!(running.await.unwrap(), Err(Failure::TimedOut)));
        assert_eq!(engine.text("echo 'next';").await, "next");
    }

    fn killed_worker_costs_only_its_request(engine) {
        let engine = engine.workers(2);
        let idle = engine.pids().await;
        kill(idle[0], "KILL");
        if !engine.runs_surus_php() {
            // Surus cannot know whether PHP had begun the request, so it does not resend it.
            until("it has exited", || !lives(idle[0])).await;
        }
        for _ in 0..20 {
            assert_eq!(engine.text("echo 'hello';").await, "hello");
        }
        let mut pids = engine.pids().await;
        while pids.len() < 2 || pids.contains(&idle[0]) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            pids = engine.pids().await;
        }
        let running = engine
            .occupy(2, "echo posix_getpid(); while (true) usleep(1000);")
            .await;
        for pid in &engine.pids().await {
            kill(*pid, "KILL");
        }
        for task in running {
            let lost = task.await.unwrap();
            let is_killed = |how: &str| engine.says_how(how, "SIGKILL");
            assert!(
                matches!(&lost, Err(Failure::WorkerCrashed(how)) if is_killed(how)),
                "{lost:?}"
            );
        }
        assert_eq!(engine.text("echo 'hello';").await, "hello");
    }

    fn idle_workers_killed_under_load_lose_no_get(engine) {
        let engine = engine.workers(2);
        let hello = engine.file("echo 'hello';");
        engine.text("echo 1;").await;
        let killed = &AtomicBool::new(false);
        let load = async {
            let mut lost = 0;
            while !killed.load(Ordering::Relaxed) {
                match engine.answer(engine.ask(&hello)).await {
                    Ok(answer) => assert_eq!(answer.text(), "hello"),
                    // A request that PHP has begun is not repeated.
                    Err(Failure::WorkerCrashed(_)) => lost += 1,
                    Err(other) => panic!("{other:?}"),
                }
            }
            lost
        };
        let killer = async {
            let mut kills = 0;
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(130)).await;
                if let Some(pid) = engine.pids().await.first() {
                    kill(*pid, "KILL");
                    kills += 1;
                }
            }
            killed.store(true, Ordering::Relaxed);
            kills
        };
        let (lost, kills) = tokio::join!(load, killer);
        assert!(lost <= kills, "{lost} events were lost by {kills} kills");
        let pool = engine.pool().await;
        tokio::time::timeout(Duration::from_secs(60), pool.drain()).await.expect("every permit was \
            returned");
    }
}

engine_contract! {
    surus_php:
    fn request_lost_with_an_idle_worker_is_resent(engine) {
        // If a worker crashes between receiving a request and writing its line of the scoreboard,
        // the request is lost unseen. Here another process takes the message out of the request
        // socket, which carries requests that are too large for the ring, and an idle worker is
        // killed.
        let engine = engine.workers(1).ini("ffi.enable", "1");
        let engine = engine.with(|settings| settings.queue_timeout = time(20_000));
        let thief = engine.occupy(1, "$c = FFI::cdef('long recv(int, char *, unsigned long, \
            int);'); $b = FFI::new('char[300000]'); echo $c->recv(4, $b, 300000, 0) > 0 ? 'stolen' \
            : 'no';").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let lost = engine.start(engine.php("echo 'done by \
            another';").header("X-Large", [b'.'; 20_000])).await;
        for task in thief {
            assert_eq!(task.await.unwrap().unwrap().text(), "stolen");
        }
        let pool = engine.pool().await;
        until("the worker is idle", || {
            let workers = pool.status().workers;
            workers.iter().all(|worker| matches!(worker.state, WorkerState::Idle))
        })
        .await;
        // The first may be a worker that is about to exit after its only request.
        let killer = async {
            loop {
                kill(engine.pids().await[0], "KILL");
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        };
        let answer = tokio::select! {
            answer = tokio::time::timeout(Duration::from_secs(60), lost) => answer.expect("it is \
                missed"),
            () = killer => unreachable!("it does not end"),
        };
        assert_eq!(answer.unwrap().unwrap().text(), "done by another");
        let pool = engine.pool().await;
        tokio::time::timeout(Duration::from_secs(60), pool.drain()).await.expect("its place was \
            returned");
    }
}
