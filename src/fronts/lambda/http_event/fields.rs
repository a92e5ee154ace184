//! Lazy access to the JSON fields of an event, in their order.
//!
//! Fields are located first and parsed on demand. The event's service must be known before a field
//! of the wrong type is an error, and most fields are never needed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use super::Malformed;

/// The event's own fields.
const EVENT: &[&str] = &[
    "version",
    "httpMethod",
    "method",
    "path",
    "rawPath",
    "raw_path",
    "rawQueryString",
    "queryStringParameters",
    "query_string_parameters",
    "multiValueQueryStringParameters",
    "headers",
    "multiValueHeaders",
    "cookies",
    "body",
    "isBase64Encoded",
    "is_base64_encoded",
    "requestContext",
    "methodArn",
    "routeArn",
];

/// A nested object and its relevant fields.
pub struct EventPart {
    name: &'static str,
    /// The object's path from the event on, for messages.
    at: &'static str,
    fields: &'static [&'static str],
}

pub const CONTEXT: EventPart = EventPart {
    name: "requestContext",
    at: "requestContext",
    fields: &[
        "http",
        "stage",
        "path",
        "protocol",
        "domainName",
        "identity",
        "elb",
        "serviceNetworkArn",
        "serviceArn",
        "connectionId",
        "eventType",
        "routeKey",
    ],
};

pub const HTTP: EventPart = EventPart {
    name: "http",
    at: "requestContext.http",
    fields: &["method", "protocol", "sourceIp"],
};

pub const IDENTITY: EventPart = EventPart {
    name: "identity",
    at: "requestContext.identity",
    fields: &["sourceIp"],
};

/// The relevant fields of a JSON object. A null field counts as missing; of two fields with one
/// name the last counts, as everywhere in AWS.
pub struct Object<'a> {
    /// Prefix of field names in messages.
    at: &'static str,
    fields: Vec<(&'static str, &'a RawValue)>,
}

/// Names and values of a map, in the order of the document.
pub type Pairs<'a> = Vec<(Cow<'a, str>, Values<'a>)>;

impl<'a> Object<'a> {
    /// Reads the event. None if it is JSON but not an object.
    pub fn parse_event(text: &'a str) -> Result<Option<Object<'a>>, Malformed> {
        let malformed = |error: serde_json::Error| {
            Malformed::new("the event", format!("invalid JSON: {error}"))
        };
        if !text.trim_ascii_start().starts_with('{') {
            return match serde_json::from_str::<IgnoredAny>(text) {
                Ok(_) => Ok(None),
                Err(error) => Err(malformed(error)),
            };
        }
        Object::parse(text, "", EVENT).map(Some).map_err(malformed)
    }

    fn parse(
        text: &'a str,
        at: &'static str,
        names: &'static [&'static str],
    ) -> Result<Object<'a>, serde_json::Error> {
        let mut json = serde_json::Deserializer::from_str(text);
        let fields = Known(names).deserialize(&mut json)?;
        json.end()?;
        Ok(Object { at, fields })
    }

    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let mut fields = self.fields.iter().rev();
        fields
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
            .filter(|value| value.get() != "null")
    }

    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// The JSON text of a field.
    pub fn json(&self, name: &str) -> Option<&'a str> {
        self.raw(name).map(RawValue::get)
    }

    pub fn text(&self, name: &str) -> Result<Option<Cow<'a, str>>, Malformed> {
        let Some(json) = self.json(name) else {
            return Ok(None);
        };
        // Most strings have no escapes, so the text between the quotation marks is the value. It
        // was checked when the event was read.
        if let Some(inner) = json
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            && memchr::memchr(b'\\', inner.as_bytes()).is_none()
        {
            return Ok(Some(Cow::Borrowed(inner)));
        }
        let Text(text) =
            serde_json::from_str(json).map_err(|error| self.malformed(name, &error))?;
        Ok(Some(text))
    }

    /// A field that every event of its type has.
    pub fn required(&self, name: &str) -> Result<Cow<'a, str>, Malformed> {
        self.text(name)?
            .ok_or_else(|| self.wrong(name, "missing, but every request has one"))
    }

    /// False if the field is missing.
    pub fn flag(&self, name: &str) -> Result<bool, Malformed> {
        match self.json(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(self.wrong(name, "not a boolean")),
        }
    }

    /// A map from names to strings or lists of strings.
    pub fn pairs(&self, name: &str) -> Result<Pairs<'a>, Malformed> {
        match self.json(name) {
            None => Ok(Pairs::new()),
            Some(json) => {
                let mut json = serde_json::Deserializer::from_str(json);
                Map.deserialize(&mut json)
                    .map_err(|error| self.malformed(name, &error))
            }
        }
    }

    /// A list of strings; empty if missing.
    pub fn list(&self, name: &str) -> Result<Vec<Cow<'a, str>>, Malformed> {
        match self.json(name) {
            None => Ok(Vec::new()),
            Some(json) => {
                let list: Vec<Text> =
                    serde_json::from_str(json).map_err(|error| self.malformed(name, &error))?;
                Ok(list.into_iter().map(|Text(text)| text).collect())
            }
        }
    }

    /// An object within this one. None if it is missing or not an object.
    pub fn part(&self, part: &EventPart) -> Result<Option<Object<'a>>, Malformed> {
        match self.json(part.name) {
            Some(json) if json.starts_with('{') => Object::parse(json, part.at, part.fields)
                .map(Some)
                .map_err(|error| self.malformed(part.name, &error)),
            _ => Ok(None),
        }
    }

    /// The error for a field.
    pub fn wrong(&self, name: &str, what: impl Into<String>) -> Malformed {
        let at = match self.at {
            "" => name.to_string(),
            at => format!("{at}.{name}"),
        };
        Malformed::new(at, what)
    }

    fn malformed(&self, name: &str, error: &serde_json::Error) -> Malformed {
        let error = error.to_string();
        // The position counts from the beginning of the field, which the user does not see.
        let what = error
            .rsplit_once(" at line ")
            .map_or(&*error, |(what, _)| what);
        self.wrong(name, what)
    }
}

