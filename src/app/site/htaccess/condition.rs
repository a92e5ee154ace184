//! Parses and evaluates `RewriteCond` conditions and their `OR` chains.

use std::cmp::Ordering;
use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt;

use super::cost::{LOOKUP, ReadingBudget};
use super::facts::FactsView;
use super::known::leading_number;
use super::parse::{flags_of, raw_words};
use super::pattern::Pattern;
use super::template::{Matched, Template, has_parent_component};

#[derive(Debug)]
pub struct Condition {
    /// None if the text or the pattern is unknown.
    test: Option<(Template, Test)>,
    is_negated: bool,
    is_or: bool,
}

#[derive(Debug)]
enum Test {
    File,
    Directory,
    Link,
    NotEmpty,
    Executable,
    Number(&'static str, i64),
    /// The text is compared literally.
    Text(Ordering, bool, String, bool),
    Pattern(Pattern),
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Other,
    Missing,
}

/// What a look-up has found.
pub struct FileEntry {
    pub kind: FileKind,
    /// None if nothing is there or the metadata cannot be read.
    pub metadata: Option<Metadata>,
}

/// Looks up files by absolute path. All results are None if it is unknown what is there, because
/// permissions or an error prevent the look-up.
pub trait FileLookup {
    /// The type of the requested file.
    fn requested(&self) -> Option<FileKind>;
    fn find(&self, path: &str) -> Option<FileEntry>;
    fn is_link(&self, path: &str) -> Option<bool>;
    /// Records that a path cannot be looked up.
    fn reject(&self);
}

impl Condition {
    /// Parses `RewriteCond`.
    pub(super) fn parse(
        rest: &str,
        budget: &ReadingBudget,
        problems: &mut Vec<String>,
    ) -> Result<Condition, String> {
        let words = raw_words(rest);
        let (text, pattern, flags) = match words.as_slice() {
            [text, pattern] => (text, pattern, ""),
            [text, pattern, flags, ..] => (text, pattern, flags.as_str()),
            _ => return Err("RewriteCond needs a text and a pattern".into()),
        };
        let (mut is_or, mut ignores_case) = (false, false);
        for flag in flags_of(flags)? {
            match flag.to_ascii_lowercase().as_str() {
                "or" | "ornext" => is_or = true,
                "nc" | "nocase" => ignores_case = true,
                "nv" | "novary" => {}
                _ => return Err(format!("unknown flag {flag}")),
            }
        }
        let (is_negated, pattern) = match pattern.strip_prefix('!') {
            Some(pattern) => (true, pattern),
            None => (false, pattern.as_str()),
        };
        let test = match text.eq_ignore_ascii_case("expr") {
            true => Err("expressions are not evaluated".to_owned()),
            false => Template::parse(text)
                .map_err(|what| format!("{what} is unknown"))
                .and_then(|text| Ok((text, Test::parse(pattern, ignores_case, budget)?))),
        };
        Ok(Condition {
            test: test.map_err(|why| problems.push(why)).ok(),
            is_negated,
            is_or,
        })
    }

    pub(super) fn has_rule_groups(&self) -> bool {
        self.test
            .as_ref()
            .is_some_and(|(text, _)| text.has_rule_groups())
    }

    /// Whether the condition sets the groups `%0` to `%9` if it holds.
    fn sets_groups(&self) -> bool {
        let is_pattern = |test: &(Template, Test)| matches!(test.1, Test::Pattern(_));
        !self.is_negated && self.test.as_ref().is_none_or(is_pattern)
    }
}

impl Test {
    /// Whether the test needs a system call.
    fn looks_up(&self) -> bool {
        match self {
            Test::File | Test::Directory | Test::Link | Test::NotEmpty | Test::Executable => true,
            Test::Number(..) | Test::Text(..) | Test::Pattern(_) => false,
        }
    }

    fn kind(&self) -> Option<FileKind> {
        match self {
            Test::File => Some(FileKind::File),
            Test::Directory => Some(FileKind::Directory),
            _ => None,
        }
    }

    fn parse(pattern: &str, ignores_case: bool, budget: &ReadingBudget) -> Result<Test, String> {
        use Ordering::{Equal, Greater, Less};
        match pattern {
            "-f" => return Ok(Test::File),
            "-d" => return Ok(Test::Directory),
            "-l" | "-L" | "-h" => return Ok(Test::Link),
            "-s" => return Ok(Test::NotEmpty),
            "-x" => return Ok(Test::Executable),
            "-F" | "-U" => {
                return Err(format!(
                    "{pattern} needs a subrequest, which is not supported"
                ));
            }
            _ => {}
        }
        for name in ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"] {
            // As in Apache, a test without a number is a pattern.
            if let Some(number) = pattern.strip_prefix(name).filter(|rest| !rest.is_empty()) {
                return Ok(Test::Number(name, leading_number(number)));
            }
        }
        for (sign, order, or_equal) in [
            ("<=", Less, true),
            (">=", Greater, true),
            ("<", Less, false),
            (">", Greater, false),
            ("=", Equal, true),
        ] {
            // As in Apache, `=` alone is a pattern, and `=""` means the empty text.
            if let Some(text) = pattern.strip_prefix(sign).filter(|_| pattern.len() > 1) {
                let text = if text == "\"\"" { "" } else { text };
                return Ok(Test::Text(order, or_equal, text.to_owned(), ignores_case));
            }
        }
        Pattern::new(pattern, ignores_case, budget)
            .map(Test::Pattern)
            .map_err(|why| format!("the pattern {pattern} cannot be evaluated: {why}"))
    }
}

