//! Reads the context of a worker's response: JSON, or protobuf (http.v1).

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use hyper::ext::ReasonPhrase;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::frame;
use super::protobuf::{self, FieldValue, Fields};
use crate::engines::cgi::response::CgiParts;

/// The most headers, as of CGI responses.
const MAX_HEADERS: usize = 1024;

/// A context.
#[derive(Debug)]
pub struct Context {
    /// The status may be that of an informational response.
    pub parts: CgiParts,
    /// Headers that HTTP cannot carry, for the log.
    pub rejected: Vec<String>,
}

/// The status and the headers before they are checked.
#[derive(Debug)]
struct Raw {
    status: i64,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads a context; `flags` are those of its frame. Packages before roadrunner-http 3.5 set none
/// and write JSON.
pub fn parse(flags: u8, context: &Bytes) -> Result<Context, String> {
    let raw = match flags & frame::PROTOBUF {
        0 => from_json(context),
        _ => from_protobuf(context).map_err(|_| "invalid protobuf in a response".to_string()),
    }?;
    let status = u16::try_from(raw.status).ok();
    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
    let status = status
        .filter(|status| (100..600).contains(&status.as_u16()))
        .ok_or_else(|| format!("invalid status {}", raw.status))?;
    if raw.headers.len() > MAX_HEADERS {
        return Err(format!("the response has more than {MAX_HEADERS} headers"));
    }
    let mut headers = HeaderMap::with_capacity(raw.headers.len());
    let mut rejected = Vec::new();
    for (name, value) in raw.headers {
        let parsed = HeaderName::from_bytes(&name);
        match (parsed, HeaderValue::from_bytes(value.trim_ascii())) {
            (Ok(name), Ok(value)) => {
                headers.append(name, value);
            }
            _ => rejected.push(String::from_utf8_lossy(&name[..name.len().min(256)]).into_owned()),
        }
    }
    let reason = status.canonical_reason();
    Ok(Context {
        parts: CgiParts {
            status,
            // Otherwise hyper would invent a reason phrase.
            reason: reason.is_none().then(|| ReasonPhrase::from_static(b"")),
            headers,
        },
        rejected,
    })
}

/// Whether this is what `Worker::stop()` sends instead of a response: the worker wants to end.
pub fn is_stop(context: &[u8], body_len: u32) -> bool {
    #[derive(Deserialize)]
    struct Command {
        stop: bool,
    }
    body_len == 0
        && context.starts_with(b"{\"stop\"")
        && serde_json::from_slice::<Command>(context).is_ok_and(|command| command.stop)
}

fn from_json(context: &[u8]) -> Result<Raw, String> {
    #[derive(Deserialize)]
    struct Text {
        status: i64,
        #[serde(default)]
        headers: Headers,
    }
    let text: Text = serde_json::from_slice(context)
        .map_err(|error| format!("invalid JSON in a response: {error}"))?;
    Ok(Raw {
        status: text.status,
        headers: text.headers.0,
    })
}

/// An object of strings or lists of strings. PHP writes an empty one as a list.
#[derive(Debug, Default)]
struct Headers(Vec<(Vec<u8>, Vec<u8>)>);

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(Scalar),
    List(Vec<Scalar>),
    /// A list with other keys than 0, 1, 2 …
    Map(std::collections::BTreeMap<String, Scalar>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(serde_json::Number),
}

impl Scalar {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Scalar::Text(text) => text.into_bytes(),
            Scalar::Number(number) => number.to_string().into_bytes(),
        }
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Headers, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Headers;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("headers")
            }

            fn visit_unit<E>(self) -> Result<Headers, E> {
                Ok(Headers::default())
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<Headers, A::Error> {
                match list.next_element::<serde::de::IgnoredAny>()? {
                    None => Ok(Headers::default()),
                    Some(_) => Err(serde::de::Error::custom("headers without names")),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some((name, values)) = map.next_entry::<String, Values>()? {
                    let values = match values {
                        Values::One(value) => vec![value],
                        Values::List(values) => values,
                        Values::Map(values) => values.into_values().collect(),
                    };
                    let name = name.into_bytes();
                    let values = values.into_iter().map(Scalar::into_bytes);
                    headers.extend(values.map(|value| (name.clone(), value)));
                }
                Ok(Headers(headers))
            }
        }
        from.deserialize_any(Visit)
    }
}

