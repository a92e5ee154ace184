//! Writes responses as the JSON that each service accepts.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use http::response::Parts;

use super::format::EventFormat;

/// A response as JSON.
pub struct EncodedResponse {
    pub json: Vec<u8>,
    /// The body is base64.
    pub is_base64: bool,
}

/// Writes a whole response.
///
/// The body is sent as a string if it is UTF-8 without NUL, otherwise as base64. `Content-Type`
/// does not matter, because only the former fits into JSON.
pub fn write(format: &EventFormat, parts: &Parts, body: &[u8]) -> EncodedResponse {
    let text = match memchr::memchr(0, body) {
        None => std::str::from_utf8(body).ok(),
        Some(_) => None,
    };
    let body_len = match text {
        Some(text) => text.len() + text.len() / 8,
        None => body.len().div_ceil(3) * 4,
    };
    let mut json = Json(String::with_capacity(HEAD + body_len));
    json.status(parts);
    let headers = Headers {
        headers: &parts.headers,
        body: Some(body.len()),
    };
    match format {
        EventFormat::Rest | EventFormat::HttpApiV1 => json.lists(&headers),
        EventFormat::Alb { multi_value } => {
            json.description(parts);
            match multi_value {
                true => json.lists(&headers),
                false => json.one_each(&headers),
            }
        }
        EventFormat::LatticeV1 | EventFormat::LatticeV2 => {
            json.description(parts);
            json.one_each(&headers);
        }
        EventFormat::HttpApiV2 | EventFormat::FunctionUrl => json.joined_with_cookies(&headers),
        EventFormat::WebSocket => json.one_each(&headers),
    }
    match text {
        Some(text) => {
            json.raw(r#","isBase64Encoded":false,"body":"#);
            json.text(text);
        }
        None => {
            json.raw(r#","isBase64Encoded":true,"body":""#);
            STANDARD.encode_string(body, &mut json.0);
            json.raw("\"");
        }
    }
    json.raw("}");
    EncodedResponse {
        json: json.0.into_bytes(),
        is_base64: text.is_none(),
    }
}

/// The prelude of a streamed response: status and headers as JSON, then eight NUL bytes.
///
/// Function URLs and REST APIs stream. A REST API accepts lists of header values too, but both
/// accept this form.
pub fn prelude(_format: &EventFormat, parts: &Parts) -> Vec<u8> {
    let mut json = Json(String::with_capacity(HEAD));
    json.status(parts);
    json.joined_with_cookies(&Headers {
        headers: &parts.headers,
        body: None,
    });
    json.raw("}");
    let mut prelude = json.0.into_bytes();
    prelude.extend_from_slice(&[0; 8]);
    prelude
}

/// Initial capacity for the header.
const HEAD: usize = 768;

/// A response's headers, without those that concern a connection.
struct Headers<'a> {
    headers: &'a HeaderMap,
    /// The body's length, if known.
    body: Option<usize>,
}

const CONNECTION: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl<'a> Headers<'a> {
    fn iter(&self) -> impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)> {
        let body = self.body;
        self.headers.iter().filter(move |(name, value)| {
            if **name == CONTENT_LENGTH {
                // In a response to HEAD this is the length of GET's body, but the service counts
                // the bytes of this body.
                return body.is_none_or(|len| {
                    len == 0 || value.to_str().is_ok_and(|text| text == len.to_string())
                });
            }
            !CONNECTION.contains(&name.as_str())
        })
    }

    /// Calls `take` for each name, with its consecutive values.
    fn each(
        &self,
        mut take: impl FnMut(&'a HeaderName, &mut dyn Iterator<Item = &'a HeaderValue>),
    ) {
        let mut lines = self.iter().peekable();
        while let Some((name, value)) = lines.next() {
            let more = std::iter::from_fn(|| lines.next_if(|(next, _)| *next == name));
            let mut values = std::iter::once(value).chain(more.map(|(_, value)| value));
            take(name, &mut values);
            // Skips the values that `take` has left.
            values.for_each(drop);
        }
    }
}

/// Writer of JSON.
struct Json(String);

impl Json {
    fn raw(&mut self, json: &str) {
        self.0.push_str(json);
    }

