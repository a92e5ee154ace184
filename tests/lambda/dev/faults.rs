//! Tests of `surus lambda` with faults that the emulator injects, and of all ways that Lambda
//! starts a runtime.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::json;
use surus::emulator::fault_injection::{Faults, Injection};
use surus::emulator::{EmulatedFunction, EventStatus, Initialization, Invocation, LogFormat};

use super::behind::Behind;
use super::corpus::eventually;

/// Not below `/tmp`, which a function may write to.
struct App(tempfile::TempDir);

const ENGINES: [&str; 2] = ["classic", "rewind"];

impl App {
    /// An application for each engine; `code` computes `$answer` from `$event`.
    fn new(engine: &str, code: &str) -> App {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        // PHP may run as another user.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let event = "$event = json_decode(file_get_contents('php://input'), true);";
        let body = format!("{event} {code} echo json_encode($answer);");
        let script = match engine {
            "classic" => format!("<?php note('boot'); {body}"),
            _ => format!("<?php note('boot'); surus_serve(function () {{ {body} }});"),
        };
        let note = "function note($what) {
            @file_put_contents(__DIR__.'/notes', $what.' ', FILE_APPEND);
        }";
        std::fs::write(dir.path().join("index.php"), format!("{script} {note}")).unwrap();
        App(dir)
    }

    fn run(&self, engine: &str, configure: impl FnOnce(&mut EmulatedFunction)) -> Behind {
        let env = [("SURUS_ENGINE_NAME", engine)];
        Behind::start_as(self.0.path(), &env, configure)
    }

    fn with(&self, engine: &str, fault: &str) -> Behind {
        let fault: Injection = fault.parse().unwrap();
        self.run(engine, |function| {
            function.faults = Faults::new(vec![fault])
        })
    }

    /// The notes without those of boots.
    fn notes(&self) -> Vec<String> {
        let notes = std::fs::read_to_string(self.0.path().join("notes")).unwrap_or_default();
        let notes = notes.split_whitespace().filter(|note| *note != "boot");
        notes.map(Into::into).collect()
    }

    fn boots(&self) -> usize {
        let notes = std::fs::read_to_string(self.0.path().join("notes")).unwrap();
        notes.matches("boot").count()
    }
}

fn error(invocation: &Invocation) -> String {
    let error = invocation.result.as_ref().unwrap_err();
    String::from_utf8_lossy(&error.body).into_owned()
}

/// The pid of the runtime: the grandparent of the worker.
const RUNTIME: &str = r"$status = file_get_contents('/proc/'.posix_getppid().'/status');
        preg_match('/PPid:\s*(\d+)/', $status, $found);
        $answer = (int) $found[1];";

#[test]
fn read_only_file_system_allows_tmp_only() {
    let probe = std::process::Command::new("unshare")
        .args(["--mount", "true"])
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("skipped: mount namespaces are not permitted here");
        return;
    }
    let code = "$file = tempnam('/tmp', 'r');
        $in_root = @file_put_contents(__DIR__.'/x', 'x');
        $answer = [$in_root, file_put_contents($file, 'x'), unlink($file)];";
    for engine in ENGINES {
        let app = App::new(engine, code);
        let function = app.with(engine, "read-only");
        for _ in 0..2 {
            assert_eq!(function.invoke("{}"), json!([false, 1, true]), "{engine}");
        }
    }
}

#[test]
fn freeze_is_reported_and_fails_no_event() {
    let code = "$answer = (int) ($_SERVER['SURUS_THAWED'] ?? 0);";
    for engine in ENGINES {
        let function = App::new(engine, code);
        let function = function.with(engine, "freeze");
        // On a busy machine, the function may stand still for as long as in a freeze.
        assert!((0..20).any(|_| function.invoke("{}") == 0));
        std::thread::sleep(Duration::from_millis(3500));
        let thawed = function.invoke("{}");
        assert!(thawed.as_u64().unwrap() >= 1, "{engine}: {thawed}");
    }
}

#[test]
fn timeout_replaces_the_environment() {
    for engine in ENGINES {
        let app = App::new(engine, RUNTIME);
        let function = app.with(engine, "timeout@2");
        let first = function.invoke("{}");
        let failed = function.invocation("{}");
        assert_eq!(failed.report.status, EventStatus::Timeout);
        let text = error(&failed);
        assert!(text.contains("Task timed out"), "{text}");
        assert_ne!(function.invoke("{}"), first, "{engine}");
    }
}

