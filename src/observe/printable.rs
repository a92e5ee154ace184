//! Escapes characters that could control the reader's terminal.

use std::borrow::Cow;

/// Escapes control characters, except line breaks and tabs, as JSON does.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(is_unsafe) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_unsafe(c) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_as_in_json() {
        let text = "a\x1b]0;x\x07\u{9b}2J\x7f\r\tb\nü";
        assert_eq!(
            printable(text),
            "a\\u001b]0;x\\u0007\\u009b2J\\u007f\\u000d\tb\nü"
        );
        assert!(matches!(printable("plain\n"), Cow::Borrowed("plain\n")));
    }
}
