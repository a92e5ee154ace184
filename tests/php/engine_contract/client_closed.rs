//! Tests that a disconnected client ends its script, wherever that is, and not the process.

use std::os::unix::fs::PermissionsExt;
use std::pin::Pin;

use http_body::Body as _;
use surus::observe::status::WorkerState;

use super::subject::{Ask, Subject, until};

/// A script whose client has disconnected when it continues. `$trace()` records what has happened;
/// a shutdown function records the status of the connection, and `$write()` writes until that ends
/// the script.
const BEGIN: &str = "
    $trace = function ($what) { file_put_contents(TRACE, \"$what \", FILE_APPEND); };
    $write = function () use ($trace) { for ($i = 0; $i < 20000; $i++) { echo 'x'; flush(); \
    usleep(1000); } $trace('ran on'); };
    register_shutdown_function(function () use ($trace) { $trace('status ' . connection_status()); \
    echo 'to nobody'; $trace('end'); });
    echo 'begun'; flush();
    for ($i = 0; $i < 20000 && !file_exists(TRACE); $i++) { usleep(1000); clearstatcache(); }
";

/// Runs `code` for a client that disconnects at `BEGIN;`, which precedes the code unless it
/// contains it. Returns the trace.
async fn leave(engine: &Subject, code: &str) -> String {
    let file = tempfile::Builder::new()
        .tempfile_in(engine.writable())
        .unwrap()
        .into_temp_path();
    std::fs::remove_file(&file).unwrap();
    let begin = BEGIN.replace("TRACE", &format!("'{}'", file.display()));
    let code = if code.contains("BEGIN;") {
        code.replace("BEGIN;", &begin)
    } else {
        format!("{begin} {code}")
    };
    let (ask, tracker): (Ask, _) = engine.php(&code).held();
    let mut body = engine.send(ask).await.unwrap().into_body();
    let begun = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
    assert!(begun.unwrap().is_ok());
    drop(body);
    // Created with permissions that let the workers, which may run as another user, write to it.
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, "").unwrap();
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o666)).unwrap();
    std::fs::rename(&fresh, &file).unwrap();
    tracker.wait().await;
    std::fs::read_to_string(&file)
        .unwrap()
        .trim_end()
        .to_string()
}

/// The same; then the process must still exist and work.
async fn leave_whole(engine: &Subject, code: &str) -> String {
    let before = process(engine).await;
    let traced = leave(engine, code).await;
    assert_eq!(engine.text("echo 'next';").await, "next", "after {code}");
    if !engine.entry.serves_one {
        assert_eq!(process(engine).await, before, "replaced after {code}");
    }
    traced
}

/// The process that responds, and its memory.
async fn process(engine: &Subject) -> String {
    engine.text("echo posix_getpid();").await
}