#[test]
fn duplicate_event_runs_twice() {
    let code = "
        $answer = json_decode($_SERVER['LAMBDA_INVOCATION_CONTEXT'])->awsRequestId;
        note($answer);";
    for engine in ENGINES {
        let app = App::new(engine, code);
        let function = app.with(engine, "duplicate@2");
        let ids: Vec<_> = (0..3)
            .map(|_| function.invoke("{}").as_str().unwrap().to_string())
            .collect();
        let expected = [&ids[0], &ids[1], &ids[1], &ids[2]];
        assert_eq!(app.notes(), expected.map(String::clone), "{engine}");
    }
}

#[test]
fn out_of_memory_fails_at_most_one_event() {
    let code = "
        if ($event['greedy'] ?? false) {
            $all = str_repeat('x', 100 << 20);
            usleep(1_000_000);
        }
        $answer = 'fine';";
    for engine in ENGINES {
        let app = App::new(engine, code);
        let function = app.with(engine, "out-of-memory@2");
        assert_eq!(function.invoke("{}"), "fine");
        let greedy = function.invocation(r#"{"greedy":true}"#);
        // Usually the kernel kills the worker, but the runtime or the prototype process may still
        // be the largest. Without its prototype process, a worker finishes its event.
        match &greedy.result {
            Ok(answer) => assert_eq!(answer, "\"fine\""),
            Err(_) => {
                let text = error(&greedy);
                assert!(text.contains("Runtime.ExitError"), "{engine}: {text}");
            }
        }
        assert_eq!(function.invoke("{}"), "fine", "{engine}");
    }
}

#[test]
fn killed_worker_fails_only_its_event() {
    let code = format!("while ($event['endless'] ?? false) {{ usleep(10_000); }} {RUNTIME}");
    for engine in ENGINES {
        let app = App::new(engine, &code);
        let function = app.run(engine, |function| {
            function.faults = Faults::new(vec!["kill-worker@2".parse().unwrap()]);
            function.timeout = Duration::from_secs(600);
        });
        let first = function.invoke("{}");
        let failed = function.invocation(r#"{"endless":true}"#);
        let text = error(&failed);
        assert!(text.contains("Runtime.ExitError"), "{engine}: {text}");
        assert_eq!(function.invoke("{}"), first, "{engine}");
    }
}

#[test]
fn snapshot_is_restored_before_the_first_event() {
    let code = "$answer = getmypid();";
    for engine in ENGINES {
        let app = App::new(engine, code);
        let function = app.run(engine, |function| {
            function.initialization = Initialization::SnapStart;
        });
        // Written before the snapshot, but read in another thread.
        let says = |what: &str| eventually(|| function.log().contains(what));
        assert!(says("ready for the snapshot"), "{}", function.log());
        let booted = function.log();
        assert!(!booted.contains("restored from a snapshot"), "{booted}");
        let first = function.invocation("{}");
        assert!(first.result.is_ok(), "{}", function.log());
        assert!(first.report.restore.is_some());
        assert!(says("restored from a snapshot"), "{}", function.log());
        assert!(function.invocation("{}").report.restore.is_none());
        if engine == "rewind" {
            assert_eq!(app.boots(), 1);
        }
    }
}

#[test]
fn emulated_managed_instance_runs_events_concurrently() {
    // Each waits for the others.
    let code = "note($event['n']);
        for ($n = 0; $n < 2000; $n++) {
            $notes = trim(file_get_contents(__DIR__.'/notes'), ' bot');
            if (count(array_unique(preg_split('/( boot)* /', $notes))) >= 3) {
                break;
            }
            usleep(5000);
        }
        $answer = [$event['n'], $n < 2000];";
    for engine in ENGINES {
        let app = App::new(engine, code);
        let function = app.run(engine, |function| {
            function.initialization = Initialization::ManagedInstances { concurrency: 3 };
            function.log_format = LogFormat::Json;
        });
        std::thread::scope(|scope| {
            let function = &function;
            let asked: Vec<_> = (0..3)
                .map(|n| scope.spawn(move || function.invoke(&json!({ "n": n }).to_string())))
                .collect();
            for (n, asked) in asked.into_iter().enumerate() {
                assert_eq!(asked.join().unwrap(), json!([n, true]), "{engine}");
            }
        });
    }
}
