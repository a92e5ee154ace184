//! Tests queueing, rejecting, recycling and draining.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use surus::event::Failure;
use surus::observe::status::WorkerState;

use super::subject::{lives, time, until};
use crate::common::gate::until_there;

engine_contract! {
    fn full_queue_rejects_immediately(engine) {
        let engine = engine.workers(1).with(|settings| settings.max_queue = 1);
        let gate = engine.writable().join("gate");
        let running = engine.occupy(1, &until_there(&gate)).await;
        let waiting = [engine.start(engine.php("echo 'waited';")).await];
        let pool = engine.pool().await;
        until("one waits", || pool.status().queued == 1).await;
        let refused = engine.answer(engine.php("")).await;
        assert!(matches!(refused, Err(Failure::QueueFull(_))), "{refused:?}");
        std::fs::write(&gate, "").unwrap();
        for task in running.into_iter().chain(waiting) {
            task.await.unwrap().unwrap();
        }
    }

    fn request_over_the_queue_timeout_is_rejected_and_never_runs(engine) {
        let engine = engine.workers(1).with(|settings| settings.queue_timeout = time(300));
        let gate = engine.writable().join("gate");
        let running = engine.occupy(1, &until_there(&gate)).await;
        let trace = engine.writable().join("trace");
        let mut waiting = Vec::new();
        for _ in 0..4 {
            waiting.push(engine.start(engine.php(&format!("touch('{}');", trace.display()))).await);
        }
        for task in waiting {
            let refused = task.await.unwrap();
            assert!(matches!(refused, Err(Failure::QueueTimeout(_))), "{refused:?}");
        }
        std::fs::write(&gate, "").unwrap();
        for task in running {
            task.await.unwrap().unwrap();
        }
        // The limit holds for this one, too: on a busy machine it may have to ask again.
        let until = Instant::now() + Duration::from_secs(60);
        let next = loop {
            match engine.answer(engine.php("echo 'next';")).await {
                Err(Failure::QueueTimeout(_)) if Instant::now() < until => {}
                next => break next.unwrap().text(),
            }
        };
        assert_eq!(next, "next");
        assert!(!trace.exists());
    }

    fn deadline_in_the_queue_times_out(engine) {
        let engine = engine.workers(1);
        let gate = engine.writable().join("gate");
        let running = engine.occupy(1, &until_there(&gate)).await;
        let mut waiting = Vec::new();
        for _ in 0..4 {
            waiting.push(engine.start(engine.php("echo \
                1;").timeout(Duration::from_millis(300))).await);
        }
        for task in waiting {
            let over = task.await.unwrap();
            assert!(matches!(over, Err(Failure::TimedOut)), "{over:?}");
        }
        std::fs::write(&gate, "").unwrap();
        for task in running {
            task.await.unwrap().unwrap();
        }
    }

    fn deadline_as_the_worker_becomes_free_times_out(engine) {
        let engine = engine.workers(1);
        let nap = engine.file("usleep(60000);");
        for n in 0..15 {
            let first = engine.start(engine.ask(&nap)).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            let second = engine
                .answer(engine.ask(&nap).timeout(Duration::from_millis(30 + 3 * n)))
                .await;
            assert!(
                matches!(second, Ok(_) | Err(Failure::TimedOut)),
                "{second:?}"
            );
            first.await.unwrap().unwrap();
        }
    }

    fn requests_that_end_at_their_deadline_affect_no_other(engine) {
        // Request ids are reused immediately, so code that acts late could affect another request.
        let engine = engine
            .workers(3)
            .with(|settings| settings.kill_timeout = time(20));
        let nap = engine.file("usleep(50000 + 1000 * (int) $_GET['n']); echo 'rested';");
        let echo = engine.file("usleep(500); echo $_GET['n'];");
        let (engine, nap, echo) = (&engine, &nap, &echo);
        let (over_at_all, edges_end) = (&AtomicBool::new(false), &AtomicBool::new(false));
        let edge = futures_util::future::join_all((0..2).map(|n: u64| async move {
            let mut over = 0;
            for _ in 0..24 {
                let timeout = Duration::from_millis(48 + (over + n) % 12);
                let ask = engine.ask(nap).query(&format!("n={n}")).timeout(timeout);
                match engine.answer(ask).await {
                    Ok(answer) => assert_eq!(answer.text(), "rested"),
                    Err(Failure::TimedOut) => over += 1,
                    // As below.
                    Err(Failure::WorkerCrashed(_)) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            over_at_all.fetch_or(over > 0, Ordering::Relaxed);
        }));
        let edge = async {
            edge.await;
            edges_end.store(true, Ordering::Relaxed);
        };
        let quick = futures_util::future::join_all((0..4).map(|asker| async move {
            let mut n = 0;
            while !edges_end.load(Ordering::Relaxed) {
                let mine = format!("{asker}-{n}");
                // Only a kill may affect the next request, if it arrives as the worker takes that.
                match engine
                    .answer(engine.ask(echo).query(&format!("n={mine}")))
                    .await
                {
                    Ok(answer) => assert_eq!(answer.text(), mine),
                    Err(Failure::WorkerCrashed(_)) => {}
                    Err(other) => panic!("{mine}: {other:?}"),
                }
                n += 1;
            }
        }));
        tokio::join!(edge, quick);
        assert!(over_at_all.load(Ordering::Relaxed));
        let pool = engine.pool().await;
        tokio::time::timeout(Duration::from_secs(60), pool.drain())
            .await
            .expect(
                "every permit was \
            returned",
            );
    }

    fn slow_script_does_not_block_fast_ones(engine) {
        let engine = engine.workers(2);
        let gate = engine.writable().join("gate");
        let slow = engine.occupy(1, &format!("{} echo 'slow';", until_there(&gate))).await;
        let fast = engine.file("echo 'fast';");
        for _ in 0..20 {
            assert_eq!(engine.answer(engine.ask(&fast)).await.unwrap().text(), "fast");
        }
        std::fs::write(&gate, "").unwrap();
        for task in slow {
            assert_eq!(task.await.unwrap().unwrap().text(), "slow");
        }
    }

    fn recycling_by_max_requests_loses_no_request(engine) {
        let engine = engine.workers(2).with(|settings| {
            settings.max_requests = 3;
            settings.queue_timeout = time(60_000);
            settings.queue_interval = time(60_000);
        });
        let pid = engine.file("echo getmypid();");
        let answers =
            futures_util::future::join_all((0..120).map(|_| engine.answer(engine.ask(&pid)))).await;
        let mut served = std::collections::BTreeMap::new();
        for answer in answers {
            *served.entry(answer.unwrap().text()).or_insert(0) += 1;
        }
        assert!(served.values().all(|events| *events <= 3), "{served:?}");
        assert!(served.len() >= 40);
    }

    fn draining_finishes_running_and_queued_requests(engine) {
        let engine = engine.workers(2);
        let pids = engine.pids().await;
        let starter = engine.starter(&pids);
        let go = engine.writable().join("go");
        let running = engine.occupy(2, &format!("{} echo 'ran';", until_there(&go))).await;
        let mut waiting = Vec::new();
        for _ in 0..6 {
            waiting.push(engine.start(engine.php("usleep(50000); echo 'waited';")).await);
        }
        let pool = engine.pool().await;
        until("six wait", || pool.status().queued == 6).await;
        let drain = tokio::spawn({ let pool = pool.clone(); async move { pool.drain().await } });
        std::fs::write(&go, "").unwrap();
        for task in running {
            assert_eq!(task.await.unwrap().unwrap().text(), "ran");
        }
        for task in waiting {
            assert_eq!(task.await.unwrap().unwrap().text(), "waited");
        }
        drain.await.unwrap();
        for pid in pids.iter().chain(&starter) {
            assert!(!lives(*pid), "{pid} lives after the drain");
        }
        assert!(matches!(engine.answer(engine.php("")).await, Err(Failure::Busy(_))));
        assert!(pool.ready().is_err());
    }

    fn dropping_the_engine_leaves_no_process(engine) {
        let pids = engine.pids().await;
        let starter = engine.starter(&pids);
        let running = engine.occupy(2, "while (true) {}").await;
        for task in running {
            task.abort();
            let _ = task.await;
        }
        engine.forget();
        for pid in pids.iter().chain(&starter) {
            until("the process has exited", || {
                !std::path::Path::new(&format!("/proc/{pid}")).exists()
            })
            .await;
        }
    }

    fn status_shows_worker_states(engine) {
        let gate = engine.writable().join("gate");
        let running = engine.occupy(1, &until_there(&gate)).await;
        let status = engine.pool().await.status();
        let busy: Vec<_> = status
            .workers
            .iter()
            .filter_map(|worker| worker.request.clone())
            .collect();
        assert_eq!(
            status.workers.len(),
            if engine.is_standing() { 2 } else { 1 }
        );
        assert!(
            busy.len() == 1 && busy[0].starts_with("GET /"),
            "{status:?}"
        );
        std::fs::write(&gate, "").unwrap();
        for task in running {
            task.await.unwrap().unwrap();
        }
    }
}

engine_contract! {
    standing:
    fn booted_engine_is_ready_and_shows_its_workers(engine) {
        let engine = engine.workers(8);
        for _ in 0..5 {
            let pool = engine.try_boot().await.unwrap();
            assert_eq!(pool.ready(), Ok(()));
            assert_eq!(pool.status().workers.len(), 8);
        }
    }
}

engine_contract! {
    surus_php:
    fn recycling_by_max_memory_loses_no_request(engine) {
        let engine = engine
            .workers(1)
            .with(|settings| settings.max_memory = surus::units::Size(1 << 20));
        let pid = engine.file("echo getmypid();");
        let mut pids = std::collections::BTreeSet::new();
        for _ in 0..10 {
            pids.insert(engine.answer(engine.ask(&pid)).await.unwrap().text());
        }
        assert!(
            pids.len() > 5,
            "every worker is above 1 MiB after its first event: {pids:?}"
        );
    }
}

engine_contract! {
    surus_php:
    fn workers_use_batch_scheduling_only_under_concurrency(engine) {
        if engine.entry.serves_one {
            return;
        }
        let engine = engine.workers(2);
        // SCHED_BATCH is 3; the policy is the 41st field (proc_pid_stat(5)).
        let policy = engine.file("$stat = file_get_contents('/proc/self/stat'); echo explode(' ', \
            substr($stat, strrpos($stat, ')') + 2))[38];");
        let ask = async || engine.answer(engine.ask(&policy)).await.unwrap().text();
        assert_eq!(ask().await, "0");
        let responses = futures_util::future::join_all((0..16).map(|_| async {
            let mut last = String::new();
            for _ in 0..100 {
                last = ask().await;
            }
            last
        })).await;
        assert!(responses.contains(&"3".into()), "{responses:?}");
        let pool = engine.pool().await;
        let mut events = 0;
        loop {
            until("all are idle", || {
                let workers = pool.status().workers;
                workers.iter().all(|worker| matches!(worker.state, WorkerState::Idle))
            })
            .await;
            if ask().await == "0" {
                break;
            }
            events += 1;
            // Any worker may take them. On a busy machine some count as concurrent, because the
            // previous one has not been returned yet.
            assert!(events < 20_000, "they wait in turn for ever");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
