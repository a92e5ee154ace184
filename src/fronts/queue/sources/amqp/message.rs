//! Reads AMQP's messages as jobs, and writes those that are published again.

use std::collections::BTreeMap;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use serde::Serialize;
use serde_json::{Value, json};

use super::guard::fields::{REASON, UNREAD};
use crate::fronts::queue::{Format, roadrunner};

/// The header with a message's tries. Queues of Laravel have the header `laravel` in its place, as
/// the package vladimir-yuldashev/laravel-queue-rabbitmq writes it.
const ATTEMPTS: &str = "surus-attempts";
/// The header with the time at which a message was buried, in seconds since 1970.
pub const FAILED_AT: &str = "surus-failed-at";
/// How many bytes of a reason are kept: servers limit the size of all headers.
const LONGEST_REASON: usize = 3000;

/// The message as its format's handler gets it. Empty if it is longer than `max`.
pub fn payload(delivery: &Delivery, queue: &str, format: Format, max: u64) -> Bytes {
    let too_long = |bytes: &[u8]| bytes.len() as u64 > max;
    if too_long(&delivery.data) {
        return Bytes::new();
    }
    let body = match (format, std::str::from_utf8(&delivery.data)) {
        (Format::Messenger, Ok(body)) => body,
        (Format::RoadRunner, Ok(body)) => {
            let headers = object(delivery.properties.headers().as_ref());
            let message = roadrunner::message_of_amqp(&headers, body);
            return match message.unwrap_or_else(|| Bytes::copy_from_slice(&delivery.data)) {
                message if too_long(&message) => Bytes::new(),
                message => message,
            };
        }
        // Only JSON can be passed to PHP's frameworks: the rest is buried as it is.
        _ => return Bytes::copy_from_slice(&delivery.data),
    };
    let payload = serde_json::to_vec(&ForMessenger {
        body,
        headers: object(delivery.properties.headers().as_ref()),
        amqp: Envelope {
            queue,
            exchange: delivery.exchange.as_str(),
            routing_key: delivery.routing_key.as_str(),
            is_redelivery: delivery.redelivered,
            properties: properties(&delivery.properties),
        },
    });
    match payload {
        Ok(payload) if !too_long(&payload) => payload.into(),
        _ => Bytes::new(),
    }
}

/// A message for `Surus\Symfony\Messages`.
#[derive(Serialize)]
struct ForMessenger<'a> {
    body: &'a str,
    headers: BTreeMap<&'a str, Value>,
    amqp: Envelope<'a>,
}

/// What Messenger takes over when it sends a message again.
#[derive(Serialize)]
struct Envelope<'a> {
    queue: &'a str,
    exchange: &'a str,
    routing_key: &'a str,
    is_redelivery: bool,
    properties: Value,
}

/// In the order of the constructor of `AMQPBasicProperties`, without the headers.
fn properties(from: &BasicProperties) -> Value {
    let text = |text: &Option<ShortString>| text.as_ref().map(|text| text.as_str().to_string());
    json!({
        "content_type": text(from.content_type()),
        "content_encoding": text(from.content_encoding()),
        "delivery_mode": from.delivery_mode(),
        "priority": from.priority(),
        "correlation_id": text(from.correlation_id()),
        "reply_to": text(from.reply_to()),
        "expiration": text(from.expiration()),
        "message_id": text(from.message_id()),
        "timestamp": from.timestamp(),
        "type": text(from.kind()),
        "user_id": text(from.user_id()),
        "app_id": text(from.app_id()),
    })
}

fn object(table: Option<&FieldTable>) -> BTreeMap<&str, Value> {
    let fields = table.into_iter().flat_map(|table| table.inner());
    fields
        .map(|(name, field)| (name.as_str(), value(field)))
        .collect()
}