engine_contract! {
    fn script_of_a_closed_client_ends_at_its_next_write(engine) {
        let engine = engine.workers(1);
        for code in [
            "$write(); $trace('ran on');",
            "function deep($n, $write) { try { $n ? deep($n - 1, $write) : $write(); } catch \
                (Throwable $e) { echo 'caught'; } finally { echo 'finally'; } }
             deep(20, $write); $trace('ran on');",
            "ob_start(); echo 'kept'; ob_end_flush(); $write(); $trace('ran on');",
            "ob_start(fn ($text) => strtoupper($text), 1); $write(); $trace('ran on');",
            "$list = range(1, 100); usort($list, function ($a, $b) use ($write) { $write(); return \
                $a <=> $b; }); $trace('ran on');",
            "array_map($write, [1, 2]); $trace('ran on');",
            "foreach ((function () use ($write) { yield 1; $write(); yield 2; })() as $x); \
                $trace('ran on');",
            "(new Fiber($write))->start(); $trace('ran on');",
            "$o = new class($write) { function __construct(public $write) {} function __toString() \
                { ($this->write)(); return ''; } }; $s = \"a $o b\"; $trace('ran on');",
            "preg_replace_callback('/./', fn () => $write(), 'abc'); $trace('ran on');",
            "spl_autoload_register($write); class_exists('Nowhere'); $trace('ran on');",
            "set_error_handler($write); echo $undefined; $trace('ran on');",
            "ini_set('display_errors', '1'); for ($i = 0; $i < 20000; $i++) { echo $undefined; \
                flush(); usleep(1000); } $trace('ran on');",
            "for ($i = 0; $i < 20000; $i++) { var_dump([1, [2, [3]]]); flush(); usleep(1000); } \
                $trace('ran on');",
            "for ($i = 0; $i < 20000; $i++) { echo str_repeat('x', 1 << 20); usleep(1000); } \
                $trace('ran on');",
        ] {
            assert_eq!(leave_whole(&engine, code).await, "status 1 end", "{code}");
        }
    }

    fn exception_handler_of_a_closed_client_ends(engine) {
        let engine = engine.workers(1).ini("display_errors", "0");
        let traced = leave_whole(&engine, "set_exception_handler(function () use ($write, $trace) \
            { $trace('handled'); $write(); }); throw new Exception('x');").await;
        assert_eq!(traced, "handled status 1 end");
    }

    fn shutdown_function_of_a_closed_client_ends_and_later_ones_are_skipped(engine) {
        let engine = engine.workers(1);
        let code = "register_shutdown_function(function () use (&$write, &$trace) { \
            $trace('first'); $write(); }); BEGIN;";
        assert_eq!(leave_whole(&engine, code).await, "first");
    }

    fn destructors_run_when_the_client_has_closed(engine) {
        let engine = engine.workers(1);
        let code = "class Thing { function __construct(public $trace) {} function __destruct() { \
            echo 'to nobody'; ($this->trace)('destructed'); } }
            (function () use ($trace, $write) { $thing = new Thing($trace); $write(); })();";
        let traced = leave_whole(&engine, code).await;
        // php-fpm's order, or that of exit().
        assert!(["status 1 end destructed", "destructed status 1 \
            end"].contains(&traced.as_str()), "{traced}");
    }

    fn script_with_ignore_user_abort_continues(engine) {
        let engine = engine.workers(1);
        let code = "ignore_user_abort(true); for ($i = 0; $i < 20000 && !connection_aborted(); \
            $i++) { echo 'x'; flush(); usleep(1000); } $trace('ran on');";
        assert_eq!(leave_whole(&engine, code).await, "ran on status 1 end");
    }

    fn session_of_a_closed_client_is_written(engine) {
        let engine = engine.workers(1);
        let (id, path) = ("a1b2c3d4e5f6a7b8c9d0", engine.writable().display().to_string());
        let code = format!("session_save_path('{path}'); session_id('{id}'); session_start(); \
            $_SESSION['seen'] = 'kept'; BEGIN; $write();");
        assert_eq!(leave_whole(&engine, &code).await, "status 1 end");
        let session = std::fs::read_to_string(engine.writable().join(format!("sess_{id}")));
        assert!(session.is_ok_and(|text| text.contains("kept")));
    }

    fn endless_internal_function_is_aborted(engine) {
        let engine = engine.workers(1);
        let traced = leave(&engine, "readfile('/dev/zero'); $trace('ran on');").await;
        assert_eq!(traced, "status 1 end");
        assert_eq!(engine.text("echo 'next';").await, "next");
    }

    fn exit_ends_the_script_and_not_the_process(engine) {
        let engine = engine.workers(1);
        let before = process(&engine).await;
        for (code, answer) in [
            ("echo 'a'; exit(3);", "a"),
            ("register_shutdown_function(function () { echo 'b'; exit(3); }); \
                register_shutdown_function(fn () => print 'c'); echo 'a';", "ab"),
            ("set_exception_handler(function ($e) { echo $e->getMessage(); exit(3); }); throw new \
                Exception('a');", "a"),
            ("set_exception_handler(function ($e) { echo $e->getMessage(); }); throw new \
                Exception('a');", "a"),
        ] {
            assert_eq!(engine.text(code).await, answer, "{code}");
            if !engine.entry.serves_one {
                assert_eq!(process(&engine).await, before, "replaced after {code}");
            }
        }
    }

    fn clients_that_close_during_responses_cost_no_process(engine) {
        let engine = engine.workers(4);
        let pool = engine.pool().await;
        engine.text("echo 1;").await;
        let code = "for ($i = 0; $i < 20000; $i++) { echo str_repeat('x', 1000); flush(); \
            usleep(100); }";
        let before = engine.pids().await;
        let load: Vec<_> = std::iter::repeat_with(|| engine.start(engine.php(code)))
            .take(8)
            .collect();
        let mut running = Vec::new();
        for task in load {
            running.push(task.await);
        }
        until("all are at work", || {
            pool.status()
                .workers
                .iter()
                .filter(|worker| matches!(worker.state, WorkerState::Busy))
                .count()
                == 4
        })
        .await;
        for task in running {
            task.abort();
        }
        assert_eq!(engine.text("echo 'next';").await, "next");
        until("all have ended", || {
            pool.status()
                .workers
                .iter()
                .all(|worker| matches!(worker.state, WorkerState::Idle))
        })
        .await;
        if !engine.entry.serves_one {
            assert_eq!(engine.pids().await, before);
        }
    }
}
