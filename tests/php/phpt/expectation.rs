//! Compares an answer with a test's expectation by the rules of PHP's run-tests.php.

use regex::bytes::RegexBuilder;

use super::sections::Phpt;
use crate::oracle::answer::Answer;

/// Returns the difference as an error.
pub fn check(test: &Phpt, answer: &Answer) -> Result<(), String> {
    if let Some(headers) = test.text("EXPECTHEADERS") {
        for line in headers.lines() {
            let Some((name, wanted)) = line.split_once(':') else {
                continue;
            };
            let wanted = wanted.trim();
            let name = name.trim();
            // A name may have several lines.
            let mut got: Vec<_> = answer
                .headers
                .iter()
                .filter(|(other, _)| other.eq_ignore_ascii_case(name))
                .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
                .collect();
            // The status line of HTTP is a `Status` header in CGI.
            if name == "Status" {
                got.push(format!("{} {}", answer.status, answer.reason));
            }
            if !got.iter().any(|got| got == wanted) {
                return Err(format!("{name} should be {wanted:?} and is {got:?}"));
            }
        }
    }
    let output = trimmed(&unix_lines(&answer.body)).to_vec();
    let passes = if let Some(wanted) = test.get("EXPECT") {
        trimmed(&unix_lines(wanted)) == output
    } else if let Some(pattern) = test.get("EXPECTF") {
        matches(&pattern_of(trimmed(&unix_lines(pattern))), &output)?
    } else if let Some(pattern) = test.text("EXPECTREGEX") {
        matches(&pattern.replace("\r\n", "\n"), &output)?
    } else {
        return Err("says nothing about what it expects".into());
    };
    if passes {
        return Ok(());
    }
    let wanted = ["EXPECT", "EXPECTF", "EXPECTREGEX"]
        .iter()
        .find_map(|name| test.text(name));
    Err(format!(
        "expected\n{}\ngot {}\n{}",
        shortened(&wanted.unwrap_or_default()),
        answer.status,
        shortened(&String::from_utf8_lossy(&output))
    ))
}

fn shortened(text: &str) -> String {
    text.chars().take(1500).collect()
}

/// Like PHP's trim().
fn trimmed(text: &[u8]) -> &[u8] {
    let blank = |byte: &u8| b" \t\n\r\0\x0b".contains(byte);
    let from = text
        .iter()
        .position(|byte| !blank(byte))
        .unwrap_or(text.len());
    let to = text
        .iter()
        .rposition(|byte| !blank(byte))
        .map_or(from, |at| at + 1);
    &text[from..to]
}

fn unix_lines(text: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(text.len());
    for (at, byte) in text.iter().enumerate() {
        if *byte != b'\r' || text.get(at + 1) != Some(&b'\n') {
            lines.push(*byte);
        }
    }
    lines
}

fn matches(pattern: &str, output: &[u8]) -> Result<bool, String> {
    RegexBuilder::new(&format!("^(?:{pattern})$"))
        .dot_matches_new_line(true)
        .unicode(false)
        .build()
        .map(|regex| regex.is_match(output))
        .map_err(|error| format!("a pattern that only PCRE knows: {error}"))
}

/// The regular expression for an EXPECTF section.
fn pattern_of(text: &[u8]) -> String {
    let mut pattern = String::new();
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        pattern += &literal(&rest[..at]);
        let after = &rest[at + 1..];
        // %r…%r contains a regular expression.
        let end = after.windows(2).skip(1).position(|pair| pair == b"%r");
        if let (Some(b'r'), Some(end)) = (after.first(), end) {
            pattern += &format!("(?:{})", String::from_utf8_lossy(&after[1..end + 1]));
            rest = &after[end + 3..];
            continue;
        }
        let piece = match after.first() {
            Some(b'e') => "/",
            Some(b's') => r"[^\r\n]+",
            Some(b'S') => r"[^\r\n]*",
            Some(b'a') => ".+",
            Some(b'A') => ".*",
            Some(b'w') => r"\s*",
            Some(b'i') => r"[+-]?\d+",
            Some(b'd') => r"\d+",
            Some(b'x') => "[0-9a-fA-F]+",
            Some(b'f') => r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[Ee][+-]?\d+)?",
            Some(b'c') => ".",
            Some(b'0') => r"\x00",
            _ => {
                pattern += "%";
                rest = after;
                continue;
            }
        };
        pattern += piece;
        rest = &after[1..];
    }
    pattern + &literal(rest)
}

/// Also escapes bytes that are not valid text.
fn literal(bytes: &[u8]) -> String {
    let escaped = |byte: &u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(*byte).to_string(),
        byte => format!(r"\x{byte:02x}"),
    };
    bytes.iter().map(escaped).collect()
}

#[test]
fn placeholders_match_as_in_php() {
    let fits = |pattern: &str, text: &str| {
        matches(&pattern_of(pattern.as_bytes()), text.as_bytes()).unwrap()
    };
    assert!(fits("a %d %s.php on line %d%", "a 12 /x/y.php on line 3%"));
    assert!(fits("%f|%x|%i%w!", "-1.5E+3|fF|-2 \n!"));
    assert!(fits("[%r(a|b)+%r] %a", "[abba] x\ny"));
    assert!(!fits("%d", "1a"));
    assert!(!fits("(%s)", "(a\nb)"));
}
