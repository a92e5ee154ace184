//! The answer to an event, in the JSON that its service makes a response of.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use http::response::Parts;

use super::format::Format;

/// An answer as JSON.
pub struct Written {
    pub json: Vec<u8>,
    /// Its body is in base64.
    pub is_base64: bool,
}

/// The whole answer.
///
/// The body is text when it is UTF-8 without NUL, and base64 otherwise: whatever its `Content-Type` says, that is what JSON can
/// carry.
pub fn write(format: &Format, head: &Parts, body: &[u8]) -> Written {
    let text = match memchr::memchr(0, body) {
        None => std::str::from_utf8(body).ok(),
        Some(_) => None,
    };
    let body_len = match text {
        Some(text) => text.len() + text.len() / 8,
        None => body.len().div_ceil(3) * 4,
    };
    let mut json = Json(String::with_capacity(HEAD + body_len));
    json.status(head);
    let headers = Headers {
        headers: &head.headers,
        body: Some(body.len()),
    };
    match format {
        Format::Rest | Format::HttpApiV1 => json.lists(&headers),
        Format::Alb { multi_value } => {
            json.description(head);
            match multi_value {
                true => json.lists(&headers),
                false => json.one_each(&headers),
            }
        }
        Format::LatticeV1 | Format::LatticeV2 => {
            json.description(head);
            json.one_each(&headers);
        }
        Format::HttpApiV2 | Format::FunctionUrl => json.joined_with_cookies(&headers),
        Format::WebSocket => json.one_each(&headers),
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
    Written {
        json: json.0.into_bytes(),
        is_base64: text.is_none(),
    }
}

/// What goes before a body that streams: the head and eight NUL bytes.
///
/// Function URLs and REST APIs stream. A REST API takes lists of header values here too, but both take this.
pub fn prelude(_format: &Format, head: &Parts) -> Vec<u8> {
    let mut json = Json(String::with_capacity(HEAD));
    json.status(head);
    json.joined_with_cookies(&Headers {
        headers: &head.headers,
        body: None,
    });
    json.raw("}");
    let mut prelude = json.0.into_bytes();
    prelude.extend_from_slice(&[0; 8]);
    prelude
}

/// Bytes that most heads fit into.
const HEAD: usize = 768;

/// The headers of a response, but for those that are about a connection which is not ours.
struct Headers<'a> {
    headers: &'a HeaderMap,
    /// The length of the body, where it is known.
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
                // To HEAD it is the length of what GET would get. The service counts the bytes that there are.
                return body.is_none_or(|len| {
                    len == 0 || value.to_str().is_ok_and(|text| text == len.to_string())
                });
            }
            !CONNECTION.contains(&name.as_str())
        })
    }

    /// Each name once, with the values that follow one another.
    fn each(
        &self,
        mut take: impl FnMut(&'a HeaderName, &mut dyn Iterator<Item = &'a HeaderValue>),
    ) {
        let mut lines = self.iter().peekable();
        while let Some((name, value)) = lines.next() {
            let more = std::iter::from_fn(|| lines.next_if(|(next, _)| *next == name));
            let mut values = std::iter::once(value).chain(more.map(|(_, value)| value));
            take(name, &mut values);
            // What it has not taken is not the next name's.
            values.for_each(drop);
        }
    }
}

/// JSON that is being written.
struct Json(String);

impl Json {
    fn raw(&mut self, json: &str) {
        self.0.push_str(json);
    }

    fn status(&mut self, head: &Parts) {
        self.raw(r#"{"statusCode":"#);
        self.raw(head.status.as_str());
    }

    fn description(&mut self, head: &Parts) {
        self.raw(r#","statusDescription":""#);
        self.raw(head.status.as_str());
        self.raw(" ");
        self.raw(head.status.canonical_reason().unwrap_or("Unknown"));
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
    /// These services have no way of sending two cookies. But names that differ in upper and lower case are different keys for
    /// JSON and one header for the client, and there are 512 ways of writing this one; of more cookies, the last are lost.
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
        // No header's name has anything to escape.
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
            // All that is escaped is ASCII.
            text = &rest[1..];
        }
    }
}

/// How many bytes there are before one that JSON has to escape; eight are looked at together.
fn plain(bytes: &[u8]) -> usize {
    const EACH: u64 = u64::MAX / 255;
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk() {
        let word = u64::from_ne_bytes(*eight);
        let (quote, backslash) = (word ^ (EACH * 0x22), word ^ (EACH * 0x5c));
        // The highest bit of a byte that is below 0x20, or of one that has become 0. A borrow may set a bit too many.
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

/// Two for each letter of `set-cookie`.
const SPELLINGS: u32 = 1 << 9;

/// The name with upper case where `spelling` has a bit for the letter.
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

/// A value as text: UTF-8, or Latin-1, which is what bytes meant in HTTP before.
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
