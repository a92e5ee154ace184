//! Matches a single character or class that repeats at least a number of times, such as
//! `([a-z0-9]{2000,})`, without an automaton.
//!
//! Lists against attacks look for long runs of letters. An automaton has a state for each
//! repetition, so it takes megabytes, and each byte of a text may be compared with all of them.

use std::ops::Range;

use regex::bytes::RegexBuilder;

use super::match_groups::Groups;
use super::pcre_syntax::class;
use super::translate::{is_quantifier, translate};

/// A pattern that one loop over the text matches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunLength {
    /// The bytes that a run consists of.
    bytes: Box<[bool; 256]>,
    least: usize,
    most: usize,
    /// Whether the run begins where the text does, and ends where it does.
    is_first: bool,
    is_last: bool,
    /// Whether the first group has the whole match.
    has_group: bool,
}

/// The parts of a pattern that has this form.
struct RunParts<'a> {
    item: &'a str,
    least: usize,
    most: usize,
    is_first: bool,
    is_last: bool,
    has_group: bool,
    ignores_case: bool,
}

impl RunLength {
    /// None for a pattern of another form. `pcre_syntax::check` must have accepted it.
    pub(super) fn new(pcre: &str, ignore_case: bool) -> Option<RunLength> {
        let parts = RunParts::of(pcre)?;
        let (item, _) = translate(parts.item, "", "").ok()?;
        let regex = RegexBuilder::new(&format!(r"\A(?:{item})\z"))
            .unicode(false)
            .dot_matches_new_line(true)
            .case_insensitive(ignore_case || parts.ignores_case)
            .build()
            .ok()?;
        let mut bytes = Box::new([false; 256]);
        for (byte, is_part) in (0..=u8::MAX).zip(bytes.iter_mut()) {
            *is_part = regex.is_match(&[byte]);
        }
        Some(RunLength {
            bytes,
            least: parts.least,
            most: parts.most,
            is_first: parts.is_first,
            is_last: parts.is_last,
            has_group: parts.has_group,
        })
    }

    /// The first match, as `regex` finds it.
    fn find(&self, text: &[u8]) -> Option<Range<usize>> {
        let is_part = |byte: &u8| self.bytes[usize::from(*byte)];
        if self.is_last {
            let run = text.iter().rev().take_while(|byte| is_part(byte)).count();
            let begin = match self.is_first {
                true => 0,
                false => text.len() - run.min(self.most),
            };
            let length = text.len() - begin;
            let is_whole = length <= run && (self.least..=self.most).contains(&length);
            return is_whole.then_some(begin..text.len());
        }
        let mut begin = 0;
        loop {
            let run = text[begin..]
                .iter()
                .take_while(|byte| is_part(byte))
                .count();
            if run >= self.least {
                return Some(begin..begin + run.min(self.most));
            }
            // The byte behind the run is not part of one.
            begin += run + 1;
            if self.is_first || begin > text.len() {
                return None;
            }
        }
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.find(text.as_bytes()).is_some()
    }

    pub(super) fn groups(&self, text: &str) -> Option<Groups> {
        let mut groups = Groups::default();
        let found = self.find(text.as_bytes())?;
        if self.has_group {
            groups[1] = Some(found.clone());
        }
        groups[0] = Some(found);
        Some(groups)
    }
}

impl<'a> RunParts<'a> {
    fn of(pcre: &'a str) -> Option<RunParts<'a>> {
        let (pcre, ignores_case) = without_beginning(pcre, "(?i)");
        let (pcre, is_first) = without_beginning(pcre, "^");
        let (inside, is_last) = match pcre.strip_suffix('$') {
            Some(inside) => (inside, true),
            None => (pcre, false),
        };
        let (repeated, has_group) = match inside.strip_prefix('(') {
            Some(group) => {
                let group = group.strip_suffix(')')?;
                let (group, is_plain) = without_beginning(group, "?:");
                (group, !is_plain)
            }
            None => (inside, false),
        };
        let (item, numbers) = repeated.strip_suffix('}')?.rsplit_once('{')?;
        if !is_quantifier(&repeated[item.len() + 1..]) || !is_item(item) {
            return None;
        }
        let (least, most) = numbers.split_once(',').unwrap_or((numbers, numbers));
        Some(RunParts {
            item,
            least: least.parse().ok()?,
            most: match most {
                "" => usize::MAX,
                most => most.parse().ok()?,
            },
            is_first,
            is_last,
            has_group,
            ignores_case,
        })
    }
}

fn without_beginning<'a>(text: &'a str, beginning: &str) -> (&'a str, bool) {
    match text.strip_prefix(beginning) {
        Some(rest) => (rest, true),
        None => (text, false),
    }
}

