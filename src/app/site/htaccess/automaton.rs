//! Matches a pattern in linear time, and keeps the caches of one search, whatever the number of
//! threads.

use std::sync::{Mutex, TryLockError};

use regex_automata::Input;
use regex_automata::meta::{Cache, Regex};
use regex_automata::util::syntax;

use super::match_groups::Groups;
use super::pattern_size::{MAX_KEPT_TEXT, PatternSize};

#[derive(Debug)]
pub(super) struct Automaton {
    regex: Regex,
    /// For one search at a time. Searches on other threads meanwhile have caches of their own, and
    /// free them.
    kept: Mutex<Option<Box<Cache>>>,
}

impl Automaton {
    /// None if `regex` does not support the pattern.
    pub(super) fn new(pattern: &str, ignore_case: bool, size: PatternSize) -> Option<Automaton> {
        let syntax = syntax::Config::new()
            .unicode(false)
            .utf8(false)
            // Apache does both since 2.4.30.
            .dot_matches_new_line(true)
            .case_insensitive(ignore_case);
        let limits = Regex::config()
            .utf8_empty(false)
            // It takes more memory than all else, and finds groups only a little faster.
            .onepass(false)
            .nfa_size_limit(Some(size.automaton()))
            .hybrid_cache_capacity(size.cache());
        let regex = Regex::builder()
            .syntax(syntax)
            .configure(limits)
            .build(pattern);
        Some(Automaton {
            regex: regex.ok()?,
            kept: Mutex::default(),
        })
    }

    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        // A search that ended early would not use the engine whose memory is counted.
        let input = Input::new(text);
        self.search(text, |cache| {
            self.regex.search_half_with(cache, &input).is_some()
        })
    }

    /// The groups of the first match.
    pub(super) fn groups(&self, text: &[u8]) -> Option<Groups> {
        let mut captures = self.regex.create_captures();
        let input = Input::new(text);
        self.search(text, |cache| {
            self.regex
                .search_captures_with(cache, &input, &mut captures);
        });
        let mut groups = Groups::default();
        for (number, group) in groups.iter_mut().enumerate() {
            *group = captures.get_group(number).map(|span| span.range());
        }
        groups[0].is_some().then_some(groups)
    }

    fn search<T>(&self, text: &[u8], search: impl FnOnce(&mut Cache) -> T) -> T {
        let kept = match self.kept.try_lock() {
            // A long text would fill them.
            Ok(kept) if text.len() <= MAX_KEPT_TEXT => Some(kept),
            // A search that panicked may have left them in any state.
            Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) | Ok(_) => None,
        };
        match kept {
            Some(mut kept) => {
                search(kept.get_or_insert_with(|| Box::new(self.regex.create_cache())))
            }
            None => search(&mut self.regex.create_cache()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn automaton(pattern: &str) -> Automaton {
        Automaton::new(pattern, false, PatternSize::of(pattern)).unwrap()
    }

    #[test]
    fn searches_on_many_threads_keep_one_cache_that_is_counted() {
        for pattern in [
            "^(a|%61)(b|%62)(.*)(c|%63)$",
            "(some|Bad|Bot[0-9]+)",
            "(x+x+)+y",
        ] {
            let automaton = automaton(pattern);
            let text = "ab12".repeat(MAX_KEPT_TEXT / 4);
            let searched = || {
                for end in 0..text.len() {
                    automaton.is_match(&text.as_bytes()[end..]);
                    automaton.groups(&text.as_bytes()[end..]);
                }
            };
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(searched);
                }
            });
            let kept = automaton.kept.lock().unwrap();
            let kept = kept.as_ref().unwrap().memory_usage();
            let counted = PatternSize::of(pattern).linear();
            let uses = kept + automaton.regex.memory_usage();
            assert!(uses < counted, "{pattern}: {uses} of {counted}");
        }
    }

    #[test]
    fn caches_in_use_and_long_texts_change_no_result() {
        let automaton = automaton("(a+)(b)?");
        let held = automaton.kept.lock().unwrap();
        assert!(automaton.is_match(b"xaa") && !automaton.is_match(b"x"));
        drop(held);
        let long = "x".repeat(MAX_KEPT_TEXT + 1) + "aa";
        let groups = automaton.groups(long.as_bytes()).unwrap();
        assert_eq!(groups[1], Some(MAX_KEPT_TEXT + 1..long.len()));
        assert_eq!(groups[2], None);
        assert!(automaton.kept.lock().unwrap().is_none());
        assert_eq!(automaton.groups(b"x"), None);
    }
}
