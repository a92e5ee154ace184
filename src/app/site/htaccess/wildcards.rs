//! Translates the wildcards of `<Files>` into regular expressions.

use std::str::Chars;

/// Whether Apache treats the name as one with wildcards.
pub(super) fn has_wildcards(text: &str) -> bool {
    let mut chars = text.chars();
    let mut is_open = false;
    while let Some(c) = chars.next() {
        match c {
            '*' | '?' => return true,
            ']' if is_open => return true,
            '[' => is_open = true,
            '\\' => {
                chars.next();
            }
            _ => {}
        }
    }
    false
}

/// Translates a name such as `*.sql`.
pub(super) fn of_wildcards(text: &str) -> String {
    let mut regex = String::from("^");
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => match class(chars.clone()) {
                Some((class, rest)) => {
                    regex.push_str(&class);
                    chars = rest;
                }
                None => regex.push_str("\\["),
            },
            '\\' => regex.push_str(&regex::escape(&chars.next().unwrap_or('\\').to_string())),
            c => regex.push_str(&regex::escape(&c.to_string())),
        }
    }
    regex.push('$');
    regex
}

/// The class behind a bracket, and the remaining text. None if the class is not closed.
fn class(mut chars: Chars<'_>) -> Option<(String, Chars<'_>)> {
    let mut class = String::from("[");
    let mut c = chars.next()?;
    if matches!(c, '!' | '^') {
        class.push('^');
        c = chars.next()?;
    }
    loop {
        match c {
            '-' => class.push('-'),
            '\\' => member(chars.next()?, &mut class),
            c => member(c, &mut class),
        }
        c = chars.next()?;
        if c == ']' {
            class.push(']');
            return Some((class, chars));
        }
    }
}

fn member(c: char, class: &mut String) {
    if c.is_ascii_punctuation() {
        class.push('\\');
    }
    class.push(c);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::cost::{ReadingBudget, Steps};
    use super::super::pattern::Pattern;
    use super::*;

    #[test]
    fn wildcards_match_as_in_apache() {
        for (text, name, expected) in [
            ("*.sql", "a.sql", true),
            ("*.sql", "a.sqlx", false),
            ("a?", "ab", true),
            ("x[.]y", "x.y", true),
            ("x[.]y", "xzy", false),
            ("[]a]", "]", true),
            ("[!a]", "b", true),
            ("[!a]", "a", false),
            ("[^a]", "b", true),
            ("[a-c]", "b", true),
            (r"[\]]", "]", true),
            (r"[\x]", "x", true),
            ("[&&]", "&", true),
            ("[a*", "[ab", true),
            (r"\*?", "*b", true),
        ] {
            assert!(has_wildcards(text), "{text}");
            let pattern =
                Pattern::new(&of_wildcards(text), false, &ReadingBudget::default()).unwrap();
            let matches = pattern.is_match(name, &Steps::default());
            assert_eq!(matches, Some(expected), "{text} on {name}");
        }
        for text in ["a.sql", "[a", "a]", r"\*", r"\[a]"] {
            assert!(!has_wildcards(text), "{text}");
        }
    }
}
