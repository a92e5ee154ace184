//! Recognizes events that only keep a function warm: those of warmers, and schedules without input.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The answer to such an event.
pub const ANSWER: &str = r#"{"warm":true}"#;

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

/// Whether the event is what EventBridge (a rule or a schedule) sends if no input is configured.
pub fn is_schedule_without_input(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Schedule<'a> {
        source: String,
        #[serde(rename = "detail-type")]
        detail_type: String,
        #[serde(borrow)]
        detail: &'a RawValue,
    }
    let Ok(event) = serde_json::from_slice::<Schedule<'_>>(event) else {
        return false;
    };
    event.detail_type == "Scheduled Event"
        && ["aws.events", "aws.scheduler"].contains(&&*event.source)
        // The scheduler sends the JSON as a string.
        && ["{}", r#""{}""#].contains(&event.detail.get())
}
