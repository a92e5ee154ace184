//! Finds the records of an event and their order.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::Record;

/// A source of records that accepts `batchItemFailures`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordSource {
    Sqs { fifo: bool },
    Kinesis,
    DynamoDb,
    Kafka,
}

impl RecordSource {
    pub fn name(self) -> &'static str {
        match self {
            RecordSource::Sqs { .. } => "sqs",
            RecordSource::Kinesis => "kinesis",
            RecordSource::DynamoDb => "dynamodb",
            RecordSource::Kafka => "kafka",
        }
    }
}

/// An event whose records can fail one by one. Records stay the bytes that Lambda sent.
#[derive(Debug)]
pub struct RecordBatch {
    event: Bytes,
    /// The range of all records in the event.
    place: Range<usize>,
    pub(super) source: RecordSource,
    pub(super) records: Vec<Item>,
}

#[derive(Debug)]
pub(super) struct Item {
    place: Range<usize>,
    /// `itemIdentifier` as JSON.
    pub identifier: String,
    id: String,
    /// Records of one partition run in order. Less than the number of records.
    pub partition: usize,
    /// How often the queue has delivered the record; 1 if the source does not count.
    receives: usize,
    trace: Option<String>,
    /// The key of the record's list in Kafka's event, as JSON.
    key: Option<Arc<str>>,
}

impl RecordBatch {
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn id(&self, index: usize) -> &str {
        &self.records[index].id
    }

    /// The record to begin with. A message that always times out keeps later messages from running,
    /// and they are delivered again with it. So each delivery begins with another partition, and
    /// the others run before they become dead letters.
    pub(super) fn start(&self) -> usize {
        let receives = self.records.iter().map(|item| item.receives).max();
        let partitions = self.records.iter().map(|item| item.partition).max();
        let (Some(receives), Some(partitions)) = (receives, partitions) else {
            return 0;
        };
        let first = (receives.max(1) - 1) % (partitions + 1);
        let is_first = |item: &Item| item.partition == first;
        self.records.iter().position(is_first).unwrap_or(0)
    }

    /// The event with only the record at `index`.
    pub fn record(&self, index: usize, deadline: Instant) -> Record {
        let item = &self.records[index];
        let around = self.event.len() - self.place.len();
        let mut event = Vec::with_capacity(around + item.place.len() + 64);
        event.extend_from_slice(&self.event[..self.place.start]);
        match &item.key {
            None => {
                event.push(b'[');
                event.extend_from_slice(&self.event[item.place.clone()]);
                event.push(b']');
            }
            Some(key) => {
                event.push(b'{');
                event.extend_from_slice(key.as_bytes());
                event.extend_from_slice(b":[");
                event.extend_from_slice(&self.event[item.place.clone()]);
                event.extend_from_slice(b"]}");
            }
        }
        event.extend_from_slice(&self.event[self.place.end..]);
        Record {
            event: event.into(),
            id: item.id.clone(),
            trace: item.trace.clone(),
            deadline,
        }
    }
}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow, rename = "Records")]
    list: Option<&'a RawValue>,
    #[serde(borrow)]
    records: Option<&'a RawValue>,
    #[serde(borrow, rename = "eventSource")]
    source: Option<Cow<'a, str>>,
    /// Tumbling windows pass state from event to event, so one call must see the whole event.
    window: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Listed<'a> {
    #[serde(borrow, rename = "eventSource")]
    source: Cow<'a, str>,
    #[serde(borrow, rename = "eventSourceARN")]
    arn: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "messageId")]
    message: Option<Cow<'a, str>>,
    #[serde(borrow)]
    attributes: Option<Attributes<'a>>,
    #[serde(borrow)]
    kinesis: Option<Kinesis<'a>>,
    #[serde(borrow)]
    dynamodb: Option<DynamoDb<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attributes<'a> {
    #[serde(borrow)]
    message_group_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    approximate_receive_count: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "AWSTraceHeader")]
    trace: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kinesis<'a> {
    #[serde(borrow)]
    partition_key: Cow<'a, str>,
    #[serde(borrow)]
    sequence_number: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DynamoDb<'a> {
    #[serde(borrow)]
    keys: BTreeMap<Cow<'a, str>, &'a RawValue>,
    #[serde(borrow)]
    sequence_number: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Kafka {
    offset: u64,
}

