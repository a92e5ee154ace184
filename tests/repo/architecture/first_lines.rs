//! Tests that the first line of a file says what the file is responsible for.

use super::{files, sources};

#[test]
fn every_file_has_a_doc_comment() {
    let all = sources(&["src", "crates", "tests", "fuzz", "lab"]);
    let wrong: Vec<_> = all
        .iter()
        .filter(|(_, text)| {
            let said = text.strip_prefix("//! ");
            said.is_none_or(|said| QUESTIONS.contains(&said.split([' ', '\n']).next().unwrap()))
        })
        .map(|(file, _)| file.as_str())
        .collect();
    assert!(
        wrong.is_empty(),
        "the first line must begin with `//! `, and say what the file is responsible for, not what \
         it answers (`What …`, `Where …`):\n{}\n",
        wrong.join("\n")
    );
}

/// The first words of a riddle.
const QUESTIONS: [&str; 9] = [
    "How", "What", "When", "Where", "Whether", "Which", "Who", "Whose", "Why",
];

/// Directories with files of other languages than Rust, most of them with some of Rust, too.
const OTHERS: [&str; 11] = [
    ".ci",
    "crates",
    "examples",
    "fuzz/fuzz_targets",
    "lab",
    "packaging",
    "php",
    "sapi",
    "scripts",
    "src",
    "tests",
];

/// Files of other languages need no first line, but if they have one, it is no riddle either.
#[test]
fn first_comments_of_other_languages_are_no_questions() {
    let all = commented(&OTHERS);
    assert!(all.iter().any(|(file, _)| file == ".ci/run"));
    let wrong: Vec<_> = all
        .iter()
        .filter(|(_, text)| {
            let said = first_comment(text).and_then(|said| said.split_whitespace().next());
            said.is_some_and(|word| QUESTIONS.contains(&word))
        })
        .map(|(file, _)| file.as_str())
        .collect();
    assert!(
        wrong.is_empty(),
        "what these files are responsible for:\n{}\n",
        wrong.join("\n")
    );
}

#[test]
fn first_comment_of_each_language_is_found() {
    for (text, said) in [
        ("#!/bin/sh\n# Where it is.\n", Some("Where it is.")),
        (
            "<?php\n\ndeclare(strict_types=1);\n\n/**\n * What it does. */",
            Some("What it does. */"),
        ),
        ("/* Whether. */", Some("Whether. */")),
        ("\"\"\"How.\"\"\"", Some("How.\"\"\"")),
        ("[engine]\n# Why.\n", None),
        ("", None),
    ] {
        assert_eq!(first_comment(text), said, "{text}");
    }
}

#[test]
fn first_paragraphs_have_at_most_two_lines() {
    let wrong: Vec<_> = commented(&OTHERS)
        .into_iter()
        .filter(|(_, text)| first_paragraph(text) > 2)
        .map(|(file, _)| file)
        .collect();
    assert!(
        wrong.is_empty(),
        "the first paragraph must have at most two lines; more belongs after an empty one:\n{}\n",
        wrong.join("\n")
    );
}

#[test]
fn first_paragraph_ends_at_an_empty_line_or_the_code() {
    for (text, lines) in [
        ("//! One,\n//! two.\n//!\n//! More.\n", 2),
        ("//! One.\n\nuse std::io;\n", 1),
        ("/* One,\n * two,\n * three. */\n#include <stdio.h>\n", 3),
        ("/* One. */\n#include <stdio.h>\n", 1),
        ("<?php\n\n/**\n * One.\n *\n * More.\n */", 1),
        ("#!/bin/sh\n# One,\n# two.\nset -eu\n", 2),
        ("\"\"\"One,\ntwo.\n\nMore.\"\"\"", 2),
        ("\"\"\"One.\"\"\"\nimport os", 1),
        ("fn main() {}", 0),
    ] {
        assert_eq!(first_paragraph(text), lines, "{text}");
    }
}

/// Files of languages that have comments, and their text.
fn commented(directories: &[&str]) -> Vec<(String, String)> {
    let endings = [
        "", "c", "conf", "h", "js", "php", "py", "rs", "sh", "sql", "toml", "yml",
    ];
    files(directories, |path| {
        let ending = path.extension().unwrap_or_default();
        path.is_file() && endings.iter().any(|one| ending == *one)
    })
}

/// If a file begins with a comment.
fn first_comment(text: &str) -> Option<&str> {
    let said = lines(text).next().and_then(comment);
    said.map(str::trim)
}

/// The number of lines of the comment with which a file begins, up to an empty one.
fn first_paragraph(text: &str) -> usize {
    let mut lines = lines(text).peekable();
    let end = match lines.peek() {
        Some(first) if first.starts_with("\"\"\"") => Some("\"\"\""),
        Some(first) if first.starts_with("/*") || first.starts_with('*') => Some("*/"),
        _ => None,
    };
    let mut count = 0;
    for line in lines {
        let said = comment(line).or(end.map(|_| line));
        let Some(said) = said.filter(|said| !said.trim_matches(['/', '!', ' ']).is_empty()) else {
            break;
        };
        count += 1;
        if end.is_some_and(|end| said.contains(end)) {
            break;
        }
    }
    count
}

/// From the first line of a comment or of code on.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let before = ["", "<?php", "declare(strict_types=1);", "/*", "/**"];
    let lines = text.lines().map(str::trim);
    lines.skip_while(move |line| line.starts_with("#!") || before.contains(line))
}

/// The text of a line of a comment.
fn comment(line: &str) -> Option<&str> {
    let markers = ["//", "/**", "/*", "*", "# ", "--", "\"\"\""];
    let said = markers.iter().find_map(|marker| line.strip_prefix(marker));
    said.or((line == "#").then_some(""))
}
