//! The Extensions API: registration, events and rejections.

use std::time::Duration;

use super::fake::{Fake, LONG, Said, attached, invoke};

const REGISTER: &str = "/2020-01-01/extension/register";
const NEXT: &str = "/2020-01-01/extension/event/next";

async fn register(fake: &mut Fake, name: &str, events: &str) -> Said {
    let body = format!(r#"{{"events":[{events}]}}"#);
    fake.post(REGISTER, &[("lambda-extension-name", name)], body)
        .await
}

async fn event(fake: &mut Fake, id: &str) -> Option<Said> {
    let headers = [("lambda-extension-identifier", id)];
    fake.try_call(http::Method::GET, NEXT, &headers, "").await
}

#[tokio::test]
async fn internal_extension_gets_events_and_delays_the_end() {
    let (emulator, mut runtime) = attached(|function| function.handler = "h.php".into()).await;
    let mut extension = runtime.another().await;
    let said = register(&mut extension, "inside", r#""INVOKE""#).await;
    assert_eq!(said.status, 200);
    assert_eq!(said.json()["functionName"], "function");
    assert_eq!(said.json()["handler"], "h.php");
    let id = said.header("lambda-extension-identifier").to_string();
    let invoking = invoke(&emulator, "1");
    let asking = tokio::spawn(async move {
        let said = event(&mut extension, &id).await.unwrap();
        (extension, id, said)
    });
    let delivered = runtime.next().await;
    let (mut extension, id, told) = asking.await.unwrap();
    assert_eq!(told.json()["eventType"], "INVOKE");
    assert_eq!(told.json()["requestId"], delivered.id());
    assert_eq!(
        told.json()["deadlineMs"].to_string(),
        delivered.header("lambda-runtime-deadline-ms")
    );
    assert_eq!(
        told.json()["tracing"]["value"],
        delivered.header("lambda-runtime-trace-id")
    );
    runtime.respond(delivered.id(), "answer").await;
    runtime.echo();
    // The runtime asks for the next event about now; the extension does not.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!invoking.is_finished(), "the extension is not done");
    tokio::spawn(async move { event(&mut extension, &id).await });
    assert_eq!(invoking.await.unwrap().result.unwrap(), "answer");
}

#[tokio::test]
async fn extension_without_events_does_not_delay_the_end() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let mut extension = runtime.another().await;
    let said = register(&mut extension, "for-sigterm", "").await;
    let id = said.header("lambda-extension-identifier").to_string();
    tokio::spawn(async move { event(&mut extension, &id).await });
    let invoking = invoke(&emulator, "1");
    let delivered = runtime.next().await;
    runtime.respond(delivered.id(), "answer").await;
    runtime.echo();
    assert_eq!(invoking.await.unwrap().result.unwrap(), "answer");
}

#[tokio::test]
async fn invalid_registration_is_rejected() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let said = register(&mut runtime, "", "").await;
    assert_eq!(
        said.refusal(),
        "403 Extension.InvalidExtensionName: Empty extension name"
    );
    let said = register(&mut runtime, "a", r#""SHUTDOWN""#).await;
    assert_eq!(
        said.refusal(),
        "403 Extension.InvalidEventType: SHUTDOWN: ShutdownEventNotSupportedForInternalExtension"
    );
    let said = register(&mut runtime, "a", r#""PARTY""#).await;
    assert_eq!(
        said.refusal(),
        "403 Extension.InvalidEventType: PARTY: ErrorInvalidEventType"
    );
    let named = [("lambda-extension-name", "a")];
    let said = runtime.post(REGISTER, &named, "no JSON").await;
    assert!(said.refusal().starts_with("403 InvalidRequestFormat: "));
    for number in 0..10 {
        let said = register(&mut runtime, &format!("e{number}"), "").await;
        assert_eq!(said.status, 200);
    }
    let said = register(&mut runtime, "e3", "").await;
    assert_eq!(
        said.refusal(),
        "403 Extension.InvalidExtensionState: Extension with this name already registered"
    );
    let said = register(&mut runtime, "e10", "").await;
    assert_eq!(
        said.refusal(),
        "403 Extension.TooManyExtensions: Extension limit (10) reached"
    );
    drop(emulator);
}

#[tokio::test]
async fn registration_after_the_first_next_is_rejected() {
    let (emulator, mut runtime) = attached(|_| {}).await;
    let _invoking = invoke(&emulator, "1");
    runtime.next().await;
    let said = register(&mut runtime, "late", "").await;
    assert_eq!(
        said.refusal(),
        "403 Extension.RegistrationClosed: Extension registration closed already"
    );
}

#[tokio::test]
async fn unregistered_extension_gets_no_events() {
    let (_emulator, mut runtime) = attached(|_| {}).await;
    let said = runtime.get(NEXT).await;
    assert_eq!(
        said.refusal(),
        "403 Extension.MissingExtensionIdentifier: Missing Lambda-Extension-Identifier header"
    );
    let said = event(&mut runtime, "nonsense").await.unwrap();
    assert_eq!(
        said.refusal(),
        "403 Extension.InvalidExtensionIdentifier: Invalid Lambda-Extension-Identifier"
    );
    let unknown = "01234567-89ab-4def-8123-456789abcdef";
    let said = event(&mut runtime, unknown).await.unwrap();
    assert_eq!(
        said.refusal(),
        format!("403 Extension.UnknownExtensionIdentifier: Unknown extension {unknown}")
    );
}

#[tokio::test]
async fn extension_init_error_fails_the_initialization() {
    // On a busy machine, the event may time out before the error is reported.
    for timeout in [500, 4000, 25_000].map(Duration::from_millis) {
        if fails_the_initialization(timeout).await {
            return;
        }
    }
    panic!("the error is not accepted");
}

/// Whether the error is accepted before the event times out.
async fn fails_the_initialization(timeout: Duration) -> bool {
    let (emulator, mut runtime) = attached(|f| f.timeout = timeout).await;
    let said = register(&mut runtime, "broken", "").await;
    let id = said.header("lambda-extension-identifier").to_string();
    let path = "/2020-01-01/extension/init/error";
    let said = runtime
        .post(path, &[("lambda-extension-identifier", &id)], "")
        .await;
    assert_eq!(
        said.refusal(),
        "403 Extension.MissingHeader: Lambda-Extension-Function-Error-Type not found"
    );
    let invoking = invoke(&emulator, "1");
    let headers = [
        ("lambda-extension-identifier", id.as_str()),
        ("lambda-extension-function-error-type", "Mine.Broken"),
    ];
    let said = runtime.try_call(http::Method::POST, path, &headers, "");
    if said.await.is_none_or(|said| said.status != 202) {
        return false;
    }
    let log = invoking.await.unwrap().log.join("\n");
    assert!(
        log.contains("Phase: init\tStatus: error\tError Type: Extension.InitError"),
        "{log}"
    );
    true
}

#[tokio::test]
async fn extension_exit_error_fails_the_event() {
    let (emulator, mut runtime) = attached(|f| f.timeout = LONG).await;
    let mut extension = runtime.another().await;
    let said = register(&mut extension, "leaving", "").await;
    let id = said.header("lambda-extension-identifier").to_string();
    // The initialization waits for it.
    let (mut asking, parked) = (runtime.another().await, id.clone());
    tokio::spawn(async move { event(&mut asking, &parked).await });
    let invoking = invoke(&emulator, "1");
    runtime.next().await;
    let path = "/2020-01-01/extension/exit/error";
    let kind = ("lambda-extension-function-error-type", "Mine.Left");
    let identifier = ("lambda-extension-identifier", id.as_str());
    for (headers, why) in [
        (
            &[kind][..],
            "403 Extension.MissingExtensionIdentifier: Missing Lambda-Extension-Identifier header",
        ),
        (
            &[identifier],
            "403 Extension.MissingHeader: Lambda-Extension-Function-Error-Type not found",
        ),
    ] {
        assert_eq!(extension.post(path, headers, "").await.refusal(), why);
    }
    let said = extension.post(path, &[identifier, kind], "").await;
    assert_eq!(said.status, 202);
    let outcome = invoking.await.unwrap();
    let log = outcome.log.join("\n");
    assert!(
        log.contains("Status: error\tError Type: Extension.ExitError"),
        "{log}"
    );
    assert!(outcome.result.is_err());
}
