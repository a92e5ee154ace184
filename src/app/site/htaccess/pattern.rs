//! Matches Apache's regular expressions, which are PCRE's and work on bytes: by `regex` where it
//! can, else by backtracking with limits.

use std::borrow::Cow;
use std::ops::Range;

/// Steps of backtracking, after which a pattern is said to be undecided: some milliseconds.
const MAX_STEPS: usize = 100_000;

/// Bytes of a text that is matched by backtracking. Each step may look at all of them, so that the
/// time grows with their square: 3 ms at this length.
const MAX_BACKTRACKED: usize = 2048;

/// A compiled pattern costs no more memory.
const MAX_SIZE: usize = 1 << 20;

/// As many as `$0` to `$9`.
pub type Groups = [Option<Range<usize>>; 10];

#[derive(Debug)]
pub struct Pattern(Engine);

#[derive(Debug)]
enum Engine {
    Linear(regex::bytes::Regex),
    Backtracking(Box<Backtracking>),
}

#[derive(Debug)]
struct Backtracking {
    /// Matches all that the pattern matches, and more: most texts are told by it in linear time.
    wider: Option<regex::bytes::Regex>,
    /// It works on characters: each byte becomes one, see [`latin`].
    exact: fancy_regex::Regex,
}

impl Pattern {
    /// An error says what is wrong with it.
    pub fn new(pcre: &str, ignore_case: bool) -> Result<Pattern, String> {
        let pcre = latin(pcre);
        let (text, backtracks) = translate(&pcre, "\\b", "\\B")?;
        let linear = |text: &str| {
            regex::bytes::RegexBuilder::new(text)
                .unicode(false)
                // As Apache since 2.4.30, in both respects.
                .dot_matches_new_line(true)
                .case_insensitive(ignore_case)
                .size_limit(MAX_SIZE)
                .build()
                .ok()
        };
        if !backtracks && let Some(regex) = linear(&text) {
            return Ok(Pattern(Engine::Linear(regex)));
        }
        let wider = without_look_around(&text).and_then(|text| linear(&text));
        let flags = if ignore_case { "(?si)" } else { "(?s)" };
        let (text, _) = translate(&pcre, BOUNDARY, NO_BOUNDARY)?;
        let exact = fancy_regex::RegexBuilder::new(&format!("{flags}{text}"))
            .backtrack_limit(MAX_STEPS)
            .delegate_size_limit(MAX_SIZE)
            .build()
            .map_err(|error| error.to_string().replace('\n', " "))?;
        Ok(Pattern(Engine::Backtracking(Box::new(Backtracking {
            wider,
            exact,
        }))))
    }

    /// None where it takes too long to tell.
    pub fn is_match(&self, text: &str) -> Option<bool> {
        match &self.0 {
            Engine::Linear(regex) => Some(regex.is_match(text.as_bytes())),
            Engine::Backtracking(regex) => {
                let wider = regex.wider.as_ref();
                if wider.is_some_and(|wider| !wider.is_match(text.as_bytes())) {
                    return Some(false);
                }
                match text.len() > MAX_BACKTRACKED {
                    true => None,
                    false => regex.exact.is_match(&*latin(text)).ok(),
                }
            }
        }
    }

    /// The groups of the first match, as bytes of the text.
    pub fn groups(&self, text: &str) -> Option<Groups> {
        let mut groups = Groups::default();
        match &self.0 {
            Engine::Linear(regex) => {
                let captures = regex.captures(text.as_bytes())?;
                for (group, found) in groups.iter_mut().zip(captures.iter()) {
                    *group = found.map(|found| found.range());
                }
            }
            Engine::Backtracking(_) if text.len() > MAX_BACKTRACKED => return None,
            Engine::Backtracking(regex) => {
                let latin = latin(text);
                let captures = regex.exact.captures(&*latin).ok()??;
                let byte = |at: usize| match &latin {
                    Cow::Borrowed(_) => at,
                    Cow::Owned(latin) => latin[..at].chars().count(),
                };
                for (group, found) in groups.iter_mut().zip(captures.iter()) {
                    *group = found.map(|found| byte(found.start())..byte(found.end()));
                }
            }
        }
        Some(groups)
    }
}

