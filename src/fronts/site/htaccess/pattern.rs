//! Matches Apache's regular expressions, which are PCRE's: by `regex` where it can, else by
//! backtracking with a limit.

use std::ops::Range;

/// Steps of backtracking, after which a pattern is said to be undecided: some milliseconds.
const MAX_STEPS: usize = 100_000;

/// A compiled pattern costs no more memory.
const MAX_SIZE: usize = 1 << 22;

/// As many as `$0` to `$9`.
pub type Groups = [Option<Range<usize>>; 10];

#[derive(Debug)]
pub struct Pattern(Engine);

#[derive(Debug)]
enum Engine {
    Linear(regex::bytes::Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

impl Pattern {
    /// An error says what is wrong with it.
    pub fn new(pcre: &str, ignore_case: bool) -> Result<Pattern, String> {
        let (text, backtracks) = translate(pcre)?;
        if !backtracks {
            let linear = regex::bytes::RegexBuilder::new(&text)
                .unicode(false)
                // As Apache since 2.4.30, in both respects.
                .dot_matches_new_line(true)
                .case_insensitive(ignore_case)
                .size_limit(MAX_SIZE)
                .build();
            if let Ok(linear) = linear {
                return Ok(Pattern(Engine::Linear(linear)));
            }
        }
        let flags = if ignore_case { "(?si)" } else { "(?s)" };
        let regex = fancy_regex::RegexBuilder::new(&format!("{flags}{text}"))
            .backtrack_limit(MAX_STEPS)
            .delegate_size_limit(MAX_SIZE)
            .build()
            .map_err(|error| error.to_string().replace('\n', " "))?;
        Ok(Pattern(Engine::Backtracking(Box::new(regex))))
    }

    /// None where it takes too many steps to tell.
    pub fn is_match(&self, text: &str) -> Option<bool> {
        match &self.0 {
            Engine::Linear(regex) => Some(regex.is_match(text.as_bytes())),
            Engine::Backtracking(regex) => regex.is_match(text).ok(),
        }
    }

    /// The groups of the first match.
    pub fn groups(&self, text: &str) -> Option<Groups> {
        let mut groups = Groups::default();
        match &self.0 {
            Engine::Linear(regex) => {
                let captures = regex.captures(text.as_bytes())?;
                for (group, found) in groups.iter_mut().zip(captures.iter()) {
                    *group = found.map(|found| found.range());
                }
            }
            Engine::Backtracking(regex) => {
                let captures = regex.captures(text).ok()??;
                for (group, found) in groups.iter_mut().zip(captures.iter()) {
                    *group = found.map(|found| found.range());
                }
            }
        }
        Some(groups)
    }
}

/// The pattern in the syntax of `regex`, and whether it needs backtracking. What only looks alike
/// in both is the reason: `\<` is a character to PCRE and the beginning of a word to `regex`.
fn translate(pcre: &str) -> Result<(String, bool), String> {
    let mut out = String::with_capacity(pcre.len() + 16);
    let mut backtracks = false;
    let mut chars = pcre.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let rest = &pcre[at + c.len_utf8()..];
        match c {
            '\\' => {
                let Some((_, c)) = chars.next() else {
                    return Err("it ends in a backslash".into());
                };
                match c {
                    '1'..='9' => {
                        backtracks = true;
                        out.extend(['\\', c]);
                    }
                    'Z' => out.push_str("\\z"),
                    'h' => out.push_str("[ \\t]"),
                    'e' => out.push_str("\\x1b"),
                    'K' | 'G' => {
                        backtracks = true;
                        out.extend(['\\', c]);
                    }
                    'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'b' | 'B' | 'A' | 'z' | 'n' | 'r' | 't'
                    | 'f' | 'v' | 'x' | 'a' => out.extend(['\\', c]),
                    c if c.is_ascii_alphanumeric() => {
                        return Err(format!("\\{c} is not understood"));
                    }
                    c => push_literal(&mut out, c),
                }
            }
            '[' => {
                let used = class(rest, &mut out)?;
                let end = at + 1 + used;
                while chars.next_if(|(at, _)| *at < end).is_some() {}
            }
            '{' if !is_quantifier(rest) => out.push_str("\\{"),
            '}' if !closes_quantifier(&out) => out.push_str("\\}"),
            '(' => {
                if ["?=", "?!", "?<=", "?<!", "?>", "?(", "?|"]
                    .iter()
                    .any(|begin| rest.starts_with(begin))
                {
                    backtracks = true;
                }
                if rest.starts_with('*') || rest.starts_with("?#") || rest.starts_with("?R") {
                    return Err("a verb, comment or recursion of PCRE is not understood".into());
                }
                out.push(c);
            }
            '*' | '+' | '?' | '}' => {
                out.push(c);
                // Possessive; `(?+` is none of it.
                if rest.starts_with('+') && !out.ends_with("(?") {
                    backtracks = true;
                }
            }
            c => out.push(c),
        }
    }
    Ok((out, backtracks))
}

fn push_literal(out: &mut String, c: char) {
    if "\\.+*?()|[]{}^$#&-~".contains(c) {
        out.push('\\');
    }
    out.push(c);
}

/// `{2}`, `{2,}` or `{2,3}`, without its first brace.
fn is_quantifier(rest: &str) -> bool {
    let Some((inside, _)) = rest.split_once('}') else {
        return false;
    };
    let (from, to) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    !from.is_empty() && digits(from) && digits(to)
}

fn closes_quantifier(out: &str) -> bool {
    out.rfind('{').is_some_and(|at| {
        let escaped = out[..at].ends_with('\\') && !out[..at].ends_with("\\\\");
        let inside = &out[at + 1..];
        !escaped && !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_digit() || b == b',')
    })
}

