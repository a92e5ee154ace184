//! The life cycle of an environment: initialization, deadlines, snapshots, concurrent events on
//! instances.

use std::time::{Duration, Instant};

use super::fake::{Fake, LONG, attached, error, invoke};
use surus::emulator::{EventStatus, Initialization, LogFormat};

const NEXT: &str = "/2018-06-01/runtime/invocation/next";

#[tokio::test]
async fn log_has_lambdas_lines_around_an_event() {
    let (emulator, runtime) = attached(|_| {}).await;
    runtime.echo();
    let first = invoke(&emulator, "1").await.unwrap();
    let id = &first.request_id;
    assert!(first.log[0].starts_with("INIT_START Runtime Version: "));
    assert_eq!(
        first.log[1],
        format!("START RequestId: {id} Version: $LATEST")
    );
    assert_eq!(first.log[2], format!("END RequestId: {id}"));
    assert_eq!(first.log[3], first.report.text());
    assert!(first.log[3].starts_with(&format!("REPORT RequestId: {id}\tDuration: ")));
    let init = first.report.init.unwrap();
    assert!(first.log[3].contains("\tInit Duration: "));
    assert!(first.report.billed >= init + first.report.duration);
    let second = invoke(&emulator, "2").await.unwrap();
    assert_eq!(second.log.len(), 3, "{:?}", second.log);
    assert_eq!(second.report.init, None);
    assert_eq!(second.report.status, EventStatus::Success);
}

#[tokio::test]
async fn json_log_has_platform_events() {
    let (emulator, runtime) = attached(|f| f.log_format = LogFormat::Json).await;
    runtime.echo();
    let first = invoke(&emulator, "1").await.unwrap();
    let lines: Vec<serde_json::Value> = first
        .log
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["type"].clone()).collect();
    assert_eq!(
        kinds,
        ["platform.initStart", "platform.start", "platform.report"]
    );
    assert_eq!(lines[2]["record"]["status"], "success");
    assert_eq!(lines[2]["record"]["requestId"], first.request_id);
    assert_eq!(lines[2]["record"]["metrics"]["memorySizeMB"], 128);
}

#[tokio::test]
async fn failed_initialization_is_retried_inside_the_event() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let invoking = invoke(&emulator, "1");
    let path = "/2018-06-01/runtime/init/error";
    let kind = [("lambda-runtime-function-error-type", "Runtime.BadBoot")];
    let body = r#"{"errorMessage":"PHP says no","errorType":"Runtime.BadBoot"}"#;
    let address = emulator.address().unwrap();
    for _ in 0..2 {
        // The first sandbox ends with the first error and closes its connections.
        while runtime
            .try_call(http::Method::POST, path, &kind, body)
            .await
            .is_none_or(|said| said.status != 202)
        {
            runtime = Fake::connect(address).await;
        }
    }
    let failed = invoking.await.unwrap();
    assert_eq!(error(&failed), "Runtime.BadBoot: PHP says no");
    let reports: Vec<&String> = failed
        .log
        .iter()
        .filter(|line| line.starts_with("INIT_REPORT"))
        .collect();
    let tail = "\tStatus: error\tError Type: Runtime.BadBoot";
    assert!(reports[0].ends_with(&format!("Phase: init{tail}")));
    assert!(reports[1].ends_with(&format!("Phase: invoke{tail}")));
    assert_eq!(reports.len(), 2);
}

#[tokio::test]
async fn slow_initialization_restarts_inside_the_event() {
    let (emulator, runtime) = attached(|function| {
        function.init_limit = Duration::from_millis(100);
        function.timeout = LONG;
    })
    .await;
    let invoking = invoke(&emulator, "1");
    let address = emulator.address().unwrap();
    // The first sandbox closes this connection.
    let mut late = runtime;
    while late
        .try_call(http::Method::GET, "/2018-06-01/ping", &[], "")
        .await
        .is_some()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Fake::connect(address).await.echo();
    let invocation = invoking.await.unwrap();
    assert_eq!(invocation.result.unwrap(), "1");
    let report = "Phase: init\tStatus: timeout";
    assert!(invocation.log[1].ends_with(report), "{:?}", invocation.log);
    assert_eq!(invocation.report.init, None, "it is part of the duration");
}

