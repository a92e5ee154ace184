//! Estimates from a pattern's text what compiling and keeping it takes.

use super::pcre_syntax::class;
use super::translate::is_quantifier;

/// The largest estimate of a pattern that is compiled, in bytes.
pub(super) const MAX_PATTERN: usize = 6 << 20;

/// The longest pattern that is matched by backtracking, in bytes. Its compiler is not linear.
const MAX_BACKTRACKED: usize = 4 << 10;

/// The longest text, in bytes, for which a pattern may use memory that it keeps. Memory for longer
/// texts is freed at once.
pub(super) const MAX_KEPT_TEXT: usize = 512;

/// The bytes that compiling takes for each byte of an expanded pattern. A letter without case takes
/// 80.
const STATE: usize = 96;

/// The memory of a pattern in addition to its automata.
const OVERHEAD: usize = 8 << 10;

/// The memory of each part of a pattern that may be compiled separately.
const PART: usize = 16 << 10;

/// The largest cache of a lazy automaton, of which a pattern has two, and the least.
const MAX_CACHE: usize = 256 << 10;
const MIN_CACHE: usize = 8 << 10;

/// What a backtracking search notes about the places that it has seen: at most this many bytes.
const MAX_VISITED: usize = 256 << 10;

/// The largest one-pass automaton, which finds groups.
const MAX_ONE_PASS: usize = 1 << 20;

/// The size of a pattern's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatternSize {
    /// The length of the pattern in bytes, with each repetition written out.
    pub(super) expanded: usize,
    length: usize,
    /// The number of groups, capturing or not.
    groups: usize,
    /// The number of parts that may be compiled separately if the pattern needs backtracking.
    parts: usize,
}

impl PatternSize {
    /// Measures a pattern that `pcre_syntax::check` has accepted.
    pub(super) fn of(pcre: &str) -> PatternSize {
        let mut open = Vec::new();
        let mut level = Level::default();
        let (mut groups, mut parts) = (0, 1);
        let mut at = 0;
        while let Some(c) = pcre[at..].chars().next() {
            at += c.len_utf8();
            let rest = &pcre[at..];
            match c {
                '\\' => {
                    let escaped = rest.chars().next();
                    at += escaped.map_or(0, char::len_utf8);
                    if escaped == Some('x') && pcre[at..].starts_with('{') {
                        at += pcre[at..].find('}').map_or(0, |end| end + 1);
                    }
                    // They become groups of look-around.
                    parts += match escaped {
                        Some('b' | 'B') => 8,
                        Some('Z') => 1,
                        _ => 0,
                    };
                    level.item(4);
                }
                '[' => {
                    let length = class(rest).unwrap_or(rest.len());
                    at += length;
                    level.item(length.saturating_add(4));
                }
                '(' => {
                    groups += 1;
                    parts += 1;
                    open.push(std::mem::take(&mut level));
                }
                ')' => {
                    let inside = level.sum().saturating_add(2);
                    level = open.pop().unwrap_or_default();
                    level.item(inside);
                }
                '|' => {
                    parts += 1;
                    level.item(1);
                }
                '*' | '+' | '?' => level.repeat(1),
                '{' if is_quantifier(rest) => {
                    let inside = rest.split('}').next().unwrap_or_default();
                    at += inside.len() + 1;
                    let numbers = inside.split(',').map(|text| text.parse().unwrap_or(0));
                    let more = usize::from(inside.ends_with(','));
                    level.repeat(numbers.max().unwrap_or(0) + more);
                }
                _ => level.item(1),
            }
        }
        // A group that is not closed is an error that the compiler finds.
        let outer = open.iter().map(Level::sum);
        PatternSize {
            expanded: outer.fold(level.sum(), usize::saturating_add),
            length: pcre.len(),
            groups,
            parts,
        }
    }

    /// The limit of an automaton's memory.
    pub(super) fn automaton(&self) -> usize {
        self.expanded.saturating_mul(STATE).saturating_add(2 << 10)
    }

    /// The limit of a lazy automaton's cache.
    pub(super) fn cache(&self) -> usize {
        let cache = self.expanded.saturating_mul(256).saturating_add(MIN_CACHE);
        cache.min(MAX_CACHE)
    }

