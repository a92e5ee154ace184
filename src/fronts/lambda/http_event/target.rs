//! The request target that the client sent, from what its service says of path and query.

use bytes::Bytes;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use super::fields::Pairs;

/// What becomes of an API's stage at the beginning of the path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StripStage {
    /// It is removed where API Gateway has put it: HTTP APIs have it in the path, unless the stage is `$default`; REST APIs do not.
    #[default]
    Auto,
    /// It is removed wherever the path begins with it.
    Always,
    /// The path is the one that the client asked for, with the stage.
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
                "`{text}` is not the beginning of a path: it begins with a slash and does not end with one, such as `/api`"
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

/// The path without the stage that it begins with.
pub fn strip_stage<'a>(path: &'a str, stage: &str) -> &'a str {
    match path.strip_prefix('/') {
        // A name of nothing is no segment.
        Some(rest) if !stage.is_empty() && rest.starts_with(stage) => {
            strip(path, &path[..=stage.len()])
        }
        _ => path,
    }
}

/// Only whole segments are removed, and a path stays.
fn strip<'a>(path: &'a str, prefix: &str) -> &'a str {
    match path.strip_prefix(prefix) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// No longer target becomes a URI; a name that has many values would make one without end.
const MAX: usize = u16::MAX as usize;

/// A request target that is being put together.
pub struct Target(Vec<u8>);

impl Target {
    pub fn new(path: &str, query: usize) -> Target {
        let mut target = Target(Vec::with_capacity(path.len() + query + 1));
        target.escape(path, Part::Path);
        target
    }

    /// A query that the service has passed on as it was.
    pub fn query(&mut self, raw: &str) {
        if !raw.is_empty() {
            self.0.push(b'?');
            self.escape(raw, Part::Query);
        }
    }

    /// A query of which the service has made a map.
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
                    self.escape(name, Part::Query);
                    self.0.push(b'=');
                    self.escape(value, Part::Query);
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

    /// Encodes what cannot have been in the request line, and nothing else.
    fn escape(&mut self, text: &str, part: Part) {
        let bytes = text.as_bytes();
        let mut kept = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let is_legal = match part {
                // No query is wrong because of a `%`; a path is, so that somebody must have decoded this one.
                Part::Path => {
                    IN_PATH[usize::from(*byte)] && (*byte != b'%' || is_encoding(&bytes[at..]))
                }
                Part::Query => IN_QUERY[usize::from(*byte)],
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
enum Part {
    Path,
    Query,
}

/// What a service has done to the names and values of a query.
#[derive(Clone, Copy)]
pub enum Coding {
    /// They are as the client sent them.
    Kept,
    /// They were decoded.
    Decoded,
}

const IN_QUERY: [bool; 256] = all_but(b"\"<>#");
const IN_PATH: [bool; 256] = all_but(b"\"<>#?`");

/// What clients put into request lines: more than RFC 3986 has.
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

/// `%2F` at the beginning.
fn is_encoding(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
}

/// What RFC 3986 has in a query stays, but for what separates or stands for something else there.
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
