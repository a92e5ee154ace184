//! Matches Apache's regular expressions (PCRE on bytes): with `regex` if possible, otherwise by
//! backtracking with limits.

use std::borrow::Cow;
use std::ops::Range;

use super::memory::{PatternMemory, Share};
use super::pcre_syntax;
use super::translate::{BOUNDARY, NO_BOUNDARY, translate};

/// Backtracking steps after which the result is undecided; takes some milliseconds.
const MAX_STEPS: usize = 100_000;

/// The longest text, in bytes, that is matched by backtracking. Each step may read the whole text,
/// so the time is quadratic: 3 ms at this length.
const MAX_BACKTRACKED: usize = 2048;

/// The size limits that a pattern is compiled with, in this order. The first sufficient one is the
/// pattern's cost; the last is the maximum.
const SIZES: [usize; 6] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];

/// The memory of a pattern in addition to its size, which counts the forward and the reverse
/// automaton.
const OVERHEAD: usize = 8 << 10;

/// The limit of a pattern's lazy DFA cache.
const MAX_DFA: usize = 256 << 10;

/// The groups `$0` to `$9`.
pub type Groups = [Option<Range<usize>>; 10];

#[derive(Debug)]
pub struct Pattern {
    engine: RegexEngine,
    _memory: Vec<Share>,
}

#[derive(Debug)]
enum RegexEngine {
    /// Matches every text, completely or with an empty match.
    Always {
        whole: bool,
    },
    Linear(regex::bytes::Regex),
    Backtracking(Box<Backtracking>),
}

#[derive(Debug)]
struct Backtracking {
    /// Matches at least what the pattern matches. It rejects most texts in linear time.
    wider: Option<regex::bytes::Regex>,
    /// Works on characters: each byte becomes one, see [`latin`].
    exact: fancy_regex::Regex,
}

impl Pattern {
    /// The error says why the pattern is invalid.
    pub fn new(pcre: &str, ignore_case: bool, memory: &PatternMemory) -> Result<Pattern, String> {
        memory.check()?;
        // Most rules of applications begin like this.
        if let "^" | ".*" | "^.*" = pcre {
            return Ok(Pattern {
                engine: RegexEngine::Always { whole: pcre != "^" },
                _memory: Vec::new(),
            });
        }
        let pcre = latin(pcre);
        pcre_syntax::check(&pcre)?;
        let (text, backtracks) = translate(&pcre, "\\b", "\\B")?;
        if !backtracks && let Some((regex, size)) = linear(&text, ignore_case) {
            return Ok(Pattern {
                engine: RegexEngine::Linear(regex),
                _memory: vec![share(memory, size)?],
            });
        }
        let wider = without_look_around(&text).and_then(|text| linear(&text, ignore_case));
        let flags = if ignore_case { "(?si)" } else { "(?s)" };
        let (text, _) = translate(&pcre, BOUNDARY, NO_BOUNDARY)?;
        let (exact, size) = backtracking(&format!("{flags}{text}"))?;
        // Each group may be compiled separately.
        let parts = text.bytes().filter(|byte| *byte == b'(').count() + 1;
        let (wider, wider_size) = wider.unzip();
        Ok(Pattern {
            engine: RegexEngine::Backtracking(Box::new(Backtracking { wider, exact })),
            _memory: vec![
                share(memory, size.saturating_mul(parts))?,
                share(memory, wider_size.unwrap_or_default())?,
            ],
        })
    }

