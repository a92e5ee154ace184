//! Matches Apache's regular expressions (PCRE on bytes): with `regex` if possible, otherwise by
//! backtracking with limits.

use std::borrow::Cow;

use super::automaton::Automaton;
use super::cost::{ReadingBudget, Steps};
pub use super::match_groups::Groups;
use super::pattern_size::{MAX_PATTERN, PatternSize};
use super::pcre_syntax;
use super::run_length::RunLength;
use super::translate::{BOUNDARY, NO_BOUNDARY, translate};

/// Backtracking steps after which the result is undecided; takes some 100 µs.
const MAX_BACKTRACKS: usize = 20_000;

/// What such a search counts among the steps of a request, besides the square of the text's length.
const BACKTRACKED: usize = 200;

/// The comparisons of a byte of the text with one of the pattern that one step stands for.
const COMPARED: usize = 1024;

/// The longest text, in bytes, that is matched by backtracking. Each step may read the whole text,
/// so the time is quadratic: 3 ms at this length.
const MAX_BACKTRACKED: usize = 2048;

/// The memory of a pattern that is matched by the length of a run.
const RUN_LENGTH: usize = 4 << 10;

/// The limit of the lazy DFA caches of each part of a pattern that is matched by backtracking.
const PART_CACHE: usize = 4 << 10;

#[derive(Debug)]
pub struct Pattern {
    engine: RegexEngine,
    /// The length with all repetitions written out. Matching takes time in proportion at worst.
    expanded: usize,
}

#[derive(Debug)]
enum RegexEngine {
    /// Matches every text, completely or with an empty match.
    Always {
        whole: bool,
    },
    RunLength(RunLength),
    Linear(Automaton),
    Backtracking(Box<Backtracking>),
}

#[derive(Debug)]
struct Backtracking {
    /// Matches at least what the pattern matches. It rejects most texts in linear time.
    wider: Option<Automaton>,
    /// Works on characters: each byte becomes one, see [`latin`].
    exact: fancy_regex::Regex,
}

impl Pattern {
    /// The error says why the pattern is invalid or costs too much.
    pub(super) fn new(
        pcre: &str,
        ignore_case: bool,
        budget: &ReadingBudget,
    ) -> Result<Pattern, String> {
        // Most rules of applications begin like this.
        if let "^" | ".*" | "^.*" = pcre {
            return Ok(Pattern {
                engine: RegexEngine::Always { whole: pcre != "^" },
                expanded: 0,
            });
        }
        let pcre = latin(pcre);
        pcre_syntax::check(&pcre)?;
        if let Some(run) = RunLength::new(&pcre, ignore_case) {
            charge(budget, RUN_LENGTH)?;
            return Ok(Pattern {
                engine: RegexEngine::RunLength(run),
                expanded: 1,
            });
        }
        let size = PatternSize::of(&pcre);
        let (text, backtracks) = translate(&pcre, "\\b", "\\B")?;
        if !backtracks {
            charge(budget, size.linear())?;
            if let Some(regex) = Automaton::new(&text, ignore_case, size) {
                return Ok(Pattern {
                    engine: RegexEngine::Linear(regex),
                    expanded: size.expanded,
                });
            }
        }
        let needed = size.backtracking(MAX_BACKTRACKED);
        charge(
            budget,
            needed.ok_or("its look-around or backreference makes it too long")?,
        )?;
        let flags = if ignore_case { "(?si)" } else { "(?s)" };
        let (exact, _) = translate(&pcre, BOUNDARY, NO_BOUNDARY)?;
        let exact = backtracking(&format!("{flags}{exact}"), size)?;
        let wider = match without_look_around(&text) {
            Some(text) => {
                charge(budget, size.linear())?;
                Automaton::new(&text, ignore_case, size)
            }
            None => None,
        };
        Ok(Pattern {
            engine: RegexEngine::Backtracking(Box::new(Backtracking { wider, exact })),
            expanded: size.expanded,
        })
    }

    /// None if matching takes too long.
    pub fn is_match(&self, text: &str, steps: &Steps) -> Option<bool> {
        match &self.engine {
            RegexEngine::Always { .. } => Some(true),
            RegexEngine::RunLength(run) => {
                let takes = self.takes_linear(text, steps);
                takes.then(|| run.is_match(text))
            }
            RegexEngine::Linear(regex) => self.is_linear_match(regex, text, steps),
            RegexEngine::Backtracking(regex) => {
                if let Some(wider) = &regex.wider
                    && !self.is_linear_match(wider, text, steps)?
                {
                    return Some(false);
                }
                match text.len() > MAX_BACKTRACKED || !takes_backtracking(text, steps) {
                    true => None,
                    false => regex.exact.is_match(&*latin(text)).ok(),
                }
            }
        }
    }

