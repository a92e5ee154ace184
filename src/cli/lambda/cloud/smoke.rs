//! Invokes functions: the request to a new version before it gets traffic, and commands.

use anyhow::{Context, anyhow, bail};
use aws_sdk_lambda::Client;
use aws_sdk_lambda::config::retry::RetryConfig;
use aws_sdk_lambda::config::{Builder, StalledStreamProtectionConfig};
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::LogType;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::failure::explain;
use super::wanted::Wanted;

/// The result of an invocation.
pub struct SmokeTestAnswer {
    pub payload: Vec<u8>,
    /// `Unhandled`, if the function failed.
    pub error: Option<String>,
    /// The last 4 KiB of the log.
    pub log: String,
}

/// Invokes once: a repeated event could do its work twice. Waits as long as the function runs.
pub async fn invoke(
    lambda: &Client,
    function: &str,
    qualifier: &str,
    event: &Value,
) -> anyhow::Result<SmokeTestAnswer> {
    let once = Builder::default()
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    let request = lambda
        .invoke()
        .function_name(function)
        .qualifier(qualifier)
        .log_type(LogType::Tail)
        .payload(Blob::new(event.to_string()))
        .customize()
        .config_override(once);
    let answer = request.send().await.map_err(explain)?;
    let log = STANDARD.decode(answer.log_result.unwrap_or_default());
    Ok(SmokeTestAnswer {
        payload: answer.payload.map(Blob::into_inner).unwrap_or_default(),
        error: answer.function_error,
        log: String::from_utf8_lossy(&log.unwrap_or_default()).into_owned(),
    })
}

/// Sends a version the event of a function URL. Statuses from 500 on are failures.
pub async fn request(
    lambda: &Client,
    wanted: &Wanted,
    version: &str,
    host: Option<&str>,
) -> anyhow::Result<()> {
    let path = wanted.smoke.as_deref().unwrap_or("/");
    let event = event(path, host.unwrap_or("smoke.lambda-url.on.aws"));
    let answer = invoke(lambda, &wanted.name, version, &event).await?;
    judge(&answer).map_err(|error| match answer.log.trim() {
        "" => error,
        log => error.context(format!("the log of the new version ends with\n{log}\n")),
    })
}

fn judge(answer: &SmokeTestAnswer) -> anyhow::Result<()> {
    if answer.error.is_some() {
        bail!("the function failed: {}", failure(&answer.payload));
    }
    let response = without_body(&answer.payload);
    let status = response["statusCode"].as_u64().unwrap_or(200);
    if status >= 500 {
        bail!("it responded with {status}");
    }
    Ok(())
}

/// The response without its body, if it is streamed.
fn without_body(payload: &[u8]) -> Value {
    let end = payload.windows(8).position(|bytes| bytes == [0; 8]);
    serde_json::from_slice(&payload[..end.unwrap_or(payload.len())]).unwrap_or_default()
}

/// Type and message of a function's error.
pub fn failure(payload: &[u8]) -> anyhow::Error {
    let error: Value = serde_json::from_slice(payload).unwrap_or_default();
    let word = |name: &str| error[name].as_str().unwrap_or("unknown");
    anyhow!("{}: {}", word("errorType"), word("errorMessage"))
}

fn event(path: &str, host: &str) -> Value {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let agent = concat!("surus/", env!("CARGO_PKG_VERSION"));
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {
            "host": host,
            "user-agent": agent,
            "x-forwarded-for": "127.0.0.1",
            "x-forwarded-port": "443",
            "x-forwarded-proto": "https",
        },
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "smoke",
            "domainName": host,
            "domainPrefix": "smoke",
            "http": {
                "method": "GET",
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": agent,
            },
            "requestId": "smoke",
            "routeKey": "$default",
            "stage": "$default",
            "time": "01/Jan/2026:00:00:00 +0000",
            "timeEpoch": 1_767_225_600_000_u64,
        },
        "isBase64Encoded": false,
    })
}

/// The host of a URL.
pub fn host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").context("no https").ok()?;
    rest.split('/').next()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn response_is_judged_by_its_status() {
        let judged = |payload: &[u8], error: Option<&str>| {
            judge(&SmokeTestAnswer {
                payload: payload.into(),
                error: error.map(str::to_string),
                log: String::new(),
            })
            .map_err(|error| error.to_string())
        };
        assert_eq!(judged(br#"{"statusCode": 404, "body": ""}"#, None), Ok(()));
        assert_eq!(judged(br#"{"any": "value"}"#, None), Ok(()));
        let error = judged(br#"{"statusCode": 500}"#, None).unwrap_err();
        assert!(error.contains("responded with 500"), "{error}");
        let streamed = b"{\"statusCode\": 502}\0\0\0\0\0\0\0\0<html>";
        assert!(judged(streamed, None).unwrap_err().contains("502"));
        let failed = br#"{"errorType": "Runtime.ExitError", "errorMessage": "exit status 1"}"#;
        let error = judged(failed, Some("Unhandled")).unwrap_err();
        assert!(
            error.contains("Runtime.ExitError: exit status 1"),
            "{error}"
        );
    }

    #[test]
    fn event_has_path_and_query() {
        let event = event("/health?full=1", "a.example");
        assert_eq!(event["rawPath"], "/health");
        assert_eq!(event["rawQueryString"], "full=1");
        assert_eq!(event["requestContext"]["domainName"], "a.example");
    }
}
