//! The calls of the Runtime API and their responses in each state.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fake::{attached, error, invoke};
use surus::emulator::{InvokeRequest, MAX_PAYLOAD};

const NOT_ALLOWED: &str = "failed for runtime. Error: State transition is not allowed";

#[tokio::test]
async fn event_has_lambdas_headers_and_its_answer_reaches_the_caller() {
    let (emulator, mut runtime) = attached(|function| {
        function.name = "my-function".into();
        function.timeout = Duration::from_secs(20);
    })
    .await;
    let invoking = {
        let emulator = emulator.clone();
        let request = InvokeRequest {
            payload: r#"{"a":1}"#.into(),
            trace: Some("Root=1-5f-ab".into()),
            client_context: Some(r#"{"client":{}}"#.into()),
            cognito_identity: Some(r#"{"cognitoIdentityId":"x"}"#.into()),
            tenant_id: Some("tenant".into()),
            ..InvokeRequest::default()
        };
        tokio::spawn(async move { emulator.invoke(request).await })
    };
    let event = runtime.next().await;
    assert_eq!(event.body, r#"{"a":1}"#);
    assert_eq!(event.id().len(), 36);
    assert_eq!(event.nonce().len(), 36);
    for (name, value) in [
        (
            "lambda-runtime-invoked-function-arn",
            "arn:aws:lambda:us-east-1:123456789012:function:my-function",
        ),
        ("lambda-runtime-trace-id", "Root=1-5f-ab"),
        ("lambda-runtime-client-context", r#"{"client":{}}"#),
        (
            "lambda-runtime-cognito-identity",
            r#"{"cognitoIdentityId":"x"}"#,
        ),
        ("lambda-runtime-aws-tenant-id", "tenant"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(event.header(name), value, "{name}");
    }
    let deadline: u64 = event.header("lambda-runtime-deadline-ms").parse().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let left = Duration::from_millis(deadline) - now;
    assert!(left > Duration::from_secs(5) && left <= Duration::from_secs(20));

    let accepted = runtime.respond(event.id(), "anything at all").await;
    assert_eq!(accepted.status, 202);
    assert_eq!(accepted.json()["status"], "OK");
    let id = event.id().to_string();
    let _parked = tokio::spawn(async move { runtime.next().await });
    let invocation = invoking.await.unwrap();
    assert_eq!(invocation.result.unwrap(), "anything at all");
    assert_eq!(invocation.request_id, id);
}

#[tokio::test]
async fn absent_request_fields_have_no_headers() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let _invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    for name in ["client-context", "cognito-identity", "aws-tenant-id"] {
        assert!(!event.headers.contains_key(format!("lambda-runtime-{name}")));
    }
    assert!(
        event
            .header("lambda-runtime-trace-id")
            .starts_with("Root=1-")
    );
}

#[tokio::test]
async fn answer_arrives_before_the_runtime_asks_for_the_next_event() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let begun = {
        let emulator = emulator.clone();
        tokio::spawn(async move { emulator.begin("1").await })
    };
    let event = runtime.next().await;
    runtime.respond(event.id(), "early").await;
    let mut running = begun.await.unwrap();
    let outcome = running.outcome().await.collect().await;
    assert_eq!(outcome.unwrap(), "early");
    let mut report = Box::pin(running.report());
    let early = tokio::time::timeout(Duration::from_millis(50), &mut report).await;
    assert!(early.is_err(), "the event is not over before /next");
    tokio::spawn(async move { runtime.next().await });
    report.await.unwrap();
}

#[tokio::test]
async fn repeated_next_returns_the_same_event() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let invoking = invoke(&emulator, "once");
    let first = runtime.next().await;
    let second = runtime.next().await;
    assert_eq!(first.id(), second.id());
    assert_eq!(first.nonce(), second.nonce());
    runtime.respond(second.id(), "done").await;
    runtime.echo();
    assert_eq!(invoking.await.unwrap().result.unwrap(), "done");
}

#[tokio::test]
async fn answer_to_unknown_or_finished_event_is_rejected() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let invalid = "400 InvalidRequestID: Invalid request ID";
    let before = runtime.respond("nobody", "x").await;
    assert_eq!(before.refusal(), invalid);
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    assert_eq!(runtime.respond("nobody", "x").await.refusal(), invalid);
    assert_eq!(runtime.fail("nobody", &[], "{}").await.refusal(), invalid);
    runtime.respond(event.id(), "1").await;
    let second = invoke(&emulator, "2");
    let next = runtime.next().await;
    invoking.await.unwrap();
    assert_eq!(runtime.respond(event.id(), "x").await.refusal(), invalid);
    assert_eq!(runtime.respond(next.id(), "2").await.status, 202);
    runtime.echo();
    assert_eq!(second.await.unwrap().result.unwrap(), "2");
}

#[tokio::test]
async fn second_answer_is_rejected() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let _invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    assert_eq!(runtime.respond(event.id(), "1").await.status, 202);
    let from = "State transition from RuntimeResponseSentState to";
    assert_eq!(
        runtime.respond(event.id(), "2").await.refusal(),
        format!("403 InvalidStateTransition: {from} InvocationResponse {NOT_ALLOWED}")
    );
    assert_eq!(
        runtime.fail(event.id(), &[], "{}").await.refusal(),
        format!("403 InvalidStateTransition: {from} InvocationErrorResponse {NOT_ALLOWED}")
    );
    let init = "/2018-06-01/runtime/init/error";
    assert_eq!(
        runtime.post(init, &[], "{}").await.refusal(),
        format!("403 InvalidStateTransition: {from} InitError {NOT_ALLOWED}")
    );
}