    /// The groups of the first match, as byte ranges of the text.
    pub fn groups(&self, text: &str, steps: &Steps) -> Option<Groups> {
        let mut groups = Groups::default();
        match &self.engine {
            RegexEngine::Always { whole } => {
                groups[0] = Some(0..if *whole { text.len() } else { 0 })
            }
            RegexEngine::RunLength(run) => {
                return self.takes_linear(text, steps).then(|| run.groups(text))?;
            }
            RegexEngine::Linear(regex) => {
                return self
                    .takes_linear(text, steps)
                    .then(|| regex.groups(text.as_bytes()))?;
            }
            RegexEngine::Backtracking(_)
                if text.len() > MAX_BACKTRACKED || !takes_backtracking(text, steps) =>
            {
                return None;
            }
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

    fn is_linear_match(&self, regex: &Automaton, text: &str, steps: &Steps) -> Option<bool> {
        let takes = self.takes_linear(text, steps);
        takes.then(|| regex.is_match(text.as_bytes()))
    }

    /// Each byte may be compared with the whole pattern.
    fn takes_linear(&self, text: &str, steps: &Steps) -> bool {
        steps.take(1 + self.expanded.saturating_mul(text.len()) / COMPARED)
    }
}

fn takes_backtracking(text: &str, steps: &Steps) -> bool {
    steps.take(BACKTRACKED + text.len() * text.len() / MAX_BACKTRACKED)
}

/// Charges what compiling and keeping a pattern takes at most.
fn charge(budget: &ReadingBudget, bytes: usize) -> Result<(), String> {
    if bytes > MAX_PATTERN {
        return Err(format!(
            "it would take more than {} MiB of memory",
            MAX_PATTERN >> 20
        ));
    }
    budget.memory(bytes).map_err(|excess| excess.why())
}

fn backtracking(text: &str, size: PatternSize) -> Result<fancy_regex::Regex, String> {
    let regex = fancy_regex::RegexBuilder::new(text)
        .backtrack_limit(MAX_BACKTRACKS)
        .delegate_size_limit(size.automaton())
        .delegate_dfa_size_limit(PART_CACHE)
        .build();
    regex.map_err(|why| why.to_string().replace('\n', " "))
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
            (r"a\Z", "a\n", true),
            (r"a\Z", "a", true),
            (r"a\Z", "a\n\n", false),
            (r"a\z", "a\n", false),
            // The second byte of this character is 0xA0, that of the next one is 0x85.
            (r"^.\h$", "à", true),
            (r"^.[^\h]$", "à", false),
            (r"^.\v$", "Å", true),
            (r"^(?=.).[\h\v]$", "Å", true),
        ] {
            let compiled = Pattern::new(pattern, false, &ReadingBudget::default())
                .unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(
                compiled.is_match(text, &Steps::default()),
                Some(expected),
                "{pattern} on {text}"
            );
        }
        let ignores_case = |pattern, text| {
            Pattern::new(pattern, true, &ReadingBudget::default())
                .unwrap()
                .is_match(text, &Steps::default())
        };
        assert_eq!(ignores_case("ABC", "abc"), Some(true));
        assert_eq!(ignores_case("^(?=.)ABC", "abc"), Some(true));
        assert_eq!(ignores_case("^(?=.)É", "é"), Some(false));
    }

    #[test]
    fn groups_with_look_around_are_byte_ranges() {
        let pattern = Pattern::new("^é(?=.)(..)(x)$", false, &ReadingBudget::default()).unwrap();
        let groups = pattern.groups("ééx", &Steps::default()).unwrap();
        assert_eq!((&groups[1], &groups[2]), (&Some(2..4), &Some(4..5)));
        for (text, whole) in [("^", 0..0), (".*", 0..3), ("^.*", 0..3)] {
            let pattern = Pattern::new(text, false, &ReadingBudget::default()).unwrap();
            assert_eq!(
                pattern.is_match("a\né", &Steps::default()),
                Some(true),
                "{text}"
            );
            let groups = pattern.groups("a\nb", &Steps::default()).unwrap();
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
        let around = Pattern::new("(?=.*x)a", false, &ReadingBudget::default()).unwrap();
        assert_eq!(around.is_match(&long, &Steps::default()), None);
        assert_eq!(around.groups(&long, &Steps::default()), None);
        assert_eq!(around.is_match(&long[1..], &Steps::default()), Some(false));
        // The pattern does not match without its look-around either.
        let certain = Pattern::new("(?=.*x)z", false, &ReadingBudget::default()).unwrap();
        assert_eq!(certain.is_match(&long, &Steps::default()), Some(false));
        assert_eq!(
            Pattern::new("x", false, &ReadingBudget::default())
                .unwrap()
                .is_match(&long, &Steps::default()),
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
                Pattern::new(pattern, false, &ReadingBudget::default()).is_err(),
                "{pattern}"
            );
        }
    }

    #[test]
    fn pattern_with_endless_backtracking_is_undecided() {
        let slow = Pattern::new(r"^((a|\2a)*)*\1b", false, &ReadingBudget::default()).unwrap();
        assert_eq!(slow.is_match(&"a".repeat(60), &Steps::default()), None);
    }

    proptest! {
        #[test]
        fn arbitrary_pattern_does_not_panic(
            pattern in r"(\[|\]|\^|-|\\|a|b|\{|\}|1|,|\(|\)|\?|!|=|<|>|\+|\*|\||\$|é|:){0,14}",
            text in r"[ab\]\[-]{0,8}",
        ) {
            if let Ok(pattern) = Pattern::new(&pattern, false, &ReadingBudget::default()) {
                pattern.is_match(&text, &Steps::default());
                pattern.groups(&text, &Steps::default());
            }
        }
    }
}
