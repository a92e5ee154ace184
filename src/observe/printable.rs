//! Escapes characters that could control the reader's terminal or reverse the order of its text.

use std::borrow::Cow;

/// Escapes control characters, except line breaks and tabs, as JSON does. Escapes those of
/// Unicode's `Bidi_Control`, too.
pub fn printable(text: &str) -> Cow<'_, str> {
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

fn is_unsafe(c: char) -> bool {
    let reverses = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    reverses || c.is_control() && c != '\n' && c != '\t'
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

    #[test]
    fn characters_that_reverse_text_are_escaped() {
        let reverse = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}";
        assert_eq!(
            printable(reverse),
            r"\u061c\u200e\u200f\u202a\u202e\u2066\u2069"
        );
        let kept = "\u{5d0}\u{200d}\u{2029}\u{202f}\u{2065}\u{206a}";
        assert_eq!(printable(kept), kept);
    }
}