#[tokio::test]
async fn answer_of_another_attempt_gets_410() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    let path = format!("/2018-06-01/runtime/invocation/{}/", event.id());
    let stale = [("lambda-runtime-invocation-id", "another-attempt")];
    for call in ["response", "error"] {
        let said = runtime.post(&format!("{path}{call}"), &stale, "{}").await;
        assert_eq!(said.refusal(), "410 InvokeTimeout: Invoke timeout");
    }
    let nonce = [("lambda-runtime-invocation-id", event.nonce())];
    let said = runtime
        .post(&format!("{path}response"), &nonce, "right")
        .await;
    assert_eq!(said.status, 202);
    runtime.echo();
    assert_eq!(invoking.await.unwrap().result.unwrap(), "right");
}

#[tokio::test]
async fn answer_above_6_mib_and_100_bytes_gets_413() {
    let (emulator, mut runtime) = attached(|f| f.timeout = super::fake::LONG).await;
    assert_eq!(MAX_PAYLOAD, 6_291_556);
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    let largest = vec![b'x'; MAX_PAYLOAD];
    assert_eq!(runtime.respond(event.id(), largest).await.status, 202);
    let second = invoke(&emulator, "2");
    let event = runtime.next().await;
    assert_eq!(invoking.await.unwrap().result.unwrap().len(), MAX_PAYLOAD);
    let larger = vec![b'x'; MAX_PAYLOAD + 1];
    assert_eq!(
        runtime.respond(event.id(), larger).await.refusal(),
        "413 RequestEntityTooLarge: Exceeded maximum allowed payload size (6291556 bytes)."
    );
    let again = runtime.fail(event.id(), &[], "{}").await;
    assert_eq!(again.status, 403, "after 413 the event is answered");
    runtime.echo();
    let second = second.await.unwrap();
    assert_eq!(
        error(&second),
        "Function.ResponseSizeTooLarge: Response payload size exceeded maximum allowed payload \
            size (6291556 bytes)."
    );
}

#[tokio::test]
async fn unknown_response_mode_is_rejected() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    let path = format!("/2018-06-01/runtime/invocation/{}/response", event.id());
    let mode = [("lambda-runtime-function-response-mode", "trickling")];
    assert_eq!(
        runtime.post(&path, &mode, "1").await.refusal(),
        "400 InvalidFunctionResponseMode: Invalid function response mode"
    );
    runtime.echo();
    let failed = invoking.await.unwrap().result.unwrap_err();
    assert_eq!(failed.kind, "Runtime.InvalidResponseModeHeader");
}

#[tokio::test]
async fn error_reaches_the_caller_unchanged() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    for (said, kind) in [
        (Some("Runtime.NoSuchThing"), "Runtime.NoSuchThing"),
        (Some("Function.Mine"), "Function.Mine"),
        (Some("RuntimeException"), "Runtime.Unknown"),
        (None, "Runtime.Unknown"),
    ] {
        let invoking = invoke(&emulator, "1");
        let event = runtime.next().await;
        let headers: Vec<(&str, &str)> = said
            .map(|said| ("lambda-runtime-function-error-type", said))
            .into_iter()
            .collect();
        let body = r#"{"errorMessage":"no","errorType":"Mine","stackTrace":[]}"#;
        let accepted = runtime.fail(event.id(), &headers, body).await;
        assert_eq!(accepted.status, 202);
        let mut parked = runtime.another().await;
        std::mem::swap(&mut parked, &mut runtime);
        let asking = tokio::spawn(async move {
            let _ = parked
                .try_call(
                    http::Method::GET,
                    "/2018-06-01/runtime/invocation/next",
                    &[],
                    "",
                )
                .await;
        });
        let failed = invoking.await.unwrap().result.unwrap_err();
        assert_eq!(failed.kind, kind, "{said:?}");
        assert_eq!(failed.body, body);
        asking.abort();
    }
}

#[tokio::test]
async fn x_ray_cause_is_removed_from_the_error() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let invoking = invoke(&emulator, "1");
    let event = runtime.next().await;
    let kind = "application/vnd.aws.lambda.error.cause+json";
    let body = r#"{"errorMessage":"no","errorType":"Mine","cause":{"paths":[]}}"#;
    let headers = [("content-type", kind)];
    runtime.fail(event.id(), &headers, body).await;
    runtime.echo();
    let failed = invoking.await.unwrap().result.unwrap_err();
    assert_eq!(failed.body, r#"{"errorMessage":"no","errorType":"Mine"}"#);
}

#[tokio::test]
async fn unknown_call_gets_404() {
    let (_emulator, mut runtime) = attached(|_| {}).await;
    for path in [
        "/2018-06-01/runtime/invocation/next/x",
        "/2018-06-01/runtime/restore/next",
        "/elsewhere",
    ] {
        assert_eq!(runtime.get(path).await.status, 404, "{path}");
    }
    assert_eq!(runtime.get("/2018-06-01/ping").await.body, "pong");
}
