//! Matches Apache's regular expressions, which are PCRE's and work on bytes: by `regex` where it
//! can, else by backtracking with limits.

use std::borrow::Cow;
use std::ops::Range;

use super::memory::{Memory, Share};
use super::translate::{BOUNDARY, NO_BOUNDARY, translate};

/// Steps of backtracking, after which a pattern is said to be undecided: some milliseconds.
const MAX_STEPS: usize = 100_000;

/// Bytes of a text that is matched by backtracking. Each step may look at all of them, so that the
/// time grows with their square: 3 ms at this length.
const MAX_BACKTRACKED: usize = 2048;

/// The sizes of compiled patterns that are tried, one after the other: the first that is enough
/// tells what a pattern costs, and the last how much it may.
const SIZES: [usize; 6] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20];

/// Memory of a pattern in addition to its size, which counts forwards and backwards.
const OVERHEAD: usize = 8 << 10;

/// What a pattern remembers of its work.
const MAX_DFA: usize = 256 << 10;

/// As many as `$0` to `$9`.
pub type Groups = [Option<Range<usize>>; 10];

#[derive(Debug)]
pub struct Pattern {
    engine: Engine,
    _memory: Vec<Share>,
}

#[derive(Debug)]
enum Engine {
    /// It matches whatever the text, and all of it or nothing.
    Always {
        whole: bool,
    },
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
    pub fn new(pcre: &str, ignore_case: bool, memory: &Memory) -> Result<Pattern, String> {
        memory.check()?;
        // Most rules of applications begin so.
        if let "^" | ".*" | "^.*" = pcre {
            return Ok(Pattern {
                engine: Engine::Always { whole: pcre != "^" },
                _memory: Vec::new(),
            });
        }
        let pcre = latin(pcre);
        let (text, backtracks) = translate(&pcre, "\\b", "\\B")?;
        if !backtracks && let Some((regex, size)) = linear(&text, ignore_case) {
            return Ok(Pattern {
                engine: Engine::Linear(regex),
                _memory: vec![share(memory, size)?],
            });
        }
        let wider = without_look_around(&text).and_then(|text| linear(&text, ignore_case));
        let flags = if ignore_case { "(?si)" } else { "(?s)" };
        let (text, _) = translate(&pcre, BOUNDARY, NO_BOUNDARY)?;
        let (exact, size) = backtracking(&format!("{flags}{text}"))?;
        // What stands between parentheses may become a pattern of its own.
        let parts = text.bytes().filter(|byte| *byte == b'(').count() + 1;
        let (wider, wider_size) = wider.unzip();
        Ok(Pattern {
            engine: Engine::Backtracking(Box::new(Backtracking { wider, exact })),
            _memory: vec![
                share(memory, size.saturating_mul(parts))?,
                share(memory, wider_size.unwrap_or_default())?,
            ],
        })
    }

    /// None where it takes too long to tell.
    pub fn is_match(&self, text: &str) -> Option<bool> {
        match &self.engine {
            Engine::Always { .. } => Some(true),
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
        match &self.engine {
            Engine::Always { whole } => groups[0] = Some(0..if *whole { text.len() } else { 0 }),
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

fn share(memory: &Memory, size: usize) -> Result<Share, String> {
    let bytes = size.saturating_mul(2).saturating_add(OVERHEAD);
    memory.take(bytes)
}

/// A pattern and its size; none for one that is too big, or that `regex` does not take.
fn linear(text: &str, ignore_case: bool) -> Option<(regex::bytes::Regex, usize)> {
    SIZES.into_iter().find_map(|size| {
        let regex = regex::bytes::RegexBuilder::new(text)
            .unicode(false)
            // As Apache since 2.4.30, in both respects.
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
            let compiled = Pattern::new(pattern, false, &Memory::default())
                .unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(
                compiled.is_match(text),
                Some(expected),
                "{pattern} on {text}"
            );
        }
        let ignores_case = |pattern, text| {
            Pattern::new(pattern, true, &Memory::default())
                .unwrap()
                .is_match(text)
        };
        assert_eq!(ignores_case("ABC", "abc"), Some(true));
        assert_eq!(ignores_case("^(?=.)ABC", "abc"), Some(true));
        assert_eq!(ignores_case("^(?=.)É", "é"), Some(false));
    }

    #[test]
    fn groups_of_look_around_are_bytes_of_the_text() {
        let pattern = Pattern::new("^é(?=.)(..)(x)$", false, &Memory::default()).unwrap();
        let groups = pattern.groups("ééx").unwrap();
        assert_eq!((&groups[1], &groups[2]), (&Some(2..4), &Some(4..5)));
        for (text, whole) in [("^", 0..0), (".*", 0..3), ("^.*", 0..3)] {
            let pattern = Pattern::new(text, false, &Memory::default()).unwrap();
            assert_eq!(pattern.is_match("a\né"), Some(true), "{text}");
            let groups = pattern.groups("a\nb").unwrap();
            assert_eq!((&groups[0], &groups[1]), (&Some(whole), &None), "{text}");
        }
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
        let around = Pattern::new("(?=.*x)a", false, &Memory::default()).unwrap();
        assert_eq!(around.is_match(&long), None);
        assert_eq!(around.groups(&long), None);
        assert_eq!(around.is_match(&long[1..]), Some(false));
        // Without its look-around, it does not match either.
        let certain = Pattern::new("(?=.*x)z", false, &Memory::default()).unwrap();
        assert_eq!(certain.is_match(&long), Some(false));
        assert_eq!(
            Pattern::new("x", false, &Memory::default())
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
        ] {
            assert!(
                Pattern::new(pattern, false, &Memory::default()).is_err(),
                "{pattern}"
            );
        }
    }

    #[test]
    fn endlessly_backtracking_pattern_is_undecided() {
        let slow = Pattern::new(r"^((a|\2a)*)*\1b", false, &Memory::default()).unwrap();
        assert_eq!(slow.is_match(&"a".repeat(60)), None);
    }

    proptest! {
        #[test]
        fn no_pattern_panics(
            pattern in "(\\[|\\]|\\^|-|\\\\|a|b|\\{|\\}|1|,|\\(|\\)|\\?|!|=|<|>|\\+|\\*|\\||\\$|é|:){0,14}",
            text in "[ab\\]\\[-]{0,8}",
        ) {
            if let Ok(pattern) = Pattern::new(&pattern, false, &Memory::default()) {
                pattern.is_match(&text);
                pattern.groups(&text);
            }
        }
    }
}
