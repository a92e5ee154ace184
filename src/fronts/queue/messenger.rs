//! Reads Symfony Messenger's messages as far as Surus needs it: only PHP decodes them.
//!
//! A message is the JSON `{"body": …, "headers": …}`, as the Redis transport writes it.

use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What precedes the message in a serialized envelope, as `PhpSerializer` escapes it.
const BEFORE: &str = r#"\0Symfony\\Component\\Messenger\\Envelope\0message\";"#;

#[derive(Default)]
pub struct Message {
    pub body: String,
    pub headers: Map<String, Value>,
}

/// Writes a message whose headers are JSON. PHP writes none as an empty list.
pub fn payload(body: &str, headers: &str) -> Bytes {
    #[derive(Serialize)]
    struct Written<'a> {
        body: &'a str,
        headers: Option<&'a RawValue>,
    }
    let headers = serde_json::from_str(headers).ok();
    serde_json::to_vec(&Written { body, headers })
        .unwrap_or_default()
        .into()
}

pub fn message(payload: &[u8]) -> Message {
    #[derive(Deserialize)]
    struct Read {
        body: String,
        #[serde(default)]
        headers: Value,
    }
    let Ok(read) = serde_json::from_slice::<Read>(payload) else {
        return Message::default();
    };
    let headers = match read.headers {
        Value::Object(headers) => headers,
        _ => Map::new(),
    };
    Message {
        body: read.body,
        headers,
    }
}

/// The class of a message; empty if it cannot be told.
pub fn class(payload: &[u8]) -> String {
    let message = message(payload);
    if let Some(Value::String(class)) = message.headers.get("type") {
        return class.clone();
    }
    let named = || {
        let (_, object) = message.body.split_once(BEFORE)?;
        let (_, class) = object.strip_prefix("O:")?.split_once(r#"\""#)?;
        Some(class.split_once(r#"\""#)?.0.replace(r"\\", r"\"))
    };
    named().unwrap_or_default()
}

/// What a message keeps when Messenger sends it again, with other stamps and another id.
pub fn fingerprint(payload: &[u8]) -> String {
    let message = message(payload);
    let bare = match message.body.split_once(BEFORE) {
        Some((_, bare)) => bare,
        None => &message.body,
    };
    let mut hasher = DefaultHasher::new();
    // Messages without properties differ only by their class, which may be a header.
    let class = message.headers.get("type").and_then(Value::as_str);
    (class, bare).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as `PhpSerializer` writes it, shortened.
    fn serialized(stamps: &str) -> Bytes {
        let body = format!(
            r#"O:36:\"…\":2:{{s:44:\"…\";{stamps}s:45:\"{BEFORE}O:9:\"App\\Order\":1:{{}}}}"#
        );
        payload(&body, "[]")
    }

    #[test]
    fn class_of_a_message_is_read_from_both_serializers() {
        assert_eq!(class(&serialized("a:0:{}")), r"App\Order");
        let json = payload(r#"{"do":"x"}"#, r#"{"type":"App\\Order"}"#);
        assert_eq!(class(&json), r"App\Order");
        for other in [&b"no JSON"[..], br#"{"body":"b64=","headers":[]}"#] {
            assert_eq!(class(other), "");
        }
    }

    #[test]
    fn message_keeps_its_fingerprint_with_other_stamps() {
        let [first, again] = ["a:0:{}", r#"a:1:{s:9:\"\0E\0message\";s:0:\"\";}"#].map(serialized);
        assert_eq!(fingerprint(&first), fingerprint(&again));
        assert_ne!(fingerprint(&first), fingerprint(&payload("other", "[]")));
        let empty = |class: &str| payload("[]", &format!(r#"{{"type":"{class}"}}"#));
        assert_ne!(fingerprint(&empty("A")), fingerprint(&empty("B")));
        assert_ne!(
            fingerprint(br#"{"body":"a"}"#),
            fingerprint(br#"{"body":"b"}"#)
        );
    }
}
