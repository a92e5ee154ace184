//! Every fault, as the runtime and the caller see it.

use std::time::{Duration, Instant};

use super::fake::{attached, error, invoke};
use super::runtimes::function;
use surus::emulator::fault_injection::{Faults, Injection};
use surus::emulator::{EmulatedFunction, Emulator, EventStatus};

fn faults(names: &[&str]) -> Faults {
    Faults::new(
        names
            .iter()
            .map(|name| name.parse::<Injection>().unwrap())
            .collect(),
    )
}

fn with(behaviour: &str, names: &[&str]) -> EmulatedFunction {
    let mut function = function(behaviour);
    function.faults = faults(names);
    function
}

#[tokio::test]
async fn fault_410_ends_the_event_but_not_the_runtime() {
    let (emulator, mut runtime) = attached(|f| f.faults = faults(&["410@2"])).await;
    for number in 1..=4 {
        let invoking = invoke(&emulator, "1");
        let event = runtime.next().await;
        let said = runtime.respond(event.id(), "x").await;
        assert_eq!(said.status, if number % 2 == 0 { 410 } else { 202 });
        let mut asking = runtime.another().await;
        let next = tokio::spawn(async move {
            let path = "/2018-06-01/runtime/invocation/next";
            asking.try_call(http::Method::GET, path, &[], "").await
        });
        let invocation = invoking.await.unwrap();
        next.abort();
        match number % 2 {
            0 => assert_eq!(
                error(&invocation),
                "Sandbox.Timedout: RequestId: ID Error: Task timed out"
            ),
            _ => assert_eq!(invocation.result.unwrap(), "x"),
        }
    }
}

#[tokio::test]
async fn fault_413_is_the_callers_error() {
    let (emulator, mut runtime) = attached(|f| f.faults = faults(&["413"])).await;
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    let said = runtime.respond(event.id(), "small").await;
    assert!(said.refusal().starts_with("413 RequestEntityTooLarge"));
    runtime.echo();
    let failed = invoking.await.unwrap();
    assert!(error(&failed).starts_with("Function.ResponseSizeTooLarge"));
}

#[tokio::test]
async fn fault_500_fails_every_call_until_the_runtime_exits() {
    let (emulator, mut runtime) = attached(|function| {
        function.faults = faults(&["500"]);
        function.timeout = Duration::from_secs(5);
    })
    .await;
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    let internal = "500 InternalServerError: Internal Server Error";
    let said = runtime.respond(event.id(), "x").await;
    assert_eq!(said.refusal(), internal);
    let said = runtime.get("/2018-06-01/runtime/invocation/next").await;
    assert_eq!(said.refusal(), internal);
    let failed = invoking.await.unwrap();
    assert_eq!(failed.report.status, EventStatus::Timeout);
}

#[tokio::test]
async fn fault_timeout_fires_when_the_runtime_responds() {
    let (emulator, mut runtime) = attached(|function| {
        function.faults = faults(&["timeout"]);
        function.timeout = Duration::from_secs(20);
    })
    .await;
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    let path = format!("/2018-06-01/runtime/invocation/{}/response", event.id());
    let said = runtime.try_call(http::Method::POST, &path, &[], "x").await;
    assert!(said.is_none_or(|said| said.status == 410));
    let failed = invoking.await.unwrap();
    assert_eq!(
        error(&failed),
        "Sandbox.Timedout: RequestId: ID Error: Task timed out after 20.00 seconds"
    );
    assert!(failed.report.duration < Duration::from_secs(20));
}

#[tokio::test]
async fn fault_slow_next_delivers_the_event_in_pieces() {
    let (emulator, mut runtime) = attached(|f| f.faults = faults(&["slow-next"])).await;
    let invoking = invoke(&emulator, "an event of some length");
    let began = Instant::now();
    let event = runtime.next().await;
    assert_eq!(event.body, "an event of some length");
    assert!(began.elapsed() >= Duration::from_millis(200));
    runtime.respond(event.id(), "x").await;
    runtime.echo();
    assert_eq!(invoking.await.unwrap().result.unwrap(), "x");
}