    fn status(&mut self, parts: &Parts) {
        self.raw(r#"{"statusCode":"#);
        self.raw(parts.status.as_str());
    }

    fn description(&mut self, parts: &Parts) {
        self.raw(r#","statusDescription":""#);
        self.raw(parts.status.as_str());
        self.raw(" ");
        self.raw(parts.status.canonical_reason().unwrap_or("Unknown"));
        self.raw("\"");
    }

    /// `"multiValueHeaders":{"name":["value"]}`
    fn lists(&mut self, headers: &Headers<'_>) {
        self.raw(r#","multiValueHeaders":{"#);
        let mut comma = "";
        headers.each(|name, values| {
            self.name(&mut comma, name.as_str());
            let mut begin = "[";
            for value in values {
                self.raw(begin);
                self.text(&text(value));
                begin = ",";
            }
            self.raw("]");
        });
        self.raw("}");
    }

    /// `"headers":{"name":"value, value"},"cookies":["cookie"]`
    fn joined_with_cookies(&mut self, headers: &Headers<'_>) {
        let mut cookies = Vec::new();
        self.raw(r#","headers":{"#);
        let mut comma = "";
        headers.each(|name, values| {
            if *name == SET_COOKIE {
                cookies.extend(values);
            } else {
                self.joined(&mut comma, name, values);
            }
        });
        self.raw(r#"},"cookies":["#);
        let mut comma = "";
        for cookie in cookies {
            self.raw(comma);
            self.text(&text(cookie));
            comma = ",";
        }
        self.raw("]");
    }

    /// `"headers":{"name":"value, value","set-cookie":"cookie","Set-cookie":"cookie"}`
    ///
    /// These services have no field for two cookies. But names in different case are different keys
    /// in JSON and one header for the client. `set-cookie` has 512 spellings; cookies beyond that
    /// are dropped.
    fn one_each(&mut self, headers: &Headers<'_>) {
        self.raw(r#","headers":{"#);
        let mut comma = "";
        headers.each(|name, values| {
            if *name == SET_COOKIE {
                for (spelling, cookie) in (0..SPELLINGS).zip(values) {
                    self.name(&mut comma, &spelt(name.as_str(), spelling));
                    self.text(&text(cookie));
                }
            } else {
                self.joined(&mut comma, name, values);
            }
        });
        self.raw("}");
    }

    fn joined(
        &mut self,
        comma: &mut &'static str,
        name: &HeaderName,
        values: &mut dyn Iterator<Item = &HeaderValue>,
    ) {
        self.name(comma, name.as_str());
        self.raw("\"");
        let mut separator = "";
        for value in values {
            self.raw(separator);
            self.escaped(&text(value));
            separator = ", ";
        }
        self.raw("\"");
    }

    fn name(&mut self, comma: &mut &'static str, name: &str) {
        self.raw(comma);
        // Header names contain nothing to escape.
        self.raw("\"");
        self.raw(name);
        self.raw("\":");
        *comma = ",";
    }

    fn text(&mut self, text: &str) {
        self.raw("\"");
        self.escaped(text);
        self.raw("\"");
    }

    fn escaped(&mut self, mut text: &str) {
        loop {
            let (plain, rest) = text.split_at(plain(text.as_bytes()));
            self.raw(plain);
            let Some(byte) = rest.bytes().next() else {
                return;
            };
            match byte {
                b'"' => self.raw("\\\""),
                b'\\' => self.raw("\\\\"),
                b'\n' => self.raw("\\n"),
                b'\r' => self.raw("\\r"),
                b'\t' => self.raw("\\t"),
                byte => {
                    self.raw("\\u00");
                    self.0.push(char::from(b'0' + (byte >> 4)));
                    let digit = b"0123456789abcdef"[usize::from(byte & 15)];
                    self.0.push(char::from(digit));
                }
            }
            // All escaped characters are ASCII.
            text = &rest[1..];
        }
    }
}

/// The number of bytes before the first that JSON must escape. Tests eight bytes at a time.
fn plain(bytes: &[u8]) -> usize {
    const EACH: u64 = u64::MAX / 255;
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk() {
        let word = u64::from_ne_bytes(*eight);
        let (quote, backslash) = (word ^ (EACH * 0x22), word ^ (EACH * 0x5c));
        // The highest bit marks a byte below 0x20, or one that became 0. A borrow may mark one byte
        // too many.
        let control = word.wrapping_sub(EACH * 0x20) & !word;
        let quote = quote.wrapping_sub(EACH) & !quote;
        let backslash = backslash.wrapping_sub(EACH) & !backslash;
        if (control | quote | backslash) & (EACH * 0x80) != 0
            && let Some(found) = eight.iter().position(is_escaped)
        {
            return at + found;
        }
        at += 8;
    }
    let rest = bytes[at..].iter().position(is_escaped);
    rest.map_or(bytes.len(), |found| at + found)
}

fn is_escaped(byte: &u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..0x20)
}

/// Two for each of the nine alphabetic characters of `set-cookie`.
const SPELLINGS: u32 = 1 << 9;

/// The name with its n-th alphabetic character in upper case if bit n of `spelling` is set.
fn spelt(name: &str, spelling: u32) -> String {
    let mut letters = 0;
    let mut spell = |c: char| {
        if !c.is_ascii_alphabetic() {
            return c;
        }
        letters += 1;
        match spelling >> (letters - 1) & 1 {
            1 => c.to_ascii_uppercase(),
            _ => c,
        }
    };
    name.chars().map(&mut spell).collect()
}

/// A header's value as text: UTF-8, otherwise Latin-1, the former default of HTTP.
fn text(value: &HeaderValue) -> Cow<'_, str> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(
            value
                .as_bytes()
                .iter()
                .map(|byte| char::from(*byte))
                .collect(),
        ),
    }
}