/// A translated pattern with nothing in the place of look-around, which only ever restricts.
fn without_look_around(text: &str) -> Option<String> {
    const BEGINNINGS: [&str; 4] = ["(?=", "(?!", "(?<=", "(?<!"];
    let mut out = String::with_capacity(text.len());
    let mut chars = text.char_indices();
    // How many groups are open, of those that are left out.
    let mut open = 0_usize;
    while let Some((at, c)) = chars.next() {
        let begins = BEGINNINGS.iter().any(|begin| text[at..].starts_with(begin));
        match c {
            // Parentheses in classes are escaped, too.
            '\\' => {
                let (_, escaped) = chars.next()?;
                if open == 0 {
                    out.extend([c, escaped]);
                }
            }
            '(' if open > 0 => open += 1,
            '(' if begins => open = 1,
            ')' if open > 0 => {
                open -= 1;
                if open == 0 {
                    out.push_str("(?:)");
                }
            }
            _ if open > 0 => {}
            c => out.push(c),
        }
    }
    (open == 0).then_some(out)
}

/// A text with one character, of the same number, for each byte.
fn latin(text: &str) -> Cow<'_, str> {
    match text.is_ascii() {
        true => text.into(),
        false => text.bytes().map(char::from).collect::<String>().into(),
    }
}

/// The ends of words where only ASCII has letters, for the engine that knows others.
const BOUNDARY: &str = "(?:(?<=[0-9A-Za-z_])(?![0-9A-Za-z_])|(?<![0-9A-Za-z_])(?=[0-9A-Za-z_]))";
const NO_BOUNDARY: &str = "(?:(?<=[0-9A-Za-z_])(?=[0-9A-Za-z_])|(?<![0-9A-Za-z_])(?![0-9A-Za-z_]))";

/// `\d` and its like, in a class, and whether it stands for all other characters.
fn shorthand(c: char) -> Option<(&'static str, bool)> {
    Some(match c {
        'd' => ("0-9", false),
        'D' => ("0-9", true),
        'w' => ("0-9A-Za-z_", false),
        'W' => ("0-9A-Za-z_", true),
        's' => ("\\t-\\r\\x20", false),
        'S' => ("\\t-\\r\\x20", true),
        'h' => ("\\t\\x20", false),
        'v' => ("\\n-\\r", false),
        _ => return None,
    })
}

/// The pattern in the syntax of `regex`, and whether it needs backtracking. What only looks alike
/// in both is the reason: `\<` is a character to PCRE and the beginning of a word to `regex`.
fn translate(pcre: &str, boundary: &str, no_boundary: &str) -> Result<(String, bool), String> {
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
                    'b' => out.push_str(boundary),
                    'B' => out.push_str(no_boundary),
                    'e' => out.push_str("\\x1b"),
                    'K' | 'G' => {
                        backtracks = true;
                        out.extend(['\\', c]);
                    }
                    'x' => {
                        let digits = &pcre[at + 2..];
                        let end = at + 2 + hexadecimal(digits, &mut out)?;
                        while chars.next_if(|(at, _)| *at < end).is_some() {}
                    }
                    'A' | 'z' | 'n' | 'r' | 't' | 'f' | 'a' => out.extend(['\\', c]),
                    c => match shorthand(c) {
                        Some((class, false)) => out.extend(["[", class, "]"]),
                        Some((class, true)) => out.extend(["[^", class, "]"]),
                        None if c.is_ascii_alphanumeric() => {
                            return Err(format!("\\{c} is not understood"));
                        }
                        None => push_literal(&mut out, c),
                    },
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
            c if c.is_ascii() => out.push(c),
            // Letters beyond ASCII have no case.
            c => out.push_str(&format!("(?-i:\\x{:02x})", u32::from(c))),
        }
    }
    Ok((out, backtracks))
}

