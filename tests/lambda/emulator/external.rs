//! External extensions: separate programs that receive events and SHUTDOWN, and that the emulator
//! waits for.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use surus::emulator::{EmulatedFunction, Emulator, EventStatus, Runtime};
use tempfile::TempDir;

use super::fake::{LONG, error};
use super::runtimes::function;
use crate::common::executable::write_executable;
use crate::common::function_url;

/// Records what it receives with a timestamp, and does what the variable EXTENSION says.
const EXTENSION: &str = r#"#!/usr/bin/env python3
import http.client, json, os, sys, time

does = json.loads(os.environ["EXTENSION"])
name = os.path.basename(__file__)

def note(what):
    with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "notes"), "a") as notes:
        notes.write(json.dumps({"name": name, "at": time.time() * 1000, "what": what}) + "\n")

if does.get("before") == "exit":
    sys.exit(3)
api = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])

def ask(method, path, headers, body=None):
    api.request(method, "/2020-01-01/extension/" + path, body, headers)
    answer = api.getresponse()
    body = answer.read()
    if answer.status != 200:
        sys.exit(f"{path}: {answer.status} {body}")
    return answer, body

wants = json.dumps({"events": does.get("events", ["INVOKE", "SHUTDOWN"])})
answer, body = ask("POST", "register", {"Lambda-Extension-Name": name}, wants)
note({"registered": json.loads(body)})
own = {"Lambda-Extension-Identifier": answer.getheader("Lambda-Extension-Identifier")}
while True:
    event = json.loads(ask("GET", "event/next", own)[1])
    note(event)
    if event["eventType"] == "SHUTDOWN":
        note("ends")
        break
    if does.get("invoked") == "exit":
        sys.exit(4)
    time.sleep(does.get("holds", 0))
"#;

/// A record of an extension.
struct Note {
    name: String,
    /// Milliseconds since 1970.
    at: f64,
    what: Value,
}

/// A directory with extensions of these names and their records.
struct Extensions(TempDir);

impl Extensions {
    fn new(names: &[&str]) -> Extensions {
        let dir = tempfile::tempdir().unwrap();
        let opt = dir.path().join("extensions");
        std::fs::create_dir(&opt).unwrap();
        for name in names {
            let path = opt.join(name);
            write_executable(&path, EXTENSION);
        }
        // A file that is not executable must be ignored.
        std::fs::write(opt.join("README"), "not a program").unwrap();
        Extensions(dir)
    }

    fn add_to(&self, function: &mut EmulatedFunction, does: Value) {
        function.extensions = Some(self.0.path().join("extensions"));
        let does = does.to_string();
        function.variables.insert("EXTENSION".into(), does);
    }

    fn notes(&self) -> Vec<Note> {
        let text = std::fs::read_to_string(self.0.path().join("notes")).unwrap();
        let lines = text.lines().map(|line| {
            let note: Value = serde_json::from_str(line).unwrap();
            Note {
                name: note["name"].as_str().unwrap().into(),
                at: note["at"].as_f64().unwrap(),
                what: note["what"].clone(),
            }
        });
        lines.collect()
    }

    fn of_type(&self, event: &str) -> Vec<Note> {
        let notes = self.notes().into_iter();
        notes
            .filter(|note| note.what["eventType"] == event)
            .collect()
    }
}

#[tokio::test]
async fn external_extension_gets_events_and_shutdown() {
    let extensions = Extensions::new(&["first", "second"]);
    let mut function = function("echo");
    function.name = "named".into();
    extensions.add_to(&mut function, json!({}));
    let emulator = Emulator::start(function).await.unwrap();
    let mut told = Vec::new();
    for number in 0..3 {
        let invocation = emulator.invoke(number.to_string()).await;
        let answer: Value = serde_json::from_slice(&invocation.result.unwrap()).unwrap();
        told.push((invocation.request_id, answer["deadline"].as_f64().unwrap()));
    }
    for name in ["first", "second"] {
        let notes = extensions.notes();
        let registered = notes.iter().find(|note| note.name == name).unwrap();
        let says = &registered.what["registered"];
        assert_eq!(says["functionName"], "named");
        assert_eq!(says["functionVersion"], "$LATEST");
        let events = extensions.of_type("INVOKE");
        let events: Vec<_> = events
            .iter()
            .filter(|note| note.name == name)
            .map(|note| {
                let id = note.what["requestId"].as_str().unwrap().to_string();
                (id, note.what["deadlineMs"].as_f64().unwrap())
            })
            .collect();
        // Each event once, in order, with the runtime's deadline.
        assert_eq!(events, told, "{name}");
    }
    emulator.stop().await;
    let ended = extensions.of_type("SHUTDOWN");
    assert_eq!(ended.len(), 2);
    for note in &ended {
        assert_eq!(note.what["shutdownReason"], "spindown");
        let left = note.what["deadlineMs"].as_f64().unwrap() - note.at;
        assert!(left <= 2000.0, "{left} ms are more than Lambda gives");
    }
    let notes = extensions.notes();
    let last = notes.iter().filter(|note| note.what == "ends");
    assert_eq!(last.count(), 2, "they may exit by themselves");
}

