//! Recognizes the events of warmers, which only keep a Lambda function warm.

use serde::Deserialize;
use serde_json::Value;

/// Longer events do not come from a warmer.
const LONGEST: usize = 128;

/// Whether the event is `{"warmer": true}`, as users of Bref send it, or that of
/// serverless-plugin-warmup. An event with further fields is the application's if it accepts it.
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

/// Whether the event has `"warmer": true` among further fields, as that of lambda-warmer.
pub fn has_warmer_field(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Warmer {
        warmer: bool,
    }
    // A struct can be read from a list, too.
    event.trim_ascii_start().starts_with(b"{")
        && serde_json::from_slice(event).is_ok_and(|event: Warmer| event.warmer)
}
