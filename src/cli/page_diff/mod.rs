//! Compares pages: writes answers as text, and masks what varies between two answers to the same
//! request.

mod bursts;
mod template;

pub use bursts::PlainAnswers;
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
pub fn comparable(parts: &response::Parts, body: &[u8]) -> Vec<u8> {
    let kept = |(name, value): &(&HeaderName, &HeaderValue)| {
        !IGNORED.contains(&name.as_str()) && !is_about_size(name, value)
    };
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        match *name == http::header::SET_COOKIE {
            true => format!("{name}: {}\n", without_lifetime(&value)),
            false => format!("{name}: {value}\n"),
        }
    };
    let mut headers: Vec<_> = parts.headers.iter().filter(kept).map(line).collect();
    headers.sort();
    let mut text = format!("{}\n{}\n", parts.status.as_u16(), headers.concat()).into_bytes();
    text.extend_from_slice(body);
    text
}

/// Whether a response has this header only because Surus would compress one of its size, which an
/// engine may not know in advance.
fn is_about_size(name: &HeaderName, value: &HeaderValue) -> bool {
    *name == http::header::VARY && value.as_bytes().eq_ignore_ascii_case(b"accept-encoding")
}

/// A cookie without its lifetime, which depends on the time of the answer. Only its end is kept, by
/// which an answer deletes it.
fn without_lifetime(cookie: &str) -> String {
    let attribute = |text: &str| {
        let (name, value) = text.trim().split_once('=').unwrap_or((text.trim(), ""));
        match name.to_ascii_lowercase().as_str() {
            "expires" => "expires".to_owned(),
            "max-age" if value.parse::<i64>().is_ok_and(|seconds| seconds > 0) => {
                "max-age".to_owned()
            }
            _ => text.trim().to_owned(),
        }
    };
    let mut parts = cookie.split(';');
    let first = parts.next().unwrap_or_default().to_owned();
    let attributes = parts.map(attribute);
    [first]
        .into_iter()
        .chain(attributes)
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn text(cookie: &str) -> String {
        let response = http::Response::builder().header("set-cookie", cookie);
        let (parts, ()) = response.body(()).unwrap().into_parts();
        String::from_utf8(comparable(&parts, b"")).unwrap()
    }

    /// Answers to the same request may be made before and after the end of a second.
    #[test]
    fn lifetime_of_a_cookie_is_not_compared_but_its_deletion_is() {
        let of = |at: u32, seconds: i64| {
            text(&format!(
                "a=1; expires=Fri, 27 Nov 2026 17:06:{at} GMT; Max-Age={seconds}; path=/"
            ))
        };
        assert_eq!(of(12, 7200), of(13, 7199));
        assert_ne!(of(12, 7200), of(12, 0));
        assert_ne!(text("a=1; path=/"), text("a=2; path=/"));
        assert_ne!(text("a=1; path=/"), text("a=1; path=/b"));
        assert_ne!(text("a=1; Max-Age=5"), text("a=1"));
    }
}