#[tokio::test]
async fn report_waits_until_the_extension_asks_for_the_next_event() {
    let extensions = Extensions::new(&["slow"]);
    let mut function = function("echo");
    extensions.add_to(&mut function, json!({"holds": 0.4}));
    let emulator = Emulator::start(function).await.unwrap();
    for _ in 0..2 {
        let invocation = emulator.invoke("{}").await;
        assert!(invocation.result.is_ok());
        assert_eq!(invocation.report.status, EventStatus::Success);
        let held = Duration::from_millis(400);
        assert!(
            invocation.report.duration >= held,
            "{:?}",
            invocation.report
        );
        assert!(invocation.report.billed >= held, "{:?}", invocation.report);
    }
    emulator.stop().await;
}

#[tokio::test]
async fn extension_without_events_gets_shutdown_only() {
    let extensions = Extensions::new(&["quiet"]);
    let mut function = function("echo");
    extensions.add_to(&mut function, json!({"events": ["SHUTDOWN"], "holds": 600}));
    let emulator = Emulator::start(function).await.unwrap();
    assert!(emulator.invoke("{}").await.result.is_ok());
    assert!(emulator.invoke("{}").await.result.is_ok());
    emulator.stop().await;
    assert!(extensions.of_type("INVOKE").is_empty());
    assert_eq!(extensions.of_type("SHUTDOWN").len(), 1);
}

#[tokio::test]
async fn extension_not_ready_at_the_deadline_resets_the_environment() {
    // On a busy machine, the processes of the second event may start too late to register.
    let mut registered = 0;
    for seconds in [2, 8, 25] {
        registered = registered_until(seconds).await;
        if registered == 2 {
            break;
        }
    }
    assert_eq!(registered, 2, "a new environment for each event");
}

/// How often an extension registers that holds two events until their deadline.
async fn registered_until(seconds: u64) -> usize {
    let extensions = Extensions::new(&["late"]);
    let mut function = function("echo");
    function.timeout = Duration::from_secs(seconds);
    extensions.add_to(&mut function, json!({"holds": 600}));
    let emulator = Emulator::start(function).await.unwrap();
    for _ in 0..2 {
        let invocation = tokio::time::timeout(LONG, emulator.invoke("{}"))
            .await
            .unwrap();
        assert_eq!(invocation.report.status, EventStatus::Timeout);
        assert!(invocation.report.is_reset);
        assert!(invocation.report.duration >= Duration::from_secs(seconds));
        let log = invocation.log.join("\n");
        let timed_out = format!("Task timed out after {seconds}.00 seconds");
        assert!(log.contains(&timed_out), "{log}");
    }
    emulator.stop().await;
    let notes = extensions.notes();
    let registered = notes
        .iter()
        .filter(|note| note.what["registered"].is_object());
    registered.count()
}

#[tokio::test]
async fn extension_crash_fails_the_event() {
    let extensions = Extensions::new(&["mortal"]);
    let mut function = function("echo");
    extensions.add_to(&mut function, json!({"invoked": "exit"}));
    let emulator = Emulator::start(function).await.unwrap();
    let failed = emulator.invoke(r#"{"sleep": 600000}"#).await;
    let said = error(&failed);
    assert!(said.starts_with("Extension.Crash: "), "{said}");
    assert!(said.contains("mortal"), "{said}");
    emulator.stop().await;
}

#[tokio::test]
async fn extension_without_registration_is_named() {
    let extensions = Extensions::new(&["broken"]);
    let mut function = function("echo");
    extensions.add_to(&mut function, json!({"before": "exit"}));
    let emulator = Emulator::start(function).await.unwrap();
    let failed = emulator.invoke("{}").await;
    let said = error(&failed);
    assert!(
        said.contains("broken exited before it registered"),
        "{said}"
    );
    emulator.stop().await;
}

#[tokio::test]
async fn surus_with_an_extension_gets_sigterm_and_leaves_no_process() {
    let extensions = Extensions::new(&["parallel"]);
    let dir = tempfile::tempdir().unwrap();
    let index = "<?php echo 'answered';";
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(dir.path().join("index.php"), index).unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = log.clone();
    let mut function = EmulatedFunction::new(Runtime::Command {
        program: PathBuf::from(env!("CARGO_BIN_EXE_surus")),
        arguments: vec!["lambda".into()],
        directory: dir.path().into(),
    });
    function.timeout = LONG;
    function.sink = Some(Arc::new(move |line: &str| {
        sink.lock().unwrap().push(line.to_string());
    }));
    extensions.add_to(&mut function, json!({}));
    let emulator = Emulator::start(function).await.unwrap();
    let invocation = emulator.invoke(function_url::get("/").to_string()).await;
    let answer: Value = serde_json::from_slice(&invocation.result.unwrap()).unwrap();
    assert_eq!(answer["body"], "answered");
    assert_eq!(extensions.of_type("INVOKE").len(), 1);
    emulator.stop().await;
    let log = log.lock().unwrap();
    let was_told = log
        .iter()
        .any(|line| line.contains("Lambda is shutting this environment down"));
    assert!(was_told, "{log:?}");
    assert!(
        !log.iter().any(|line| line.contains("abandoned")),
        "{log:?}"
    );
    let told = extensions.of_type("SHUTDOWN");
    assert_eq!(told.len(), 1);
    assert!(!still_runs(dir.path()));
}

/// Whether a process has its working directory here.
fn still_runs(dir: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok())
        .any(|cwd| cwd.starts_with(dir))
}