/// The byte of `\xe9` or `\x{e9}`, behind the `x`. Says how many bytes stand for it.
fn hexadecimal(text: &str, out: &mut String) -> Result<usize, String> {
    let (digits, used) = match text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        Some((digits, _)) => (digits, digits.len() + 2),
        None => {
            let digits = text.bytes().take(2);
            let count = digits.take_while(u8::is_ascii_hexdigit).count();
            (&text[..count], count)
        }
    };
    match u8::from_str_radix(digits, 16) {
        Ok(byte) => out.push_str(&format!("\\x{byte:02x}")),
        Err(_) => return Err(format!("\\x{} is no byte", &text[..used])),
    }
    Ok(used)
}

fn push_literal(out: &mut String, c: char) {
    if !c.is_ascii() {
        out.push_str(&format!("\\x{:02x}", u32::from(c)));
        return;
    }
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
                            let end = at + 2 + hexadecimal(&text[at + 2..], out)?;
                            while chars.next_if(|(at, _)| *at < end).is_some() {}
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
                    'b' => out.push_str("\\x08"),
                    'e' => out.push_str("\\x1b"),
                    'x' => {
                        let digits = &text[at + 2..];
                        let end = at + 2 + hexadecimal(digits, out)?;
                        while chars.next_if(|(at, _)| *at < end).is_some() {}
                    }
                    'n' | 'r' | 't' | 'f' | 'a' => out.extend(['\\', c]),
                    c => match shorthand(c) {
                        Some((class, is_negated)) => {
                            out.push_str(if is_negated { "[^" } else { "[" });
                            out.extend([class, "]"]);
                            single = false;
                        }
                        None if c.is_ascii_alphanumeric() => {
                            return Err(format!("\\{c} in a class is not understood"));
                        }
                        None => push_literal(out, c),
                    },
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
            // Bytes, with and without look-around.
            (r"^..$", "é", true),
            (r"^(?=.)..$", "é", true),
            (r"^(?=.)é$", "é", true),
            (r"^(?=.)[é]{2}$", "é", true),
            (r"^\W\W$", "é", true),
            (r"^(?=.)\W\W$", "é", true),
            (r"^(?=.)[^\w]{2}$", "é", true),
            (r"^(?=.)[\w]", "é", false),
            (r"(?=.)x\b", "xé", true),
            (r"(?=.)x\B", "xé", false),
            (r"^(?=.)\x{c3}", "é", true),
            (r"^a\sb\Bc[\s\d]$", "a bc1", true),
        ] {
            let compiled =
                Pattern::new(pattern, false).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(
                compiled.is_match(text),
                Some(expected),
                "{pattern} on {text}"
            );
        }
        let ignores_case = |pattern, text| Pattern::new(pattern, true).unwrap().is_match(text);
        assert_eq!(ignores_case("ABC", "abc"), Some(true));
        assert_eq!(ignores_case("^(?=.)ABC", "abc"), Some(true));
        assert_eq!(ignores_case("^(?=.)É", "é"), Some(false));
    }

    #[test]
    fn groups_of_look_around_are_bytes_of_the_text() {
        let pattern = Pattern::new("^é(?=.)(..)(x)$", false).unwrap();
        let groups = pattern.groups("ééx").unwrap();
        assert_eq!((&groups[1], &groups[2]), (&Some(2..4), &Some(4..5)));
    }

    #[test]
    fn look_around_is_left_out_with_all_that_is_in_it() {
        for (text, expected) in [
            ("a(?=b)c", Some("a(?:)c")),
            (r"(?!x(y(?<=z))\))a(b)", Some("(?:)a(b)")),
            (r"\(?=a", Some(r"\(?=a")),
            (r"[\(?=]", Some(r"[\(?=]")),
            ("(?<!a)?b", Some("(?:)?b")),
            ("(?=a", None),
        ] {
            assert_eq!(without_look_around(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn long_text_is_undecided_for_look_around_alone() {
        let long = "a".repeat(MAX_BACKTRACKED + 1);
        let around = Pattern::new("(?=.*x)a", false).unwrap();
        assert_eq!(around.is_match(&long), None);
        assert_eq!(around.groups(&long), None);
        assert_eq!(around.is_match(&long[1..]), Some(false));
        // Without its look-around, it does not match either.
        let certain = Pattern::new("(?=.*x)z", false).unwrap();
        assert_eq!(certain.is_match(&long), Some(false));
        assert_eq!(
            Pattern::new("x", false).unwrap().is_match(&long),
            Some(false)
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
