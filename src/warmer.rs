//! Recognizes the events of warmers, which only keep a Lambda function warm.

use serde_json::Value;

/// Longer events do not come from a warmer.
const LONGEST: usize = 128;

/// Whether the event is `{"warmer": true}`, as users of Bref send it, or that of
/// serverless-plugin-warmup. An event with further fields is the application's.
pub fn is_warmer(event: &[u8]) -> bool {
    if event.len() > LONGEST || memchr::memmem::find(event, b"warm").is_none() {
        return false;
    }
    let Ok(Value::Object(event)) = serde_json::from_slice(event) else {
        return false;
    };
    event.len() == 1
        && (event.get("warmer") == Some(&Value::Bool(true))
            || event.get("source").and_then(Value::as_str) == Some("serverless-plugin-warmup"))
}