/// Whether all conditions hold, counting an `OR` chain as one. None if the result depends on
/// something unknown. `matched` receives the groups of the last match.
pub(super) fn all_hold(
    all: &[Condition],
    view: &FactsView<'_>,
    files: &dyn FileLookup,
    rule: &Matched,
    matched: &mut Matched,
) -> Option<bool> {
    let mut certain = true;
    for chain in all.split_inclusive(|condition| !condition.is_or) {
        match any_holds(chain, view, files, rule, matched) {
            Some(true) => {}
            Some(false) => return Some(false),
            None => certain = false,
        }
    }
    certain.then_some(true)
}

/// Whether a condition of an `OR` chain holds. The groups become unknown if it is uncertain which
/// condition sets them.
fn any_holds(
    chain: &[Condition],
    view: &FactsView<'_>,
    files: &dyn FileLookup,
    rule: &Matched,
    matched: &mut Matched,
) -> Option<bool> {
    let mut certain = true;
    // Whether a condition that may hold sets groups. Later conditions do not see these, because
    // Apache evaluates them only if that condition does not hold.
    let mut may_set_groups = false;
    for condition in chain {
        let mut found = None;
        let holds = condition.holds(view, files, rule, matched, &mut found);
        if holds == Some(false) {
            continue;
        }
        if holds == Some(true) && certain {
            if let Some(found) = found {
                *matched = found;
            }
            return Some(true);
        }
        certain = false;
        may_set_groups |= condition.sets_groups();
        if holds == Some(true) {
            matched.is_unknown |= may_set_groups;
            return Some(true);
        }
    }
    matched.is_unknown |= may_set_groups;
    // As in Apache, a chain that nothing follows holds.
    certain.then(|| chain.last().is_some_and(|last| last.is_or))
}

impl Condition {
    /// Whether the condition holds. None if that is unknown. `found` receives the groups of a
    /// match.
    fn holds(
        &self,
        view: &FactsView<'_>,
        files: &dyn FileLookup,
        rule: &Matched,
        matched: &Matched,
        found: &mut Option<Matched>,
    ) -> Option<bool> {
        let (template, test) = self.test.as_ref()?;
        let steps = &view.facts.steps;
        if !template.is_known(view, rule, matched) {
            return None;
        }
        if view.filename.is_none()
            && template.is_filename()
            && let Some(kind) = test.kind()
        {
            return Some((files.requested()? == kind) != self.is_negated);
        }
        let text = template.expand(view, rule, matched, None);
        let cost = if test.looks_up() { LOOKUP } else { 1 };
        if !steps.take(cost) || !steps.take_copy(text.len()) {
            return None;
        }
        let kind = |path: &str| files.find(path).map(|entry| entry.kind);
        let holds = match test {
            // Clients could otherwise choose any file.
            _ if test.looks_up()
                && has_parent_component(&text)
                && template.adds_parent_component(view, rule, matched) =>
            {
                files.reject();
                None
            }
            Test::File => kind(&text).map(|kind| kind == FileKind::File),
            Test::Directory => kind(&text).map(|kind| kind == FileKind::Directory),
            Test::NotEmpty => files.find(&text).and_then(|entry| match entry.kind {
                FileKind::File => entry.metadata.map(|found| found.len() > 0),
                _ => Some(false),
            }),
            Test::Executable => files.find(&text).and_then(|entry| match entry.kind {
                FileKind::Missing => Some(false),
                _ => entry
                    .metadata
                    .map(|found| found.permissions().mode() & 0o111 != 0),
            }),
            Test::Link => files.is_link(&text),
            Test::Number(name, number) => {
                let value = leading_number(&text);
                Some(match *name {
                    "-eq" => value == *number,
                    "-ne" => value != *number,
                    "-lt" => value < *number,
                    "-le" => value <= *number,
                    "-gt" => value > *number,
                    _ => value >= *number,
                })
            }
            Test::Text(order, or_equal, other, ignores_case) => {
                let compared = match ignores_case {
                    true => text.to_ascii_lowercase().cmp(&other.to_ascii_lowercase()),
                    // As in Apache, a shorter text sorts first.
                    false => text
                        .len()
                        .cmp(&other.len())
                        .then_with(|| (*text).cmp(other)),
                };
                Some(compared == *order || *or_equal && compared.is_eq())
            }
            Test::Pattern(pattern) => {
                let holds = pattern.is_match(&text, steps);
                if holds == Some(true) && !self.is_negated {
                    let groups = pattern.groups(&text, steps)?;
                    *found = Some(Matched::new(text.into_owned(), groups));
                }
                holds
            }
        };
        Some(holds? != self.is_negated)
    }
}