/// Whether a text is one character, escaped or not, or one class.
fn is_item(text: &str) -> bool {
    let mut chars = text.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some('['), ..) => class(&text[1..]).is_ok_and(|length| length == text.len() - 1),
        (Some('\\'), Some(escaped), None) => {
            !escaped.is_ascii_alphanumeric() || "dDwWsShvntrfae".contains(escaped)
        }
        (Some(c), None, None) => !r"\^$[](){}|?*+".contains(c),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn groups(pattern: &str, text: &str) -> Option<Groups> {
        RunLength::new(pattern, false).unwrap().groups(text)
    }

    #[test]
    fn repeated_items_are_recognized_and_others_are_not() {
        for pattern in [
            "[a-z0-9]{2000,}",
            "([a-z0-9]{2000,})",
            "(?i)([a-z0-9]{2000,})",
            "(?:a{9})",
            "^.{255,}$",
            r"(\w{3,9})",
            r"\.{3,}",
            r"[\]]{9}",
            "[]a]{9}",
            "[{]{9}",
        ] {
            assert!(RunLength::new(pattern, false).is_some(), "{pattern}");
        }
        for pattern in [
            "",
            "a",
            "a+",
            "ab{9}",
            "(a){9}",
            "(a{9}",
            "a{9})",
            "(a{9})?",
            "(a{9})(b{9})",
            "[a][b]{9}",
            "a{9}|b{9}",
            "(a|b{9})",
            "a{9}?",
            "a{9}+",
            "a{,9}",
            "a{9}{9}",
            "({9}",
            "(?=a{9})",
            "(?<x>a{9})",
            r"\b{9}",
            r"\1{9}",
            r"\{9}",
            "(?i:a{9})",
            r"(a{9}\)",
            r"a{9}\$",
            "^{9}",
            ".{9}.",
        ] {
            assert_eq!(RunLength::new(pattern, false), None, "{pattern}");
        }
    }

    #[test]
    fn first_run_that_is_long_enough_is_found() {
        for (pattern, text, expected) in [
            ("(a{3,})", "aa-aaaa-aaa", Some(3..7)),
            ("a{3}", "aa-aaaa", Some(3..6)),
            ("a{2,3}", "-aaaa", Some(1..4)),
            ("a{3,}", "aa-aa", None),
            ("^a{2,}", "-aa", None),
            ("^a{2,}", "aaa-", Some(0..3)),
            ("a{2,}$", "aaa-", None),
            ("a{2,3}$", "aaaa", Some(1..4)),
            ("^a{2,3}$", "aaaa", None),
            ("^a{2,3}$", "aaa", Some(0..3)),
            ("a{0,}", "baa", Some(0..0)),
            ("a{0,}$", "baa", Some(1..3)),
            ("(?i)[a-z]{2}", "1AB", Some(1..3)),
            (r"\W{2}", "é", Some(0..2)),
            (".{2,}", "\n\n", Some(0..2)),
        ] {
            let found = groups(pattern, text).map(|groups| groups[0].clone().unwrap());
            assert_eq!(found, expected, "{pattern} on {text}");
        }
        assert_eq!(groups("(a{2})", "aa").unwrap()[1], Some(0..2));
        assert_eq!(groups("(?:a{2})", "aa").unwrap()[1], None);
        assert!(RunLength::new("a{2}", true).unwrap().is_match("AA"));
    }

    proptest! {
        #[test]
        fn matches_are_those_of_regex(
            first in "\\^?",
            item in r"(a|\.|[a-b]|\[ab\]|\[\^a\]|\\d|\\\.)",
            least in 0usize..4,
            more in "(,[4-6]?)?",
            last in "\\$?",
            text in "[abB.1]{0,12}",
            ignore_case: bool,
            groups in 0usize..3,
        ) {
            let item = format!("{item}{{{least}{more}}}");
            let (open, close) = [("", ""), ("(", ")"), ("(?:", ")")][groups];
            let pattern = format!("{first}{open}{item}{close}{last}");
            let run = RunLength::new(&pattern, ignore_case).unwrap().groups(&text);
            let regex = RegexBuilder::new(&pattern)
                .unicode(false)
                .case_insensitive(ignore_case)
                .build()
                .unwrap();
            let found = regex.captures(text.as_bytes()).map(|captures| {
                let mut groups = Groups::default();
                for (group, found) in groups.iter_mut().zip(captures.iter()) {
                    *group = found.map(|found| found.range());
                }
                groups
            });
            prop_assert_eq!(run, found, "{} on {}", pattern, text);
        }
    }
}