    /// The memory of the pattern and the caches that are kept for it, if it is matched in linear
    /// time.
    pub(super) fn linear(&self) -> usize {
        // A thread may need them for a long text, and frees them.
        if self.slots() > MAX_PATTERN {
            return self.slots();
        }
        let all = [
            OVERHEAD,
            self.automaton().saturating_mul(2),
            self.cache() * 2,
            self.searched(MAX_KEPT_TEXT, MAX_VISITED),
        ];
        all.into_iter().fold(0, usize::saturating_add)
    }

    /// The same, if it is matched by backtracking. None if the pattern is too long for that.
    pub(super) fn backtracking(&self, longest_text: usize) -> Option<usize> {
        if self.length > MAX_BACKTRACKED {
            return None;
        }
        let all = [
            self.parts.saturating_mul(PART),
            // The parts, and one that finds where a match may begin.
            self.automaton().saturating_mul(4),
            self.searched(longest_text, usize::MAX),
            self.one_pass(),
        ];
        Some(all.into_iter().fold(0, usize::saturating_add))
    }

    /// What searches note. Where a text is too long for one kind of search, another one notes the
    /// groups for each state.
    fn searched(&self, longest_text: usize, max_visited: usize) -> usize {
        let visited = (self.expanded.saturating_mul(2)).saturating_mul(longest_text) / 8;
        let slots = match visited > MAX_VISITED {
            true => self.slots(),
            false => 0,
        };
        visited.min(max_visited).saturating_add(slots)
    }

    fn slots(&self) -> usize {
        (self.expanded.saturating_mul(64)).saturating_mul(self.groups + 1)
    }

    fn one_pass(&self) -> usize {
        if self.groups == 0 {
            return 0;
        }
        // Each character adds at most two classes of bytes.
        let classes = self.expanded.saturating_mul(2).min(512).next_power_of_two();
        let automaton = self.expanded.saturating_mul(classes).saturating_mul(8);
        automaton.min(MAX_ONE_PASS)
    }
}

/// The items of an open group.
#[derive(Debug, Default)]
struct Level {
    before: usize,
    last: usize,
}

impl Level {
    fn item(&mut self, size: usize) {
        self.before = self.sum();
        self.last = size;
    }

    fn repeat(&mut self, times: usize) {
        let once = self.last.saturating_add(1);
        self.last = once.saturating_mul(times.max(1));
    }

    fn sum(&self) -> usize {
        self.before.saturating_add(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_written_out() {
        for (pattern, least, most) in [
            ("abc", 3, 3),
            ("a{99}", 99, 200),
            ("(?:a{99}){300}", 29_700, 61_000),
            ("(a{99}){9999}", 989_901, 3_000_000),
            ("((a{9}){9}){9}", 729, 3_000),
            ("(a|b){2,9}c", 18, 60),
            ("a{5,}", 6, 12),
            (r"\x{41}{9}", 9, 45),
            ("[a-z]{9}", 9, 90),
            ("a{,9}", 5, 5),
            (r"\{9}", 4, 7),
            ("(a{99}", 99, 200),
            (
                "(((((((a{65535}){65535}){65535}){65535}){65535}){65535}){65535})",
                1 << 40,
                usize::MAX,
            ),
        ] {
            let size = PatternSize::of(pattern).expanded;
            assert!((least..=most).contains(&size), "{pattern}: {size}");
        }
    }

    #[test]
    fn usual_patterns_are_small_and_hostile_ones_too_large() {
        for pattern in [
            r"^wp-content/uploads/.*\.(?:php[1-6]?|pht|phtml?)$",
            r"(^|/)\.(?!well-known)",
            r"^(?!index\.php|robots\.txt).*\bfoo\b",
        ] {
            let size = PatternSize::of(pattern);
            let needed = size
                .linear()
                .max(size.backtracking(2048).unwrap_or(usize::MAX));
            assert!(needed < MAX_PATTERN / 4, "{pattern}: {needed}");
        }
        let bots = format!("^.*({}).*$", ["SomeBadBot"; 900].join("|"));
        assert!(PatternSize::of(&bots).linear() < MAX_PATTERN);
        assert!(PatternSize::of(&"(a)".repeat(500)).linear() > MAX_PATTERN);
        for pattern in [
            "(?=(?:a{99}){300})",
            "(a{99}){9999}",
            "(?=.{65535})",
            &"(?=a)".repeat(400),
            &r"\b".repeat(100),
        ] {
            let needed = PatternSize::of(pattern).backtracking(2048);
            assert!(
                needed.is_none_or(|needed| needed > MAX_PATTERN),
                "{pattern}"
            );
        }
    }
}
