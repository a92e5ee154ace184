//! Parses Apache's configuration syntax into a tree of directives and sections, without
//! interpreting them.

use super::cost::ReadingBudget;
use super::space::is_space;

/// More levels than real files use. Bounded, because the parser recurses.
const MAX_DEPTH: usize = 32;

/// A directive, or a section with its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectiveNode {
    /// Starts at 1.
    pub line: u32,
    /// Lower case, without `<`.
    pub name: String,
    /// The text behind the name, without the `>` of a section.
    pub rest: String,
    /// Whether text follows the `>` of the opening tag.
    pub has_text_behind: bool,
    /// None for a directive.
    pub children: Option<Vec<DirectiveNode>>,
    /// Whether text follows the `>` of the closing tag.
    pub has_text_behind_end: bool,
}

/// The line and cause of a syntax error. Apache answers 500 for everything below the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    pub line: u32,
    pub why: String,
}

/// Parses a file. Charges its directives to the budget.
pub(super) fn parse(text: &str, budget: &ReadingBudget) -> Result<Vec<DirectiveNode>, SyntaxError> {
    let mut lines = JoinedLines {
        text,
        line: 0,
        budget,
    };
    Ok(section(&mut lines, None, 0)?.nodes)
}

struct Section {
    nodes: Vec<DirectiveNode>,
    has_text_behind_end: bool,
}

fn section(
    lines: &mut JoinedLines<'_>,
    open: Option<(u32, &str)>,
    depth: usize,
) -> Result<Section, SyntaxError> {
    let mut nodes = Vec::new();
    while let Some((line, text)) = lines.next() {
        let error = |why: String| Err(SyntaxError { line, why });
        let text = trim(&text);
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(end) = text.strip_prefix("</") {
            let (word, behind) = split_name(end);
            let Some(name) = word.strip_suffix('>') else {
                return error(format!("{text} has no closing >"));
            };
            return match open {
                Some((_, open)) if name.eq_ignore_ascii_case(open) => Ok(Section {
                    nodes,
                    has_text_behind_end: !behind.is_empty(),
                }),
                Some((_, open)) => error(format!("{text} closes <{open}>")),
                None => error(format!("{text} closes nothing")),
            };
        }
        let Some(begin) = text.strip_prefix('<') else {
            let (name, rest) = split_name(text);
            lines.charge(line, rest)?;
            nodes.push(DirectiveNode {
                line,
                name: name.to_ascii_lowercase(),
                rest: rest.to_owned(),
                has_text_behind: false,
                children: None,
                has_text_behind_end: false,
            });
            continue;
        };
        // As in Apache, text behind the last `>` is dropped.
        let Some((inside, behind)) = begin.rsplit_once('>') else {
            return error(format!("{text} has no closing >"));
        };
        if depth == MAX_DEPTH {
            return error(format!("sections nest deeper than {MAX_DEPTH}"));
        }
        let (name, rest) = split_name(inside);
        lines.charge(line, rest)?;
        let name = name.to_ascii_lowercase();
        let inner = section(lines, Some((line, &name)), depth + 1)?;
        nodes.push(DirectiveNode {
            line,
            rest: rest.to_owned(),
            has_text_behind: !behind.is_empty(),
            children: Some(inner.nodes),
            has_text_behind_end: inner.has_text_behind_end,
            name,
        });
    }
    match open {
        Some((line, name)) => Err(SyntaxError {
            line,
            why: format!("<{name}> is not closed"),
        }),
        None => Ok(Section {
            nodes,
            has_text_behind_end: false,
        }),
    }
}

fn split_name(text: &str) -> (&str, &str) {
    match text.split_once(is_space) {
        Some((name, rest)) => (name, trim(rest)),
        None => (text, ""),
    }
}

fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Lines with their continuations joined. A backslash before a line's end continues it, even if
/// another backslash precedes it.
struct JoinedLines<'a> {
    text: &'a str,
    line: u32,
    budget: &'a ReadingBudget,
}

impl JoinedLines<'_> {
    fn charge(&self, line: u32, arguments: &str) -> Result<(), SyntaxError> {
        let why = |why| SyntaxError { line, why };
        self.budget
            .directive(arguments)
            .map_err(|excess| why(excess.why()))
    }
}

impl Iterator for JoinedLines<'_> {
    type Item = (u32, String);

    fn next(&mut self) -> Option<(u32, String)> {
        if self.text.is_empty() {
            return None;
        }
        let first = self.line + 1;
        let mut joined = String::new();
        loop {
            let (line, rest) = self.text.split_once('\n').unwrap_or((self.text, ""));
            self.text = rest;
            self.line += 1;
            let line = line.strip_suffix('\r').unwrap_or(line);
            match line.strip_suffix('\\') {
                Some(begun) => {
                    joined.push_str(begun);
                    if self.text.is_empty() {
                        break;
                    }
                }
                None => {
                    joined.push_str(line);
                    break;
                }
            }
        }
        Some((first, joined))
    }
}