#[tokio::test]
async fn timeout_ends_the_environment() {
    // On a busy machine, the time may be too short for the runtime to take the event.
    for timeout in [250, 2500, 25_000].map(Duration::from_millis) {
        if ends_at_the_timeout(timeout).await {
            return;
        }
    }
    panic!("the runtime takes no event");
}

/// Whether the runtime takes an event in that time. It never responds.
async fn ends_at_the_timeout(timeout: Duration) -> bool {
    let (emulator, mut runtime) = attached(|f| f.timeout = timeout).await;
    let mut invoking = invoke(&emulator, "1");
    let event = tokio::select! {
        biased;
        event = runtime.try_call(http::Method::GET, NEXT, &[], "") => event,
        _ = &mut invoking => None,
    };
    let Some(event) = event else { return false };
    let failed = invoking.await.unwrap();
    let timed_out = format!("Task timed out after {:.2} seconds", timeout.as_secs_f64());
    assert_eq!(
        error(&failed),
        format!("Sandbox.Timedout: RequestId: ID Error: {timed_out}")
    );
    assert_eq!(failed.report.status, EventStatus::Timeout);
    let said = &failed.log[failed.log.len() - 3];
    assert!(said.ends_with(&format!("Z {} {timed_out}", event.id())));
    assert!(failed.log.last().unwrap().ends_with("\tStatus: timeout"));
    let path = format!("/2018-06-01/runtime/invocation/{}/response", event.id());
    let late = runtime
        .try_call(http::Method::POST, &path, &[], "late")
        .await;
    assert!(late.is_none(), "the connection is closed: {late:?}");
    // On a busy machine, the time may be too short for the next event.
    let until = Instant::now() + Duration::from_secs(60);
    let second = loop {
        Fake::connect(emulator.address().unwrap()).await.echo();
        let second = invoke(&emulator, "2").await.unwrap();
        if second.report.status != EventStatus::Timeout || Instant::now() > until {
            break second;
        }
    };
    assert_eq!(second.result.unwrap(), "2");
    assert!(second.report.init.is_none());
    true
}

#[tokio::test]
async fn snapshot_is_taken_before_the_first_event_and_restored_with_it() {
    let (emulator, mut runtime) = attached(|f| f.initialization = Initialization::SnapStart).await;
    let restoring = tokio::spawn(async move {
        let said = runtime.get("/2018-06-01/runtime/restore/next").await;
        (runtime, said)
    });
    emulator.prepare().await.unwrap();
    assert!(!restoring.is_finished());
    let invoking = invoke(&emulator, "1");
    let (runtime, said) = restoring.await.unwrap();
    assert_eq!((said.status, said.body.len()), (200, 0));
    runtime.echo();
    let invocation = invoking.await.unwrap();
    assert_eq!(invocation.result.unwrap(), "1");
    assert!(invocation.report.restore.is_some());
    assert!(invocation.report.text().contains("\tRestore Duration: "));
    let log = invocation.log.join("\n");
    assert!(log.contains("RESTORE_START") && log.contains("RESTORE_REPORT Restore Duration: "));
    let second = invoke(&emulator, "2").await.unwrap();
    assert_eq!(second.report.restore, None);
}