    /// None if matching takes too long.
    pub fn is_match(&self, text: &str) -> Option<bool> {
        match &self.engine {
            RegexEngine::Always { .. } => Some(true),
            RegexEngine::Linear(regex) => Some(regex.is_match(text.as_bytes())),
            RegexEngine::Backtracking(regex) => {
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

    /// The groups of the first match, as byte ranges of the text.
    pub fn groups(&self, text: &str) -> Option<Groups> {
        let mut groups = Groups::default();
        match &self.engine {
            RegexEngine::Always { whole } => {
                groups[0] = Some(0..if *whole { text.len() } else { 0 })
            }
            RegexEngine::Linear(regex) => {
                let captures = regex.captures(text.as_bytes())?;
                for (group, found) in groups.iter_mut().zip(captures.iter()) {
                    *group = found.map(|found| found.range());
                }
            }
            RegexEngine::Backtracking(_) if text.len() > MAX_BACKTRACKED => return None,
            RegexEngine::Backtracking(regex) => {
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

fn share(memory: &PatternMemory, size: usize) -> Result<Share, String> {
    let bytes = size.saturating_mul(2).saturating_add(OVERHEAD);
    memory.take(bytes)
}

/// A compiled pattern and its size. None if it is too big or `regex` does not support it.
fn linear(text: &str, ignore_case: bool) -> Option<(regex::bytes::Regex, usize)> {
    SIZES.into_iter().find_map(|size| {
        let regex = regex::bytes::RegexBuilder::new(text)
            .unicode(false)
            // Apache does both since 2.4.30.
            .dot_matches_new_line(true)
            .case_insensitive(ignore_case)
            .size_limit(size)
            .dfa_size_limit(MAX_DFA)
            .build();
        Some((regex.ok()?, size))
    })
}

fn backtracking(text: &str) -> Result<(fancy_regex::Regex, usize), String> {
    let mut error = String::new();
    for size in SIZES {
        let regex = fancy_regex::RegexBuilder::new(text)
            .backtrack_limit(MAX_STEPS)
            .delegate_size_limit(size)
            .delegate_dfa_size_limit(MAX_DFA)
            .build();
        match regex {
            Ok(regex) => return Ok((regex, size)),
            Err(why) => error = why.to_string().replace('\n', " "),
        }
    }
    Err(error)
}

/// Removes look-around from a translated pattern. Look-around only restricts matches.
fn without_look_around(text: &str) -> Option<String> {
    const BEGINNINGS: [&str; 4] = ["(?=", "(?!", "(?<=", "(?<!"];
    let mut out = String::with_capacity(text.len());
    let mut chars = text.char_indices();
    // The number of open groups inside the removed part.
    let mut open = 0_usize;
    while let Some((at, c)) = chars.next() {
        let begins = BEGINNINGS.iter().any(|begin| text[at..].starts_with(begin));
        match c {
            // The translation escapes parentheses in classes, too.
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

/// Maps each byte to the character of the same number.
fn latin(text: &str) -> Cow<'_, str> {
    match text.is_ascii() {
        true => text.into(),
        false => text.bytes().map(char::from).collect::<String>().into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pattern_matches_as_in_pcre() {
        for (pattern, text, expected) in [
            (r"(\<|%3C).*script.*(\>|%3E)", "a<script>", true),
            (r"(\<|%3C).*script.*(\>|%3E)", "a script ", false),
            (r"[\w.-]+@", "a.b-c@", true),
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
            let compiled = Pattern::new(pattern, false, &PatternMemory::default())
                .unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(
                compiled.is_match(text),
                Some(expected),
                "{pattern} on {text}"
            );
        }
        let ignores_case = |pattern, text| {
            Pattern::new(pattern, true, &PatternMemory::default())
                .unwrap()
                .is_match(text)
        };
        assert_eq!(ignores_case("ABC", "abc"), Some(true));
        assert_eq!(ignores_case("^(?=.)ABC", "abc"), Some(true));
        assert_eq!(ignores_case("^(?=.)É", "é"), Some(false));
    }

    #[test]
    fn groups_with_look_around_are_byte_ranges() {
        let pattern = Pattern::new("^é(?=.)(..)(x)$", false, &PatternMemory::default()).unwrap();
        let groups = pattern.groups("ééx").unwrap();
        assert_eq!((&groups[1], &groups[2]), (&Some(2..4), &Some(4..5)));
        for (text, whole) in [("^", 0..0), (".*", 0..3), ("^.*", 0..3)] {
            let pattern = Pattern::new(text, false, &PatternMemory::default()).unwrap();
            assert_eq!(pattern.is_match("a\né"), Some(true), "{text}");
            let groups = pattern.groups("a\nb").unwrap();
            assert_eq!((&groups[0], &groups[1]), (&Some(whole), &None), "{text}");
        }
    }

    #[test]
    fn look_around_is_removed_with_its_content() {
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
    fn long_text_is_undecided_only_with_look_around() {
        let long = "a".repeat(MAX_BACKTRACKED + 1);
        let around = Pattern::new("(?=.*x)a", false, &PatternMemory::default()).unwrap();
        assert_eq!(around.is_match(&long), None);
        assert_eq!(around.groups(&long), None);
        assert_eq!(around.is_match(&long[1..]), Some(false));
        // The pattern does not match without its look-around either.
        let certain = Pattern::new("(?=.*x)z", false, &PatternMemory::default()).unwrap();
        assert_eq!(certain.is_match(&long), Some(false));
        assert_eq!(
            Pattern::new("x", false, &PatternMemory::default())
                .unwrap()
                .is_match(&long),
            Some(false)
        );
    }

    #[test]
    fn unsupported_pattern_is_an_error() {
        for pattern in [
            r"(",
            r"[a",
            r"\p",
            r"a\",
            r"(*UTF8)a",
            r"(?#x)a",
            r"\Qa\E",
            r"*",
            r"a**",
            r"[\w-.]",
        ] {
            assert!(
                Pattern::new(pattern, false, &PatternMemory::default()).is_err(),
                "{pattern}"
            );
        }
    }

    #[test]
    fn pattern_with_endless_backtracking_is_undecided() {
        let slow = Pattern::new(r"^((a|\2a)*)*\1b", false, &PatternMemory::default()).unwrap();
        assert_eq!(slow.is_match(&"a".repeat(60)), None);
    }

    proptest! {
        #[test]
        fn arbitrary_pattern_does_not_panic(
            pattern in r"(\[|\]|\^|-|\\|a|b|\{|\}|1|,|\(|\)|\?|!|=|<|>|\+|\*|\||\$|é|:){0,14}",
            text in r"[ab\]\[-]{0,8}",
        ) {
            if let Ok(pattern) = Pattern::new(&pattern, false, &PatternMemory::default()) {
                pattern.is_match(&text);
                pattern.groups(&text);
            }
        }
    }
}