/// Splits arguments as most directives do: into words, or quoted texts in which a backslash escapes
/// the quote and itself.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| is_space(*c)).is_some() {}
        let Some(first) = chars.peek().copied() else {
            return words;
        };
        let quote = chars.next_if(|c| matches!(c, '"' | '\'')).map(|_| first);
        let mut word = String::new();
        while let Some(c) = chars.next() {
            match (c, quote) {
                ('\\', _) => match chars.next_if(|next| *next == '\\' || Some(*next) == quote) {
                    Some(next) => word.push(next),
                    None => word.push(c),
                },
                (c, Some(quote)) if c == quote => break,
                (c, None) if is_space(c) => break,
                (c, _) => word.push(c),
            }
        }
        words.push(word);
    }
}

/// Splits arguments as mod_rewrite does: a backslash escapes the next character and is kept.
pub fn raw_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| is_space(*c)).is_some() {}
        let Some(first) = chars.peek().copied() else {
            return words;
        };
        let quote = chars.next_if(|c| matches!(c, '"' | '\'')).map(|_| first);
        let mut word = String::new();
        while let Some(c) = chars.next() {
            match (c, quote) {
                ('\\', _) => {
                    word.push(c);
                    word.extend(chars.next());
                }
                (c, Some(quote)) if c == quote => break,
                (c, None) if is_space(c) => break,
                (c, _) => word.push(c),
            }
        }
        words.push(word);
    }
}

/// Splits the flags of mod_rewrite: `[NC,L]`. Like Apache, rejects empty ones.
pub fn flags_of(text: &str) -> Result<Vec<&str>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let inside = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let Some(inside) = inside else {
        return Err(format!("the flags {text} are not in brackets"));
    };
    let flags: Vec<_> = inside.split(',').map(trim).collect();
    match flags.contains(&"") {
        true => Err(format!("one of the flags {text} is empty")),
        false => Ok(flags),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn file_with_sections_and_continued_lines_becomes_a_tree() {
        let text = "# a \\\nDeny from all\nOrder allow,\\\ndeny\n<Files \"a b\">\n\tRequire  all \
            denied\r\n</FILES>\n";
        let nodes = parse(text, &ReadingBudget::default()).unwrap();
        // As in Apache, a backslash continues a comment.
        let seen: Vec<_> = nodes.iter().map(|n| (n.line, &*n.name, &*n.rest)).collect();
        assert_eq!(seen, [(3, "order", "allow,deny"), (5, "files", "\"a b\"")]);
        let inside = nodes[1].children.as_ref().unwrap();
        assert_eq!(
            (inside[0].line, &*inside[0].rest),
            (6, "all denied"),
            "{inside:?}"
        );
    }

    #[test]
    fn broken_section_is_an_error_with_its_line() {
        for (text, line, why) in [
            ("<Files x>\nDeny from all\n", 1, "not closed"),
            ("</Files>", 1, "closes nothing"),
            ("\n<Files x>\n</FilesMatch>", 3, "closes <files>"),
            ("<Files x", 1, "no closing >"),
            (&"<IfModule x>\n".repeat(100), 33, "nest deeper"),
        ] {
            let error = parse(text, &ReadingBudget::default()).unwrap_err();
            assert!(error.line == line && error.why.contains(why), "{error:?}");
        }
    }

    #[test]
    fn words_are_unquoted_and_raw_words_keep_backslashes() {
        assert_eq!(
            words(r#"a "b \"c\"" 'd e' f\\g \."#),
            ["a", "b \"c\"", "d e", "f\\g", "\\."]
        );
        assert_eq!(
            raw_words(r#""^a b\"$" c\ d [L,E=x:y]"#),
            ["^a b\\\"$", "c\\ d", "[L,E=x:y]"]
        );
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_parsed_or_rejected_with_a_valid_line(
            text in "(<Files x>|</Files>|<If \"|>|\\\\|\n|\r|#|Require all denied|\"|'| |é){0,40}"
        ) {
            let lines = text.split('\n').count() as u32;
            match parse(&text, &ReadingBudget::default()) {
                Ok(nodes) => {
                    prop_assert!(nodes.iter().all(|node| (1..=lines).contains(&node.line)));
                }
                Err(error) => prop_assert!((1..=lines).contains(&error.line), "{:?}", error),
            }
            words(&text);
            raw_words(&text);
        }
    }
}