#[tokio::test]
async fn fault_duplicate_repeats_the_id_as_another_attempt() {
    let (emulator, mut runtime) = attached(|f| f.faults = faults(&["duplicate@2"])).await;
    let first = invoke(&emulator, "once");
    let event = runtime.next().await;
    runtime.respond(event.id(), "x").await;
    let second = invoke(&emulator, "twice");
    let event = runtime.next().await;
    assert_eq!(first.await.unwrap().result.unwrap(), "x");
    runtime.respond(event.id(), "y").await;
    let again = runtime.next().await;
    assert_eq!(again.body, "twice");
    assert_eq!(again.id(), event.id());
    assert_ne!(again.nonce(), event.nonce());
    let stale = [("lambda-runtime-invocation-id", event.nonce())];
    let path = format!("/2018-06-01/runtime/invocation/{}/response", again.id());
    assert_eq!(runtime.post(&path, &stale, "z").await.status, 410);
    runtime.respond(again.id(), "z").await;
    runtime.echo();
    assert_eq!(second.await.unwrap().result.unwrap(), "y");
}

#[tokio::test]
async fn fault_freeze_stops_all_processes_between_events() {
    let emulator = Emulator::start(with("with-worker", &["freeze@2"]))
        .await
        .unwrap();
    let mark = format!("AWS_LAMBDA_RUNTIME_API={}", emulator.address().unwrap());
    for number in 1..=5 {
        emulator.invoke("{}").await.result.unwrap();
        let expected = if number % 2 == 0 { "TT" } else { "SS" };
        let limit = Instant::now() + super::fake::LONG;
        while states(&mark) != expected {
            assert!(Instant::now() < limit, "{} after {number}", states(&mark));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    emulator.stop().await;
}

/// The state codes of the processes with this environment variable.
fn states(variable: &str) -> String {
    let mut states: Vec<String> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let environ = std::fs::read(path.join("environ")).ok()?;
            environ
                .split(|byte| *byte == 0)
                .any(|v| v == variable.as_bytes())
                .then_some(())?;
            let stat = std::fs::read_to_string(path.join("stat")).ok()?;
            let state = stat.rsplit_once(')')?.1.split_whitespace().next()?;
            Some(state.replace('R', "S"))
        })
        .collect();
    states.sort();
    states.concat()
}

#[tokio::test]
async fn fault_kill_worker_leaves_the_runtime_running() {
    let emulator = Emulator::start(with("with-worker", &["kill-worker@2"]))
        .await
        .unwrap();
    emulator.invoke("{}").await.result.unwrap();
    // On a busy machine, an event may be over before the worker is killed.
    let mut log = Vec::new();
    for _ in 0..40 {
        let invocation = emulator.invoke(r#"{"sleep":1000}"#).await;
        assert!(invocation.result.is_ok());
        log.extend(invocation.log);
        if log.concat().contains("the worker ended: signal: 9") {
            break;
        }
    }
    let log = log.concat();
    assert!(log.contains("the worker ended: signal: 9"), "{log}");
    emulator.stop().await;
}

#[tokio::test]
async fn fault_out_of_memory_kills_the_largest_process() {
    let emulator = Emulator::start(with("with-worker", &["out-of-memory@2"]))
        .await
        .unwrap();
    emulator.invoke("{}").await.result.unwrap();
    let failed = emulator.invoke(r#"{"sleep":600000}"#).await;
    assert_eq!(
        error(&failed),
        "Runtime.ExitError: RequestId: ID Error: Runtime exited with error: signal: killed"
    );
    assert_eq!(
        failed.report.status,
        EventStatus::Error("Runtime.OutOfMemory".into())
    );
    assert!(emulator.invoke("{}").await.result.is_ok());
    emulator.stop().await;
}

#[tokio::test]
async fn fault_read_only_makes_only_tmp_writable() {
    let probe = std::process::Command::new("unshare")
        .args(["--mount", "true"])
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("not tested: no mount namespace is allowed here");
        return;
    }
    // The project itself may be below /tmp.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let place = directory.path().join("file").display().to_string();
    let payload = serde_json::json!({"write": place}).to_string();
    for (names, expected) in [
        (
            &["read-only"][..],
            r#""read-only filesystem or storage medium""#,
        ),
        (&[][..], "null"),
    ] {
        let emulator = Emulator::start(with("echo", names)).await.unwrap();
        let written = emulator.invoke(payload.clone()).await.result.unwrap();
        assert_eq!(written, expected);
        let name = format!("/tmp/surus-read-only-{}", std::process::id());
        let in_tmp = serde_json::json!({"write": name}).to_string();
        assert_eq!(emulator.invoke(in_tmp).await.result.unwrap(), "null");
        emulator.stop().await;
        let _ = std::fs::remove_file(name);
    }
}
