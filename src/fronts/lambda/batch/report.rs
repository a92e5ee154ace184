//! How Lambda is told what has to come again.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::read::{Batch, Source};
use crate::event::Failure;

/// An error if a handler's answer names anything that has failed. Of one that has been given one record, that is it. Of one that has been
/// given them all, Lambda is to hear of it; but where it would not (`partial_batch = "off"`), the event has failed.
pub fn succeeded(answer: &[u8]) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "batchItemFailures")]
        failures: Option<Vec<IgnoredAny>>,
    }
    // Most say nothing of the kind.
    if memchr::memmem::find(answer, b"batchItemFailures").is_none() {
        return Ok(());
    }
    match serde_json::from_slice::<Answer>(answer) {
        Ok(Answer {
            failures: Some(failures),
        }) if !failures.is_empty() => Err(Failure::Thrown(
            "the handler has named what failed in batchItemFailures".into(),
        )),
        _ => Ok(()),
    }
}

/// `{"batchItemFailures": […]}` for the records that failed, which are in their order.
pub fn answer(batch: &Batch, failed: &[usize]) -> Bytes {
    let mut answer = String::from(r#"{"batchItemFailures":["#);
    let mut named = vec![false; batch.len()];
    let mut first = true;
    for &index in failed {
        // A stream goes back to where it is told, so that only the first counts: of all, or of its partition.
        let group = match batch.source {
            Source::Sqs { .. } => index,
            Source::Kafka => batch.records[index].partition,
            Source::Kinesis | Source::DynamoDb => 0,
        };
        if std::mem::replace(&mut named[group], true) {
            continue;
        }
        if !std::mem::take(&mut first) {
            answer.push(',');
        }
        answer.push_str(r#"{"itemIdentifier":"#);
        answer.push_str(&batch.records[index].identifier);
        answer.push('}');
    }
    answer.push_str("]}");
    answer.into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_may_name_what_failed() {
        for done in [
            "",
            "null",
            "{}",
            r#"{"batchItemFailures":null}"#,
            r#"{"batchItemFailures":[]}"#,
            r#"{"said":"batchItemFailures"}"#,
        ] {
            assert!(succeeded(done.as_bytes()).is_ok(), "{done}");
        }
        for failed in [
            r#"{"batchItemFailures":[{"itemIdentifier":"a"}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#,
            r#"{"more":1,"batchItemFailures":[{"itemIdentifier":{"partition":"t-0","offset":1}}]}"#,
        ] {
            assert!(succeeded(failed.as_bytes()).is_err(), "{failed}");
        }
    }
}
