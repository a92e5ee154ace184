//! Restores the request target from the path and query that the service sends.

use bytes::Bytes;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::fields::Pairs;

/// Whether an API's stage is removed from the beginning of the path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StripStage {
    /// If API Gateway has added it: HTTP APIs have the stage in the path unless it is
    /// `$default`; REST APIs do not.
    #[default]
    Auto,
    /// Always, if the path begins with it.
    Always,
    /// Never: the path is the one that the client requested, with the stage.
    Never,
}

/// The beginning of a URL path: `/api`, `/shop/v2`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPrefix(String);

impl TryFrom<String> for PathPrefix {
    type Error = String;

    fn try_from(text: String) -> Result<PathPrefix, String> {
        let is_path = text.starts_with('/') && !text.ends_with('/') && !text.contains(['?', '#']);
        match is_path {
            true => Ok(PathPrefix(text)),
            false => Err(format!(
                "`{text}` is not a path prefix; it must start with a slash and not end with one, \
                 such as `/api`"
            )),
        }
    }
}

impl From<PathPrefix> for String {
    fn from(prefix: PathPrefix) -> String {
        prefix.0
    }
}

impl PathPrefix {
    /// The path without this prefix.
    pub fn strip<'a>(&self, path: &'a str) -> &'a str {
        strip(path, &self.0)
    }
}

/// The path without the stage.
pub fn strip_stage<'a>(path: &'a str, stage: &str) -> &'a str {
    match path.strip_prefix('/') {
        // An empty name matches no segment.
        Some(rest) if !stage.is_empty() && rest.starts_with(stage) => {
            strip(path, &path[..=stage.len()])
        }
        _ => path,
    }
}

/// Removes whole segments only. The result always begins with a slash.
fn strip<'a>(path: &'a str, prefix: &str) -> &'a str {
    match path.strip_prefix(prefix) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// Longer targets are not valid URIs. The limit also stops the expansion of a long list of values.
const MAX: usize = u16::MAX as usize;

/// Builder of a request target.
pub struct Target(Vec<u8>);

impl Target {
    pub fn new(path: &str, query: usize) -> Target {
        let mut target = Target(Vec::with_capacity(path.len() + query + 1));
        target.escape(path, TargetPart::Path);
        target
    }

    /// Appends a query that the service has passed on unchanged.
    pub fn query(&mut self, raw: &str) {
        if !raw.is_empty() {
            self.0.push(b'?');
            self.escape(raw, TargetPart::Query);
        }
    }

    /// Appends a query that the service has split into a map.
    pub fn pairs(&mut self, pairs: &Pairs<'_>, coding: Coding) {
        let lines = pairs
            .iter()
            .flat_map(|(name, values)| values.each().map(move |value| (name, value)));
        let mut separator = b'?';
        for (name, value) in lines {
            if self.0.len() > MAX {
                return;
            }
            self.0.push(separator);
            separator = b'&';
            match coding {
                Coding::Kept => {
                    self.escape(name, TargetPart::Query);
                    self.0.push(b'=');
                    self.escape(value, TargetPart::Query);
                }
                Coding::Decoded => {
                    self.encode(name, NAME);
                    self.0.push(b'=');
                    self.encode(value, VALUE);
                }
            }
        }
    }

    pub fn finish(self) -> Result<PathAndQuery, http::uri::InvalidUri> {
        PathAndQuery::from_maybe_shared(Bytes::from(self.0))
    }

    /// Encodes only what the request line cannot have contained.
    fn escape(&mut self, text: &str, part: TargetPart) {
        let bytes = text.as_bytes();
        let mut kept = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let is_legal = match part {
                // A `%` is always legal in a query. In a path it must begin an escape, otherwise
                // the service has decoded the path.
                TargetPart::Path => {
                    IN_PATH[usize::from(*byte)] && (*byte != b'%' || is_encoding(&bytes[at..]))
                }
                TargetPart::Query => IN_QUERY[usize::from(*byte)],
            };
            if !is_legal {
                self.0.extend_from_slice(&bytes[kept..at]);
                let encoded = percent_encoding::percent_encode_byte(*byte);
                self.0.extend_from_slice(encoded.as_bytes());
                kept = at + 1;
            }
        }
        self.0.extend_from_slice(&bytes[kept..]);
    }

    fn encode(&mut self, text: &str, set: &'static AsciiSet) {
        for piece in utf8_percent_encode(text, set) {
            self.0.extend_from_slice(piece.as_bytes());
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TargetPart {
    Path,
    Query,
}

/// How the service has coded the names and values of a query.
#[derive(Clone, Copy)]
pub enum Coding {
    /// As the client sent them.
    Kept,
    /// Decoded.
    Decoded,
}

const IN_QUERY: [bool; 256] = all_but(b"\"<>#");
const IN_PATH: [bool; 256] = all_but(b"\"<>#?`");

/// Characters that clients put into request lines; more than RFC 3986 allows.
const fn all_but(except: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        table[byte as usize] = true;
        byte += 1;
    }
    let mut at = 0;
    while at < except.len() {
        table[except[at] as usize] = false;
        at += 1;
    }
    table
}

/// Whether the bytes begin with an escape such as `%2F`.
fn is_encoding(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
}

/// Keeps what RFC 3986 allows in a query, except separators and characters with another meaning.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';')
    .remove(b':')
    .remove(b'@')
    .remove(b'/')
    .remove(b'?')
    .remove(b'=');

const NAME: &AsciiSet = &VALUE.add(b'=');