/// None if the event has no records that can fail one by one.
pub fn read(event: &Bytes) -> Option<RecordBatch> {
    let outer: Outer = serde_json::from_slice(event).ok()?;
    if outer.window.is_some() {
        return None;
    }
    let (place, source, records) = match (outer.list, outer.records, outer.source.as_deref()) {
        (Some(list), _, _) => {
            let (source, records) = listed(event, list)?;
            (range(event, list.get()), source, records)
        }
        (None, Some(topics), Some("aws:kafka" | "SelfManagedKafka")) => (
            range(event, topics.get()),
            RecordSource::Kafka,
            kafka(event, topics)?,
        ),
        _ => return None,
    };
    let batch = RecordBatch {
        event: event.clone(),
        place,
        source,
        records,
    };
    (!batch.is_empty()).then_some(batch)
}

/// Records of all sources but Kafka. Lambda never mixes sources in one event.
fn listed(event: &[u8], list: &RawValue) -> Option<(RecordSource, Vec<Item>)> {
    let list: Vec<&RawValue> = serde_json::from_str(list.get()).ok()?;
    let mut partitions = Partitions::default();
    let mut items = Vec::with_capacity(list.len());
    let mut all_from = None;
    for raw in list {
        let record: Listed = serde_json::from_str(raw.get()).ok()?;
        let is_fifo = || {
            record
                .arn
                .as_deref()
                .is_some_and(|arn| arn.ends_with(".fifo"))
        };
        let (source, id, partition) = match record.source.as_ref() {
            "aws:sqs" => {
                // Standard queues may have groups too; those are tenants, without order.
                let source = RecordSource::Sqs { fifo: is_fifo() };
                let group = record.attributes.as_ref();
                let group = group.and_then(|attributes| attributes.message_group_id.as_deref());
                let partition = match source {
                    RecordSource::Sqs { fifo: true } => {
                        partitions.number(group.unwrap_or_default())
                    }
                    _ => items.len(),
                };
                (source, record.message?, partition)
            }
            "aws:kinesis" => {
                let kinesis = record.kinesis?;
                let partition = partitions.number(&kinesis.partition_key);
                (RecordSource::Kinesis, kinesis.sequence_number, partition)
            }
            "aws:dynamodb" => {
                let change = record.dynamodb?;
                let mut item = String::new();
                for (name, value) in &change.keys {
                    item.push_str(name);
                    item.push('=');
                    item.push_str(value.get());
                    item.push('\n');
                }
                let partition = partitions.number(&item);
                (RecordSource::DynamoDb, change.sequence_number, partition)
            }
            _ => return None,
        };
        // An empty identifier would make Lambda fail the whole batch.
        if id.is_empty() || *all_from.get_or_insert(source) != source {
            return None;
        }
        items.push(Item {
            place: range(event, raw.get()),
            identifier: serde_json::to_string(&id).ok()?,
            id: id.into_owned(),
            partition,
            receives: record
                .attributes
                .as_ref()
                .and_then(|attributes| attributes.approximate_receive_count.as_ref()?.parse().ok())
                .unwrap_or(1),
            trace: record
                .attributes
                .and_then(|attributes| attributes.trace)
                .map(Cow::into_owned),
            key: None,
        });
    }
    Some((all_from?, items))
}

/// Kafka's records, which are listed by topic and partition.
fn kafka(event: &[u8], topics: &RawValue) -> Option<Vec<Item>> {
    let topics: BTreeMap<String, Vec<&RawValue>> = serde_json::from_str(topics.get()).ok()?;
    let mut items = Vec::new();
    let filled = topics.iter().filter(|(_, list)| !list.is_empty());
    for (partition, (name, list)) in filled.enumerate() {
        let key: Arc<str> = serde_json::to_string(name).ok()?.into();
        for raw in list {
            let Kafka { offset } = serde_json::from_str(raw.get()).ok()?;
            items.push(Item {
                place: range(event, raw.get()),
                identifier: format!(r#"{{"partition":{key},"offset":{offset}}}"#),
                id: format!("{name}@{offset}"),
                partition,
                receives: 1,
                trace: None,
                key: Some(key.clone()),
            });
        }
    }
    Some(items)
}

/// Numbers partitions in order of appearance.
#[derive(Default)]
struct Partitions(HashMap<String, usize>);

impl Partitions {
    fn number(&mut self, name: &str) -> usize {
        let next = self.0.len();
        match self.0.get(name) {
            Some(number) => *number,
            None => *self.0.entry(name.to_string()).or_insert(next),
        }
    }
}

/// The range of `part`, a slice of `event`, in `event`.
fn range(event: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - event.as_ptr().addr();
    start..start + part.len()
}