fn from_protobuf(context: &[u8]) -> Result<Raw, protobuf::Invalid> {
    let mut raw = Raw {
        status: 0,
        headers: Vec::new(),
    };
    for field in Fields::new(context) {
        match field? {
            (1, FieldValue::Varint(status)) => raw.status = status.cast_signed(),
            (2, FieldValue::Bytes(entry)) => {
                let (name, values) = protobuf::values(entry)?;
                let values = values.into_iter();
                let values = values.map(|value| (name.to_vec(), value.to_vec()));
                raw.headers.extend(values);
            }
            _ => {}
        }
    }
    Ok(raw)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(text: &str) -> Result<Context, String> {
        parse(0, &Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn json_of_each_version_is_read() {
        for text in [
            r#"{"status":201,"headers":{"X-A":["1","2"],"X-B":["3"]}}"#,
            r#"{"status":201,"headers":{"X-A":{"1":"1","4":"2"},"X-B":"3"}}"#,
            r#"{"status":201,"headers":{"X-A":["1",2],"X-B":3}}"#,
        ] {
            let parts = json(text).unwrap().parts;
            assert_eq!(parts.status, 201);
            let values: Vec<_> = parts.headers.get_all("x-a").iter().collect();
            assert_eq!(values, ["1", "2"], "{text}");
            assert_eq!(parts.headers["x-b"], "3");
        }
        for text in [
            r#"{"status":200}"#,
            r#"{"status":200,"headers":[]}"#,
            r#"{"status":200,"headers":null,"more":[1]}"#,
        ] {
            assert!(json(text).unwrap().parts.headers.is_empty(), "{text}");
        }
    }

    #[test]
    fn protobuf_is_read() {
        let mut context = vec![0x08, 0xc9, 0x01];
        let values = [&b"1"[..], b"\xff"];
        protobuf::put_values(&mut context, 2, "X-A", values.into_iter());
        let context = parse(frame::PROTOBUF, &context.into()).unwrap();
        assert_eq!(context.parts.status, 201);
        let values = context.parts.headers.get_all("x-a").iter();
        let values: Vec<_> = values.map(HeaderValue::as_bytes).collect();
        assert_eq!(values, [&b"1"[..], b"\xff"]);
    }

    #[test]
    fn invalid_context_is_rejected_with_its_reason() {
        for (text, reason) in [
            ("", "invalid JSON"),
            ("[]", "invalid JSON"),
            (r#"{"status":"200"}"#, "invalid JSON"),
            (r#"{"status":200,"headers":["a"]}"#, "headers without names"),
            (r#"{"status":99}"#, "invalid status 99"),
            (r#"{"status":-1}"#, "invalid status -1"),
            (r#"{"status":600}"#, "invalid status 600"),
        ] {
            let error = json(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let error = parse(frame::PROTOBUF, &Bytes::from_static(b"\x12\x09")).unwrap_err();
        assert!(error.contains("protobuf"), "{error}");
    }

    #[test]
    fn headers_that_http_cannot_carry_are_removed() {
        let context =
            json(r#"{"status":200,"headers":{"a b":"1","X":["2","3\r\nY: 4"]}}"#).unwrap();
        assert_eq!(context.parts.headers.len(), 1);
        assert_eq!(context.rejected, ["a b", "X"]);
    }

    #[test]
    fn stop_is_distinguished_from_responses() {
        assert!(is_stop(br#"{"stop":true}"#, 0));
        assert!(!is_stop(br#"{"stop":true}"#, 1));
        assert!(!is_stop(br#"{"status":200}"#, 0));
        assert!(!is_stop(br#"{"stop":false}"#, 0));
    }

    proptest! {
        #[test]
        fn arbitrary_context_is_read_or_rejected(flags: u8, context: Vec<u8>) {
            if let Ok(context) = parse(flags, &context.into()) {
                prop_assert!((100..600).contains(&context.parts.status.as_u16()));
            }
        }
    }
}