#[tokio::test]
async fn failed_restore_is_the_callers_error() {
    let (emulator, mut runtime) = attached(|f| f.initialization = Initialization::SnapStart).await;
    let mut other = runtime.another().await;
    let error_path = "/2018-06-01/runtime/restore/error";
    let early = runtime.post(error_path, &[], "{}").await;
    assert_eq!(
        early.refusal(),
        "403 InvalidStateTransition: State transition from Started to RuntimeRestoreErrorState \
         failed for runtime. Error: State transition is not allowed"
    );
    let restoring =
        tokio::spawn(async move { runtime.get("/2018-06-01/runtime/restore/next").await });
    emulator.prepare().await.unwrap();
    let early = other.get(NEXT).await;
    assert_eq!(early.status, 403, "the snapshot is not restored yet");
    let invoking = invoke(&emulator, "1");
    assert_eq!(restoring.await.unwrap().status, 200);
    let kind = [(
        "lambda-runtime-function-error-type",
        "Runtime.AfterRestoreError",
    )];
    let body = r#"{"errorMessage":"no database","errorType":"Runtime.AfterRestoreError"}"#;
    assert_eq!(other.post(error_path, &kind, body).await.status, 202);
    let failed = invoking.await.unwrap();
    assert_eq!(error(&failed), "Runtime.AfterRestoreError: no database");
}

#[tokio::test]
async fn managed_instance_rejects_events_above_its_concurrency() {
    let managed = Initialization::ManagedInstances { concurrency: 2 };
    let (emulator, mut one) = attached(|function| {
        function.initialization = managed;
        function.timeout = LONG;
    })
    .await;
    let mut two = one.another().await;
    let first = invoke(&emulator, "first");
    let event_one = one.next().await;
    let second = invoke(&emulator, "second");
    let event_two = two.next().await;
    assert_ne!(event_one.id(), event_two.id());
    let third = invoke(&emulator, "third").await.unwrap();
    assert_eq!(
        error(&third),
        "Runtime.Unavailable: the instance already runs its maximum of concurrent events"
    );
    // The function may respond in any order.
    assert_eq!(two.respond(event_two.id(), "2").await.status, 202);
    assert_eq!(second.await.unwrap().result.unwrap(), "2");
    assert_eq!(one.respond(event_one.id(), "1").await.status, 202);
    assert_eq!(first.await.unwrap().result.unwrap(), "1");
    let again = one.respond(event_one.id(), "1").await;
    assert_eq!(again.refusal(), "400 InvalidRequestID: Invalid request ID");
}

#[tokio::test]
async fn late_answer_on_managed_instance_gets_410_and_others_continue() {
    let managed = Initialization::ManagedInstances { concurrency: 2 };
    let (emulator, mut runtime) = attached(|function| {
        function.initialization = managed;
        function.timeout = Duration::from_secs(1);
    })
    .await;
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    let failed = invoking.await.unwrap();
    assert_eq!(failed.report.status, EventStatus::Timeout);
    let late = runtime.respond(event.id(), "late").await;
    assert_eq!(late.refusal(), "410 InvokeTimeout: Invoke timeout");
    // On a busy machine, the time may be too short for the next event.
    let until = Instant::now() + Duration::from_secs(60);
    let next = loop {
        let invoking = invoke(&emulator, "2");
        let event = runtime.next().await;
        runtime.respond(event.id(), "in time").await;
        let next = invoking.await.unwrap();
        if next.report.status != EventStatus::Timeout || Instant::now() > until {
            break next;
        }
    };
    assert_eq!(next.result.unwrap(), "in time");
}

#[tokio::test]
async fn environment_runs_one_event_at_a_time_and_others_wait() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let first = invoke(&emulator, "first");
    let event = runtime.next().await;
    let second = invoke(&emulator, "second");
    tokio::time::sleep(Duration::from_millis(50)).await;
    runtime.respond(event.id(), "1").await;
    let event = runtime.next().await;
    assert_eq!(event.body, "second");
    assert_eq!(first.await.unwrap().result.unwrap(), "1");
    runtime.respond(event.id(), "2").await;
    runtime.echo();
    assert_eq!(second.await.unwrap().result.unwrap(), "2");
}

#[tokio::test]
async fn stop_waits_for_running_events() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    let stopping = tokio::spawn({
        let emulator = emulator.clone();
        async move { emulator.stop().await }
    });
    tokio::task::yield_now().await;
    assert_eq!(runtime.respond(event.id(), "in time").await.status, 202);
    runtime.echo();
    assert_eq!(invoking.await.unwrap().result.unwrap(), "in time");
    stopping.await.unwrap();
}