/// Collects the fields with these names and skips the rest.
struct Known(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Known {
    type Value = Vec<(&'static str, &'de RawValue)>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Known {
    type Value = Vec<(&'static str, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(self.0.len());
        while let Some(Text(key)) = map.next_key()? {
            match self.0.iter().find(|name| **name == key) {
                Some(name) => fields.push((*name, map.next_value()?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(fields)
    }
}

/// Reads [`Pairs`].
struct Map;

impl<'de> DeserializeSeed<'de> for Map {
    type Value = Pairs<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Map {
    type Value = Pairs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
        let mut pairs = Pairs::with_capacity(USUAL);
        while let Some(Text(key)) = map.next_key()? {
            match map.next_value() {
                Ok(Some(values)) => pairs.push((key, values)),
                Ok(None) => {}
                Err(error) => return Err(A::Error::custom(format_args!("{key:?}: {error}"))),
            }
        }
        Ok(pairs)
    }
}

/// Number of headers of a typical request, including AWS's.
const USUAL: usize = 16;

/// The values of a name in a map: usually one, even where a list is allowed.
pub enum Values<'a> {
    One(Text<'a>),
    Many(Vec<Text<'a>>),
}

impl<'a> Values<'a> {
    pub fn each(&self) -> impl Iterator<Item = &str> {
        let values = match self {
            Values::One(value) => std::slice::from_ref(value),
            Values::Many(values) => values,
        };
        values.iter().map(|Text(value)| &**value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Values<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(ValuesVisitor)
    }
}

struct ValuesVisitor;

impl<'de> Visitor<'de> for ValuesVisitor {
    type Value = Values<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number or a list of them")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        TextVisitor.visit_borrowed_str(text).map(Values::One)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        TextVisitor.visit_str(text).map(Values::One)
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Values::One(Text::new(flag)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Values::One(Text::new(number)))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Values::One(Text::new(number)))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Values::One(Text::new(number)))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut next = || Ok(list.next_element()?.map(|Scalar(text)| text));
        let first = next()?;
        let second = match first {
            Some(_) => next()?,
            None => None,
        };
        let mut values = match (first, second) {
            (Some(first), None) => return Ok(Values::One(first)),
            (first, second) => Vec::from_iter(first.into_iter().chain(second)),
        };
        while let Some(value) = next()? {
            values.push(value);
        }
        Ok(Values::Many(values))
    }
}

/// A value of a list. Services send strings, but handwritten events may contain numbers.
struct Scalar<'a>(Text<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(ScalarVisitor).map(Scalar)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a number")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        TextVisitor.visit_borrowed_str(text)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        TextVisitor.visit_str(text)
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Text::new(flag))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Text::new(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Text::new(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Text::new(number))
    }
}

/// A string, borrowed where it has no escapes.
pub struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    fn new(value: impl fmt::Display) -> Text<'static> {
        Text(Cow::Owned(value.to_string()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_string())))
    }
}
