//! Escapes the text of clients and scripts as nginx and Apache do in their access logs.

use std::io::Write;

/// How values are escaped. None lets a value end its line or its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    /// nginx's default: `\x22` for quotes, backslashes, and what is not printable ASCII.
    Nginx,
    /// nginx's `escape=json`: for the inside of a string of JSON.
    Json,
    /// `\"`, `\\`, `\n` and the like, and `\x1b` for other bytes that are not printable ASCII.
    Apache,
}

impl Escape {
    pub fn write(self, to: &mut Vec<u8>, value: &[u8]) {
        match self {
            Escape::Nginx => nginx(to, value),
            Escape::Json => json(to, value),
            Escape::Apache => apache(to, value),
        }
    }

    /// Stands for a value that does not exist.
    pub fn missing(self) -> &'static [u8] {
        match self {
            Escape::Json => b"",
            Escape::Nginx | Escape::Apache => b"-",
        }
    }
}

fn nginx(to: &mut Vec<u8>, value: &[u8]) {
    for byte in value {
        match byte {
            b'"' | b'\\' | ..0x20 | 0x7f.. => drop(write!(to, "\\x{byte:02X}")),
            _ => to.push(*byte),
        }
    }
}

fn apache(to: &mut Vec<u8>, value: &[u8]) {
    for byte in value {
        match byte {
            b'"' | b'\\' => to.extend([b'\\', *byte]),
            0x08 => to.extend(b"\\b"),
            b'\t' => to.extend(b"\\t"),
            b'\n' => to.extend(b"\\n"),
            0x0b => to.extend(b"\\v"),
            b'\r' => to.extend(b"\\r"),
            ..0x20 | 0x7f.. => drop(write!(to, "\\x{byte:02x}")),
            _ => to.push(*byte),
        }
    }
}

/// Bytes that are not UTF-8 are replaced, because JSON has none.
fn json(to: &mut Vec<u8>, value: &[u8]) {
    let text = String::from_utf8_lossy(value);
    let quoted = serde_json::to_string(&text).unwrap_or_default();
    let inside = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    to.extend(inside.unwrap_or_default().as_bytes());
}
