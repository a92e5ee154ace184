//! Whether an answer is what a test expects: PHP's own rules, from its run-tests.php.

use regex::bytes::RegexBuilder;

use super::sections::Phpt;
use crate::answer::Answer;

/// An error is what differs.
pub fn check(test: &Phpt, answer: &Answer) -> Result<(), String> {
    if let Some(headers) = test.text("EXPECTHEADERS") {
        for line in headers.lines() {
            let Some((name, wanted)) = line.split_once(':') else {
                continue;
            };
            let wanted = wanted.trim();
            let name = name.trim();
            // Of one name there may be several lines.
            let mut got: Vec<_> = answer
                .headers
                .iter()
                .filter(|(other, _)| other.eq_ignore_ascii_case(name))
                .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
                .collect();
            // The first line of an HTTP answer is a header of a CGI answer.
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
        matches(
            &pattern_of(&String::from_utf8_lossy(trimmed(&unix_lines(pattern)))),
            &output,
        )?
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

/// As PHP's trim() does it.
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

/// The regular expression that an EXPECTF stands for.
fn pattern_of(text: &str) -> String {
    let mut pattern = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        pattern += &regex::escape(&rest[..at]);
        let after = &rest[at + 1..];
        // %r…%r is a regular expression as it stands.
        if let Some((raw, behind)) = after.strip_prefix('r').and_then(|raw| raw.split_once("%r")) {
            pattern += &format!("(?:{raw})");
            rest = behind;
            continue;
        }
        let piece = match after.chars().next() {
            Some('e') => "/",
            Some('s') => r"[^\r\n]+",
            Some('S') => r"[^\r\n]*",
            Some('a') => ".+",
            Some('A') => ".*",
            Some('w') => r"\s*",
            Some('i') => r"[+-]?\d+",
            Some('d') => r"\d+",
            Some('x') => "[0-9a-fA-F]+",
            Some('f') => r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[Ee][+-]?\d+)?",
            Some('c') => ".",
            Some('0') => r"\x00",
            _ => {
                pattern += "%";
                rest = after;
                continue;
            }
        };
        pattern += piece;
        rest = &after[1..];
    }
    pattern + &regex::escape(rest)
}

#[test]
fn placeholders_stand_for_what_they_stand_for_in_php() {
    let fits = |pattern: &str, text: &str| matches(&pattern_of(pattern), text.as_bytes()).unwrap();
    assert!(fits("a %d %s.php on line %d%", "a 12 /x/y.php on line 3%"));
    assert!(fits("%f|%x|%i%w!", "-1.5E+3|fF|-2 \n!"));
    assert!(fits("[%r(a|b)+%r] %a", "[abba] x\ny"));
    assert!(!fits("%d", "1a"));
    assert!(!fits("(%s)", "(a\nb)"));
}
