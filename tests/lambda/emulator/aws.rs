//! AWS's own Runtime API client against the emulator.

use surus::emulator::{Emulator, InvokeRequest};

use super::runtimes::{function, written};

#[tokio::test]
async fn aws_client_gets_events_and_its_answers_arrive() {
    let emulator = Emulator::start(function("echo")).await.unwrap();
    for number in 0..20 {
        let invocation = emulator.invoke(format!(r#"{{"number":{number}}}"#)).await;
        let answer = invocation.result.unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["payload"]["number"], number);
        assert_eq!(answer["request_id"], invocation.request_id);
        assert_eq!(
            answer["arn"],
            "arn:aws:lambda:us-east-1:123456789012:function:function"
        );
        assert!(answer["deadline"].as_u64().unwrap() > 1_700_000_000_000);
        assert_eq!(invocation.report.init.is_some(), number == 0);
        assert!(invocation.report.max_memory > 0);
    }
    emulator.stop().await;
}

#[tokio::test]
async fn aws_client_error_reaches_the_caller() {
    let emulator = Emulator::start(function("echo")).await.unwrap();
    let failed = emulator.invoke(r#"{"fail":"as it was told"}"#).await;
    let error = failed.result.unwrap_err();
    assert_eq!(error.message().as_deref(), Some("as it was told"));
    let next = emulator.invoke("{}").await;
    assert!(next.result.is_ok(), "an error must not end the runtime");
    emulator.stop().await;
}

#[tokio::test]
async fn aws_client_stream_reaches_the_caller() {
    let emulator = Emulator::start(function("stream")).await.unwrap();
    for is_streamed in [true, false] {
        let request = InvokeRequest {
            is_streamed,
            ..InvokeRequest::from("7")
        };
        let invocation = emulator.invoke(request).await;
        assert!(invocation.is_streamed);
        assert_eq!(
            invocation.content_type.as_deref(),
            Some("application/vnd.awslambda.http-integration-response")
        );
        let body = String::from_utf8(invocation.result.unwrap().to_vec()).unwrap();
        let (prelude, body) = body.split_once("\0\0\0\0\0\0\0\0").unwrap();
        let prelude: serde_json::Value = serde_json::from_str(prelude).unwrap();
        assert_eq!(prelude["statusCode"], 200);
        assert_eq!(body, "piece 0 of 7\npiece 1 of 7\npiece 2 of 7\n");
    }
    emulator.stop().await;
}

#[tokio::test]
async fn runtime_output_is_in_the_log_of_its_event() {
    let emulator = Emulator::start(function("echo")).await.unwrap();
    for number in 0..5 {
        let payload = format!(r#"{{"print":"line {number}","print_error":"no line break"}}"#);
        let invocation = emulator.invoke(payload).await;
        let lines = written(&invocation.log);
        let at = lines
            .iter()
            .position(|line| *line == format!("line {number}"));
        let at = at.unwrap_or_else(|| panic!("{lines:?}"));
        assert!(lines[at - 1].starts_with("START"));
        assert_eq!(lines[at + 1], "no line break");
        assert!(lines[at + 2].starts_with("END"));
    }
    emulator.stop().await;
}