/// Translates a character class behind its `[`, and says how many bytes it has.
fn class(text: &str, out: &mut String) -> Result<usize, String> {
    out.push('[');
    let mut chars = text.char_indices().peekable();
    if chars.next_if(|(_, c)| *c == '^').is_some() {
        out.push('^');
    }
    let mut first = true;
    // Whether a dash could begin a range here.
    let mut single = false;
    while let Some((at, c)) = chars.next() {
        let rest = &text[at + c.len_utf8()..];
        match c {
            ']' if !first => {
                out.push(']');
                return Ok(at + 1);
            }
            '[' if rest.starts_with(':') && rest[1..].contains(":]") => {
                let end = at + 1 + rest.find(":]").unwrap_or_default() + 2;
                out.push_str(&text[at..end]);
                while chars.next_if(|(at, _)| *at < end).is_some() {}
                single = false;
            }
            '-' if !single || rest.starts_with(']') || rest.starts_with("\\d") => {
                out.push_str("\\-");
                single = true;
            }
            '-' => {
                out.push('-');
                single = false;
                // The end of the range begins no other.
                match chars.next() {
                    Some((at, '\\')) => {
                        let Some((_, c)) = chars.next() else {
                            return Err("it ends in a backslash".into());
                        };
                        if c == 'x' {
                            out.push_str("\\x");
                        } else if c.is_ascii_alphanumeric() {
                            return Err(format!("{} ends a range", &text[at..at + 2]));
                        } else {
                            push_literal(out, c);
                        }
                    }
                    Some((_, c)) => push_literal(out, c),
                    None => break,
                }
            }
            '\\' => {
                let Some((_, c)) = chars.next() else { break };
                single = true;
                match c {
                    'd' | 'D' | 'w' | 'W' | 's' | 'S' => {
                        out.extend(['\\', c]);
                        single = false;
                    }
                    'b' => out.push_str("\\x08"),
                    'e' => out.push_str("\\x1b"),
                    'h' => out.push_str(" \\t"),
                    'n' | 'r' | 't' | 'f' | 'x' | 'a' => out.extend(['\\', c]),
                    c if c.is_ascii_alphanumeric() => {
                        return Err(format!("\\{c} in a class is not understood"));
                    }
                    c => push_literal(out, c),
                }
            }
            c => {
                push_literal(out, c);
                single = true;
            }
        }
        first = false;
    }
    Err("a class is not closed".into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_mean_what_pcre_means_by_them() {
        for (pattern, text, expected) in [
            (r"(\<|%3C).*script.*(\>|%3E)", "a<script>", true),
            (r"(\<|%3C).*script.*(\>|%3E)", "a script ", false),
            (r"[\w-.]+@", "a.b-c@", true),
            (r"^[^[]+$", "abc", true),
            (r"^[^[]+$", "a[c", false),
            (r"[]a]", "]", true),
            (r"a{,2}", "a{,2}", true),
            (r"^a{2}$", "aa", true),
            (r"\{x\}{2}", "{x}}", true),
            (r"^(.+)::\1$", "a::a", true),
            (r"^(.+)::\1$", "a::b", false),
            (r"^\.(?!well-known)", ".git", true),
            (r"^\.(?!well-known)", ".well-known/x", false),
            (r"\.php$", "x.php\n", false),
            (r"^.$", "\n", true),
            (r"a&&b[&&]", "a&&b&", true),
            (r"[a-z-9]+", "-", true),
            (r"[[:alpha:]_-]+", "-", true),
            (r"(?i)ABC", "abc", true),
            (r"\/a\-b\_c\ d\#", "/a-b_c d#", true),
            (r"^a++b", "aab", true),
            (r"\.(?:php[2-9]?|phtml)(?:\.|$)", "x.php5", true),
        ] {
            let compiled =
                Pattern::new(pattern, false).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(
                compiled.is_match(text),
                Some(expected),
                "{pattern} on {text}"
            );
        }
        assert_eq!(
            Pattern::new("ABC", true).unwrap().is_match("abc"),
            Some(true)
        );
    }

    #[test]
    fn a_pattern_that_cannot_be_taken_is_an_error() {
        for pattern in [
            r"(",
            r"[a",
            r"\p",
            r"a\",
            r"(*UTF8)a",
            r"(?#x)a",
            r"\Qa\E",
            r"*",
        ] {
            assert!(Pattern::new(pattern, false).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_backtracks_without_end_is_undecided() {
        let slow = Pattern::new(r"^((a|\2a)*)*\1b", false).unwrap();
        assert_eq!(slow.is_match(&"a".repeat(60)), None);
    }

    proptest! {
        #[test]
        fn no_pattern_panics(
            pattern in "(\\[|\\]|\\^|-|\\\\|a|b|\\{|\\}|1|,|\\(|\\)|\\?|!|=|<|>|\\+|\\*|\\||\\$|é|:){0,14}",
            text in "[ab\\]\\[-]{0,8}",
        ) {
            if let Ok(pattern) = Pattern::new(&pattern, false) {
                pattern.is_match(&text);
                pattern.groups(&text);
            }
        }
    }
}
