//! Compares pages: writes answers as text, and masks what varies between two answers to the same
//! request.

mod template;

pub use template::Template;

use http::{HeaderName, HeaderValue, response};

/// Headers that describe the transfer and not the page, or name the version of PHP.
const IGNORED: [&str; 8] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "server",
    "transfer-encoding",
    "x-powered-by",
    "age",
];

/// Status, headers and body.
pub fn comparable(head: &response::Parts, body: &[u8]) -> Vec<u8> {
    let kept = |(name, value): &(&HeaderName, &HeaderValue)| {
        !IGNORED.contains(&name.as_str()) && !is_about_size(name, value)
    };
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()))
    };
    let mut headers: Vec<_> = head.headers.iter().filter(kept).map(line).collect();
    headers.sort();
    let mut text = format!("{}\n{}\n", head.status.as_u16(), headers.concat()).into_bytes();
    text.extend_from_slice(body);
    text
}

/// Whether a response has this header only because Surus would compress one of its size, which an
/// engine may not know in advance.
fn is_about_size(name: &HeaderName, value: &HeaderValue) -> bool {
    *name == http::header::VARY && value.as_bytes().eq_ignore_ascii_case(b"accept-encoding")
}
