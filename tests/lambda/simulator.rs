//! Tests of `surus lambda` against `lambda-simulator`, an independent implementation of Lambda.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::common::function_url::get;
use lambda_simulator::{
    FreezeMode, InvocationState, InvocationStatus, ShutdownReason, Simulator, SimulatorPhase,
};
use surus_sys::signal::{self, Signal};

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

const INDEX: &str = "<?php
$count = fn () => is_file(__DIR__.'/count') ? (int) file_get_contents(__DIR__.'/count') : 0;
file_put_contents(__DIR__.'/count', $count() + 1);
if ('/die' === $_SERVER['REQUEST_URI']) { posix_kill(posix_getpid(), 9); }
echo $_SERVER['REQUEST_URI'], ' ', $count(), ' ';
echo json_decode($_SERVER['LAMBDA_INVOCATION_CONTEXT'])->awsRequestId;";

/// `surus lambda` with its own files. Dropping it ends the process.
struct Function {
    child: Child,
    dir: tempfile::TempDir,
}

impl Function {
    fn start(simulator: &Simulator, files: &[(&str, &str)], env: &[(&str, &str)]) -> Function {
        let dir = tempfile::tempdir().unwrap();
        let open = PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let child = Command::new(env!("CARGO_BIN_EXE_surus"))
            .arg("lambda")
            .envs(simulator.lambda_env_vars())
            .env_remove("LD_LIBRARY_PATH")
            .env("LAMBDA_TASK_ROOT", dir.path())
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Function { child, dir }
    }

    /// This process and its descendants.
    fn processes(&self) -> Vec<u32> {
        let mut all = vec![self.child.id()];
        let mut at = 0;
        while let Some(pid) = all.get(at) {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .map(|pid| pid.parse::<u32>().unwrap()),
            );
            at += 1;
        }
        all
    }

    /// Waits until it exits; returns the exit status and the log.
    async fn end(mut self) -> (ExitStatus, String) {
        let until = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "surus does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut log).unwrap();
        (status, log)
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // A stopped process handles no other signal.
        for pid in self.processes() {
            let _ = signal::send(pid, Signal::Continue);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process's state: `T` is stopped, `Z` has exited.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

async fn until<F: Future<Output = bool>>(simulator: &Simulator, what: &str, is_so: impl Fn() -> F) {
    let waited = simulator.wait_for(is_so, LIMIT).await;
    waited.unwrap_or_else(|error| panic!("{what}: {error}"));
}

async fn until_ready(simulator: &Simulator) {
    let is_ready = || async { simulator.phase().await == SimulatorPhase::Ready };
    until(simulator, "ready", is_ready).await;
}

/// The outcome of an event.
async fn outcome(simulator: &Simulator, id: &str) -> InvocationState {
    let is_over = || async {
        let state = simulator.get_invocation_state(id).await.unwrap();
        !matches!(
            state.status,
            InvocationStatus::Pending | InvocationStatus::InProgress
        )
    };
    until(simulator, "the event's end", is_over).await;
    simulator.get_invocation_state(id).await.unwrap()
}

#[tokio::test]
async fn start_ends_with_the_first_next_and_events_keep_their_order() {
    let simulator = Simulator::builder().build().await.unwrap();
    simulator.enable_telemetry_capture().await;
    assert_eq!(simulator.phase().await, SimulatorPhase::Initializing);
    let function = Function::start(&simulator, &[("index.php", INDEX)], &[]);
    until_ready(&simulator).await;
    let ended = simulator.get_telemetry_events_by_type("platform.initRuntimeDone");
    let ended = ended.await;
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].record["status"], "success");
    // Everything has booted, but PHP has not run a request.
    assert!(!function.dir.path().join("count").exists());

    // As an extension without events, registered in time and waiting for an event that never comes.
    let extensions = simulator.get_registered_extensions().await;
    let names: Vec<_> = extensions
        .iter()
        .map(|known| (&*known.name, known.events.len()))
        .collect();
    assert_eq!(names, [("surus", 0)]);
    let polls = || async {
        simulator
            .first_next_poll_at(&extensions[0].id)
            .await
            .is_some()
    };
    until(&simulator, "the extension asks for its event", polls).await;

    let mut ids = Vec::new();
    for number in 1..=5 {
        ids.push(simulator.enqueue_payload(get(&format!("/{number}"))).await);
    }
    let mut began = Vec::new();
    for (number, id) in (1..).zip(&ids) {
        let state = outcome(&simulator, id).await;
        assert_eq!(state.status, InvocationStatus::Success, "{state:?}");
        let answer = state.response.unwrap().payload;
        assert_eq!(answer["statusCode"], 200);
        assert_eq!(answer["body"], format!("/{number} {number} {id}"));
        began.push(state.started_at.unwrap());
    }
    assert!(began.is_sorted(), "{began:?}");
    let done = simulator
        .get_telemetry_events_by_type("platform.runtimeDone")
        .await;
    let done: Vec<_> = done
        .iter()
        .map(|event| event.record["requestId"].as_str().unwrap())
        .collect();
    assert_eq!(done, ids);
}

