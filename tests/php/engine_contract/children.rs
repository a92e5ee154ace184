//! Tests processes that scripts fork: their output reaches no client, and they take no request.

use surus::event::Failure;

use super::subject::{lives, until};
use crate::common::gate::until_there;

/// How a child may exit, with the exit status that PHP gives it.
const ENDS: [(&str, &str); 6] = [
    ("exit(3);", "3"),
    ("return;", "0"),
    ("throw new Exception('in a child');", "255"),
    ("undefined_function();", "255"),
    ("function f() { exit('said in a child'); } f();", "0"),
    (
        "register_shutdown_function(function () { exit(5); }); return;",
        "5",
    ),
];

engine_contract! {
    surus_php:
    fn output_of_a_child_is_discarded(engine) {
        let engine = engine.workers(3).ini("display_errors", "1");
        let ordinary = engine.file("echo $_GET['n'], ' ', str_repeat($_GET['n'] . ',', 20000);");
        let long = "usleep(200000); echo str_repeat('LATE', 50000); flush(); header('Late: 1'); \
            headers_send(103); fastcgi_finish_request();";
        let forking: Vec<_> = ENDS.iter().map(|(end, _)| *end).chain([long]).map(|end| {
            engine.file(&format!(
                "echo 'from '; if (pcntl_fork() === 0) {{ echo 'CHILD'; flush(); {end} }} else {{ \
                    usleep(20000); echo 'PARENT ', $_GET['n']; }}",
            ))
        }).collect();
        let mut storm = Vec::new();
        for round in 0..60 {
            let n = format!("f{round}");
            let ask = engine.ask(&forking[round % forking.len()]).query(&format!("n={n}"));
            storm.push((n.clone(), format!("from PARENT {n}"), engine.start(ask).await));
            for k in 0..3 {
                let n = format!("{round}-{k}");
                let ask = engine.ask(&ordinary).query(&format!("n={n}"));
                let body = format!("{n} {}", format!("{n},").repeat(20000));
                storm.push((n, body, engine.start(ask).await));
            }
            if round % 10 == 9 {
                for (n, body, answer) in storm.drain(..) {
                    let answer = answer.await.unwrap().unwrap();
                    let text = answer.text();
                    assert!(answer.status == 200 && text == body, "{n}: {} \
                        {:.200}", answer.status, text);
                    assert!(!answer.headers.contains_key("late"));
                }
            }
        }
    }

    fn child_exits_like_a_php_process(engine) {
        let at = engine.writable();
        for (end, status) in ENDS {
            let note = at.join("note");
            let _ = std::fs::remove_file(&note);
            let code = format!(
                "if (($child = pcntl_fork()) === 0) {{
                     register_shutdown_function(function () {{ file_put_contents('{note}', 'down \
                     ', FILE_APPEND); }});
                     $GLOBALS['noting'] = new class {{ function __destruct() {{ \
                     file_put_contents('{note}', 'gone', FILE_APPEND); }} }};
                     {end}
                 }} else {{ pcntl_waitpid($child, $how); echo pcntl_wifexited($how) ? \
                 pcntl_wexitstatus($how) : 'killed'; }}",
                note = note.display(),
            );
            assert_eq!(engine.text(&code).await, status, "{end}");
            let noted = std::fs::read_to_string(&note).unwrap_or_default();
            assert_eq!(noted, "down gone", "{end}");
            assert_eq!(engine.text("echo 'next';").await, "next");
        }
    }

    fn child_forked_at_the_end_of_a_request_takes_no_request(engine) {
        let engine = engine.workers(1);
        let note = engine.writable().join("child");
        for _ in 0..3 {
            let code = format!(
                "register_shutdown_function(function () {{ if (pcntl_fork() === 0) {{ \
                    file_put_contents('{}', getmypid()); echo 'CHILD'; }} }}); echo 'answer';",
                note.display(),
            );
            assert_eq!(engine.text(&code).await, "answer");
            until("the child has noted \
                itself", || std::fs::read_to_string(&note).is_ok_and(|pid| !pid.is_empty())).await;
            let child: u32 = std::fs::read_to_string(&note).unwrap().parse().unwrap();
            std::fs::remove_file(&note).unwrap();
            until("it has ended", || !lives(child)).await;
            assert_eq!(engine.text("echo 'next';").await, "next");
        }
    }

    fn surviving_child_neither_answers_nor_blocks_requests(engine) {
        let engine = engine.workers(2);
        let (note, gate) = (engine.writable().join("went-on"), engine.writable().join("gate"));
        let forked = engine.text(&format!(
            "$child = pcntl_fork(); if ($child === 0) {{
                 while (!file_exists('{}')) {{ usleep(5000); clearstatcache(); }}
                 echo 'LATE'; flush(); file_put_contents('{}', 'it went on'); exit;
             }} echo $child;",
            gate.display(), note.display(),
        )).await;
        let child: u32 = forked.parse().unwrap();
        for n in 0..20 {
            let pid: u32 = engine.text("echo getmypid();").await.parse().unwrap();
            assert!(pid != child, "{n}");
        }
        assert!(lives(child));
        engine.pool().await.drain().await;
        assert!(lives(child), "as under php-fpm");
        std::fs::write(&gate, "").unwrap();
        until("it has ended", || !lives(child)).await;
        assert_eq!(std::fs::read_to_string(&note).unwrap(), "it went on");
    }

    fn process_forked_without_libc_answers_no_request(engine) {
        let engine = engine.workers(2).ini("ffi.enable", "1");
        if engine.text("echo extension_loaded('ffi') ? 'there' : 'missing';").await == "missing" {
            return;
        }
        // No fork handler of libc runs for it.
        let ends = ["exit(0);", "return;", "usleep(100000); echo str_repeat('LATE', 50000); \
            flush();"];
        for round in 0..12 {
            let answer = engine.text(&format!(
                "$libc = FFI::cdef('int _Fork(void);'); if ($libc->_Fork() === 0) {{ echo 'CHILD'; \
                    {} }} else {{ usleep(20000); echo 'PARENT'; }}",
                ends[round % ends.len()],
            )).await;
            assert_eq!(answer, "PARENT");
            for n in 0..10 {
                assert_eq!(engine.text(&format!("echo 'own {n}';")).await, format!("own {n}"));
            }
        }
    }

    fn worker_that_forges_responses_loses_its_request(engine) {
        let engine = engine.workers(3).ini("ffi.enable", "1");
        if engine
            .text("echo extension_loaded('ffi') ? 'there' : 'missing';")
            .await
            == "missing"
        {
            return;
        }
        for before in ["", "echo 'begun'; flush(); "] {
            // Descriptors 4 and 9 are sockets of all workers; the other one is the worker's own to
            // Surus.
            let liar = engine.php(&format!(
                "{before}$libc = FFI::cdef('long write(int, const char *, size_t);');
                 for ($fd = 3; $fd < 40; $fd++) {{
                     if ($fd == 4 || $fd == 9 || !str_starts_with((string) \
                     @readlink(\"/proc/self/fd/$fd\"), 'socket:')) continue;
                     for ($id = 1; $id < 30; $id++) {{
                         $text = \"\\r\\n\\r\\nSTOLEN\";
                         $record = pack('CCnnCC', 1, 6, $id, strlen($text), 0, 0) . $text;
                         $libc->write($fd, $record, strlen($record));
                     }}
                 }} sleep(60); echo 'done';",
            ));
            let gate = engine.writable().join(format!("gate{}", before.len()));
            let code = format!("{} echo 'own';", until_there(&gate));
            let others = engine.occupy(2, &code).await;
            let lied = engine.answer(liar).await;
            let is_killed = |how: &str| engine.says_how(how, "SIGKILL");
            assert!(
                matches!(&lied, Err(Failure::WorkerCrashed(how)) if is_killed(how)),
                "{lied:?}"
            );
            std::fs::write(&gate, "").unwrap();
            for other in others {
                assert_eq!(other.await.unwrap().unwrap().text(), "own");
            }
            assert_eq!(engine.text("echo 'next';").await, "next");
        }
    }
}