fn value(field: &AMQPValue) -> Value {
    match field {
        AMQPValue::Boolean(it) => json!(it),
        AMQPValue::ShortShortInt(it) => json!(it),
        AMQPValue::ShortShortUInt(it) => json!(it),
        AMQPValue::ShortInt(it) => json!(it),
        AMQPValue::ShortUInt(it) => json!(it),
        AMQPValue::LongInt(it) => json!(it),
        AMQPValue::LongUInt(it) => json!(it),
        AMQPValue::LongLongInt(it) => json!(it),
        AMQPValue::Float(it) => json!(it),
        AMQPValue::Double(it) => json!(it),
        AMQPValue::Timestamp(it) => json!(it),
        AMQPValue::ShortString(it) => json!(it.as_str()),
        AMQPValue::LongString(it) => json!(it.to_string()),
        AMQPValue::ByteArray(it) => json!(String::from_utf8_lossy(it.as_slice())),
        AMQPValue::FieldArray(it) => it.as_slice().iter().map(value).collect(),
        AMQPValue::FieldTable(it) => json!(object(Some(it))),
        AMQPValue::DecimalValue(_) | AMQPValue::Void => Value::Null,
    }
}

/// How often a message has been tried before.
pub fn attempts(properties: &BasicProperties, format: Format) -> u32 {
    let headers = object(properties.headers().as_ref());
    let attempts = match format {
        Format::Laravel => headers.get("laravel").map(|it| &it["attempts"]),
        _ => headers.get(ATTEMPTS),
    };
    let attempts = attempts.and_then(Value::as_u64).unwrap_or_default();
    attempts.try_into().unwrap_or(u32::MAX)
}

/// The reason of a buried message, and when it was buried.
pub fn burial(properties: &BasicProperties) -> (Option<String>, u64) {
    let headers = object(properties.headers().as_ref());
    let reason = headers.get(REASON).and_then(Value::as_str);
    let at = headers.get(FAILED_AT).and_then(Value::as_u64);
    let reason = reason.map(|why| shortened(why).into());
    (reason, at.unwrap_or_default())
}

fn shortened(why: &str) -> &str {
    let mut end = why.len().min(LONGEST_REASON);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    &why[..end]
}

/// Why a message was not read, if its properties could not be.
pub fn unread(properties: &BasicProperties) -> Option<String> {
    let headers = properties.headers().as_ref()?;
    headers.inner().get(UNREAD)?;
    let (why, _) = burial(properties);
    Some(why.unwrap_or_else(|| format!("its properties are in the header {UNREAD}")))
}

/// The properties of a message that is published again, with its tries.
pub fn tried(from: &BasicProperties, id: &str, format: Format, attempts: u32) -> BasicProperties {
    let mut headers = kept(from);
    if format == Format::RoadRunner {
        // The body has what these headers say.
        let kept = headers.inner().clone().into_iter();
        let kept = kept.filter(|(name, _)| !name.as_str().starts_with("rr_"));
        headers = kept.collect::<BTreeMap<_, _>>().into();
    }
    let attempts = AMQPValue::LongLongInt(attempts.into());
    if format == Format::Laravel {
        let mut laravel = FieldTable::default();
        laravel.insert("attempts".into(), attempts);
        headers.insert("laravel".into(), AMQPValue::FieldTable(laravel));
    } else {
        headers.insert(ATTEMPTS.into(), attempts);
    }
    again(from, id, headers)
}

/// The properties of a message that is buried.
pub fn buried(from: &BasicProperties, id: &str, why: &str, at: u64) -> BasicProperties {
    let mut headers = kept(from);
    headers.insert(REASON.into(), AMQPValue::LongString(shortened(why).into()));
    headers.insert(FAILED_AT.into(), AMQPValue::LongLongInt(at as i64));
    again(from, id, headers)
}

/// The properties of a buried message that is retried, as if it had never been tried.
pub fn fresh(from: &BasicProperties, id: &str) -> BasicProperties {
    let kept = kept(from).inner().clone();
    let own = [ATTEMPTS, REASON, FAILED_AT, "laravel"];
    let kept = kept
        .into_iter()
        .filter(|(name, _)| !own.contains(&name.as_str()));
    again(from, id, kept.collect::<BTreeMap<_, _>>().into())
}