#[tokio::test]
async fn error_is_reported_and_the_next_event_is_answered() {
    let simulator = Simulator::builder().build().await.unwrap();
    let _function = Function::start(&simulator, &[("index.php", INDEX)], &[]);
    let died = simulator.enqueue_payload(get("/die")).await;
    let next = simulator.enqueue_payload(get("/next")).await;
    let state = outcome(&simulator, &died).await;
    assert_eq!(state.status, InvocationStatus::Error, "{state:?}");
    let error = state.error.unwrap();
    assert_eq!(error.error_type, "Runtime.ExitError");
    assert!(error.error_message.contains("SIGKILL"), "{error:?}");
    let state = outcome(&simulator, &next).await;
    assert_eq!(state.status, InvocationStatus::Success, "{state:?}");
    assert_eq!(
        state.response.unwrap().payload["body"],
        format!("/next 2 {next}")
    );
}

#[tokio::test]
async fn failed_start_is_an_init_error_and_ends_the_runtime() {
    let simulator = Simulator::builder().build().await.unwrap();
    let broken = "<?php throw new DomainException('no such table'); surus_serve(fn () => 1);";
    let env = [("SURUS_ENGINE_NAME", "rewind")];
    let function = Function::start(&simulator, &[("index.php", broken)], &env);
    let has_failed = || async { simulator.get_init_error().await.is_some() };
    until(&simulator, "the start-up error", has_failed).await;
    let error = simulator.get_init_error().await.unwrap();
    assert!(error.contains("no such table"), "{error}");
    assert_eq!(simulator.phase().await, SimulatorPhase::Initializing);
    let (status, log) = function.end().await;
    assert!(
        status.code().is_some_and(|code| code != 0),
        "{status}\n{log}"
    );
}

#[tokio::test]
async fn frozen_function_serves_the_next_event() {
    let freezing = Simulator::builder().freeze_mode(FreezeMode::Process);
    let simulator = freezing.build().await.unwrap();
    let function = Function::start(&simulator, &[("index.php", INDEX)], &[]);
    until_ready(&simulator).await;
    let processes = function.processes();
    // Surus, the prototype process and a worker.
    assert!(processes.len() >= 3, "{processes:?}");
    for pid in &processes {
        simulator.register_freeze_pid(*pid);
    }
    for number in 1..=3 {
        let epoch = simulator.freeze_epoch();
        let id = simulator.enqueue_payload(get(&format!("/{number}"))).await;
        let state = outcome(&simulator, &id).await;
        assert_eq!(state.status, InvocationStatus::Success, "{state:?}");
        let body = &state.response.unwrap().payload["body"];
        assert_eq!(*body, format!("/{number} {number} {id}"));
        until(&simulator, "frozen", || async { simulator.is_frozen() }).await;
        assert!(
            simulator.freeze_epoch() > epoch,
            "it is resumed for the event"
        );
        let are_stopped = || async { processes.iter().all(|pid| state_of(*pid) == Some('T')) };
        until(&simulator, "every process is stopped", are_stopped).await;
    }
    // The same processes all the time.
    let now = function.processes();
    if now != processes {
        let pid = processes[0].to_string();
        let _ = std::process::Command::new("kill")
            .args(["-KILL", &pid])
            .status();
        let (_, log) = function.end().await;
        panic!("{now:?} are not {processes:?}: {log}");
    }
}

#[tokio::test]
async fn shutdown_ends_all_processes() {
    let simulator = Simulator::builder().build().await.unwrap();
    let function = Function::start(&simulator, &[("index.php", INDEX)], &[]);
    let id = simulator.enqueue_payload(get("/")).await;
    assert_eq!(
        outcome(&simulator, &id).await.status,
        InvocationStatus::Success
    );
    let processes = function.processes();
    assert!(processes.len() >= 3, "{processes:?}");
    // Lambda sends SIGTERM to a runtime with an extension. The simulator leaves that to the test.
    signal::send(function.child.id(), Signal::Terminate).unwrap();
    let (status, log) = function.end().await;
    assert_eq!((status.code(), status.signal()), (Some(0), None), "{log}");
    let are_gone = || async {
        processes
            .iter()
            .all(|pid| matches!(state_of(*pid), None | Some('Z')))
    };
    until(&simulator, "every process has ended", are_gone).await;
    simulator.graceful_shutdown(ShutdownReason::Spindown).await;
}
