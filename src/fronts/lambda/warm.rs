//! Recognizes schedules without input, which only keep a function warm if nothing takes them.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The answer to an event that only keeps the function warm.
pub const ANSWER: &str = r#"{"warm":true}"#;

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
