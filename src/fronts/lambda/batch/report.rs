//! `batchItemFailures`: tells Lambda which records must be delivered again.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::read::{RecordBatch, RecordSource};
use crate::event::Failure;

/// An error if the handler's result names failures in `batchItemFailures`. A handler of one record
/// thereby reports that this record failed. A handler of all records thereby fails the event if
/// Lambda would not read the names (`report_batch_item_failures = "off"`).
pub fn succeeded(answer: &[u8]) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "batchItemFailures")]
        failures: Option<Vec<IgnoredAny>>,
    }
    // Most results do not contain the word.
    if memchr::memmem::find(answer, b"batchItemFailures").is_none() {
        return Ok(());
    }
    match serde_json::from_slice::<Answer>(answer) {
        Ok(Answer {
            failures: Some(failures),
        }) if !failures.is_empty() => Err(Failure::Thrown(
            "the handler reported failures in batchItemFailures".into(),
        )),
        _ => Ok(()),
    }
}

/// `{"batchItemFailures": […]}` for the failed records, which are in order.
pub fn answer(batch: &RecordBatch, failed: &[usize]) -> Bytes {
    let mut answer = String::from(r#"{"batchItemFailures":["#);
    let mut named = vec![false; batch.len()];
    let mut first = true;
    for &index in failed {
        // A stream restarts at the record that is named, so only the first counts: of all records,
        // or of its partition.
        let group = match batch.source {
            RecordSource::Sqs { .. } => index,
            RecordSource::Kafka => batch.records[index].partition,
            RecordSource::Kinesis | RecordSource::DynamoDb => 0,
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
    fn reported_failures_are_recognized() {
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
