//! Compares two answers to the same request.

use std::collections::BTreeMap;

use regex::bytes::Regex;

use super::answer::{Answer, CONNECTION_HEADERS};

/// What a comparison ignores.
pub struct Blind {
    /// Text that may differ.
    pub masks: Vec<Regex>,
    /// Keys to remove from a body that is a JSON object.
    pub keys: Vec<String>,
}

/// One difference: a part (`status`, `reason`, `body` or a header's name) and both values.
pub struct Difference {
    pub part: String,
    pub shown: String,
}

pub fn differences(
    reference: &Answer,
    other: &Answer,
    method: &str,
    blind: &Blind,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differs = |part: &str, shown: String| {
        found.push(Difference {
            part: part.into(),
            shown,
        })
    };
    if reference.status != other.status {
        differs(
            "status",
            sides(&reference.status.to_string(), &other.status.to_string()),
        );
    }
    // A CGI program need not give a reason phrase; the server may then use any.
    if !reference.reason.is_empty() && reference.reason != other.reason {
        differs("reason", sides(&reference.reason, &other.reason));
    }
    let (expected, mut got) = (by_name(reference, blind), by_name(other, blind));
    // A server may add a correct Content-Length; clients cannot distinguish it from PHP's.
    if !expected.contains_key("content-length")
        && method != "HEAD"
        && other.header("content-length") == Some(other.body.len().to_string().as_bytes())
    {
        got.remove("content-length");
    }
    let names: std::collections::BTreeSet<&String> = expected.keys().chain(got.keys()).collect();
    for name in names {
        let (expected, got) = (expected.get(name), got.get(name));
        if expected != got {
            differs(name, sides(&format!("{expected:?}"), &format!("{got:?}")));
        }
    }
    if reference.complete != other.complete {
        let word = |complete| if complete { "complete" } else { "cut off" };
        differs(
            "body",
            sides(word(reference.complete), word(other.complete)),
        );
    }
    let (expected, got) = (body(reference, blind), body(other, blind));
    if expected != got {
        differs("body", first_difference(&expected, &got));
    }
    found
}

fn sides(reference: &str, other: &str) -> String {
    format!("      reference: {reference}\n      instead:   {other}\n")
}

/// Values by lower-case name. Order matters only among headers of one name (RFC 9110, 5.3).
fn by_name(answer: &Answer, blind: &Blind) -> BTreeMap<String, Vec<String>> {
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &answer.headers {
        let name = name.to_ascii_lowercase();
        if !CONNECTION_HEADERS.contains(&name.as_str()) {
            let value = blind.mask(value.clone());
            headers
                .entry(name)
                .or_default()
                .push(value.escape_ascii().to_string());
        }
    }
    headers
}

fn body(answer: &Answer, blind: &Blind) -> Vec<u8> {
    let mut body = answer.body.clone();
    if !blind.keys.is_empty()
        && let Ok(serde_json::Value::Object(mut object)) = serde_json::from_slice(&body)
    {
        object.retain(|key, _| !blind.keys.contains(key));
        body = serde_json::to_vec_pretty(&object).unwrap();
    }
    blind.mask(body)
}

impl Blind {
    fn mask(&self, mut text: Vec<u8>) -> Vec<u8> {
        for mask in &self.masks {
            text = mask.replace_all(&text, &b"<masked>"[..]).into_owned();
        }
        text
    }
}

/// Compares text by line, and other data by the first different bytes.
fn first_difference(expected: &[u8], got: &[u8]) -> String {
    if let (Ok(expected), Ok(got)) = (std::str::from_utf8(expected), std::str::from_utf8(got))
        && expected.lines().all(|line| line.len() < 2000)
        && got.lines().all(|line| line.len() < 2000)
        && !expected.contains('\0')
    {
        return by_line(expected, got);
    }
    let at = expected.iter().zip(got).take_while(|(a, b)| a == b).count();
    let window = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(20).min(bytes.len())..(at + 60).min(bytes.len())];
        format!("{} bytes, at {at}: …{}…", bytes.len(), part.escape_ascii())
    };
    sides(&window(expected), &window(got))
}

/// Only the lines that differ, by the longest common subsequence.
fn by_line(expected: &str, got: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) =
        (expected.split('\n').collect(), got.split('\n').collect());
    if a.len() * b.len() > 1_000_000 {
        let at = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        let line = |lines: &[&str]| {
            lines
                .get(at)
                .map_or("(end)".into(), |line| line.escape_debug().to_string())
        };
        return format!("      line {}\n{}", at + 1, sides(&line(&a), &line(&b)));
    }
    let mut common = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = match a[i] == b[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let mut shown = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
            shown.push(format!("      {:4} - {}\n", i + 1, a[i].escape_debug()));
            i += 1;
        } else {
            shown.push(format!("      {:4} + {}\n", j + 1, b[j].escape_debug()));
            j += 1;
        }
    }
    if shown.len() > 40 {
        let more = shown.split_off(40).len();
        shown.push(format!("      … and {more} lines more\n"));
    }
    shown.concat()
}