/// The headers that a message keeps. Others would send it elsewhere, too, or are the server's.
fn kept(from: &BasicProperties) -> FieldTable {
    let headers = from.headers().as_ref().map(|it| it.inner().clone());
    let is_kept = |name: &str| {
        !matches!(name, "CC" | "BCC" | "x-death" | "x-delivery-count")
            && !name.starts_with("x-first-death-")
            && !name.starts_with("x-last-death-")
    };
    let kept = headers.unwrap_or_default().into_iter();
    let kept = kept.filter(|(name, _)| is_kept(name.as_str()));
    kept.collect::<BTreeMap<_, _>>().into()
}

/// All properties but the user, which servers compare with that of the connection, and the
/// expiration: a message that has been taken in time does not expire.
fn again(from: &BasicProperties, id: &str, headers: FieldTable) -> BasicProperties {
    let mut to = BasicProperties::default()
        .with_headers(headers)
        .with_delivery_mode(2);
    if let Ok(id) = ShortString::try_new(id) {
        to = to.with_message_id(id);
    }
    if let Some(it) = from.content_type() {
        to = to.with_content_type(it.clone());
    }
    if let Some(it) = from.content_encoding() {
        to = to.with_content_encoding(it.clone());
    }
    if let Some(it) = from.priority() {
        to = to.with_priority(*it);
    }
    if let Some(it) = from.correlation_id() {
        to = to.with_correlation_id(it.clone());
    }
    if let Some(it) = from.reply_to() {
        to = to.with_reply_to(it.clone());
    }
    if let Some(it) = from.timestamp() {
        to = to.with_timestamp(*it);
    }
    if let Some(it) = from.kind() {
        to = to.with_type(it.clone());
    }
    if let Some(it) = from.app_id() {
        to = to.with_app_id(it.clone());
    }
    to
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(text: &str) -> AMQPValue {
        AMQPValue::LongString(text.into())
    }

    fn sent() -> BasicProperties {
        let mut headers = FieldTable::default();
        headers.insert("type".into(), text("App\\Order"));
        headers.insert(
            "CC".into(),
            AMQPValue::FieldArray(vec![text("other")].into()),
        );
        headers.insert("x-death".into(), AMQPValue::FieldArray(vec![].into()));
        BasicProperties::default()
            .with_headers(headers)
            .with_user_id("somebody".into())
            .with_expiration("1000".into())
            .with_priority(3)
    }

    #[test]
    fn tries_are_counted_in_the_header_of_their_format() {
        for format in [Format::Plain, Format::Laravel, Format::Messenger] {
            assert_eq!(attempts(&sent(), format), 0);
            let first = tried(&sent(), "a", format, 1);
            let second = tried(&first, "a", format, 2);
            assert_eq!(
                (attempts(&first, format), attempts(&second, format)),
                (1, 2)
            );
        }
        let laravel = tried(&sent(), "a", Format::Laravel, 2);
        let headers = object(laravel.headers().as_ref());
        assert_eq!(headers["laravel"], json!({ "attempts": 2 }));
    }

    #[test]
    fn message_that_is_published_again_keeps_what_its_producer_has_written() {
        let again = tried(&sent(), "a", Format::Plain, 1);
        let headers = object(again.headers().as_ref());
        let names: Vec<_> = headers.keys().copied().collect();
        assert_eq!(names, ["surus-attempts", "type"]);
        assert_eq!(again.priority(), &Some(3));
        assert_eq!(again.message_id().as_ref().unwrap().as_str(), "a");
        assert_eq!((again.user_id(), again.expiration()), (&None, &None));
    }

    #[test]
    fn buried_message_has_its_reason_until_it_is_retried() {
        let once = buried(&tried(&sent(), "a", Format::Plain, 3), "a", "why\nnot", 7);
        assert_eq!(burial(&once), (Some("why\nnot".into()), 7));
        let again = fresh(&once, "a");
        assert_eq!(burial(&again), (None, 0));
        let headers = object(again.headers().as_ref());
        assert_eq!(headers.keys().collect::<Vec<_>>(), [&"type"]);
        let long = buried(&sent(), "a", &"\u{e4}".repeat(10_000), 7);
        assert_eq!(burial(&long).0.unwrap().len(), LONGEST_REASON);
    }
}
